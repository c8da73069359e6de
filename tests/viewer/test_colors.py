"""The palette can be told apart, also by colour-blind readers."""

import numpy as np
import pytest

from cartograd.viewer.colors import MISSING, PALETTE, SCALE

# Machado, Oliveira and Fernandes (2009), full severity, on linear RGB
SEEN = {
    "ordinary": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
# Ottosson (2020): linear RGB to cone responses, their cube roots to OKLab
CONES = [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
]
OKLAB = [
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
]


def oklab(colors, vision="ordinary"):
    rgb = np.array([[int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)] for color in colors])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(linear @ np.transpose(SEEN[vision]), 0, 1)
    return np.cbrt(seen @ np.transpose(CONES)) @ np.transpose(OKLAB)


def least_distance(colors, vision):
    lab = oklab(colors, vision)
    apart = np.linalg.norm(lab[:, None] - lab[None], axis=-1)
    return apart[np.triu_indices(len(lab), 1)].min()


@pytest.mark.parametrize(
    ("vision", "ten", "all_of_them"),
    [("ordinary", 0.11, 0.065), ("protan", 0.11, 0.065), ("deutan", 0.11, 0.065), ("tritan", 0.07, 0.04)],
)
def test_categories_are_apart(vision, ten, all_of_them):
    assert least_distance(PALETTE[:10], vision) > ten
    assert least_distance(PALETTE, vision) > all_of_them
    matplotlib_cycle = "#1f77b4 #ff7f0e #2ca02c #d62728 #9467bd #8c564b #e377c2 #7f7f7f #bcbd22 #17becf".split()
    assert least_distance(PALETTE[:10], vision) > least_distance(matplotlib_cycle, vision)


@pytest.mark.parametrize("ground", ["#fbfaf7", "#101317"])
def test_nothing_vanishes_into_either_ground(ground):
    apart = np.linalg.norm(oklab([*PALETTE, *SCALE, MISSING]) - oklab([ground]), axis=1)
    assert apart.min() > 0.15


@pytest.mark.parametrize("vision", list(SEEN))
def test_the_scale_grows_lighter_all_the_way(vision):
    assert (np.diff(oklab(SCALE, vision)[:, 0]) > 0.02).all()
