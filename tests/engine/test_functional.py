"""grad, vjp, jvp, jacobian, hessian, hvp, against what calculus says (F10)."""

import pytest
import torch
from torch import nn

import cartograd
from cartograd import errors


def values(*numbers):
    return cartograd.tensor(list(numbers), dtype=torch.float64)


def leaf(*numbers):
    return values(*numbers).requires_grad_()


def close(found, expected, **tolerance):
    found = found.data if isinstance(found, cartograd.Tensor) else found
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=torch.float64), **tolerance)


# grad


def test_grad_returns_one_gradient_for_each_input_and_stores_none():
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    gx, gy = cartograd.grad((x * y).sum(), [x, y])
    assert gx.tolist() == [3.0, 4.0]
    assert gy.tolist() == [1.0, 2.0]
    assert x.grad is None
    assert y.grad is None


def test_grad_of_one_input_is_a_tuple_of_one():
    x = leaf(3.0)
    found = cartograd.grad(x * x, x)
    assert isinstance(found, tuple)
    assert found[0].item() == 6.0


def test_grad_with_respect_to_inner_tensors_and_the_output_itself():
    x = leaf(2.0)
    y = x * 3
    z = y * y
    gx, gy, gz = cartograd.grad(z, [x, y, z])
    assert (gx.item(), gy.item(), gz.item()) == (36.0, 12.0, 1.0)


def test_grad_of_several_outputs_with_their_gradients():
    x = leaf(1.0, 2.0)
    outs = [x * x, x.sum(), x[0]]
    seeds = [torch.tensor([1.0, 10.0], dtype=torch.float64), None, values(100.0)[0]]
    (found,) = cartograd.grad(outs, x, seeds)
    assert found.tolist() == [2.0 + 1 + 100, 40.0 + 1]


def test_grad_with_respect_to_parameters():
    w = nn.Parameter(torch.tensor([2.0]))
    (found,) = cartograd.grad((cartograd.tensor([3.0]) * w * w).sum(), [w])
    assert type(found) is cartograd.Tensor
    assert found.item() == 12.0
    assert w.grad is None


def test_unused_input_is_an_error_unless_allowed():
    x, other = leaf(1.0), leaf(1.0)
    with pytest.raises(errors.NoGradientError, match=r"input 1 .*allow_unused=True"):
        cartograd.grad(x * x, [x, other])
    assert cartograd.grad(x * x, [x, other], allow_unused=True)[1] is None


def test_input_without_grad_is_an_error():
    x = leaf(1.0)
    with pytest.raises(errors.NoGradientError, match="does not require grad"):
        cartograd.grad(x * x, cartograd.tensor(1.0))


def test_number_of_grad_outputs_must_fit():
    x = leaf(1.0, 2.0)
    with pytest.raises(errors.GradientShapeError, match="2 outputs"):
        cartograd.grad([x.sum(), x.sum()], x, [torch.tensor(1.0, dtype=torch.float64)])


def test_grad_frees_the_graph_unless_retained():
    x = leaf(3.0)
    y = x * x
    cartograd.grad(y, x, retain_graph=True)
    cartograd.grad(y, x)
    with pytest.raises(errors.GraphFreedError, match="retain_graph=True"):
        cartograd.grad(y, x)


# vjp and jvp


def swirl(x, y):
    return torch.stack([x[0] * y[0] ** 2, (x[1] / y[1]).exp(), x.sum() * y.sum()])


X, Y = [0.3, -0.7], [1.2, 0.5]


def swirl_jacobian():
    (x0, x1), (y0, y1) = X, Y
    e = torch.tensor(x1 / y1, dtype=torch.float64).exp().item()
    by_x = [[y0**2, 0.0], [0.0, e / y1], [y0 + y1, y0 + y1]]
    by_y = [[2 * x0 * y0, 0.0], [0.0, -e * x1 / y1**2], [x0 + x1, x0 + x1]]
    return torch.tensor(by_x, dtype=torch.float64), torch.tensor(by_y, dtype=torch.float64)


def test_vjp_is_v_times_the_jacobian():
    v = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    out, (by_x, by_y) = cartograd.vjp(swirl, (values(*X), values(*Y)), v)
    a, b = swirl_jacobian()
    close(out, swirl(torch.tensor(X, dtype=torch.float64), torch.tensor(Y, dtype=torch.float64)))
    close(by_x, v @ a)
    close(by_y, v @ b)


def test_jvp_is_the_jacobian_times_v_exactly():
    v, w = torch.tensor([1.0, -2.0], dtype=torch.float64), torch.tensor([0.5, 3.0], dtype=torch.float64)
    _, pushed = cartograd.jvp(swirl, (values(*X), values(*Y)), (v, w))
    a, b = swirl_jacobian()
    close(pushed, a @ v + b @ w, rtol=1e-13, atol=1e-14)  # no finite difference is that good


def test_jvp_in_single_precision_is_no_difference_quotient():
    x = cartograd.tensor([10.0])
    _, pushed = cartograd.jvp(lambda x: x * x * x, x, torch.ones(1))
    assert pushed.item() == 300.0


def test_jvp_can_be_differentiated():
    x = leaf(2.0)
    _, pushed = cartograd.jvp(lambda x: x**3, x, values(1.0), create_graph=True)
    (second,) = cartograd.grad(pushed, x)
    close(second, [12.0])


