"""TSNEkhorn: the scaling of its output, gradients, both input affinities, unrolling, new rows, quality."""

import numpy
import pytest
import torch
from sklearn.datasets import load_iris, make_moons
from sklearn.metrics import pairwise_distances, silhouette_score
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from cartograd import AffinityMatcher, SinkhornAffinity, SymmetricEntropicAffinity, TSNEkhorn
from cartograd.embedding import student_scaling
from cartograd.embedding.student_scaling import StudentKernel
from cartograd.errors import OptionError
from cartograd.neighbors import Graph

ROWS = numpy.random.RandomState(0).rand(80, 4)
IRIS, SPECIES = load_iris(return_X_y=True)


def watched(look, X=ROWS, **options):
    """What `look` sees of the model at each step of a fit."""
    seen = []

    class Probe(TSNEkhorn):
        def on_training_step_start(self):
            seen.append(look(self))

    Probe(**options).fit(X)
    return seen


def both(model):
    return model._gradient().clone(), AffinityMatcher._gradient(model).clone()


@pytest.mark.parametrize("scaling", [1e-4, 1.0, 30.0])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"symmetric_affinity": False},
        {"n_components": 3, "repulsion_strength": 0.6},
        {"n_components": 1, "early_exaggeration_coeff": 3.0, "early_exaggeration_iter": 9, "symmetric_affinity": False},
    ],
)
def test_closed_form_is_the_gradient_of_the_loss(options, scaling, monkeypatch):
    monkeypatch.setattr(student_scaling, "TILE", 80 * 30)
    seen = watched(both, perplexity=6, max_iter=3, init_scaling=scaling, precision="float64", **options)
    assert len(seen) == 3
    for closed, engine in seen:
        assert float((closed - engine).abs().max()) <= 1e-8 * float(engine.abs().max()) > 0


