"""PaCMAP: weights by step, pairs drawn once, gradients, few rows, wide rows, new rows, quality."""

import numpy
import pytest
import torch
from scipy.stats import chisquare
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from cartograd import PACMAP, AffinityMatcher
from cartograd.affinity import mid_near_pairs
from cartograd.embedding.forces import edges
from cartograd.embedding.pacmap import fitting_pairs, phase_weights
from cartograd.embedding.pair_forces import DENSE_ROWS, Pairs
from cartograd.embedding.reduction import DIMENSIONS
from cartograd.errors import OptionError
from cartograd.metrics import knn_label_accuracy, neighborhood_preservation, silhouette_score, trustworthiness

ROWS = numpy.random.RandomState(0).rand(150, 5)


def watched(look, X=ROWS, **options):
    """What `look` sees of the model at each step of a fit."""
    seen = []

    class Probe(PACMAP):
        def on_training_step_start(self):
            seen.append(look(self))

    model = Probe(**options).fit(X)
    return seen, model


def test_weights_of_the_phases_to_the_digit():
    assert phase_weights(0, 100) == (2.0, 1000.0, 1.0)
    assert phase_weights(50, 100) == (2.0, 501.5, 1.0)
    assert phase_weights(99, 100) == pytest.approx((2.0, 12.97, 1.0), rel=1e-12)
    assert phase_weights(100, 100) == phase_weights(199, 100) == (3.0, 3.0, 1.0)
    assert phase_weights(200, 100) == phase_weights(449, 100) == (1.0, 0.0, 1.0)


def test_steps_rate_and_weights_of_a_fit_and_of_the_next():
    seen, model = watched(
        lambda model: (model.weights_, model.optimizer_.param_groups[0]["lr"], type(model.optimizer_)),
        max_iter=25,
        iter_per_phase=10,
    )
    assert [weights for weights, _, _ in seen] == [phase_weights(step, 10) for step in range(25)]
    assert {(lr, kind) for _, lr, kind in seen} == {(1.0, torch.optim.Adam)}
    first = model.embedding_.copy()
    model.fit(ROWS)
    assert seen[25][0] == (2.0, 1000.0, 1.0)
    assert numpy.array_equal(model.embedding_, first)


def test_defaults():
    model = PACMAP()
    assert (model.n_neighbors, model.MN_ratio, model.FP_ratio, model.iter_per_phase) == (10, 0.5, 2.0, 100)
    assert (model.max_iter, model.lr, model.optimizer, model.discard_NNs) == (450, 1.0, "Adam", True)
    assert (model.init, model.init_scaling, model.n_negatives) == ("pca", 1e-4, None)


def test_pairs_are_drawn_once():
    def pairs(model):
        return [part.cpu().clone() for part in (model.near_indices_, model.mid_near_indices_, model.neg_indices_)]

    seen, _ = watched(pairs, max_iter=6, iter_per_phase=2, random_state=4)
    for later in seen[1:]:
        assert all(torch.equal(a, b) for a, b in zip(seen[0], later, strict=True))
    near, mid, far = seen[0]
    assert (near.shape, mid.shape, far.shape) == ((150, 10), (150, 5), (150, 20))
    assert torch.equal(mid, mid_near_pairs(ROWS, 5, 4))
    other, _ = watched(pairs, max_iter=1, random_state=5)
    assert torch.equal(other[0][0], near)
    assert not torch.equal(other[0][1], mid)
    assert not torch.equal(other[0][2], far)


def test_near_pairs_are_those_of_the_rescaled_distance():
    distances, indices = NearestNeighbors(n_neighbors=61).fit(ROWS).kneighbors(ROWS)
    distances, indices = distances[:, 1:], indices[:, 1:]
    sigma = distances[:, 3:6].mean(1)
    order = numpy.argsort(distances**2 / sigma[:, None] / sigma[indices], axis=1, kind="stable")[:, :10]
    expected = numpy.take_along_axis(indices, order, 1)
    seen, _ = watched(lambda model: model.near_indices_.cpu().numpy(), max_iter=1)
    assert numpy.array_equal(seen[0], expected)


@pytest.mark.parametrize("discard", [True, False])
def test_far_pairs_are_uniform_over_what_is_allowed(discard):
    X = numpy.random.RandomState(1).rand(1000, 3)
    seen, _ = watched(
        lambda model: (model.near_indices_, model.neg_indices_), X, max_iter=1, random_state=11, discard_NNs=discard
    )
    near, far = (part.cpu().numpy() for part in seen[0])
    ranks = []  # of each far row among all that are allowed, from 0 to 1
    for i in range(1000):
        excluded = numpy.append(near[i], i) if discard else [i]
        allowed = numpy.setdiff1d(numpy.arange(1000), excluded)
        assert len(set(far[i])) == 20
        assert numpy.isin(far[i], allowed).all()
        ranks.append(numpy.searchsorted(allowed, far[i]) / len(allowed))
    counts = numpy.histogram(numpy.concatenate(ranks), bins=40, range=(0, 1))[0]
    p = chisquare(counts).pvalue
    print("p value", p)
    assert p > 1e-3
    assert len(numpy.unique(far)) == 1000  # every row is drawn by some other


