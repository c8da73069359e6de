"""OpInfo parity of ops/reduce.py, vector_norm.py, cumulative.py and selection.py."""

import pytest
from harness import check_entry, entries

NAMES = [
    "sum", "mean", "nansum", "nanmean", "prod", "amax", "amin", "logsumexp",
    "var", "std", "var_mean", "std_mean",
    "norm", "linalg.vector_norm",
    "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin",
    "aminmax", "median", "nanmedian", "mode", "kthvalue", "topk", "sort", "msort",
    "max", "min",
]  # fmt: skip


@pytest.mark.parametrize("entry", entries(NAMES))
def test_matches_torch(entry):
    check_entry(entry, own=entry.variant_test_name != "nuc")  # the nuclear norm is torch's


@pytest.mark.parametrize("entry", entries(["linalg.norm"]))
def test_matches_torch_also_where_matrix_norms_are_torchs_own(entry):
    check_entry(entry, own=False)