@pytest.mark.parametrize("function", [torch.special.i0, torch.linalg.vector_norm, lambda x: torch.sort(x)[0]])
def test_jvp_through_torchs_derivatives(function):
    x = torch.tensor([0.3, 0.9, -0.4], dtype=torch.float64)
    v = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    _, expected = torch.autograd.functional.jvp(function, x, v)
    _, pushed = cartograd.jvp(function, cartograd.tensor(x), v)
    close(pushed, expected)


def test_vectors_of_a_wrong_shape_are_refused():
    with pytest.raises(errors.GradientShapeError, match=r"\(2,\).*\(3,\)"):
        cartograd.jvp(lambda x: x * 2, values(1.0, 2.0, 3.0), values(1.0, 2.0))
    with pytest.raises(errors.GradientShapeError, match=r"\(3,\).*\(2,\)"):
        cartograd.vjp(lambda x: x * 2, values(1.0, 2.0, 3.0), values(1.0, 2.0))


def test_functions_that_ignore_their_input_have_zero_derivatives():
    x, fixed = values(1.0, 2.0), values(3.0, 4.0)
    assert cartograd.vjp(lambda x: fixed.sum(), x)[1].tolist() == [0.0, 0.0]
    assert cartograd.jvp(lambda x: fixed, x, x)[1].tolist() == [0.0, 0.0]
    assert cartograd.jacobian(lambda x: fixed, x).tolist() == [[0.0, 0.0]] * 2
    assert cartograd.hessian(lambda x: fixed.sum(), x).tolist() == [[0.0, 0.0]] * 2
    assert cartograd.hvp(lambda x: fixed.sum(), x, x)[1].tolist() == [0.0, 0.0]


def test_they_work_under_no_grad_and_leave_no_trace():
    x = leaf(2.0)
    with cartograd.no_grad():
        assert cartograd.vjp(lambda x: x**3, x)[1].item() == 12.0
        assert cartograd.jvp(lambda x: x**3, x, values(1.0))[1].item() == 12.0
        assert cartograd.jacobian(lambda x: x**3, x).item() == 12.0
        assert cartograd.hessian(lambda x: x.sum() ** 3, x).item() == 12.0
        assert cartograd.hvp(lambda x: x.sum() ** 3, x, values(1.0))[1].item() == 12.0
    assert x.grad is None


# jacobian, hessian, hvp


def test_jacobian_of_two_inputs():
    by_x, by_y = cartograd.jacobian(swirl, (values(*X), values(*Y)))
    a, b = swirl_jacobian()
    close(by_x, a)
    close(by_y, b)


def test_jacobian_has_the_shapes_of_output_and_input():
    x = cartograd.tensor(torch.randn(2, 3), requires_grad=True)
    assert cartograd.jacobian(lambda x: x @ torch.ones(3, 4), x).shape == (2, 4, 2, 3)
    assert cartograd.jacobian(lambda x: x.sum(), x).shape == (2, 3)
    assert cartograd.jacobian(lambda x: x[:0], x).shape == (0, 3, 2, 3)


def test_jacobian_refuses_what_is_no_single_tensor():
    with pytest.raises(errors.UnsupportedError, match="one Tensor"):
        cartograd.jacobian(lambda x: (x, x), values(1.0))
    with pytest.raises(errors.UnsupportedError, match="one Tensor"):
        cartograd.jacobian(lambda x: torch.ones(1), values(1.0))


def test_F10_hessian_of_the_sum_of_exponentials_is_diagonal():
    x = values(0.0, 1.0, -0.5)
    close(cartograd.hessian(lambda x: x.exp().sum(), x), torch.diag(x.data.exp()))


def test_F10_hessian_through_a_linear_layer_and_a_broadcast():
    torch.manual_seed(0)
    layer = nn.Linear(3, 4).double()
    x = torch.randn(3, dtype=torch.float64)

    def energy(x):
        return (layer(x) * x.sum() + x.mean()).tanh().sum()

    expected = torch.autograd.functional.hessian(energy, x)
    close(cartograd.hessian(energy, cartograd.tensor(x)), expected)


def test_hessian_of_two_inputs_is_a_tuple_of_tuples():
    x, y = values(2.0), values(3.0)
    blocks = cartograd.hessian(lambda x, y: (x * x * y * y * y).sum(), (x, y))
    assert [[block.item() for block in row] for row in blocks] == [[54.0, 108.0], [108.0, 72.0]]


def test_hvp_is_the_hessian_times_v():
    x, v = values(0.3, -0.2, 0.8), torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64)

    def energy(x):
        return (x.prod() + x.sin().sum()) ** 2

    out, product = cartograd.hvp(energy, x, v)
    close(product, cartograd.hessian(energy, x).data @ v)
    close(out, energy(x.data))


def test_hvp_of_a_linear_function_is_zero():
    assert cartograd.hvp(lambda x: x.sum(), values(1.0, 2.0), values(1.0, 1.0))[1].tolist() == [0.0, 0.0]


def test_inputs_that_already_belong_to_a_graph_stay_in_it():
    x = leaf(2.0)
    y = x * 3
    _, pulled = cartograd.vjp(lambda y: y * y, y, create_graph=True)
    (found,) = cartograd.grad(pulled, x)
    assert found.item() == 6.0