def test_also_for_points_at_one_place_and_far_away():
    layout = torch.randn(80, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    layout[10:20] = layout[10]
    layout[30] = 1e4

    def placed(model):
        model._layout.copy_(layout)
        return both(model)

    for closed, engine in watched(placed, perplexity=6, max_iter=1, precision="float64"):
        assert torch.isfinite(closed).all()
        assert float((closed - engine).abs().max()) <= 1e-8 * float(engine.abs().max())


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_engine_alone_makes_the_same_map(symmetric):
    class ByEngine(TSNEkhorn):
        _use_closed_form_gradients = False

    options = {"perplexity": 6, "max_iter": 60, "check_interval": 20, "symmetric_affinity": symmetric}
    options["precision"] = "float64"
    ours, engine = TSNEkhorn(**options).fit(ROWS), ByEngine(**options).fit(ROWS)
    assert numpy.allclose(ours.embedding_, engine.embedding_, atol=1e-6)
    assert ours.loss_ == pytest.approx(engine.loss_, rel=1e-9)


def test_scaling_makes_the_output_doubly_stochastic():
    Z = torch.randn(50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3
    kernel = StudentKernel(Z)
    u = kernel.scaled(torch.ones(50, dtype=torch.float64), 200)
    w = torch.cat(kernel.w)
    Q = u[:, None] * w * u / 50
    assert torch.allclose(Q.sum(1), torch.full((50,), 0.02, dtype=torch.float64), rtol=2e-5)
    expected = SinkhornAffinity(base_kernel="student", zero_diag=True)(Z)
    assert torch.allclose(Q, expected, rtol=1e-3)
    assert kernel.mass(u) == pytest.approx(1.0, rel=1e-5)
    once = kernel.scaled(torch.ones(50, dtype=torch.float64), 1)
    assert torch.allclose(once, 1 / w.sum(1).sqrt())


def test_the_scaling_goes_on_from_the_step_before():
    sums = watched(
        lambda model: (model._scaling * torch.cat(model._kernel.w).mv(model._scaling) - 1).abs().max(),
        perplexity=6,
        max_iter=40,
        init_scaling=1.0,
    )
    print("row sums are off by", [float(value) for value in sums[::10]])
    assert float(sums[0]) > 5e-3  # five updates from nothing
    assert float(sums[-1]) < 1e-3  # and five more at every step, while the points move


@pytest.mark.parametrize("symmetric", [True, False])
def test_input_affinities(symmetric):
    options = {"symmetric_affinity": symmetric, "precision": "float64"}
    seen = watched(lambda model: model.affinity_in_, perplexity=6, max_iter=1, **options)
    P = seen[0].to(torch.device("cpu"))
    if symmetric:
        expected = SymmetricEntropicAffinity(6, tol=1e-9)(ROWS)
        assert float((P - expected).abs().max()) < 1e-3 * float(expected.max())
        assert torch.allclose(80 * P.sum(1), torch.ones(80, dtype=torch.float64), atol=1e-3)
        perplexities = torch.special.entr(80 * P).sum(1).exp()
        assert float(perplexities.min()) > 5.98
        assert float(perplexities.median()) == pytest.approx(6.0, rel=1e-3)
    else:
        assert isinstance(P, Graph)
        assert float(P.weights.sum()) == pytest.approx(1.0)


def test_unrolled_updates_lead_to_the_same_map():
    # with P doubly stochastic, f is stationary: what its updates add to the gradient is the second term of the loss
    options = {"perplexity": 6, "max_iter": 60, "tol_affinity_in": 1e-9, "init_scaling": 1.0}
    plain, unrolled = TSNEkhorn(**options).fit(ROWS), TSNEkhorn(unrolling=True, **options).fit(ROWS)
    spread = numpy.abs(plain.embedding_).max()
    assert numpy.abs(plain.embedding_ - unrolled.embedding_).max() < 1e-2 * spread
    assert unrolled.loss_[-1] == pytest.approx(plain.loss_[-1] - 1.0, abs=1e-3)
    gradients = watched(lambda model: model._gradient(), unrolling=True, symmetric_affinity=False, max_iter=3)
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


def test_defaults_and_rate():
    model = TSNEkhorn()
    assert (model.perplexity, model.min_grad_norm, model.max_iter, model.lr) == (30.0, 1e-4, 2000, "auto")
    assert (model.lr_affinity_in, model.eps_square_affinity_in, model.tol_affinity_in) == (0.1, True, 1e-3)
    assert (model.max_iter_affinity_in, model.unrolling, model.symmetric_affinity) == (100, False, True)
    assert model.distributed is False
    seen = watched(
        lambda model: (model.optimizer_.param_groups[0]["lr"], model.optimizer_.param_groups[0]["momentum"]),
        perplexity=6,
        max_iter=2,
    )
    assert seen == [(20.0, 0.8)] * 2  # 80 / 4


def test_it_ends_when_the_gradient_is_small():
    model = TSNEkhorn(perplexity=6, min_grad_norm=1e-2, check_interval=10).fit(ROWS)
    assert model.n_iter_ < 2000
    assert model.n_iter_ % 10 == 0
    assert len(model.loss_) == model.n_iter_ // 10


def test_quality():
    found = silhouette_score(TSNEkhorn(max_iter=600, random_state=0).fit_transform(IRIS), SPECIES)
    print("silhouette on iris", found)
    assert found > 0.5
    X, y = make_moons(100, noise=0.05, random_state=0)
    for options in ({}, {"symmetric_affinity": False}, {"unrolling": True}):
        model = TSNEkhorn(perplexity=15, init="normal", max_iter=100, optimizer="Adam", lr=1.0, **options)
        found = silhouette_score(model.fit_transform(X), y)
        print("silhouette on moons", options, found)
        assert found > 0.2


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_quality_on_digits():
    from sklearn.datasets import load_digits

    from cartograd.metrics import neighborhood_preservation, trustworthiness

    X, y = load_digits(return_X_y=True)
    Z = TSNEkhorn(random_state=0).fit_transform(X.astype("float32"))
    found = (
        silhouette_score(Z, y),
        KNeighborsClassifier(10).fit(Z, y).score(Z, y),
        float(neighborhood_preservation(X, Z, 15)),
        float(trustworthiness(X, Z, k=15)),
    )
    print("silhouette, accuracy, neighbours preserved, trustworthiness", found)
    assert all(ours >= least for ours, least in zip(found, (0.5, 0.97, 0.55, 0.98), strict=True)), found


@pytest.mark.filterwarnings("ignore:.*is too large for .* different rows:UserWarning")
@pytest.mark.parametrize("n", [2, 3, 5, 9, 31])
@pytest.mark.parametrize("symmetric", [True, False])
def test_few_rows(n, symmetric):
    Z = TSNEkhorn(max_iter=200, symmetric_affinity=symmetric).fit_transform(ROWS[:n])
    assert numpy.isfinite(Z).all()
    assert 0 < pairwise_distances(Z).max() < 1e4


def test_neighbours_given_before_make_a_sparse_affinity():
    distances, indices = NearestNeighbors(n_neighbors=40).fit(ROWS).kneighbors(ROWS)
    given = TSNEkhorn(perplexity=6, max_iter=20, precomputed_knn=(indices, distances)).fit_transform(ROWS)
    sparse = TSNEkhorn(perplexity=6, max_iter=20, symmetric_affinity=False).fit_transform(ROWS)
    assert numpy.allclose(given, sparse, atol=1e-6)


def test_maps_of_distances():
    options = {"perplexity": 6, "max_iter": 30, "init": "normal"}
    by_rows = TSNEkhorn(**options).fit(ROWS)
    by_distances = TSNEkhorn(metric="precomputed", **options).fit(pairwise_distances(ROWS))
    assert numpy.allclose(by_rows.embedding_, by_distances.embedding_, atol=1e-5)


def test_options_that_cannot_be():
    for options, message in (
        ({"tol_affinity_in": 0.0}, "tol_affinity_in must be above 0"),
        ({"max_iter_affinity_in": 0}, "max_iter_affinity_in must be at least 1"),
        ({"unrolling": "yes"}, "unrolling must be one of True, False"),
        ({"symmetric_affinity": None}, "symmetric_affinity must be one of True, False"),
        ({"perplexity": 99}, "the largest that fits is 79"),
    ):
        with pytest.raises(OptionError, match=message):
            TSNEkhorn(**options).fit(ROWS)


def test_same_bits_at_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(student_scaling, "TILE", 1 << 11)
    X = numpy.random.RandomState(1).rand(150, 5).astype("float32")
    before, maps = torch.get_num_threads(), []
    try:
        for count in (1, 2, 4, 4):
            torch.set_num_threads(count)
            model = TSNEkhorn(perplexity=8, max_iter=8, random_state=3)
            maps.append((model.fit_transform(X), model.transform(X[:5] + 0.01)))
    finally:
        torch.set_num_threads(before)
    for fitted, placed in maps[1:]:
        assert numpy.array_equal(fitted, maps[0][0])
        assert numpy.array_equal(placed, maps[0][1])


def test_new_rows_are_placed_alone_and_among_their_kind():
    order = numpy.random.RandomState(0).permutation(len(IRIS))
    train, new = order[:100], order[100:]
    model = TSNEkhorn(perplexity=15, max_iter=400, random_state=0).fit(IRIS[train])
    placed = model.transform(IRIS[new])
    assert numpy.array_equal(model.transform(IRIS[train]), model.embedding_)
    shuffled = numpy.random.RandomState(1).permutation(len(new))
    assert numpy.array_equal(model.transform(IRIS[new][shuffled]), placed[shuffled])
    assert numpy.array_equal(model.transform(IRIS[new][4:5]), placed[4:5])
    accuracy = KNeighborsClassifier(10).fit(model.embedding_, SPECIES[train]).score(placed, SPECIES[new])
    print("accuracy of new rows", accuracy)
    assert accuracy > 0.9
