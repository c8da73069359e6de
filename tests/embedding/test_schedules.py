"""What is true at which step: learning rate, momentum, exaggeration, edges and negatives, method by method."""

import numpy
import pytest
import torch

from cartograd import SNE, TSNE, UMAP, InfoTSNE, LargeVis
from cartograd.embedding import edge_clock
from cartograd.embedding.edge_clock import clock
from cartograd.embedding.umap_curve import fit_curve
from cartograd.neighbors import Graph

ROWS = numpy.random.RandomState(0).rand(300, 4).astype("float32")


def history(estimator, X=ROWS):
    """(learning rate, momentum, exaggeration) of every step."""
    seen = []

    class Probe(type(estimator)):
        def on_training_step_start(self):
            group = self.optimizer_.param_groups[0]
            seen.append((group["lr"], group.get("momentum"), self.early_exaggeration_coeff_))

    Probe(**estimator.get_params()).fit(X)
    return seen


def test_tsne_changes_rate_momentum_and_exaggeration_after_exactly_250_steps():
    X = numpy.random.RandomState(1).rand(1200, 3).astype("float32")
    steps = history(TSNE(perplexity=5, max_iter=260), X)
    assert steps[0] == steps[249] == (50.0, 0.5, 12.0)  # max(1200 / 12 / 4, 50)
    assert steps[250] == steps[259] == (300.0, 0.8, 1.0)  # 1200 / 4


def test_tsne_of_many_rows_has_a_rate_above_the_least():
    X = numpy.random.RandomState(1).rand(4800, 3).astype("float32")
    assert history(TSNE(perplexity=5, max_iter=1, method="fft"), X) == [(100.0, 0.5, 12.0)]


def test_velocity_starts_anew_with_the_second_phase():
    seen = {}

    class Probe(TSNE):
        def on_training_step_start(self):
            seen[self.n_iter_] = dict(self.optimizer_.state)

    Probe(perplexity=5, max_iter=6, early_exaggeration_iter=3).fit(ROWS)
    assert not seen[0]
    assert seen[2]
    assert not seen[3]
    assert seen[5]


def test_sne_has_one_phase_and_a_rate_at_which_its_springs_do_not_swing_up():
    model = SNE(perplexity=5, max_iter=5)
    (found,) = set(history(model))
    largest = float(model.fit(ROWS).affinity_in_.row_sums().max())
    assert found == (pytest.approx(min(75.0, 0.35 / largest)), 0.8, 1.0)
    assert set(history(SNE(perplexity=5, max_iter=2, lr=80.0))) == {(80.0, 0.8, 1.0)}


def test_largevis_falls_linearly_to_zero():
    steps = history(LargeVis(perplexity=5, max_iter=20))
    assert [rate for rate, _, _ in steps] == pytest.approx([75 * (1 - t / 20) for t in range(20)])
    assert {momentum for _, momentum, _ in steps} == {0.8}


def test_infotsne_falls_linearly_in_each_phase():
    steps = history(InfoTSNE(perplexity=5, max_iter=30, early_exaggeration_iter=10, n_negatives=5))
    expected = [50 * (1 - t / 10) for t in range(10)] + [75 * (1 - t / 20) for t in range(20)]
    assert [rate for rate, _, _ in steps] == pytest.approx(expected)
    assert [(m, e) for _, m, e in steps] == [(0.5, 12.0)] * 10 + [(0.8, 1.0)] * 20


def test_umap_falls_linearly_without_momentum():
    steps = history(UMAP(n_neighbors=5, max_iter=10))
    assert [rate for rate, _, _ in steps] == pytest.approx([1 - t / 10 for t in range(10)])
    assert {(m, e) for _, m, e in steps} == {(0, 1.0)}


