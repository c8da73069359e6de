"""t-SNE's attraction by kernels against its plain version in torch."""

import pytest
import torch

from cartograd import TSNE
from cartograd.embedding.forces.compiled_edges import CompiledEdges
from cartograd.embedding.forces.edges import EdgeBlocks, tsne_attraction, tsne_attraction_loss
from cartograd.neighbors import Graph
from cartograd.neighbors.workers import all_cores

CPU = torch.device("cpu")


def graph(n=3000, seed=0):
    """Symmetric, with rows of 1 to n - 1 edges, and one row without any."""
    print("seed", seed)
    draw = torch.Generator().manual_seed(seed)
    rows = torch.arange(n).repeat_interleave(60)
    columns = torch.randint(0, n - 1, (len(rows),), generator=draw)
    rows, columns = torch.cat([rows, torch.full((n,), 5)]), torch.cat([columns, torch.arange(n)])
    kept = (rows != columns) & (rows < n - 1) & (columns < n - 1)
    values = torch.rand(len(rows), generator=draw)[kept]
    return Graph.from_edges(rows[kept], columns[kept], values, n).symmetrise().normalise("total")


@pytest.mark.parametrize("scale", [1e-4, 1.0, 100.0])
def test_gradient_and_loss_are_those_of_torch(scale):
    P = graph()
    Z = scale * torch.randn(P.n, 2, generator=torch.Generator().manual_seed(1))
    edges, exact = CompiledEdges(P), EdgeBlocks.of(P.to(dtype=torch.float64))
    found, expected = edges.attraction(Z), tsne_attraction(Z.double(), exact)
    assert float((found - expected).norm() / expected.norm()) < 1e-6
    assert float(found[-1].abs().max()) == 0.0
    assert float(edges.loss(Z)) == pytest.approx(float(tsne_attraction_loss(Z.double(), exact)), rel=1e-6)


def test_the_same_bits_at_any_thread_count():
    P = graph(5000)
    Z = torch.randn(P.n, 2, generator=torch.Generator().manual_seed(1))
    before, runs = torch.get_num_threads(), []
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            with all_cores(CPU):
                edges = CompiledEdges(P)
                runs.append((edges.attraction(Z), edges.loss(Z)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(run[0], runs[0][0]) and torch.equal(run[1], runs[0][1]) for run in runs)


def test_a_whole_fit_is_the_same_at_any_thread_count_and_near_that_of_torch(monkeypatch):
    X = torch.randn(4200, 6, generator=torch.Generator().manual_seed(2))
    options = {"perplexity": 5, "max_iter": 30, "early_exaggeration_iter": 20, "check_interval": 5, "random_state": 0}
    before, fits = torch.get_num_threads(), []
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            fits.append(TSNE(**options).fit(X))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(fit.embedding_, fits[0].embedding_) for fit in fits)
    monkeypatch.setattr("cartograd.embedding.forces.fft.served", lambda *_: False)
    monkeypatch.setattr("cartograd.embedding.tsne.served", lambda *_: False)
    plain = TSNE(**options).fit(X)
    assert plain.loss_ == pytest.approx(fits[0].loss_, rel=2e-4)
