"""UMAP's kernel against its forces in torch: acting edges, negatives, clips, losses, threads, whole fits."""

import numpy
import pytest
import torch

from cartograd import UMAP
from cartograd.affinity.counter import stream
from cartograd.embedding import kernel_rows
from cartograd.embedding.edge_clock import clock
from cartograd.embedding.sampling import Complement
from cartograd.embedding.umap_forces import attraction, repulsion
from cartograd.embedding.umap_rows import Forces, UmapRows
from cartograd.neighbors import Graph
from cartograd.neighbors.workers import all_cores

CPU = torch.device("cpu")
A, B = 1.5769, 0.8951


def graph(n=900, degree=8, hub=True, seed=0):
    """A symmetric graph, one of whose rows is joined to all others."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.arange(n).repeat_interleave(degree)
    columns = torch.randint(0, n, (n * degree,), generator=generator)
    if hub:
        rows, columns = torch.cat([rows, torch.full((n,), 5)]), torch.cat([columns, torch.arange(n)])
    kept = rows != columns
    weights = torch.rand(len(rows), generator=generator)[kept]
    return Graph.from_edges(rows[kept], columns[kept], weights, n).symmetrise("max")


def expected(edges, Z, step, steps, forces):
    """The clipped sums of both terms, and their losses, pair by pair in float64."""
    Z, n = Z.double(), len(Z)
    pulled, pushed, losses = torch.zeros_like(Z), torch.zeros_like(Z), [0.0, 0.0]
    negatives = Complement.of_self(n, CPU)
    for piece in clock(edges, steps):
        acting = piece.acting(step)
        rows, columns = piece.rows[acting], piece.columns[acting]
        apart = Z[rows] - Z[columns]
        pulled.index_add_(0, rows, attraction(apart.T, forces.a, forces.b).T)
        losses[0] += float(torch.log1p(forces.a * apart.square().sum(1) ** forces.b).sum()) / 2
        places = ((piece.first + acting) * forces.rate)[:, None] + torch.arange(forces.rate)
        rows = rows.repeat_interleave(forces.rate)
        others = negatives.draw(rows, places.reshape(-1), stream(forces.seed, "negatives", step))
        apart = Z[rows] - Z[others]
        pushed.index_add_(0, rows, repulsion(apart.T, forces.a, forces.b, forces.push).T)
        s = apart.square().sum(1)
        losses[1] += float(torch.log1p(1 / (forces.a * s[s > 0] ** forces.b)).sum())
    return forces.pull * pulled.clamp(-4, 4) + pushed.clamp(-4, 4), losses


def places(n, scale, seed=1):
    Z = torch.randn(n, 2, generator=torch.Generator().manual_seed(seed)) * scale
    Z[7:12] = Z[7]  # equal places neither attract nor repel
    return Z


@pytest.mark.parametrize("scale", [1e-4, 0.1, 3.0, 1e4])
@pytest.mark.parametrize("step", [0, 17, 49])
def test_gradient_and_losses_are_those_of_the_forces_pair_by_pair(scale, step):
    edges = graph()
    Z, forces = places(edges.n, scale), Forces(seed=3, rate=5, a=A, b=B, pull=1.7, push=1.3)
    rows = UmapRows(edges, 50)
    gradient, losses = expected(edges, Z, step, 50, forces)
    found = rows.gradient(Z, step, forces).double()
    assert float(gradient.abs().max()) > 0
    assert float((found - gradient).abs().max()) < 1e-4 * max(1.0, float(gradient.abs().max()))
    assert rows.losses(Z, step, forces) == pytest.approx(losses, rel=2e-5, abs=2e-3)  # 1 + tiny is rounded in float32


@pytest.mark.parametrize("steps", [1, 13, 200])
def test_edges_act_at_the_steps_of_the_clock(steps):
    edges = graph(hub=False)
    rows, Z = UmapRows(edges, steps), places(edges.n, 2.0)
    forces = Forces(seed=0, rate=0, a=1.0, b=1.0, pull=1.0, push=1.0)
    for step in range(0, steps, 7):
        gradient, _ = expected(edges, Z, step, steps, forces)
        assert float((rows.gradient(Z, step, forces) - gradient).abs().max()) < 1e-4


def test_same_bits_for_any_threads_and_ranges(monkeypatch):
    edges = graph(3000)
    Z, forces = places(3000, 2.0), Forces(seed=1, rate=5, a=A, b=B, pull=1.0, push=1.0)
    found, before = [], torch.get_num_threads()
    for threads, least in ((1, 1024), (2, 1024), (4, 256), (2, 1000), (1, 4096)):
        monkeypatch.setattr(kernel_rows, "LEAST_RANGE", least)
        torch.set_num_threads(threads)
        try:
            with all_cores(CPU):
                found.append(UmapRows(edges, 20).gradient(Z, 4, forces))
        finally:
            torch.set_num_threads(before)
    assert all(torch.equal(one, found[0]) for one in found[1:])


def test_many_steps_are_the_same_as_single_ones():
    edges = graph()
    rows, forces = UmapRows(edges, 9), Forces(seed=1, rate=3, a=A, b=B, pull=1.0, push=1.0)
    start, rates, reached = places(edges.n, 1.0), [1.0, 0.75, 0.5], []
    single = start.clone()
    for step, rate in enumerate(rates, 2):
        single -= rate * rows.gradient(single, step, forces)
    together = start.clone()
    rows.advance(together, 2, rates, forces, lambda steps, where: reached.append((steps, where.clone())))
    assert float((together - single).abs().max()) < 1e-5
    assert [steps for steps, _ in reached] == [3, 4, 5, 5]
    assert torch.equal(reached[-1][1], together)


ROWS = numpy.random.RandomState(0).rand(600, 5).astype("float32")
OPTIONS = {"n_neighbors": 10, "max_iter": 43, "check_interval": 10, "random_state": 2}


@pytest.fixture
def small_maps_too(monkeypatch):
    monkeypatch.setattr(kernel_rows, "LEAST_ROWS", 100)


def test_a_fit_by_the_kernel_follows_the_one_by_torch(small_maps_too, monkeypatch):
    fit = UMAP(**OPTIONS | {"max_iter": 4, "check_interval": 2}).fit(ROWS)
    monkeypatch.setattr(kernel_rows, "LEAST_ROWS", 10**9)
    torchs = UMAP(**OPTIONS | {"max_iter": 4, "check_interval": 2}).fit(ROWS)
    assert numpy.abs(fit.embedding_ - torchs.embedding_).max() < 2e-3 * numpy.abs(torchs.embedding_).max()
    assert fit.loss_ == pytest.approx(torchs.loss_, rel=1e-3)


def test_who_looks_in_changes_nothing_and_is_asked_at_every_interval(small_maps_too):
    seen, steps = [], []

    class Watched(UMAP):
        def on_training_step_end(self):
            steps.append(self.optimizer_.param_groups[0]["lr"])

    plain = UMAP(**OPTIONS).fit(ROWS)
    called = UMAP(**OPTIONS, callbacks=[lambda step, Z, loss: seen.append((step, loss))]).fit(ROWS)
    watched = Watched(**OPTIONS).fit(ROWS)
    assert numpy.array_equal(plain.embedding_, called.embedding_)
    assert [step for step, _ in seen] == [10, 20, 30, 40, 43]
    assert [loss for _, loss in seen] == plain.loss_ == called.loss_
    assert len(steps) == 43
    assert steps == pytest.approx([1 - (t + 1) / 43 for t in range(43)], abs=1e-9)
    assert numpy.array_equal(watched.embedding_, plain.embedding_)
    assert numpy.array_equal(UMAP(**OPTIONS | {"check_interval": 7}).fit_transform(ROWS), plain.embedding_)
    assert plain.n_iter_ == 43


def test_exaggeration_and_momentum(small_maps_too, monkeypatch):
    options = OPTIONS | {"max_iter": 6, "check_interval": 6, "early_exaggeration_coeff": 3.0}
    for more in ({"early_exaggeration_iter": 3}, {"optimizer_kwargs": {"momentum": 0.5}}):
        monkeypatch.setattr(kernel_rows, "LEAST_ROWS", 100)
        ours = UMAP(**options, **more).fit_transform(ROWS)
        monkeypatch.setattr(kernel_rows, "LEAST_ROWS", 10**9)
        torchs = UMAP(**options, **more).fit_transform(ROWS)
        assert numpy.abs(ours - torchs).max() < 1e-2 * numpy.abs(torchs).max()


def test_interrupted_between_looks(small_maps_too, monkeypatch):
    gradient = UmapRows._move

    def stopped(self, Z, out, step, *more):
        if step == 16:
            out.fill_(numpy.nan)
            raise KeyboardInterrupt
        gradient(self, Z, out, step, *more)

    monkeypatch.setattr(UmapRows, "_move", stopped)
    model = UMAP(**OPTIONS)
    with pytest.warns(RuntimeWarning, match="interrupted after 16 of 43 steps"):
        Z = model.fit_transform(ROWS)
    assert numpy.isfinite(Z).all()
    assert model.n_iter_ == 16


def test_a_map_that_leaves_all_bounds_is_refused_with_the_last_that_did_not(small_maps_too):
    from cartograd.errors import DivergedError

    with pytest.raises(DivergedError, match=r"left all bounds between steps 0 and 9: use a smaller lr") as caught:
        UMAP(**OPTIONS | {"lr": 1e38}).fit(ROWS)
    assert numpy.isfinite(caught.value.embedding).all()


def test_forces_of_ones_own_are_not_overlooked(small_maps_too):
    class Still(UMAP):
        def _compute_repulsive_gradients(self):
            return torch.zeros_like(self._layout)

        def _compute_attractive_gradients(self):
            return torch.zeros_like(self._layout)

        def _gradient(self):
            return torch.zeros_like(self._layout)

    first = Still(**OPTIONS | {"max_iter": 1, "min_grad_norm": 0.0}).fit_transform(ROWS)
    later = Still(**OPTIONS | {"min_grad_norm": 0.0}).fit_transform(ROWS)
    assert numpy.array_equal(first, later)
