"""Products: ranks and spellings, dtypes, what is saved, Parameters, errors."""

import operator

import pytest
import torch
import torch.nn.functional as F
from parity import agree, randn

import cartograd

RANKS = [(3,), (2, 3), (4, 2, 3), (1, 2, 3), (2, 1, 2, 3)]
OTHERS = [(3,), (3, 2), (4, 3, 2), (1, 3, 2), (2, 1, 3, 2)]


@pytest.mark.parametrize("left", RANKS)
@pytest.mark.parametrize("right", OTHERS)
def test_matmul_of_all_ranks_and_needs(left, right):
    for needs in ([True, True], [True, False], [False, True]):
        agree(torch.matmul, randn(*left), randn(*right, seed=1), needs=needs)


SPELLINGS = [torch.matmul, operator.matmul, torch.Tensor.matmul, torch.linalg.matmul, lambda a, b: b.__rmatmul__(a)]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_of_matmul_reaches_our_op(spelling):
    if spelling is torch.Tensor.matmul:
        agree(lambda a, b: a.matmul(b), randn(2, 3), randn(3, 2))
    else:
        agree(spelling, randn(2, 3), randn(3, 2))


def test_a_plain_matrix_on_either_side():
    weight = randn(3, 2, seed=1)
    agree(lambda x: x @ weight, randn(2, 3))
    agree(lambda x: weight @ x, randn(2, 3))
    agree(lambda x: torch.matmul(weight, x), randn(4, 2, 3))


def test_the_gradient_of_a_shared_matrix_makes_no_batch_of_matrices():
    x = cartograd.tensor(randn(4, 2, 3), requires_grad=True)
    weight = cartograd.tensor(randn(3, 2), requires_grad=True)
    assert (x @ weight).node.name == "matmul_rows"
    assert (weight @ x).node.name == "matmul_columns"


@pytest.mark.parametrize("left", [(0, 3), (2, 0), (3, 0, 2), (0, 2, 3)])
def test_empty_matrices(left):
    agree(torch.matmul, torch.zeros(left, dtype=torch.float64), randn(left[-1], 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_gradients_keep_the_dtype(dtype):
    first, second = agree(torch.matmul, randn(2, 2, 3, dtype=dtype), randn(3, 2, seed=1, dtype=dtype))
    assert first.dtype is second.dtype is dtype
    for gradient in agree(F.linear, randn(2, 3, dtype=dtype), randn(2, 3, seed=1, dtype=dtype), randn(2, dtype=dtype)):
        assert gradient.dtype is dtype


def test_matrices_that_are_not_contiguous():
    agree(lambda a, b: a.t() @ b[::2].t(), randn(3, 2), randn(4, 3, seed=1))


def test_a_number_is_no_matrix():
    x = cartograd.tensor(randn(2, 2), requires_grad=True)
    with pytest.raises(TypeError):
        x @ 3
    with pytest.raises(TypeError):
        3 @ x
    with pytest.raises(TypeError):
        torch.matmul(x, 3)
    with pytest.raises(RuntimeError, match="shapes"):
        x @ cartograd.tensor(randn(3, 2))


def test_complex_matrices_take_torchs_derivative():
    x = cartograd.tensor(torch.randn(2, 2, dtype=torch.complex128), requires_grad=True)
    for out in (x @ x, torch.einsum("ij,jk->ik", x, x), F.linear(x, x), x[0], x[torch.tensor([0, 1])]):
        assert out.requires_grad
        found = cartograd.grad(out.abs().sum(), x, retain_graph=True)[0]
        assert found.dtype is torch.complex128


@pytest.mark.parametrize(
    ("shape", "weight", "bias"),
    [
        ((4, 3), (2, 3), (2,)),
        ((4, 3), (2, 3), None),
        ((3,), (2, 3), (2,)),
        ((2, 2, 3), (2, 3), (2,)),
        ((2, 2, 3), (2, 3), (1,)),
        ((2, 2, 3), (2, 3), (2, 2)),
        ((2, 2, 3), (3,), ()),
        ((3,), (3,), None),
        ((0, 3), (2, 3), (2,)),
        ((2, 0, 3), (2, 3), (2,)),
    ],
)
def test_linear_of_all_ranks(shape, weight, bias):
    rest = () if bias is None else (randn(*bias, seed=2),)
    agree(F.linear, randn(*shape), randn(*weight, seed=1), *rest)


@pytest.mark.parametrize("needs", [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1) if a + b + c])
def test_linear_saves_only_what_the_wanted_gradients_need(needs):
    needs = [bool(need) for need in needs]
    agree(F.linear, randn(4, 3), randn(2, 3, seed=1), randn(2, seed=2), needs=needs)
    tensors = [cartograd.tensor(t, requires_grad=n) for t, n in zip((randn(4, 3), randn(2, 3), randn(2)), needs)]
    saved = F.linear(*tensors).node.saved
    assert len(saved) == needs[0] + needs[1]


def test_linear_layers_with_parameters():
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 2).double()
    x = randn(4, 3)
    layer(x).pow(2).sum().backward()
    expected = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    out = layer(cartograd.tensor(x))
    assert out.node.name == "linear"
    out.pow(2).sum().backward()
    torch.testing.assert_close([parameter.grad for parameter in layer.parameters()], expected)
    assert out.data.grad_fn is None, "torch recorded it as well"
    assert torch.is_grad_enabled()


