"""The ops, one file a family; every forward stands beside its gradient."""

from cartograd.ops import bounds as bounds
from cartograd.ops import classes as classes
from cartograd.ops import conv as conv
from cartograd.ops import cumulative as cumulative
from cartograd.ops import elementary as elementary
from cartograd.ops import elementwise as elementwise
from cartograd.ops import layernorm as layernorm
from cartograd.ops import likelihood as likelihood
from cartograd.ops import loss as loss
from cartograd.ops import maxpool as maxpool
from cartograd.ops import norm as norm
from cartograd.ops import pool as pool
from cartograd.ops import powers as powers
from cartograd.ops import ranking as ranking
from cartograd.ops import reduce as reduce
from cartograd.ops import selection as selection
from cartograd.ops import special as special
from cartograd.ops import unpool as unpool
from cartograd.ops import vector_norm as vector_norm
