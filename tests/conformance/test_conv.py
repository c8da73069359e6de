"""OpInfo parity of ops/conv.py."""

import pytest
from harness import check_entry, entries

NAMES = [f"nn.functional.conv{kind}{dims}d" for kind in ("", "_transpose") for dims in (1, 2, 3)]


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
@pytest.mark.parametrize("entry", entries(NAMES))
def test_matches_torch(entry):
    check_entry(entry)
