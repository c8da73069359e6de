"""PHATE: its gradient against the engine's, its layout against least squares by another way, its parameters."""

import numpy
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits
from sklearn.manifold import smacof

import cartograd
from cartograd.affinity import PHATEAffinity
from cartograd.embedding.phate import PHATE, stress, stress_and_gradient
from cartograd.errors import MemoryBudgetError, OptionError
from cartograd.metrics import trustworthiness

DIGITS = load_digits().data[:150]


def problem(n, c, seed):
    rng = numpy.random.default_rng(seed)
    D = cdist(*(rng.normal(size=(n, 6)),) * 2)
    return -torch.from_numpy(D), torch.from_numpy(rng.normal(size=(n, c)))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("n", "c"), [(2, 1), (7, 2), (60, 3), (700, 2)])
@pytest.mark.parametrize("coincident", [False, True])
def test_gradient_is_the_engines(n, c, seed, coincident):
    P, Z = problem(n, c, seed)
    if coincident:
        Z[1::2] = Z[0]
    points = cartograd.Tensor(Z, requires_grad=True)
    loss = stress(P, points)
    loss.backward()
    value, gradient = stress_and_gradient(P, Z)
    assert value == pytest.approx(float(loss), rel=1e-12)
    torch.testing.assert_close(gradient, points.grad.data, rtol=1e-6, atol=1e-9)


def test_gradient_by_differences():
    P, Z = problem(9, 2, 3)
    _, gradient = stress_and_gradient(P, Z)
    step = torch.zeros_like(Z)
    step[4, 1] = 1e-6
    slope = (stress_and_gradient(P, Z + step)[0] - stress_and_gradient(P, Z - step)[0]) / 2e-6
    assert float(gradient[4, 1]) == pytest.approx(slope, rel=1e-6)


def test_no_stress_and_nothing_to_match():
    _, Z = problem(20, 2, 0)
    exact = -torch.cdist(Z, Z, compute_mode="donot_use_mm_for_euclid_dist")
    loss, gradient = stress_and_gradient(exact, Z)
    assert loss < 1e-15
    assert bool(torch.isfinite(gradient).all())
    loss, gradient = stress_and_gradient(torch.zeros(20, 20, dtype=torch.float64), Z)
    assert loss == pytest.approx(float(exact.square().sum().sqrt()))


def test_layout_is_that_of_least_squares():
    model = PHATE(t=10, max_iter=600).fit(DIGITS)
    D = -model.affinity_in_.cpu().numpy()
    numpy.testing.assert_allclose(-PHATEAffinity(t=10)(DIGITS), D)
    placed, _ = smacof(
        D, n_components=2, init=model.embedding_, n_init=1, max_iter=300, eps=1e-9, normalized_stress=False
    )
    reached = stress_and_gradient(model.affinity_in_, torch.from_numpy(placed).to(model.affinity_in_.device))[0]
    assert model.loss_[-1] <= reached * 1.001  # majorisation from there finds nothing better
    assert model.loss_[-1] < 0.25
    assert trustworthiness(DIGITS, model.embedding_, k=10) > 0.85


def test_both_ways_to_the_gradient_give_the_same_map():
    class ByTheEngine(PHATE):
        _use_closed_form_gradients = False

    options = {"t": 5, "max_iter": 30, "precision": "float64"}
    one, two = PHATE(**options).fit(DIGITS), ByTheEngine(**options).fit(DIGITS)
    numpy.testing.assert_allclose(one.embedding_, two.embedding_, rtol=1e-6, atol=1e-6)
    assert one.loss_ == pytest.approx(two.loss_)


def test_defaults():
    shown = PHATE().get_params()
    expected = {
        "k": 5,
        "n_components": 2,
        "t": 100,
        "alpha": 10.0,
        "optimizer": "Adam",
        "lr": 1.0,
        "max_iter": 1000,
        "min_grad_norm": 1e-15,
        "init": "pca",
        "init_scaling": 1.0,
        "metric_in": "euclidean",
        "backend": None,
    }
    assert {name: shown[name] for name in expected} == expected
    assert "affinity_in" not in shown


def test_new_rows():
    model = PHATE(t=5, max_iter=100).fit(DIGITS)
    new = load_digits().data[150:160]
    assert numpy.array_equal(model.transform(DIGITS), model.embedding_)
    Z = model.transform(new)
    assert numpy.array_equal(model.transform(new[::-1]), Z[::-1])
    nearest = cdist(new, DIGITS).argmin(1)
    apart = numpy.linalg.norm(Z - model.embedding_[nearest], axis=1)
    assert numpy.median(apart) < 0.3 * model.embedding_.std()


def test_distances_landmarks_and_auto():
    D = cdist(DIGITS, DIGITS)
    given = PHATE(t=5, max_iter=100, init="normal", metric_in="precomputed").fit(D)
    rows = PHATE(t=5, max_iter=100, init="normal").fit(DIGITS)
    assert given.loss_[-1] == pytest.approx(rows.loss_[-1], rel=1e-3)
    assert PHATE(t="auto", n_landmarks=40, max_iter=100).fit(DIGITS).loss_[-1] < 0.3


def test_the_same_bits_at_any_thread_count():
    X = torch.from_numpy(DIGITS).to(torch.float32)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(PHATE(t=5, max_iter=20).fit_transform(X))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


def test_refusals(monkeypatch):
    with pytest.raises(OptionError, match="backend must be one of None, got 'faiss'"):
        PHATE(backend="faiss").fit(DIGITS)
    with pytest.raises(OptionError, match="k must be at least 1"):
        PHATE(k=0).fit(DIGITS)
    with pytest.raises(OptionError, match="unknown metric_in"):
        PHATE(metric_in="euclid").fit(DIGITS)
    with pytest.warns(UserWarning, match="k=5 is too large for 4 different rows: 3 used"):
        PHATE(max_iter=5).fit(DIGITS[:4])
    monkeypatch.setattr("cartograd.embedding.memory.free_bytes", lambda device: 1e5)
    with pytest.raises(MemoryBudgetError, match="PHATE of 150 rows would need"):
        PHATE().fit(DIGITS)
