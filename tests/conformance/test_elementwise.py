"""OpInfo parity of ops/elementwise.py."""

import pytest
from harness import check_entry, entries

NAMES = ["add", "sub", "mul", "neg", "exp"]


@pytest.mark.parametrize("entry", entries(NAMES))
def test_matches_torch(entry):
    check_entry(entry)
