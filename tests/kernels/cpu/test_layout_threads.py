"""Maps made by kernels: the same bits at any number of threads, and numba stays away from small ones."""

import subprocess
import sys

import numpy
import pytest
import torch

from cartograd import PACMAP, UMAP, InfoTSNE, LargeVis
from cartograd.embedding import kernel_rows

ROWS = numpy.random.RandomState(0).rand(1500, 6).astype("float32")
METHODS = [
    UMAP(n_neighbors=10, max_iter=25, check_interval=10, random_state=3),
    LargeVis(perplexity=6, max_iter=8, random_state=3),
    InfoTSNE(perplexity=6, max_iter=6, n_negatives=21, random_state=3),
    PACMAP(max_iter=12, iter_per_phase=4, random_state=3),
]


@pytest.mark.parametrize("estimator", METHODS, ids=lambda one: type(one).__name__)
def test_same_bits_at_any_number_of_threads(estimator, monkeypatch):
    monkeypatch.setattr(kernel_rows, "LEAST_ROWS", 1000)
    monkeypatch.setattr(kernel_rows, "LEAST_RANGE", 256)
    maps, losses, before = [], [], torch.get_num_threads()
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            maps.append(estimator.fit_transform(ROWS))
            losses.append(estimator.loss_)
    finally:
        torch.set_num_threads(before)
    assert all(numpy.array_equal(one, maps[0]) for one in maps[1:])
    assert all(one == losses[0] for one in losses[1:])


def test_small_maps_do_without_numba():
    program = (
        "import sys, numpy; from cartograd import PACMAP, UMAP, InfoTSNE, LargeVis\n"
        "X = numpy.random.RandomState(0).rand(1797, 8).astype('float32')\n"
        "for kind in (UMAP, LargeVis, InfoTSNE, PACMAP): kind(max_iter=2).fit(X)\n"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
