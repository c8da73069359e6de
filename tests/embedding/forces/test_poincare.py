import force_oracle as oracle
import numpy
import pytest
import torch

from cartograd.embedding.forces import poincare
from cartograd.embedding.forces.edges import EdgeBlocks
from cartograd.neighbors import Graph
from cartograd.neighbors.workers import all_cores


def ball(n, c, seed=0, rim=0.95):
    """Points of the unit ball, some of them near its rim."""
    Z = torch.randn(n, c, generator=oracle.drawn(seed), dtype=torch.float64)
    radius = torch.linspace(0.05, rim, n, dtype=torch.float64)[:, None]
    return Z / Z.norm(dim=1, keepdim=True) * radius


def graph_of(P):
    rows, columns = torch.nonzero(P, as_tuple=True)
    return Graph.from_edges(rows, columns, P[rows, columns], len(P))


@pytest.mark.parametrize("c", [1, 2, 3])
@pytest.mark.parametrize("gamma", [0.1, 2.0])
def test_repulsion(gamma, c):
    Z = ball(40, c, rim=0.9999)

    def loss(Z):
        # the diagonal, where arccosh has no derivative, is moved before and blotted out after
        there = oracle.others(40)
        a = 1 - Z.square().sum(1)
        D = torch.arccosh(torch.where(there, 1 + 2 * oracle.squared(Z) / (a[:, None] * a[None, :]), 2.0)).square()
        return torch.log(torch.where(there, gamma / (D + gamma**2), 0.0).sum())

    expected, value = oracle.gradient(loss, Z)
    found, total = poincare.cosne_repulsion(Z, gamma)
    assert float(torch.log(total)) == pytest.approx(value, rel=1e-10)
    assert oracle.relative(found, expected) < 1e-8


def test_repulsion_of_queries():
    points, queries = ball(40, 2), ball(11, 2, seed=1)
    expected, value = oracle.gradient(
        lambda X, Y: torch.log((2 / (oracle.poincare(X, Y) + 4)).sum(1)).sum(), queries, points
    )
    found, sums = poincare.cosne_repulsion_at(queries, points, 2.0)
    assert float(torch.log(sums).sum()) == pytest.approx(value, rel=1e-10)
    assert oracle.relative(found, expected) < 1e-8


@pytest.mark.parametrize("c", [1, 2, 3])
def test_attraction(c):
    Z = ball(40, c)
    draw = oracle.drawn(7)
    P = torch.rand(40, 40, generator=draw, dtype=torch.float64) * (torch.rand(40, 40, generator=draw) < 0.3)
    P = (P + P.T).fill_diagonal_(0)
    P /= P.sum()
    rows, columns = torch.nonzero(P, as_tuple=True)

    def loss(Z):
        a = 1 - Z.square().sum(1)
        s = (Z[rows] - Z[columns]).square().sum(1)
        D = torch.arccosh(1 + 2 * s / (a[rows] * a[columns])).square()
        return -(P[rows, columns] * torch.log(2 / (D + 4))).sum()

    expected, value = oracle.gradient(loss, Z)
    found, total = poincare.cosne_attraction(Z, EdgeBlocks.of(graph_of(P)), 2.0)
    assert float(total) == pytest.approx(value, rel=1e-10)
    assert oracle.relative(found, expected) < 1e-8


def test_attraction_of_queries():
    points, queries = ball(40, 2), ball(11, 2, seed=1)
    draw = oracle.drawn(2)
    indices, weights = torch.randint(0, 40, (11, 4), generator=draw), torch.rand(11, 4, generator=draw).double()

    def loss(X, Y):
        rows = torch.arange(11)[:, None].expand(11, 4)
        return -(weights * torch.log(2 / (oracle.poincare(X, Y)[rows, indices] + 4))).sum()

    expected, value = oracle.gradient(loss, queries, points)
    found, total = poincare.cosne_attraction(queries, EdgeBlocks.of_lists(indices, weights), 2.0, points)
    assert float(total) == pytest.approx(value, rel=1e-10)
    assert oracle.relative(found, expected) < 1e-8


def test_height():
    Z = ball(40, 3)
    norms = torch.rand(40, generator=oracle.drawn(3), dtype=torch.float64) * 9

    def loss(Z):
        t = Z.square().sum(1)
        return (norms - torch.arccosh(1 + 2 * t / (1 - t)).square()).square().mean()

    expected, value = oracle.gradient(loss, Z)
    found, total = poincare.cosne_height(Z, norms)
    assert float(total) == pytest.approx(value, rel=1e-12)
    assert oracle.relative(found, expected) < 1e-8
    at_the_middle, _ = poincare.cosne_height(torch.zeros(2, 3, dtype=torch.float64), norms[:2])
    assert not at_the_middle.any()


def test_where_points_meet_the_gradient_is_the_limit():
    Z = ball(12, 2)
    Z[6:] = Z[:6]
    near = Z.clone()
    near[6:] += 1e-9
    P = (torch.ones(12, 12, dtype=torch.float64).fill_diagonal_(0)) / 132
    blocks = EdgeBlocks.of(graph_of(P))
    for found, limit in (
        (poincare.cosne_repulsion(Z, 2.0)[0], poincare.cosne_repulsion(near, 2.0)[0]),
        (poincare.cosne_attraction(Z, blocks, 2.0)[0], poincare.cosne_attraction(near, blocks, 2.0)[0]),
    ):
        assert bool(torch.isfinite(found).all())
        assert oracle.relative(found, limit) < 1e-6
    together = torch.full((5, 2), 0.3, dtype=torch.float64)
    gradient, total = poincare.cosne_repulsion(together, 2.0)
    assert not gradient.any()
    assert float(total) == pytest.approx(20 * 0.5)


def test_short_distances_keep_their_digits():
    u = torch.tensor([1e-20, 1e-8, 1e-3, 1.0, 1e6], dtype=torch.float64)
    D, slope = poincare.hyperbolic(u)
    wide = u.numpy().astype(numpy.longdouble)
    expected = 4 * numpy.arcsinh(numpy.sqrt(wide)) ** 2
    assert numpy.abs(D.numpy() / expected - 1).max() < 1e-15
    rise = 4 * numpy.arcsinh(numpy.sqrt(wide)) / numpy.sqrt(wide * (1 + wide))
    assert numpy.abs(slope.numpy() / rise - 1).max() < 1e-15
    assert poincare.hyperbolic(torch.zeros(1, dtype=torch.float64))[1].item() == 4


def test_the_same_bits_at_any_thread_count(threads):
    Z = ball(1500, 2)
    runs = []
    for count in (1, 2, 4):
        threads(count)
        with all_cores(torch.device("cpu")):
            runs.append(poincare.cosne_repulsion(Z, 2.0))
    assert all(torch.equal(run[0], runs[0][0]) and torch.equal(run[1], runs[0][1]) for run in runs)
