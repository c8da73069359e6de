"""OpInfo parity of ops/indexing.py, ops/scatter.py and ops/embedding.py."""

import operator

import pytest
from harness import check_entry, entries

NAMES = [
    "index_select",
    "gather",
    "take",
    "take_along_dim",
    "masked_select",
    "where",
    "scatter",
    "scatter_add",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "put",
    "masked_fill",
    "masked_scatter",
    "nn.functional.embedding",
    "nn.functional.embedding_bag",
]
# By torch's own derivative: nothing of ours, but it has to work.
FALLBACK = ["scatter_reduce", "index_reduce", "bucketize", "searchsorted", "argwhere"]


@pytest.mark.parametrize("entry", entries(NAMES))
def test_matches_torch(entry):
    check_entry(entry)


@pytest.mark.parametrize("entry", entries(["__getitem__"]))
def test_brackets_match_torch(entry):
    check_entry(entry, call=operator.getitem)


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("entry", entries(FALLBACK))
def test_matches_torch_through_its_own_derivative(entry):
    check_entry(entry, own=False, cap=20)
