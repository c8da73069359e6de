"""One step of each layout by its kernel, against the same in torch."""

import pytest
import torch

from cartograd.affinity.counter import hashed, signed, stream
from cartograd.embedding import gains, ring
from cartograd.embedding.device_rows import PairsOnDevice, SampledOnDevice
from cartograd.embedding.edge_clock import clock
from cartograd.embedding.forces.edges import EdgeBlocks
from cartograd.embedding.pair_forces import Pairs
from cartograd.embedding.sampled_forces import push_both_ends
from cartograd.embedding.sampled_rows import Kind
from cartograd.embedding.umap_device import UmapOnDevice
from cartograd.embedding.umap_rows import Forces
from cartograd.kernels import gpu
from cartograd.neighbors import Graph

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]


def error(found, true):
    return float((found.double() - true.double()).norm() / true.double().norm())


@pytest.fixture
def graph(kernel_device):
    generator = torch.Generator().manual_seed(1)
    rows, columns = torch.randint(0, 400, (2, 3000), generator=generator)
    rows[:150] = 7  # one row with many edges
    weights = torch.rand(3000, generator=generator)
    apart = rows != columns
    return Graph.from_edges(rows[apart], columns[apart], weights[apart], 400).symmetrise("max").to(kernel_device)


@pytest.fixture
def places(kernel_device):
    Z = 2 * torch.randn(400, 2, generator=torch.Generator().manual_seed(2))
    Z[5] = Z[6]
    return Z.to(kernel_device)


def course_of(kernels, first, count, device):
    keys = [stream(3, "negatives", step) for step in range(first, first + count)]
    signed = torch.tensor([key - (1 << 64) if key >> 63 else key for key in keys])
    return kernels.Course(
        torch.tensor([first], device=device), torch.linspace(1, 0.5, count).to(device), signed.to(device)
    )


def test_the_hash_is_that_of_the_library(kernel_device):
    kernels = gpu.load("counting")
    key, counters = stream(3, "negatives", 5), torch.arange(1000, device=kernel_device)
    assert torch.equal(kernels.hashed_in_torch(key, counters), hashed(key, counters))


def test_umap_step(kernel_device, graph, places):
    kernels = gpu.load("umap")
    edges = kernels.edges_of(graph.indptr, graph.indices, graph.weights, 100)
    course, curve = course_of(kernels, 10, 8, kernel_device), kernels.Curve(1.577, 0.895, 5, 1.5, 1.2)
    for ahead in (0, 7):
        new = torch.full_like(places, torch.nan)
        kernels.step(places, new, edges, curve, course, ahead)
        true = kernels.step_in_torch(places.double(), edges, curve, course, ahead)
        assert float((new - true).abs().max()) < 1e-5 < float((places - true).abs().max())
    for found, true in zip(
        kernels.losses(places, edges, curve, course), kernels.losses_in_torch(places.double(), edges, curve, course)
    ):
        torch.testing.assert_close(found, true, rtol=1e-5, atol=0)


def test_umap_edges_act_when_the_clock_says(kernel_device, graph):
    kernels = gpu.load("umap")
    edges = kernels.edges_of(graph.indptr, graph.indices, graph.weights, 50)
    pieces = clock(graph, 50)
    assert sum(len(piece.rows) for piece in pieces) == len(edges.columns)
    for step in (0, 1, 2, 17, 49):
        acting = kernels.acting_in_torch(graph.n, edges, 5, step, 1)
        due = [piece.acting(step) for piece in pieces]
        assert torch.equal(acting.rows, torch.cat([piece.rows[at] for piece, at in zip(pieces, due)]))
        assert torch.equal(acting.columns, torch.cat([piece.columns[at] for piece, at in zip(pieces, due)]))


def test_umap_negatives_are_even_and_never_the_row_itself(kernel_device):
    kernels = gpu.load("umap")
    n = 50
    rates = torch.full((n,), kernels.PERIOD, dtype=torch.int32, device=kernel_device)
    every = torch.arange(n, device=kernel_device)
    edges = kernels.Edges(every.int(), torch.arange(n + 1, device=kernel_device), (every.int() + 1) % n, rates)
    drawn = kernels.acting_in_torch(n, edges, 2000, 3, stream(0, "negatives", 3))
    assert not bool((drawn.heads == drawn.others).any())
    counts = torch.bincount(drawn.others, minlength=n).double()
    assert float((counts / 2000 - 1).abs().max()) < 0.12  # five standard deviations


def test_many_umap_steps_are_single_ones(kernel_device, graph, places):
    rows, forces = UmapOnDevice(graph, 40), Forces(1, 5, 1.577, 0.895, 1.0, 1.0)
    one, many, said = places.clone(), places.clone(), []
    for first in (0, 6, 12):  # launched, recorded, replayed
        rates = [0.5 - 0.01 * step for step in range(first, first + 6)]
        for step, rate in enumerate(rates, first):
            one -= rate * rows.gradient(one, step, forces)
        rows.advance(many, first, rates, forces, lambda steps, Z: said.append(steps))
        assert float((one - many).abs().max()) < 1e-5
    assert said == [6, 12, 18]


def test_pulls_along_edges(kernel_device, graph, places):
    kernels = gpu.load("edges")
    edges = kernels.edges_of(graph.indptr, graph.indices, graph.weights)
    for b, power in ((1.0, 1), (2.0, 1), (11.0, 2)):
        found = kernels.pulls(places, edges, 3.0, b, power)
        true = kernels.pulls_in_torch(places.double(), edges, 3.0, b, power)
        assert error(found, true) < 1e-6
        assert error(kernels.pulls(places, edges, 3.0, b, power, out=found.clone()), 2 * true) < 1e-6
        table = torch.tensor([1.0, 3.0], device=kernel_device)
        assert error(kernels.pulls(places, edges, table[1:], b, power), true) < 1e-6
    for logarithm in (True, False):
        true = kernels.totals_in_torch(places.double(), edges, 2.0, logarithm)
        torch.testing.assert_close(kernels.totals(places, edges, 2.0, logarithm), true, rtol=1e-6, atol=0)


