"""OpInfo parity of ops/pool.py, ops/maxpool.py and ops/unpool.py."""

import pytest
from harness import check_entry, entries

NAMES = [
    f"nn.functional.{kind}{dims}d"
    for kind in ("avg_pool", "adaptive_avg_pool", "max_pool", "adaptive_max_pool", "max_unpool")
    for dims in (1, 2, 3)
] + ["nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d"]


@pytest.mark.parametrize("entry", entries(NAMES))
def test_matches_torch(entry):
    check_entry(entry, cap=40)
