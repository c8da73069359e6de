"""PaCMAP's kernel against torch in float64, and a fit by both."""

import numpy
import pytest
import torch

from cartograd import PACMAP
from cartograd.embedding import kernel_rows
from cartograd.embedding.pair_rows import PairRows
from cartograd.neighbors.workers import all_cores

N = 1300


def kinds(mid=3):
    generator = torch.Generator().manual_seed(0)
    return [(torch.arange(N)[:, None] + torch.randint(1, N, (N, m), generator=generator)) % N for m in (6, mid, 11)]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("mid", [0, 3])
def test_gradient_is_that_of_the_losses(scale, mid):
    pairs, forces = kinds(mid), ((20.0, 11.0), (3e4, 10001.0), (-1.3, 2.0))
    Z = torch.randn(N, 2, generator=torch.Generator().manual_seed(1)) * scale
    wide = Z.double().requires_grad_()
    sums = [(1 / (b + (wide[:, None] - wide[others]).square().sum(2))).sum() for others, (_, b) in zip(pairs, forces)]
    (-sum(a * part for part, (a, _) in zip(sums, forces))).backward()
    gradient, inverse = PairRows(pairs).gradient(Z, forces)
    assert float((gradient.double() - wide.grad).abs().max()) < 1e-5 * float(wide.grad.abs().max())
    assert inverse == pytest.approx([float(part.detach()) for part in sums], rel=1e-5)


def test_same_bits_for_any_threads(monkeypatch):
    monkeypatch.setattr(kernel_rows, "LEAST_RANGE", 256)
    Z = torch.randn(N, 2, generator=torch.Generator().manual_seed(1))
    found, before = [], torch.get_num_threads()
    for threads in (1, 2, 4):
        torch.set_num_threads(threads)
        try:
            with all_cores(Z.device):
                found.append(PairRows(kinds()).gradient(Z, ((2.0, 11.0), (3.0, 10001.0), (-1.0, 2.0))))
        finally:
            torch.set_num_threads(before)
    for gradient, inverse in found[1:]:
        assert torch.equal(gradient, found[0][0])
        assert inverse == found[0][1]


@pytest.mark.parametrize("options", [{}, {"MN_ratio": 0.0, "repulsion_strength": 0.5}])
def test_a_fit_by_the_kernel_follows_the_one_by_torch(options, monkeypatch):
    X = numpy.random.RandomState(0).rand(400, 5).astype("float32")
    maps = []
    for least in (100, 10**9):
        monkeypatch.setattr(kernel_rows, "LEAST_ROWS", least)
        maps.append(PACMAP(max_iter=15, iter_per_phase=5, check_interval=4, random_state=1, **options).fit(X))
    ours, torchs = maps
    assert numpy.abs(ours.embedding_ - torchs.embedding_).max() < 2e-2 * numpy.abs(torchs.embedding_).max()
    assert ours.loss_ == pytest.approx(torchs.loss_, rel=1e-4)
