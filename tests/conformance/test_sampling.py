"""OpInfo parity of ops/sampling.py, ops/gridsample.py and ops/padding.py."""

import pytest
from harness import check_entry, entries

NAMES = [
    "constant_pad_nd",
    "grid_sampler_2d",
    "grid_sampler_3d",
    "nn.functional.channel_shuffle",
    "nn.functional.grid_sample",
    "nn.functional.interpolate",
    "nn.functional.pad",
    "nn.functional.pixel_shuffle",
    "nn.functional.pixel_unshuffle",
    "nn.functional.unfold",
    "nn.functional.upsample_bilinear",
    "nn.functional.upsample_nearest",
]


@pytest.mark.filterwarnings("ignore:`nn.functional.upsample_.*` is deprecated:UserWarning")
@pytest.mark.parametrize("entry", entries(NAMES))
def test_matches_torch(entry):
    check_entry(entry)