@pytest.mark.parametrize("n", [DENSE_ROWS, 150])
@pytest.mark.parametrize(
    "options",
    [
        {"max_iter": 3},
        {"max_iter": 3, "iter_per_phase": 2, "n_components": 3, "repulsion_strength": 0.6},
        {"max_iter": 3, "iter_per_phase": 1, "n_components": 1},
        {"max_iter": 3, "early_exaggeration_coeff": 4.0, "early_exaggeration_iter": 9, "discard_NNs": False},
    ],
)
def test_closed_form_is_the_gradient_of_the_loss(n, options):
    def both(model):
        return model._gradient().clone(), AffinityMatcher._gradient(model).clone()

    seen, _ = watched(both, ROWS[:n], precision="float64", **options)
    assert len(seen) == 3
    for closed, engine in seen:
        assert float((closed - engine).abs().max()) <= 1e-10 * float(engine.abs().max()) > 0


def test_the_engine_alone_makes_the_same_map():
    class ByEngine(PACMAP):
        _use_closed_form_gradients = False

    options = {"max_iter": 30, "iter_per_phase": 10, "check_interval": 10, "precision": "float64"}
    ours, engine = PACMAP(**options).fit(ROWS), ByEngine(**options).fit(ROWS)
    assert numpy.allclose(ours.embedding_, engine.embedding_, atol=1e-6)
    assert ours.loss_ == pytest.approx(engine.loss_, rel=1e-9)


def test_matrix_and_lists_of_pairs_give_the_same_forces(monkeypatch):
    others = torch.randint(0, 30, (30, 7), generator=torch.Generator().manual_seed(0))
    Z = torch.randn(30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    dense = Pairs.of(others, torch.float64).gradient(Z, 3.0, 2.0)
    monkeypatch.setattr("cartograd.embedding.pair_forces.DENSE_ROWS", 0)
    assert torch.allclose(Pairs.of(others, torch.float64).gradient(Z, 3.0, 2.0), dense, rtol=1e-12)


def test_numbers_of_pairs():
    assert fitting_pairs(36, 10, 5, 20) == (10, 5, 20)
    assert fitting_pairs(35, 10, 5, 20) == (10, 5, 20)
    with pytest.warns(UserWarning, match="n_neighbors=10 .* is too large for 21 different rows: 6 used"):
        assert fitting_pairs(21, 10, 5, 20) == (6, 3, 12)
    with pytest.warns(UserWarning, match=": 1 used"):
        assert fitting_pairs(2, 10, 5, 20) == (1, 0, 1)


@pytest.mark.filterwarnings("ignore:.*is too large for .* different rows:UserWarning")
@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 11, 30, 62])
def test_few_rows_have_a_map_and_do_not_fall_together(n):
    Z = PACMAP().fit_transform(ROWS[:n])
    apart = torch.cdist(torch.from_numpy(Z), torch.from_numpy(Z)) + torch.eye(n)
    assert numpy.isfinite(Z).all()
    assert float(apart.min()) > 1e-3
    assert numpy.abs(Z).max() < 1e3


def test_two_rows_are_where_attraction_and_repulsion_balance():
    with pytest.warns(UserWarning, match="too large for 2 different rows"):
        Z = PACMAP(max_iter=1000).fit_transform(ROWS[:2])
    # both push and pull: 10 / (10 + d)^2 = 1 / (1 + d)^2, each row drawing both pairs
    d = (10 - 10**0.5) / (10**0.5 - 1)
    assert float(((Z[0] - Z[1]) ** 2).sum()) == pytest.approx(d - 1, rel=1e-3)


def test_options_that_cannot_be():
    with pytest.raises(OptionError, match="n_negatives is FP_ratio times n_neighbors: give one"):
        PACMAP(n_negatives=5, FP_ratio=3.0).fit(ROWS)
    with pytest.raises(OptionError, match="MN_ratio must be at least 0"):
        PACMAP(MN_ratio=-1.0).fit(ROWS)
    with pytest.raises(OptionError, match="iter_per_phase must be at least 1"):
        PACMAP(iter_per_phase=0).fit(ROWS)
    assert PACMAP(n_negatives=7, max_iter=2, MN_ratio=0.0).fit_transform(ROWS).shape == (150, 2)
    assert PACMAP(FP_ratio=0.0, max_iter=2).fit_transform(ROWS).shape == (150, 2)


def test_neighbours_given_before():
    distances, indices = NearestNeighbors(n_neighbors=61).fit(ROWS).kneighbors(ROWS)
    expected = PACMAP(max_iter=5, iter_per_phase=2).fit_transform(ROWS)
    given = PACMAP(max_iter=5, iter_per_phase=2, precomputed_knn=(indices, distances)).fit_transform(ROWS)
    assert numpy.allclose(given, expected, atol=1e-6)
    few = PACMAP(max_iter=5, precomputed_knn=(indices[:, :13], distances[:, :13])).fit_transform(ROWS)
    assert numpy.isfinite(few).all()
    with pytest.raises(OptionError, match=r"precomputed_knn has 6 neighbours .* and 10 are needed"):
        PACMAP(precomputed_knn=(indices[:, :7], distances[:, :7])).fit(ROWS)


