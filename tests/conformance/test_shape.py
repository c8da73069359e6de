"""OpInfo parity of ops/shape.py, joining.py and rearrange.py."""

import pytest
from harness import check_entry, entries
from torch.utils._pytree import tree_map

NAMES = [
    "view", "view_as", "reshape", "reshape_as", "ravel", "flatten", "unflatten", "squeeze", "unsqueeze",
    "transpose", "t", "T", "mT", "H", "mH", "permute", "movedim",
    "expand", "expand_as", "broadcast_to", "broadcast_tensors", "sum_to_size", "meshgrid",
    "cat", "stack", "hstack", "vstack", "dstack", "column_stack", "atleast_1d", "atleast_2d", "atleast_3d",
    "split", "split_with_sizes", "tensor_split", "chunk", "unsafe_split", "unsafe_chunk", "unbind",
    "repeat", "tile", "repeat_interleave", "flip", "fliplr", "flipud", "roll", "rot90", "tril", "triu",
    "diagonal", "linalg.diagonal", "diag", "diag_embed", "diagflat",
    "narrow", "select", "unfold", "contiguous",
]  # fmt: skip


MAY_RETURN_ITS_INPUT = ["flatten", "sum_to_size", "atleast_1d", "atleast_2d", "atleast_3d", "contiguous"]


@pytest.mark.parametrize("entry", entries(NAMES))
def test_matches_torch(entry):
    def call(*args, **options):
        return tree_map(lambda one: one * 2, entry.op(*args, **options))

    # What comes back may be the leaf itself: a node on top of it lets the check look at the graph.
    check_entry(entry, call if entry.name in MAY_RETURN_ITS_INPUT else None)