def test_second_derivative_through_a_parameter():
    layer = torch.nn.Linear(3, 2).double()
    x = randn(4, 3).requires_grad_()
    (first,) = torch.autograd.grad(layer(x).pow(3).sum(), x, create_graph=True)
    expected = torch.autograd.grad(first.pow(2).sum(), [x, layer.weight])
    ours = cartograd.tensor(x.detach(), requires_grad=True)
    (first,) = cartograd.grad(layer(ours).pow(3).sum(), ours, create_graph=True)
    found = cartograd.grad(first.pow(2).sum(), [ours, layer.weight])
    torch.testing.assert_close([one.data for one in found], list(expected))


def test_linear_leaves_grad_mode_on_after_an_error():
    with pytest.raises(RuntimeError, match="shapes"):
        F.linear(cartograd.tensor(randn(2, 3), requires_grad=True), torch.zeros(2, 4, dtype=torch.float64))
    assert torch.is_grad_enabled()


def test_linear_records_nothing_without_need():
    x = cartograd.tensor(randn(2, 3))
    assert not F.linear(x, randn(2, 3)).requires_grad
    with torch.no_grad():
        assert not F.linear(x, torch.nn.Parameter(randn(2, 3))).requires_grad


def test_the_place_of_the_call_is_the_users():
    x = cartograd.tensor(randn(2, 3), requires_grad=True)
    for out in (F.linear(x, randn(2, 3)), x @ randn(3, 2), x[0], x[torch.tensor([1])]):
        assert "test_products.py" in out.node.where()


def test_bilinear_layer():
    torch.manual_seed(0)
    layer = torch.nn.Bilinear(2, 3, 4).double()
    agree(layer, randn(5, 2), randn(5, 3))
    agree(lambda a, b: F.bilinear(a, b, layer.weight, None), randn(2, 5, 2), randn(2, 5, 3))


def test_vector_products():
    agree(torch.dot, randn(3), randn(3, seed=1))
    agree(torch.vdot, randn(3), randn(3, seed=1))
    agree(torch.ger, randn(3), randn(2, seed=1))
    agree(torch.inner, randn(2, 3), randn(4, 2, 3, seed=1))
    agree(torch.inner, randn(2, 3), randn(seed=1))
    agree(lambda a, b: a.mv(b), randn(2, 3), randn(3, seed=1))
    with pytest.raises(RuntimeError):
        torch.mm(cartograd.tensor(randn(2, 2, 2), requires_grad=True), randn(2, 2))


def test_in_place_matrix_sums():
    agree(
        lambda x, a, b: (x * 1).addmm_(a, b, beta=0.5, alpha=2), randn(2, 2), randn(2, 3, seed=1), randn(3, 2, seed=2)
    )


def test_beta_zero_ignores_the_input():
    nan = torch.full((2, 2), float("nan"), dtype=torch.float64)
    gradient = agree(lambda x, a, b: torch.addmm(x, a, b, beta=0), nan, randn(2, 3), randn(3, 2))[0]
    assert (gradient == 0).all()


@pytest.mark.parametrize("other", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_outer_of_two_dtypes(dtype, other):
    agree(torch.outer, randn(3, dtype=dtype), randn(4, seed=1).mul(5).to(other))


@pytest.mark.parametrize("shape", [(3, 4, 0), (4, 0), (0,), (0, 3)])
def test_linear_of_a_vector_as_weight_and_nothing_to_add_up(shape):
    agree(F.linear, randn(*shape), randn(shape[-1], seed=1))
