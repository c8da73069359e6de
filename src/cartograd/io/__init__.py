"""Reading tables and arrays, writing them, and models in files."""

from cartograd.io.atomic import open_atomic as open_atomic
from cartograd.io.atomic import replacing as replacing
from cartograd.io.model import load_model as load_model
from cartograd.io.model import save_model as save_model
from cartograd.io.reading import read as read
from cartograd.io.registry import register as register
from cartograd.io.table import Table as Table
from cartograd.io.writing import write_table as write_table

__all__ = ["Table", "load_model", "open_atomic", "read", "register", "replacing", "save_model", "write_table"]
