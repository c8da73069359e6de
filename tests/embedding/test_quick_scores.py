"""Scores in single precision against scikit-learn's, and the data for which there are none."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from cartograd.embedding.quick_scores import quickly
from cartograd.neighbors.rows import TensorRows


def table(n=3000, d=400, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, d)) * 0.9 ** np.arange(d) * 5 + rng.normal(size=d)).astype(np.float32)


def test_scores_of_scikit_learn():
    X = table()
    scores = quickly(TensorRows(torch.from_numpy(X)), 2, 0, 1e-3)
    wanted = PCA(2, svd_solver="full").fit_transform(X.astype(np.float64))
    assert scores.dtype == torch.float64
    assert min(np.abs(scores.numpy() * [a, b] - wanted).max() for a in (1, -1) for b in (1, -1)) < 2e-3 * wanted.std()


def test_same_bits_at_any_thread_count():
    from cartograd.neighbors.workers import all_cores

    rows, threads = TensorRows(torch.from_numpy(table())), torch.get_num_threads()
    try:
        found = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            with all_cores(rows.device):
                found.append(quickly(rows, 2, 0, 1e-3))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X + 1e5,
        lambda X: X * 1e20,
        lambda X: X * 1e-20,
        lambda X: X * 0,
        lambda X: X.double(),
        lambda X: X[:, :9],
    ],
    ids=["far away", "large", "small", "nothing", "float64", "narrow"],
)
def test_left_to_double_precision(change):
    assert quickly(TensorRows(change(torch.from_numpy(table(600)))), 2, 0, 1e-3) is None
