"""Sinkhorn, quadratic and symmetric entropic affinities: marginals, optimality, gradients, hard data."""

import dataclasses
import logging

import numpy
import pytest
import torch
from scipy.optimize import minimize

import cartograd
from cartograd.affinity import DoublyStochasticQuadraticAffinity, SinkhornAffinity, SymmetricEntropicAffinity
from cartograd.affinity.sinkhorn import doubly_stochastic
from cartograd.errors import OptionError, UnsupportedError

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-8}


def points(n=100, d=4, dtype=torch.float64, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def squared(X):
    return torch.cdist(X, X, compute_mode="donot_use_mm_for_euclid_dist").square()


AFFINITIES = [
    SinkhornAffinity(),
    SinkhornAffinity(eps=0.3, base_kernel="student"),
    SinkhornAffinity(zero_diag=False),
    DoublyStochasticQuadraticAffinity(),
    DoublyStochasticQuadraticAffinity(eps=20.0, zero_diag=False),
    DoublyStochasticQuadraticAffinity(base_kernel="student"),
    SymmetricEntropicAffinity(20),
    SymmetricEntropicAffinity(10.5, zero_diag=False),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("affinity", AFFINITIES, ids=repr)
def test_rows_and_columns_sum_to_1_over_n(affinity, dtype):
    P = affinity(points(dtype=dtype))
    assert P.dtype == dtype
    assert bool((P >= 0).all())
    ones = torch.ones(100, dtype=dtype)
    torch.testing.assert_close(100 * P.sum(1), ones, atol=TOLERANCE[dtype], rtol=0)
    torch.testing.assert_close(100 * P.sum(0), ones, atol=TOLERANCE[dtype], rtol=0)
    torch.testing.assert_close(P, P.T, atol=0, rtol=0)
    assert bool((P.diagonal() == 0).all()) == affinity.zero_diag


@pytest.mark.parametrize("affinity", AFFINITIES, ids=repr)
def test_log(affinity):
    torch.testing.assert_close(affinity(points(), log=True).exp(), affinity(points()))


@pytest.mark.parametrize("data", [torch.ones(12, 3).double(), points(12).repeat(2, 1)], ids=["constant", "doubled"])
@pytest.mark.parametrize("affinity", [*AFFINITIES[:6], SymmetricEntropicAffinity(5)], ids=repr)
def test_equal_rows(affinity, data):
    P = affinity(data) * len(data)
    torch.testing.assert_close(P.sum(1), torch.ones(len(data)).double(), atol=1e-7, rtol=0)


@pytest.mark.parametrize("affinity", AFFINITIES[:2] + AFFINITIES[3:4], ids=repr)
def test_two_rows(affinity):
    torch.testing.assert_close(affinity(points(2)), torch.tensor([[0.0, 0.5], [0.5, 0.0]]).double())


class TestSinkhorn:
    @pytest.mark.parametrize("zero_diag", [True, False])
    def test_is_a_scaling_of_the_kernel(self, zero_diag):
        """log P - log K = f_i + f_j: with the marginals, what makes it the one solution."""
        X = points(30)
        rest = SinkhornAffinity(0.7, zero_diag=zero_diag)(X, log=True) + squared(X) / 0.7
        f = SinkhornAffinity(0.7, zero_diag=zero_diag)(X, log=True)
        i, j, k, m = (torch.arange(30).roll(shift) for shift in (0, 7, 13, 20))
        torch.testing.assert_close(rest[i, j] + rest[k, m], rest[i, m] + rest[k, j], atol=1e-9, rtol=0)
        assert bool((f.diagonal() == -torch.inf).all()) == zero_diag

    def test_a_narrow_kernel_without_diagonal(self, caplog):
        """Where the iteration alone would take thousands of steps."""
        P = SinkhornAffinity()(points(200, 50)) * 200
        torch.testing.assert_close(P.sum(1), torch.ones(200).double(), atol=1e-8, rtol=0)
        assert not caplog.records

    def test_says_when_it_did_not_arrive(self, caplog):
        with caplog.at_level(logging.WARNING, "cartograd.affinity"):
            SinkhornAffinity(tol=1e-30, max_iter=1)(points(10))
        assert "Sinkhorn affinity: its conditions hold within" in caplog.text

    @pytest.mark.parametrize("log", [False, True])
    @pytest.mark.parametrize("kernel", ["gaussian", "student"])
    @pytest.mark.parametrize("zero_diag", [True, False])
    def test_gradcheck(self, log, kernel, zero_diag):
        X = cartograd.Tensor(points(6, 2), requires_grad=True)
        affinity = SinkhornAffinity(1.5, base_kernel=kernel, with_grad=True, tol=1e-13, zero_diag=zero_diag)
        keep = ~torch.eye(6, dtype=torch.bool)
        assert cartograd.gradcheck(lambda x: affinity(x, log=log)[keep], X)

    def test_gradient_of_any_kernel(self):
        L = cartograd.Tensor(points(5, 5), requires_grad=True)
        assert cartograd.gradcheck(lambda log_K: doubly_stochastic(log_K, 1e-13, 1000), L)

    def test_second_derivatives(self):
        X = cartograd.Tensor(points(5, 2), requires_grad=True)
        affinity, weights = SinkhornAffinity(with_grad=True, tol=1e-13, zero_diag=False), points(5, 5, seed=1)
        assert cartograd.gradgradcheck(lambda x: (affinity(x) * weights).sum(), X)

    def test_two_rows_have_nothing_to_differentiate(self):
        x = cartograd.Tensor(points(2), requires_grad=True)
        (SinkhornAffinity(with_grad=True)(x) * torch.tensor([[0.0, 1.0], [3.0, 0.0]])).sum().backward()
        torch.testing.assert_close(x.grad.data, torch.zeros(2, 4).double(), atol=1e-9, rtol=0)

    def test_detached_unless_asked(self):
        assert not SinkhornAffinity()(cartograd.Tensor(points(8), requires_grad=True)).requires_grad
        assert SinkhornAffinity(with_grad=True)(cartograd.Tensor(points(8), requires_grad=True)).requires_grad


def cheapest(C, cost, constraints, start):
    """scipy's minimum of cost(P) over symmetric P >= 0 with rows that sum to one."""
    n = len(C)
    upper = numpy.triu_indices(n)

    def full(x):
        P = numpy.zeros((n, n))
        P[upper] = x
        return P + numpy.triu(P, 1).T

    rows = [{"type": "eq", "fun": lambda x: full(x).sum(1) - 1}]
    more = [{"type": "ineq", "fun": lambda x, g=g: g(full(x))} for g in constraints]
    found = minimize(
        lambda x: cost(full(x)), start[upper], method="SLSQP", bounds=[(1e-12, 1)] * len(upper[0]),
        constraints=rows + more, options={"maxiter": 1000, "ftol": 1e-12},
    )  # fmt: skip
    assert found.status in (0, 8), found.message  # 8: no way further down, to rounding
    return full(found.x)


@pytest.mark.parametrize("seed", [0, 1])
def test_quadratic_is_the_cheapest(seed):
    C = squared(points(5, 2, seed=seed)).numpy()
    best = cheapest(C, lambda P: (P * C).sum() + 1.5 / 2 * (P * P).sum(), [], numpy.full((5, 5), 0.2))
    ours = DoublyStochasticQuadraticAffinity(3.0 / 2, zero_diag=False, metric="precomputed")(C) * 5
    numpy.testing.assert_allclose(ours, best, atol=2e-4)


@pytest.mark.parametrize("seed", [0, 1])
def test_symmetric_entropic_is_the_cheapest(seed):
    C = squared(points(5, 2, seed=seed)).numpy()

    def entropies(P):
        return -(P * numpy.log(numpy.maximum(P, 1e-300))).sum(1) - numpy.log(3.0)

    best = cheapest(C, lambda P: (P * C).sum(), [entropies], numpy.full((5, 5), 0.2))
    ours = SymmetricEntropicAffinity(3.0, zero_diag=False)(points(5, 2, seed=seed)) * 5
    numpy.testing.assert_allclose(ours, best, atol=2e-3)
    assert float((ours.numpy() * C).sum()) == pytest.approx((best * C).sum(), rel=1e-4)


class TestSymmetricEntropic:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("perplexity", [10, 30, 30.5])
    @pytest.mark.parametrize("zero_diag", [True, False])
    def test_every_row_has_the_perplexity(self, dtype, perplexity, zero_diag):
        P = SymmetricEntropicAffinity(perplexity, zero_diag=zero_diag)(points(150, 2, dtype)) * 150
        found = torch.exp(torch.special.entr(P.double()).sum(1))
        torch.testing.assert_close(
            found, torch.full((150,), float(perplexity), dtype=torch.float64), atol=0, rtol=TOLERANCE[dtype]
        )

    def test_hubs_have_more_and_nobody_less(self):
        P = SymmetricEntropicAffinity(5)(points(120, 50)) * 120
        found = torch.exp(torch.special.entr(P).sum(1))
        assert float(found.min()) > 5 - 1e-7
        assert float(found.median()) == pytest.approx(5, abs=1e-7)
        assert float(found.max()) > 5.5


class TestErrors:
    @pytest.mark.parametrize("kind", [SinkhornAffinity, DoublyStochasticQuadraticAffinity])
    def test_parameters(self, kind):
        with pytest.raises(OptionError, match="eps must be above 0 and finite, got 0"):
            kind(eps=0)
        with pytest.raises(OptionError, match="tol must be above 0 and finite, got -1"):
            kind(tol=-1)
        with pytest.raises(OptionError, match=r"max_iter must be at least 1, got 0"):
            kind(max_iter=0)
        with pytest.raises(OptionError, match="base_kernel must be one of 'gaussian', 'student', got 'box'"):
            kind(base_kernel="box")
        with pytest.raises(OptionError, match="an affinity needs at least 2 rows, got 1"):
            kind()(points(1))

    def test_symmetric_entropic(self):
        with pytest.raises(OptionError, match="perplexity must be at least 1"):
            SymmetricEntropicAffinity(0)
        with pytest.raises(UnsupportedError, match=r"max_iter must be a whole number, got 1.5"):
            SymmetricEntropicAffinity(max_iter=1.5)
        with pytest.raises(OptionError, match="the largest that fits is 19"):
            SymmetricEntropicAffinity(30)(points(20))


@pytest.mark.parametrize(
    "affinity",
    [SinkhornAffinity(max_iter=1), DoublyStochasticQuadraticAffinity(), SymmetricEntropicAffinity(20)],
    ids=lambda one: type(one).__name__,
)
def test_progress_only_where_asked(affinity, capsys):
    affinity(points())
    assert capsys.readouterr().err == ""
    dataclasses.replace(affinity, verbose=True)(points())
    assert "affinity, Newton steps" in capsys.readouterr().err
