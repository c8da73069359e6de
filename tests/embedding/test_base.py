"""The frame of a fit: losses of one's own, hooks, callbacks, history, how it ends, what it refuses."""

import logging

import numpy
import pytest
import torch

from cartograd import (
    SNE,
    TSNE,
    UMAP,
    AffinityMatcher,
    LargeVis,
    NegativeSamplingNeighborEmbedding,
    NeighborEmbedding,
    Tensor,
)
from cartograd.affinity import EntropicAffinity, NormalizedStudentAffinity
from cartograd.embedding import memory
from cartograd.errors import DivergedError, InputError, MemoryBudgetError, OptionError, UnsupportedError

ROWS = numpy.random.RandomState(0).rand(80, 4)


class Mine(NeighborEmbedding):
    """t-SNE, written down as anyone would."""

    def _compute_attractive_loss(self):
        P, Z = self.affinity_in_, self.embedding_
        return (P.weights * torch.log1p(((Z[P.rows()] - Z[P.indices]) ** 2).sum(1))).sum()

    def _compute_repulsive_loss(self):
        Z = self.embedding_
        w = 1 / (1 + ((Z[:, None] - Z[None]) ** 2).sum(2))
        return torch.log(w.sum() - len(Z))


def test_a_loss_of_ones_own_is_differentiated_by_the_engine():
    mine = Mine(EntropicAffinity(8), max_iter=20, lr=10.0, early_exaggeration=4.0, early_exaggeration_iter=5)
    ours = TSNE(8, method="exact", max_iter=20, lr=10.0, early_exaggeration=4.0, early_exaggeration_iter=5)
    difference = numpy.abs(mine.fit_transform(ROWS) - ours.fit_transform(ROWS)).max()
    assert difference < 1e-6 * numpy.abs(ours.embedding_).max()
    assert isinstance(mine, AffinityMatcher)


def test_a_subclass_that_changes_the_loss_is_not_moved_by_the_old_gradient():
    class Fourfold(TSNE):
        def _compute_attractive_loss(self):
            return 4 * super()._compute_attractive_loss()

    one = Fourfold(8, max_iter=4, early_exaggeration_iter=0, method="exact", precision="float64")
    one.set_params(optimizer_kwargs={"momentum": 0.8}, lr=50.0)
    other = TSNE(8, max_iter=4, method="exact", early_exaggeration=4.0, early_exaggeration_iter=4, precision="float64")
    other.set_params(optimizer_kwargs={"momentum": 0.8}, lr=50.0)
    assert numpy.allclose(one.fit_transform(ROWS), other.fit_transform(ROWS), rtol=1e-9)


def test_gradients_of_ones_own_are_used():
    class Falling(NeighborEmbedding):
        def _compute_attractive_gradients(self):
            return torch.ones_like(self._layout)

        def _compute_repulsive_gradients(self):
            return torch.zeros_like(self._layout)

        def _loss_now(self):
            return 0.0

    start = numpy.random.RandomState(1).rand(80, 2)
    model = Falling(EntropicAffinity(8), init=start, init_scaling=None, max_iter=3, lr=1.0, optimizer_kwargs=None)
    assert numpy.allclose(model.fit_transform(ROWS), start - 3)


def test_negatives_are_there_for_losses_of_ones_own():
    class Contrast(NegativeSamplingNeighborEmbedding):
        def _compute_attractive_loss(self):
            P, Z = self.affinity_in_, self.embedding_
            return (P.weights * ((Z[P.rows()] - Z[P.indices]) ** 2).sum(1)).sum()

        def _compute_repulsive_loss(self):
            assert isinstance(self.embedding_, Tensor)
            return (1 / (1 + ((self.embedding_[:, None] - self.embedding_[self.neg_indices_]) ** 2).sum(2))).mean()

    model = Contrast(EntropicAffinity(8), n_negatives=7, max_iter=30, lr=5.0, check_interval=10).fit(ROWS)
    assert model.loss_[-1] < model.loss_[0]


def test_hooks_are_called_in_order():
    calls = []

    class Probe(SNE):
        def on_affinity_computation_start(self):
            calls.append(("start", hasattr(self, "affinity_in_")))

        def on_affinity_computation_end(self):
            calls.append(("end", self.affinity_in_.n))

        def on_training_step_start(self):
            calls.append(("step", self.n_iter_))

        def on_training_step_end(self):
            calls.append(("stepped", self.n_iter_))

    Probe(5, max_iter=2).fit(ROWS)
    assert calls == [("start", False), ("end", 80), ("step", 0), ("stepped", 0), ("step", 1), ("stepped", 1)]


