"""CO-SNE: gradients, inside the ball, any unit of the data, new rows, quality."""

import numpy
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.metrics import pairwise_distances, silhouette_score
from sklearn.neighbors import KNeighborsClassifier

from cartograd import COSNE, AffinityMatcher
from cartograd.embedding.forces import edges, tiles
from cartograd.embedding.poincare_ball import RIM
from cartograd.embedding.poincare_dense import MOST_ROWS
from cartograd.embedding.riemannian import RiemannianAdam
from cartograd.errors import InputError, OptionError

ROWS = numpy.random.RandomState(0).rand(300, 4)
IRIS, SPECIES = load_iris(return_X_y=True)


def watched(look, X=ROWS, **options):
    """What `look` sees of the model at each step of a fit."""
    seen = []

    class Probe(COSNE):
        def on_training_step_start(self):
            seen.append(look(self))

    Probe(**options).fit(X)
    return seen


@pytest.mark.parametrize("n", [10, MOST_ROWS, MOST_ROWS + 1])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_components": 3, "gamma": 0.7, "learning_rate_for_h_loss": 0.3, "repulsion_strength": 0.6},
        {"n_components": 1, "early_exaggeration_coeff": 3.0, "early_exaggeration_iter": 9},
        {"init_scaling": 3.0, "learning_rate_for_h_loss": 0.0},
    ],
)
def test_closed_form_is_the_gradient_of_the_loss(n, options):
    def both(model):
        return model._gradient().clone(), AffinityMatcher._gradient(model).clone()

    seen = watched(both, ROWS[:n], perplexity=4, max_iter=3, **options)
    assert len(seen) == 3
    for closed, engine in seen:
        assert float((closed - engine).abs().max()) <= 1e-8 * float(engine.abs().max()) > 0


def test_also_for_points_at_one_place_and_at_the_rim():
    layout = torch.randn(300, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) * 0.3
    layout[10:20] = layout[10]
    layout[30] = torch.tensor([RIM[torch.float64], 0.0])

    def both(model):
        model._layout.copy_(layout[: len(model._layout)])
        return model._gradient().clone(), AffinityMatcher._gradient(model).clone()

    for n in (50, 300):
        for closed, engine in watched(both, ROWS[:n], perplexity=4, max_iter=1):
            assert torch.isfinite(closed).all()
            largest = engine.abs().amax(1, keepdim=True)
            assert float(((closed - engine).abs() / largest).max()) < 1e-6


@pytest.mark.parametrize("n", [40, 300])
def test_the_engine_alone_makes_the_same_map(n):
    class ByEngine(COSNE):
        _use_closed_form_gradients = False

    options = {"perplexity": 5, "max_iter": 30, "check_interval": 10, "repulsion_strength": 0.8}
    ours, engine = COSNE(**options).fit(ROWS[:n]), ByEngine(**options).fit(ROWS[:n])
    assert numpy.allclose(ours.embedding_, engine.embedding_, atol=1e-6)
    assert ours.loss_ == pytest.approx(engine.loss_, rel=1e-8)


def test_defaults_rate_and_optimiser():
    model = COSNE()
    assert (model.perplexity, model.gamma, model.learning_rate_for_h_loss, model.max_iter) == (30.0, 2.0, 1.0, 2000)
    assert (model.init, model.init_scaling, model.lr, model.optimizer) == ("hyperbolic", 0.5, "auto", "RiemannianAdam")
    seen = watched(lambda model: (model.optimizer_.param_groups[0]["lr"], type(model.optimizer_)), max_iter=3)
    assert seen == [(0.2, RiemannianAdam)] * 3
    steps = watched(lambda model: [state["step"] for state in model.optimizer_.state.values()], max_iter=4)
    assert steps == [[], [1], [2], [3]]
    assert watched(lambda model: model._layout.dtype, ROWS.astype("float32"), max_iter=1) == [torch.float64]


FEW = ROWS[:100]


@pytest.mark.parametrize("X", [FEW * 1000 + 500, FEW * 1e-6, FEW * 1e12], ids=["shifted", "small", "large"])
def test_unit_and_origin_of_the_data_do_not_matter(X):
    options = {"perplexity": 10, "max_iter": 40, "random_state": 1}
    assert numpy.allclose(COSNE(**options).fit_transform(X), COSNE(**options).fit_transform(FEW), atol=1e-5)


@pytest.mark.parametrize("options", [{"lr": 50.0}, {"optimizer": "Adam"}, {"optimizer": "SGD", "lr": 100.0}])
def test_the_map_stays_inside_the_ball(options):
    for X in (ROWS, ROWS.astype("float32")):
        lengths = numpy.linalg.norm(COSNE(perplexity=5, max_iter=60, **options).fit_transform(X[:100]), axis=1)
        assert numpy.isfinite(lengths).all()
        assert lengths.max() < 1


def test_rows_far_from_the_mean_are_far_from_the_middle():
    model = COSNE(perplexity=10, max_iter=300, random_state=0).fit(IRIS)
    distance = 2 * numpy.arctanh(numpy.linalg.norm(model.embedding_, axis=1))
    squares = ((IRIS - IRIS.mean(0)) ** 2).sum(1)
    correlation = numpy.corrcoef(distance**2, squares)[0, 1]
    print("correlation of heights", correlation)
    assert correlation > 0.98
    assert numpy.mean(distance**2) == pytest.approx(1.0, abs=0.2)


