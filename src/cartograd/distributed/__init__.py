"""Several processes that make one map together, on ``torch.distributed``; and fits that survive a kill."""

from cartograd.distributed.group import Ranks, find_ranks
from cartograd.distributed.part import Part
from cartograd.distributed.ranges import row_bounds
from cartograd.distributed.rows import all_rows

__all__ = ["Part", "Ranks", "all_rows", "find_ranks", "row_bounds"]