def test_callbacks_history_and_count():
    seen = []
    model = LargeVis(5, max_iter=25, check_interval=10, callbacks=[lambda *given: seen.append(given)]).fit(ROWS)
    assert [step for step, _, _ in seen] == [10, 20, 25]
    assert [loss for _, _, loss in seen] == model.loss_
    assert numpy.array_equal(seen[-1][1], model.embedding_)
    assert not numpy.array_equal(seen[0][1], seen[1][1])
    assert model.n_iter_ == 25
    stopped = LargeVis(5, max_iter=25, check_interval=10, callbacks=[lambda step, embedding, loss: step == 20])
    assert stopped.fit(ROWS).n_iter_ == 20


def test_small_gradients_end_the_fit():
    assert SNE(5, max_iter=500, check_interval=10, min_grad_norm=1e9).fit(ROWS).n_iter_ == 10
    waits = TSNE(5, max_iter=500, check_interval=10, min_grad_norm=1e9, early_exaggeration_iter=25).fit(ROWS)
    assert waits.n_iter_ == 30  # not while exaggerated


def test_interruption_keeps_what_is_there():
    def interrupt(step, embedding, loss):
        raise KeyboardInterrupt

    model = UMAP(n_neighbors=5, max_iter=100, check_interval=10, callbacks=[interrupt])
    with pytest.warns(RuntimeWarning, match="interrupted after 10 of 100 steps"):
        Z = model.fit_transform(ROWS)
    assert numpy.isfinite(Z).all()
    assert numpy.array_equal(model.transform(ROWS), Z)


@pytest.mark.cpu
def test_a_layout_that_diverges_says_where_and_keeps_the_last_finite_map():
    class Bad(SNE):
        def _compute_repulsive_gradients(self):
            gradient = super()._compute_repulsive_gradients()
            if self.n_iter_ == 3:
                gradient[17, 1] = torch.nan
            return gradient

    with pytest.raises(DivergedError, match="in the repulsion at step 3, row 17") as caught:
        Bad(5, max_iter=10).fit(ROWS)
    assert numpy.isfinite(caught.value.embedding).all()
    with pytest.raises(DivergedError, match="smaller lr"):
        SNE(5, max_iter=50, lr=1e30).fit(ROWS)


def test_engine_and_closed_form_make_the_same_map():
    class Slow(SNE):
        _use_closed_form_gradients = False

    fast, slow = (kind(8, max_iter=30, precision="float64").fit_transform(ROWS) for kind in (SNE, Slow))
    assert numpy.abs(fast - slow).max() < 1e-8 * numpy.abs(fast).max()


@pytest.mark.parametrize("loss", ["square_loss", "cross_entropy_loss"])
def test_matcher_of_two_affinities(loss):
    model = AffinityMatcher(
        EntropicAffinity(8, sparsity=False),
        affinity_out=NormalizedStudentAffinity(),
        loss_fn=loss,
        max_iter=60,
        lr=0.1,
        check_interval=10,
        init_scaling=1.0,
    )
    model.fit(ROWS)
    assert model.loss_[-1] < 0.9 * model.loss_[0] if loss == "square_loss" else model.loss_[-1] < model.loss_[0]
    given = EntropicAffinity(8, sparsity=False)(ROWS)
    other = AffinityMatcher("precomputed", affinity_out=NormalizedStudentAffinity(), init=model.embedding_, max_iter=1)
    assert other.fit(given.numpy()).embedding_.shape == (80, 2)


def test_starts():
    start = numpy.random.RandomState(3).rand(80, 2)
    fixed = {"n_neighbors": 5, "max_iter": 1, "lr": 1e-30}
    scaled = UMAP(init=start, **fixed).fit_transform(ROWS)
    assert numpy.allclose(scaled, 1e-4 * start / start[:, 0].std(ddof=1))
    assert numpy.allclose(UMAP(init=start, init_scaling=None, **fixed).fit_transform(ROWS), start)
    assert numpy.allclose(UMAP(init=torch.from_numpy(start), init_scaling=None, **fixed).fit_transform(ROWS), start)
    for name in ("pca", "spectral", "normal", "random"):
        assert UMAP(init=name, **fixed).fit_transform(ROWS)[:, 0].std(ddof=1) == pytest.approx(1e-4)
    doubled = numpy.concatenate([ROWS, ROWS[:10]])
    start = numpy.concatenate([start, start[:10] + 5])
    assert numpy.allclose(UMAP(init=start, init_scaling=None, **fixed).fit_transform(doubled)[80:], start[:10])
    with pytest.raises(InputError, match=r"init must be an array of shape \(80, 2\), got \(80, 3\)"):
        UMAP(init=numpy.zeros((80, 3))).fit(ROWS)
    with pytest.raises(OptionError, match="unknown init 'umap'"):
        UMAP(init="umap").fit(ROWS)