def test_quality_on_iris():
    Z = COSNE(random_state=0, max_iter=800).fit_transform(IRIS)
    found = silhouette_score(Z, SPECIES)
    print("silhouette", found)
    assert found > 0.5  # -0.05 where the learning rate throws all to the rim
    assert KNeighborsClassifier(10).fit(Z, SPECIES).score(Z, SPECIES) > 0.9


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_quality_on_digits():
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    Z = COSNE(random_state=0).fit_transform(X)
    found = silhouette_score(Z, y), KNeighborsClassifier(10).fit(Z, y).score(Z, y)
    print("silhouette, accuracy", found)
    assert found[0] > 0.35
    assert found[1] > 0.85


def test_starts():
    flat = numpy.random.RandomState(1).randn(300, 2)
    options = {"perplexity": 5, "max_iter": 1, "lr": 1e-9}
    Z = COSNE(init=flat, **options).fit_transform(ROWS)
    scaled = 0.5 * flat / flat[:, 0].std(ddof=1)
    length = numpy.linalg.norm(scaled, axis=1, keepdims=True)
    assert numpy.allclose(Z, numpy.tanh(length) * scaled / length, atol=1e-6)
    inside = flat * 0.1
    assert numpy.allclose(COSNE(init=inside, init_scaling=None, **options).fit_transform(ROWS), inside, atol=1e-6)
    with pytest.raises(InputError, match=r"init must lie inside the unit ball, but its row \d+ has the length"):
        COSNE(init=flat, init_scaling=None).fit(ROWS)
    assert numpy.isfinite(COSNE(init="pca", **options).fit_transform(ROWS)).all()


def test_options_that_cannot_be():
    with pytest.raises(OptionError, match="gamma must be at least 1e-06"):
        COSNE(gamma=0.0).fit(ROWS)
    with pytest.raises(OptionError, match="learning_rate_for_h_loss must be at least 0"):
        COSNE(learning_rate_for_h_loss=-1.0).fit(ROWS)


@pytest.mark.filterwarnings("ignore:.*is too large for .* different rows:UserWarning")
@pytest.mark.parametrize("n", [2, 3, 5, 9])
def test_few_rows(n):
    Z = COSNE(max_iter=200).fit_transform(ROWS[:n])
    assert numpy.isfinite(Z).all()
    assert 1e-3 < pairwise_distances(Z).max() < 2


@pytest.mark.parametrize("n", [120, MOST_ROWS + 20])
def test_same_bits_at_any_number_of_threads(n, monkeypatch):
    monkeypatch.setattr(edges, "BLOCK", 1 << 9)
    monkeypatch.setattr(tiles, "TILE", 1 << 13)
    X = numpy.random.RandomState(1).rand(n, 5)
    before, maps = torch.get_num_threads(), []
    try:
        for count in (1, 2, 4, 4):
            torch.set_num_threads(count)
            model = COSNE(perplexity=8, max_iter=8, random_state=3)
            maps.append((model.fit_transform(X), model.transform(X[:5] + 0.01)))
    finally:
        torch.set_num_threads(before)
    for fitted, placed in maps[1:]:
        assert numpy.array_equal(fitted, maps[0][0])
        assert numpy.array_equal(placed, maps[0][1])


@pytest.fixture(scope="module")
def of_half_the_iris():
    order = numpy.random.RandomState(0).permutation(len(IRIS))
    train, new = order[:100], order[100:]
    return COSNE(perplexity=15, max_iter=400, random_state=0).fit(IRIS[train]), train, new


def test_new_rows_are_placed_alone_and_among_their_kind(of_half_the_iris):
    model, train, new = of_half_the_iris
    placed = model.transform(IRIS[new])
    assert numpy.array_equal(model.transform(IRIS[train]), model.embedding_)
    order = numpy.random.RandomState(1).permutation(len(new))
    assert numpy.array_equal(model.transform(IRIS[new][order]), placed[order])
    assert numpy.array_equal(model.transform(IRIS[new][4:5]), placed[4:5])
    accuracy = KNeighborsClassifier(10).fit(model.embedding_, SPECIES[train]).score(placed, SPECIES[new])
    print("accuracy of new rows", accuracy)
    assert accuracy > 0.85
    assert numpy.linalg.norm(placed, axis=1).max() < 1


def test_new_rows_far_outside_stay_inside_the_ball(of_half_the_iris):
    model, _, _ = of_half_the_iris
    placed = model.transform(numpy.array([[1e9, 0.0, -1e9, 5.0], [300.0, 300.0, 300.0, 300.0]]))
    assert numpy.isfinite(placed).all()
    lengths = numpy.linalg.norm(placed, axis=1)
    assert lengths.max() < 1
    assert lengths.min() > numpy.linalg.norm(model.embedding_, axis=1).max() - 0.1  # but as far out as any


def test_a_row_much_like_a_training_row_is_placed_beside_it(of_half_the_iris):
    model, train, _ = of_half_the_iris
    placed = model.transform(IRIS[train] + 1e-4)
    apart = numpy.linalg.norm(placed - model.embedding_, axis=1)
    print("median distance", numpy.median(apart))
    assert numpy.median(apart) < 0.1


def test_maps_of_distances():
    D = pairwise_distances(FEW)
    options = {"perplexity": 15, "max_iter": 40, "random_state": 0}
    by_rows, by_distances = COSNE(**options).fit(FEW), COSNE(metric="precomputed", **options).fit(D)
    assert numpy.allclose(by_rows.embedding_, by_distances.embedding_, atol=1e-5)
    assert numpy.isfinite(by_distances.transform(D[:5] + 0.01)).all()