def test_other_schedules_and_optimisers_are_torchs():
    halved = UMAP(n_neighbors=5, max_iter=6, scheduler="StepLR", scheduler_kwargs={"step_size": 2, "gamma": 0.5})
    assert [rate for rate, _, _ in history(halved)] == [1, 1, 0.5, 0.5, 0.25, 0.25]
    constant = UMAP(n_neighbors=5, max_iter=3, scheduler=None, optimizer=torch.optim.Adam, lr=0.3)
    assert [rate for rate, _, _ in history(constant)] == [0.3, 0.3, 0.3]
    assert [rate for rate, _, _ in history(SNE(perplexity=5, max_iter=2, learning_rate=7.0))] == [7.0, 7.0]
    assert history(SNE(perplexity=5, max_iter=1, early_exaggeration=3.0, early_exaggeration_iter=1))[0][2] == 3.0


def test_edges_act_at_exact_periods():
    weights = torch.tensor([1.0, 0.5, 0.3, 0.01])
    graph = Graph.from_edges([0, 1, 2, 3], [1, 0, 3, 2], weights, 4)
    (piece,) = clock(graph, steps=50)
    assert len(piece.rows) == 3  # 0.01 would not act once in 50 steps
    times = {int(edge): [] for edge in range(3)}
    for step in range(50):
        for edge in piece.acting(step).tolist():
            times[edge].append(step)
    assert times[0] == list(range(50))
    assert times[1] == list(range(1, 50, 2))
    assert len(times[2]) == 15
    assert times[2][:3] == [3, 6, 9]  # the first whole numbers that 0.3 (t + 1) passes: 4 * 0.3, 7 * 0.3, 10 * 0.3


def test_edges_are_counted_beforehand_where_nobody_should_wait_for_a_gpu():
    print("seed 3")
    generator = torch.Generator().manual_seed(3)
    rates = torch.cat([edge_clock.shares(torch.rand(500, generator=generator)), torch.ones(1, dtype=torch.float64)])
    rows = torch.randint(0, 40, (501,), generator=generator).sort().values
    piece = edge_clock.Piece(0, 40, 0, rows, rows, rates)
    counts = edge_clock.counted(rates, 60)
    for step in range(60):
        acting = piece.acting(step)
        assert counts[step] == len(acting)
        due = torch.zeros(501, dtype=torch.bool).index_fill_(0, acting, True)
        assert torch.equal(edge_clock.chosen(due, counts[step]), acting)
        values = torch.randn(3, len(acting), generator=generator, dtype=torch.float64)
        wanted = torch.zeros(3, 40, dtype=torch.float64).index_add_(1, rows[acting], values)
        torch.testing.assert_close(edge_clock.sums_of_runs(values, rows[acting], 40), wanted, rtol=0, atol=1e-14)


def test_curve_is_umap_learns():
    umap_learn = pytest.importorskip("umap.umap_")
    assert fit_curve(0.1, 1.0) == pytest.approx(umap_learn.find_ab_params(1.0, 0.1), rel=1e-6)
    assert fit_curve(0.1, 1.0) == pytest.approx((1.5769, 0.8951), abs=1e-4)


def test_umaps_graph_is_umap_learns():
    umap_learn = pytest.importorskip("umap.umap_")
    from sklearn.metrics import pairwise_distances

    seen = []

    class Probe(UMAP):
        def on_affinity_computation_end(self):
            seen.append(self.affinity_in_.to_scipy())

    Probe(n_neighbors=10, max_iter=1).fit(ROWS)
    D = pairwise_distances(ROWS.astype("float64"))
    theirs, _, _ = umap_learn.fuzzy_simplicial_set(D, 10, None, "precomputed")
    assert abs(seen[0] - theirs).max() < 1e-4


def test_negatives_of_a_row_are_new_at_every_step_and_the_same_in_every_fit():
    drawn = []

    class Probe(LargeVis):
        def on_training_step_start(self):
            drawn.append(self.neg_indices_.clone())

    for _ in range(2):
        Probe(perplexity=5, max_iter=3, random_state=4).fit(ROWS)
    first, second = drawn[:3], drawn[3:]
    assert drawn[0].shape == (300, 5)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0], first[1])
    other = []

    class Other(Probe):
        def on_training_step_start(self):
            other.append(self.neg_indices_.clone())

    Other(perplexity=5, max_iter=1, random_state=5).fit(ROWS)
    assert not torch.equal(first[0], other[0])
