"""OpInfo parity of ops/geometry.py."""

import pytest
from harness import check_entry, entries

NAMES = [
    "cdist",
    "dist",
    "nn.functional.pdist",
    "nn.functional.pairwise_distance",
    "nn.functional.cosine_similarity",
    "nn.functional.normalize",
]


@pytest.mark.parametrize("entry", entries(NAMES))
def test_matches_torch(entry):
    check_entry(entry)