def test_same_bits_at_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(edges, "BLOCK", 1 << 9)
    X = numpy.random.RandomState(1).rand(600, 120).astype("float32")
    before, maps = torch.get_num_threads(), []
    try:
        for count in (1, 2, 4, 4):
            torch.set_num_threads(count)
            model = PACMAP(max_iter=12, iter_per_phase=4, random_state=3)
            maps.append((model.fit_transform(X), model.transform(X[:5] + 0.01)))
    finally:
        torch.set_num_threads(before)
    for fitted, placed in maps[1:]:
        assert numpy.array_equal(fitted, maps[0][0])
        assert numpy.array_equal(placed, maps[0][1])


def test_wide_rows_are_compared_in_their_leading_components():
    rng = numpy.random.RandomState(2)
    signal = rng.randn(300, DIMENSIONS) * 5
    rotation = numpy.linalg.qr(rng.randn(160, 160))[0]
    X = numpy.concatenate([signal, rng.randn(300, 60) * 1e-3], 1) @ rotation + 7.0
    seen, model = watched(lambda model: model.near_indices_, X, max_iter=1)
    flat, _ = watched(lambda model: model.near_indices_, signal, max_iter=1)
    assert float((seen[0] == flat[0]).double().mean()) > 0.999
    assert model._placement.source.rows.width == DIMENSIONS
    assert numpy.array_equal(model.transform(X), model.embedding_)
    exact = NearestNeighbors(n_neighbors=1).fit(X).kneighbors(X[:50] + 1e-4)[1][:, 0]
    placed = model.transform(X[:50] + 1e-4)
    assert numpy.isfinite(placed).all()
    assert numpy.array_equal(exact, numpy.arange(50))
    cosine, narrow = PACMAP(max_iter=1, metric="cosine").fit(X), PACMAP(max_iter=1).fit(X[:90])
    assert cosine._placement.source.rows.width == narrow._placement.source.rows.width == 160


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X.astype("float32"), y, PACMAP(random_state=0).fit(X[:1500].astype("float32"))


def test_quality_on_digits(digits):
    X, y, model = digits
    Z, y = model.embedding_, y[:1500]
    found = (
        float(silhouette_score(Z, y)),
        float(knn_label_accuracy(Z, y, k=10)),
        float(neighborhood_preservation(X[:1500], Z, 15)),
        float(trustworthiness(X[:1500], Z, k=15)),
    )
    print(found)
    assert all(ours >= least for ours, least in zip(found, (0.60, 0.975, 0.48, 0.978), strict=True)), found


def test_new_rows(digits):
    X, y, model = digits
    new, labels = X[1500:], y[1500:]
    placed = model.transform(new)
    order = numpy.random.RandomState(0).permutation(len(new))
    assert numpy.array_equal(model.transform(new[order]), placed[order])
    assert numpy.array_equal(model.transform(new[3:4]), placed[3:4])
    assert numpy.array_equal(model.transform(X[:1500][::-1]), model.embedding_[::-1])
    from sklearn.neighbors import KNeighborsClassifier

    accuracy = KNeighborsClassifier(10).fit(model.embedding_, y[:1500]).score(placed, labels)
    print("accuracy of new rows", accuracy)
    assert accuracy > 0.93


@pytest.mark.slow
def test_forces_and_pairs_are_those_of_the_package():
    package = pytest.importorskip("pacmap.pacmap")
    X = numpy.random.RandomState(3).rand(200, 6)
    seen, _ = watched(
        lambda model: [
            model.weights_,
            model._layout.clone(),
            model._gradient(),
            *(part.numpy() for part in (model.near_indices_, model.mid_near_indices_, model.neg_indices_)),
        ],
        X,
        max_iter=12,
        iter_per_phase=4,
    )
    for step, (weights, Z, gradient, *pairs) in enumerate(seen):
        theirs = package.find_weight(1000.0, step, num_iters=(4, 4, 4))
        assert weights == pytest.approx((theirs[1], theirs[0], theirs[2]))
        lists = [
            numpy.stack([numpy.repeat(numpy.arange(200), part.shape[1]), part.ravel()], 1).astype("int32")
            for part in pairs
        ]
        expected = package.pacmap_grad(Z.numpy().astype("float32"), *lists, weights[0], weights[1], weights[2])[:-1]
        assert numpy.abs(gradient.numpy() - expected).max() < 1e-4 * numpy.abs(expected).max()
    distances, indices = NearestNeighbors(n_neighbors=61).fit(X).kneighbors(X)
    distances, indices = distances[:, 1:].astype("float32"), indices[:, 1:].astype("int32")
    scaled = package.scale_dist(distances, distances[:, 3:6].mean(1), indices)
    theirs = package.sample_neighbors_pair(X.astype("float32"), scaled, indices, 10)[:, 1].reshape(200, 10)
    assert float((theirs == seen[0][3]).mean()) > 0.99
