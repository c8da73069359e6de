"""cartograd: maps of data by gradient descent, on an autodiff engine of its own."""

from cartograd import errors as errors
from cartograd import ops as ops
from cartograd.engine import *  # noqa: F403
from cartograd.ops.neighbors import knn as knn
