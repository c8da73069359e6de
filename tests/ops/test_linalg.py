"""Determinants, inverses, solving, Cholesky: singular matrices, vectors, batches, second derivatives, errors."""

import pytest
import torch
from parity import agree, randn

import cartograd


def spd(*shape, seed=0):
    half = randn(*shape, seed=seed)
    return half @ half.mT + torch.eye(shape[-1], dtype=half.dtype)


def test_det_of_singular_matrices_has_the_cofactors_as_gradient():
    rank_two = torch.tensor([[1.0, 2, 3], [4, 5, 6], [5, 7, 9]], dtype=torch.float64)
    x = cartograd.tensor(rank_two, requires_grad=True)
    torch.linalg.det(x).backward()
    cofactors = torch.tensor([[3.0, -6, 3], [3, -6, 3], [-3, 6, -3]], dtype=torch.float64)
    torch.testing.assert_close(x.grad.data, cofactors)


def test_det_of_matrices_of_low_rank_has_no_gradient():
    x = cartograd.tensor(torch.ones(3, 3, dtype=torch.float64), requires_grad=True)
    torch.linalg.det(x).backward()
    torch.testing.assert_close(x.grad.data, torch.zeros(3, 3, dtype=torch.float64))


def test_det_of_a_batch_in_which_one_is_singular():
    batch = randn(3, 2, 2)
    batch[1] = torch.tensor([[1.0, 2], [2, 4]])
    x = cartograd.tensor(batch, requires_grad=True)
    torch.linalg.det(x).sum().backward()
    signs = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    expected = batch.flip(1, 2) * signs  # the cofactors of [[a, b], [c, d]] are [[d, -c], [-b, a]]
    torch.testing.assert_close(x.grad.data, expected)


@pytest.mark.parametrize("spelling", [torch.det, torch.linalg.det, lambda x: x.det(), torch.logdet, torch.inverse])
def test_spellings(spelling):
    agree(spelling, spd(2, 3, 3))
    agree(spelling, spd(2, 3, 3).mT)


def test_slogdet_names_its_results():
    x = cartograd.tensor(randn(2, 2), requires_grad=True)
    result = torch.linalg.slogdet(x)
    assert result.logabsdet.requires_grad
    assert cartograd.gradcheck(lambda x: torch.linalg.slogdet(x).logabsdet, x)
    agree(lambda x: torch.slogdet(x)[1], -spd(3, 3))


def test_logdet_is_nan_where_the_determinant_is_negative():
    x = cartograd.tensor(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), requires_grad=True)
    assert torch.logdet(x).data.isnan()


@pytest.mark.parametrize(
    ("shape", "right", "left"),
    [
        ((3, 3), (3,), True),
        ((3, 3), (3, 2), True),
        ((3, 3), (2, 3), False),
        ((2, 3, 3), (2, 3), True),
        ((2, 3, 3), (3,), True),
        ((2, 3, 3), (3, 2), True),
        ((1, 3, 3), (4, 3, 2), True),
        ((3, 3), (4, 2, 3), False),
        ((0, 0), (0, 2), True),
    ],
)
def test_solve(shape, right, left):
    matrix = randn(*shape) + 3 * torch.eye(shape[-1], dtype=torch.float64)
    for needs in ([True, True], [True, False], [False, True]):
        agree(lambda a, b: torch.linalg.solve(a, b, left=left), matrix, randn(*right, seed=1), needs=needs)


def test_solve_refuses_a_singular_matrix_as_torch_does():
    singular = cartograd.tensor(torch.ones(2, 2), requires_grad=True)
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        torch.linalg.solve(singular, torch.ones(2))


@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_by_finite_differences(upper):
    def factor(half):
        return torch.linalg.cholesky(half @ half.mT + torch.eye(3, dtype=torch.float64), upper=upper)

    half = cartograd.tensor(randn(2, 3, 3), requires_grad=True)
    assert cartograd.gradcheck(factor, half)
    assert cartograd.gradgradcheck(factor, cartograd.tensor(randn(3, 3), requires_grad=True))
    agree(lambda x: torch.linalg.cholesky(x, upper=upper), spd(2, 3, 3))


def test_cross_along_an_axis():
    agree(lambda a, b: torch.cross(a, b, dim=0), randn(3, 2), randn(3, 2, seed=1))
    agree(lambda a, b: torch.linalg.cross(a, b), randn(2, 3), randn(1, 3, seed=1))
    agree(lambda a, b: a.cross(b, dim=-1), randn(2, 3), randn(2, 3, seed=1))


def test_cross_takes_the_first_axis_of_size_three():
    a, b = cartograd.tensor(randn(2, 3, 3), requires_grad=True), cartograd.tensor(randn(2, 3, 3, seed=1))
    torch.testing.assert_close(torch.cross(a, b).data, torch.linalg.cross(a.data, b.data, dim=1))


def test_trace_of_a_matrix_that_is_not_square():
    agree(torch.trace, randn(2, 4))
    x = cartograd.tensor(randn(4, 2), requires_grad=True)
    torch.testing.assert_close(x.trace().data, x.data[0, 0] + x.data[1, 1])
    x.trace().backward()
    assert x.grad.tolist() == [[1, 0], [0, 1], [0, 0], [0, 0]], "torch before 2.13 has ones below, too"
    with pytest.raises(RuntimeError, match="matrix"):
        torch.trace(cartograd.tensor(randn(2, 2, 2), requires_grad=True))


def test_float32_stays_float32():
    for function in (torch.linalg.det, torch.linalg.inv, torch.linalg.cholesky):
        assert agree(function, spd(3, 3).float())[0].dtype is torch.float32


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3)])
def test_the_logdet_of_complex_matrices_is_complex(shape):
    generator = torch.Generator().manual_seed(0)
    value = torch.randn(shape, dtype=torch.complex128, generator=generator)
    other, mine = value.clone().requires_grad_(), cartograd.tensor(value, requires_grad=True)
    expected, found = torch.logdet(other), torch.logdet(mine)
    assert expected.imag.abs().min() > 0.1
    torch.testing.assert_close(found.data, expected.detach())
    seed = torch.full(expected.shape, 1 - 2j, dtype=expected.dtype)
    expected.backward(seed)
    found.backward(seed)
    torch.testing.assert_close(mine.grad.data, other.grad)
    torch.testing.assert_close(torch.logdet(cartograd.tensor(value)).data, expected.detach())
