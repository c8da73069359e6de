"""The kernels of LargeVis and InfoTSNE against torch in float64, and fits by both."""

import numpy
import pytest
import torch

from cartograd import InfoTSNE, LargeVis
from cartograd.embedding import kernel_rows
from cartograd.embedding.sampled_rows import Kind, SampledRows
from cartograd.embedding.sampling import Complement
from cartograd.neighbors import Graph
from cartograd.neighbors.workers import all_cores

CPU = torch.device("cpu")
N = 1100


def graph():
    generator = torch.Generator().manual_seed(0)
    columns = (torch.arange(N)[:, None] + torch.randint(1, N, (N, 12), generator=generator)) % N
    return Graph.from_knn(columns, torch.rand(N, 12, generator=generator) / N / 12).symmetrise("mean")


def expected(edges, Z, kind, seed, step, pull, strength):
    """The gradient by torch's autograd from the losses as they are written down."""
    Z = Z.double().requires_grad_()
    s = (Z[edges.rows()] - Z[edges.indices]).square().sum(1)
    attraction = (edges.weights.double() * torch.log(kind.c + s)).sum()
    others = Complement.of_self(N, CPU).draw_all(kind.count, seed, step)
    s = (Z[:, None] - Z[others]).square().sum(2)
    if kind.contrast:
        repulsion = torch.log((1 / (1 + s)).sum(1)).sum() / N
    else:
        repulsion = (torch.log(2 + s) - torch.log1p(s)).sum() / N
    (pull * attraction + strength * repulsion).backward()
    return Z.grad, (float(attraction.detach()), float(repulsion.detach()))


@pytest.mark.parametrize("kind", [Kind(2.0, False, 5), Kind(1.0, True, 30), Kind(1.0, True, 7), Kind(2.0, False, 1)])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 300.0])
def test_gradient_and_losses(kind, scale):
    edges = graph()
    Z = torch.randn(N, 2, generator=torch.Generator().manual_seed(1)) * scale
    rows = SampledRows(edges, kind, seed=4)
    gradient, losses = expected(edges, Z, kind, 4, 6, 3.0, 0.7)
    found = rows.gradient(Z, 6, 3.0, 0.7).double()
    assert float((found - gradient).abs().max()) < 2e-6 * float(gradient.abs().max())
    assert rows.losses(Z, 6) == pytest.approx(losses, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("contrast", [False, True])
def test_same_bits_for_any_threads(contrast):
    edges = graph()
    Z = torch.randn(N, 2, generator=torch.Generator().manual_seed(1))
    found, before = [], torch.get_num_threads()
    for threads in (1, 2, 4):
        torch.set_num_threads(threads)
        try:
            with all_cores(CPU):
                found.append(SampledRows(edges, Kind(1.0, contrast, 9), 1).gradient(Z, 2, 1.0, 1.0))
        finally:
            torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.parametrize("method", [LargeVis, InfoTSNE])
def test_a_fit_by_the_kernel_follows_the_one_by_torch(method, monkeypatch):
    X = numpy.random.RandomState(0).rand(500, 5).astype("float32")
    maps = []
    for least in (100, 10**9):
        monkeypatch.setattr(kernel_rows, "LEAST_ROWS", least)
        maps.append(method(perplexity=8, max_iter=12, n_negatives=6, check_interval=5, random_state=1).fit(X))
    ours, torchs = maps
    assert numpy.abs(ours.embedding_ - torchs.embedding_).max() < 1e-3 * numpy.abs(torchs.embedding_).max()
    assert ours.loss_ == pytest.approx(torchs.loss_, rel=1e-4)


def test_who_wants_the_random_rows_gets_them(monkeypatch):
    monkeypatch.setattr(kernel_rows, "LEAST_ROWS", 100)
    drawn = []

    class Probe(LargeVis):
        def on_training_step_start(self):
            drawn.append(self.neg_indices_.shape)

    Probe(perplexity=8, max_iter=2).fit(numpy.random.RandomState(0).rand(300, 5).astype("float32"))
    assert drawn == [(300, 5)] * 2


def test_divergence_names_step_term_and_row(monkeypatch):
    from cartograd.errors import DivergedError

    gradient = SampledRows.gradient

    def spoilt(self, Z, step, *factors):
        found = gradient(self, Z, step, *factors)
        found[17] = torch.nan if step == 3 else found[17]
        return found

    monkeypatch.setattr(kernel_rows, "LEAST_ROWS", 100)
    monkeypatch.setattr(SampledRows, "gradient", spoilt)
    X = numpy.random.RandomState(0).rand(300, 5).astype("float32")
    with pytest.raises(DivergedError, match="in the repulsion at step 3, row 17") as caught:
        LargeVis(perplexity=8, max_iter=20).fit(X)
    assert numpy.isfinite(caught.value.embedding).all()
