"""OpInfo parity of ops/attention.py and ops/attention_kernels.py."""

import pytest
from harness import check_entry, entries

NAMES = ["nn.functional.scaled_dot_product_attention", "nn.functional.multi_head_attention_forward"]


@pytest.mark.parametrize("entry", entries(NAMES))
def test_matches_torch(entry):
    check_entry(entry)
