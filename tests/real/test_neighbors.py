"""Neighbour search on real data: `auto` and `cells` find 95 % of the true neighbours on every shared data set."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from cartograd.neighbors import Graph, search

FOLDER = Path(os.environ.get("CARTOGRAD_DATA", Path(__file__).parents[3] / "shared" / "data"))
NAMES = [
    "cbmc_citeseq_pca50",
    "coil20",
    "fashion_mnist",
    "flow_cytometry_19k",
    "pbmc68k_reduced_pca50",
    "wordnet_glosses_minilm",
    "zeisel_brain_pca50",
]


def load(name):
    path = FOLDER / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"{path} is not there; set CARTOGRAD_DATA to the folder of the data sets")
    X = np.load(path)["X"]
    return X.astype(np.float32) / (255 if X.dtype == np.uint8 else 1)


def recall(X, indices, count=500):
    """Against float64 distances from a random part of the rows to all."""
    rows = np.random.default_rng(0).choice(len(X), min(count, len(X)), replace=False)
    data = torch.from_numpy(X).double()
    data -= data.mean(0)
    apart = torch.cdist(data[rows], data)
    apart[torch.arange(len(rows)), rows] = torch.inf
    wanted = apart.topk(indices.shape[1], dim=1, largest=False).indices.numpy()
    return np.mean([len(set(a) & set(b)) for a, b in zip(indices[rows].tolist(), wanted.tolist(), strict=True)]) / 15


@pytest.mark.parametrize("name", NAMES)
def test_auto_finds_the_neighbours(name):
    X = load(name)
    indices, distances = search(X, 15)
    found = recall(X, indices)
    print(f"{name}: recall@15 {found:.4f}")
    assert found >= 0.95
    if len(X) <= 16_000:
        assert found >= 0.9999
    assert (np.diff(distances, axis=1) >= 0).all()
    assert (indices != np.arange(len(X))[:, None]).all()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "fashion_mnist"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_cells_find_the_neighbours_of_smaller_sets(name, metric):
    X = load(name)
    indices, _ = search(X, 15, metric=metric, backend="cells")
    if metric == "cosine":
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
    found = recall(X, indices)
    print(f"{name}, {metric}: recall@15 {found:.4f}")
    assert found >= 0.95


def test_a_shift_of_ten_thousand_changes_nothing():
    X = load("wordnet_glosses_minilm")[:6000].astype(np.float64) + 1e4
    single = X.astype(np.float32)
    indices, _ = search(single, 15, backend="exact")
    exact = torch.from_numpy(single).double()
    apart = torch.cdist(exact[:800], exact, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(torch.inf)
    wanted = torch.sort(apart, dim=1, stable=True).indices[:, :15].numpy()
    assert (indices[:800] == wanted).mean() >= 0.999


def test_closed_loops_stay_apart_and_can_be_joined():
    """COIL-20: each object's pictures are a closed loop, many of them far from all others."""
    X = load("coil20")
    graph = Graph.from_knn(*search(X, 3)).symmetrise("max")
    assert graph.connected_components()[0] > 5
    assert graph.join_components(X).connected_components()[0] == 1
