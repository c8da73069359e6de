"""OpInfo parity of ops/products.py, ops/addmm.py, ops/einsum.py and ops/linalg.py."""

import pytest
from harness import check_entry, entries

NAMES = [
    "matmul",
    "__rmatmul__",
    "mm",
    "bmm",
    "mv",
    "dot",
    "vdot",
    "inner",
    "outer",
    "addmm",
    "addmv",
    "addr",
    "addbmm",
    "baddbmm",
    "nn.functional.linear",
    "nn.functional.bilinear",
    "einsum",
    "tensordot",
    "kron",
    "linalg.multi_dot",
    "linalg.vecdot",
    "trace",
    "cross",
    "linalg.cross",
    "linalg.det",
    "linalg.slogdet",
    "logdet",
    "linalg.inv",
    "linalg.solve",
    "cholesky",
    "linalg.cholesky",
]
# By torch's own derivative: nothing of ours, but it has to work.
FALLBACK = ["linalg.eigh", "linalg.svd", "linalg.qr", "linalg.pinv", "linalg.matrix_power", "linalg.solve_triangular"]


@pytest.mark.filterwarnings("ignore:Using torch.cross without", "ignore:torch.cholesky is deprecated")
@pytest.mark.parametrize("entry", entries(NAMES))
def test_matches_torch(entry):
    check_entry(entry)


@pytest.mark.filterwarnings("ignore:torch.qr is deprecated")
@pytest.mark.parametrize("entry", entries(FALLBACK))
def test_matches_torch_through_its_own_derivative(entry):
    check_entry(entry, own=False, cap=20)
