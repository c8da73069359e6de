"""The ops, one file a family; every forward stands beside its gradient."""

from cartograd.ops import elementwise as elementwise