@pytest.mark.parametrize("n", [2, 3, 400, 1 << 24])
def test_shifts_on_the_ring(kernel_device, n):
    keys = [stream(7, "negatives", step) for step in (0, 11)]
    found = gpu.load("negatives").shifts(torch.tensor([signed(key) for key in keys]).to(kernel_device), 300, n)
    for key, row in zip(keys, found):
        assert torch.equal(row.long(), ring.shifts(key, 300, n, kernel_device))


@pytest.mark.parametrize(("count", "contrast"), [(1, True), (5, False), (41, True), (41, False), (300, True)])
def test_random_pushes_of_both_ends(kernel_device, places, count, contrast):
    kernels, order = gpu.load("negatives"), ring.ring_order(400, 7, kernel_device)
    shift = ring.shifts(stream(7, "negatives", 11), count, 400, kernel_device)
    arguments = places[order], order.int(), shift.int(), contrast, 0.7
    found = kernels.pushes(*arguments, torch.zeros_like(places))
    assert error(found, 0.7 * ring.pushes(places.double(), order, shift, contrast)) < 1e-6
    for sizes in ({}, {"rows": 32, "lanes": 2, "warps": 1}):  # others than usual leave rows over at the end
        again = kernels.pushes(*arguments, torch.ones_like(places), **sizes)
        assert float((again - 1 - found).abs().max()) < 1e-6
    assert torch.equal(found, kernels.pushes(*arguments, torch.zeros_like(places)))


@pytest.mark.parametrize("n", [2, 3])
def test_pushes_of_very_few(kernel_device, places, n):
    order, shift = ring.ring_order(n, 1, kernel_device), ring.shifts(5, 9, n, kernel_device)
    few = places[:n]
    found = gpu.load("negatives").pushes(few[order], order.int(), shift.int(), True, 1.0, torch.zeros_like(few))
    assert error(found, ring.pushes(few.double(), order, shift, True)) < 1e-6


@pytest.mark.parametrize(("c", "contrast"), [(1.0, True), (2.0, False)])
def test_sampled_gradients_are_those_of_torch(kernel_device, graph, places, c, contrast):
    n, wide = 400, places.double()
    rows = SampledOnDevice(graph, Kind(c, contrast, 6), 3)
    others = ring.drawn(rows.order, ring.shifts(stream(3, "negatives", 4), 6, n, kernel_device))

    def slope(s):
        w = 1 / (1 + s)
        return -(w * w / w.sum(1, keepdim=True) if contrast else 1 / ((1 + s) * (2 + s))) / n

    pull = EdgeBlocks.of(graph.to(dtype=torch.float64)).pull(wide, lambda s: 1 / (c + s))
    true = 1.5 * pull + 0.7 * push_both_ends(wide, others, slope)
    assert error(rows.gradient(places, 4, 1.5, 0.7), true) < 1e-6
    s = (wide[:, None] - wide[others]).square().sum(2)
    lost = torch.log((1 / (1 + s)).sum(1)) if contrast else torch.log((2 + s) / (1 + s)).sum(1)
    assert rows.losses(places, 4)[1] == pytest.approx(float(lost.mean()), rel=1e-5)


def test_pairs_of_three_kinds(kernel_device, places):
    generator, n = torch.Generator().manual_seed(4), 400
    shifts = [torch.randint(1, n, (n, m), generator=generator) for m in (10, 5, 20)]
    kinds = [((shift + torch.arange(n)[:, None]) % n).to(kernel_device) for shift in shifts]
    forces = ((20.0, 11.0), (30.0, 10001.0), (-1.0, 2.0))
    gradient, sums = PairsOnDevice(kinds).gradient(places, forces)
    wide = places.double()
    true = sum(Pairs.of(kind, torch.float64).gradient(wide, *force) for kind, force in zip(kinds, forces))
    assert error(gradient, true) < 1e-6
    for kind, others in enumerate(kinds):
        s = (wide[:, None] - wide[others]).square().sum(2)
        assert sums[kind] == pytest.approx(float((1 / (forces[kind][1] + s)).sum()), rel=1e-6)


def test_descent_with_gains(kernel_device):
    kernels, generator = gpu.load("descent"), torch.Generator().manual_seed(6)
    Z, attraction = torch.randn(2, 300, 2, generator=generator).to(kernel_device)
    repulsion = torch.randn(2, 300, generator=generator, dtype=torch.float64).to(kernel_device).T
    total, rates = torch.tensor(3.0, dtype=torch.float64, device=kernel_device), (0.5, 1.0, 3.0)
    places, one = Z.clone(), Z.clone()
    state = kernels.State(
        torch.zeros_like(Z),
        torch.ones_like(Z),
        torch.tensor(rates).to(Z),
        torch.zeros(1, dtype=torch.int64).to(Z.device),
    )
    constants = kernels.Gains(gains.RISE, gains.FALL, gains.LEAST, gains.LONGEST)
    optimiser = gains.DescentWithGains([one], 1.0, 0.8)
    for rate in rates:
        kernels.descend(places, attraction, repulsion, total, 12.0, 2.0, 0.8, state, constants)
        optimiser.param_groups[0]["lr"] = rate
        one.grad = 12 * attraction + (2 / total * repulsion).to(torch.float32)
        optimiser.step()
        assert float((places - one).abs().max()) < 1e-5
        attraction = -0.7 * attraction