def test_parameters_are_refused_before_any_work():
    for estimator, error, words in (
        (UMAP(lr=1.5, learning_rate=2.0), OptionError, "learning_rate is another name of lr"),
        (TSNE(early_exaggeration=4.0, early_exaggeration_coeff=3.0), OptionError, "give one of them, not both"),
        (UMAP(n_negatives=3, negative_sample_rate=4), OptionError, "another name of negative_sample_rate"),
        (UMAP(optimizer="Sgd"), OptionError, "unknown optimizer 'Sgd'"),
        (UMAP(optimizer=3), UnsupportedError, "optimizer must be a name or a class"),
        (UMAP(scheduler="Linear"), OptionError, "unknown scheduler 'Linear'"),
        (UMAP(optimizer_kwargs="fast"), UnsupportedError, 'must be a dictionary of keyword arguments, "auto" or None'),
        (UMAP(metric="euclid"), OptionError, "unknown metric 'euclid'"),
        (UMAP(min_dist=2.0), OptionError, "min_dist must be at most spread"),
        (UMAP(a=1.0), OptionError, "give both or neither"),
        (UMAP(max_iter=0), OptionError, "max_iter must be at least 1"),
        (UMAP(n_components=0), OptionError, "n_components must be at least 1"),
        (UMAP(callbacks=[3]), UnsupportedError, "callbacks must be functions"),
        (UMAP(random_state="x"), UnsupportedError, "random_state must be"),
        (UMAP(distributed=True), OptionError, "needs a process group of several: start with torchrun"),
        (UMAP(distributed="maybe"), OptionError, "distributed"),
        (TSNE(method="barnes_hut"), OptionError, "'auto', 'exact', 'fft'"),
        (TSNE(method="fft", n_components=4), OptionError, "maps of 1 to 3 dimensions"),
        (TSNE(perplexity=200), OptionError, "largest that fits is 79"),
        (NeighborEmbedding(), OptionError, "affinity_in must be an affinity"),
    ):
        with pytest.raises(error, match=words):
            estimator.fit(ROWS)
    with pytest.raises(TypeError, match="n_neighbours"):
        UMAP(n_neighbours=3)


def test_a_fit_that_would_not_fit_into_memory_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000.0)
    with pytest.raises(MemoryBudgetError, match=r"UMAP of 80 rows would need about .* GiB are free; use fewer"):
        UMAP().fit(ROWS)


def test_report_and_log(caplog):
    with caplog.at_level(logging.INFO, logger="cartograd"):
        model = UMAP(n_neighbors=5, max_iter=5).fit(ROWS)
    assert model.report_["n"] == 80
    assert model.report_["d"] == 4
    assert set(model.report_["seconds"]) >= {"search", "affinities", "start", "layout"}
    assert "layout took" in caplog.text


def test_supervision_separates_classes():
    from sklearn.metrics import silhouette_score

    labels = numpy.arange(80) % 2
    free = UMAP(n_neighbors=10, max_iter=100).fit_transform(ROWS)
    led = UMAP(n_neighbors=10, max_iter=100).fit_transform(ROWS, labels)
    named = UMAP(n_neighbors=10, max_iter=100).fit_transform(ROWS, numpy.array(["even", "odd"])[labels])
    assert numpy.array_equal(led, named)
    half = UMAP(n_neighbors=10, max_iter=100).fit_transform(ROWS, numpy.where(numpy.arange(80) < 40, labels, -1))
    scores = [silhouette_score(Z, labels) for Z in (free, half, led)]
    print(scores)
    assert max(scores[:2]) < 0.1  # labels drawn by lot: in the data there is nothing to see
    assert scores[2] > 0.2
    with pytest.raises(InputError, match="one label for each of the 80 rows"):
        UMAP().fit(ROWS, labels[:10])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own
def test_compiled_forces_make_the_same_map():
    """Up to rounding, which a few steps do not blow up."""
    eager, compiled = (UMAP(n_neighbors=10, max_iter=5, compile=flag).fit_transform(ROWS) for flag in (False, True))
    assert numpy.abs(eager - compiled).max() < 1e-6 * numpy.abs(eager).max()
