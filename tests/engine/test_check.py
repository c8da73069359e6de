"""gradcheck and gradgradcheck find wrong gradients, and only those (F12)."""

import pytest
import torch
from torch import nn

import cartograd
from cartograd import errors


def leaf(*numbers, dtype=torch.float64):
    return cartograd.tensor(list(numbers), requires_grad=True, dtype=dtype)


def square_with(rule):
    """x^2 with a gradient rule to try."""

    @cartograd.primitive()
    def square(x: torch.Tensor):
        return x * x

    square.vjp("x")(rule)
    return square


right = square_with(lambda g, x: 2 * g * x)
BAD_RULES = {
    "factor": lambda g, x: 3 * g * x,
    "sign": lambda g, x: -2 * g * x,
    "forgets g": lambda g, x: 2 * x,
    "nan": lambda g, x: g * x * float("nan"),
    "one nan": lambda g, x: torch.where(x == x.max(), torch.full_like(x, float("nan")), 2 * g * x),
    "inf": lambda g, x: g * float("inf"),
    "zero": lambda g, x: torch.zeros_like(x),
    "none": lambda g, x: None,
    "one element": lambda g, x: 2 * g * x + (x == x.max()) * 1e-2,
}


@pytest.mark.parametrize("name", BAD_RULES)
def test_F12_wrong_rule_fails(name):
    bad = square_with(BAD_RULES[name])
    with pytest.raises(errors.GradcheckError, match=r"output 0 .*input 0 .*analytic .*numeric"):
        cartograd.gradcheck(lambda x: bad(x).exp().sum(), leaf(0.3, 0.7))
    assert cartograd.gradcheck(lambda x: bad(x).exp(), leaf(0.3, 0.7), raise_exception=False) is False


def test_F12_nan_in_the_numeric_estimate_fails():
    with pytest.raises(errors.GradcheckError, match="nan"):
        cartograd.gradcheck(torch.sqrt, leaf(-1.0))


def test_F12_is_an_assertion_error_too():
    with pytest.raises(AssertionError):
        cartograd.gradcheck(square_with(BAD_RULES["nan"]), leaf(1.0))


def test_right_rule_passes():
    assert cartograd.gradcheck(right, leaf(0.3, 0.7)) is True
    assert cartograd.gradgradcheck(right, leaf(0.3, 0.7)) is True


def test_F12_does_not_touch_grad_and_can_be_called_twice():
    x = leaf(0.3, 0.7)
    (x * 5).sum().backward()
    for _ in range(2):
        assert cartograd.gradcheck(right, x)
        assert cartograd.gradgradcheck(right, x)
    assert x.grad.tolist() == [5.0, 5.0]
    assert x.tolist() == [0.3, 0.7]


def test_does_not_fire_the_callers_hooks():
    x = leaf(0.3, 0.7)
    calls = []
    x.register_hook(lambda g: calls.append(1) or g * 100)
    assert cartograd.gradcheck(right, x)
    assert cartograd.gradgradcheck(right, x)
    assert calls == []


def test_inner_tensors_and_parameters_can_be_checked():
    assert cartograd.gradcheck(right, leaf(0.3) * 2)
    assert cartograd.gradcheck(lambda x, w: x * w, (leaf(0.3), nn.Parameter(torch.ones(1, dtype=torch.float64))))


def test_several_inputs_and_outputs_are_all_checked():
    @cartograd.primitive(multiple=True)
    def both(x: torch.Tensor, y: torch.Tensor):
        return x * y, x + y

    @both.vjp("x")
    def _(g, y):
        return g[0] * y + g[1]

    @both.vjp("y")
    def _(g, x):
        return g[0] * x + 2 * g[1]  # wrong for the second output

    with pytest.raises(errors.GradcheckError, match=r"output 1 .*input 1 "):
        cartograd.gradcheck(both, (leaf(0.3), leaf(0.7)))


def test_inputs_without_grad_are_passed_on():
    assert cartograd.gradcheck(lambda x, c, n: x * c * n, (leaf(0.3), torch.tensor([2.0], dtype=torch.float64), 3))


def test_non_contiguous_0d_and_empty_inputs():
    strided = cartograd.tensor(torch.arange(6.0, dtype=torch.float64).reshape(2, 3).t(), requires_grad=True)
    assert cartograd.gradcheck(right, strided)
    assert cartograd.gradcheck(right, cartograd.tensor(0.3, requires_grad=True, dtype=torch.float64))
    assert cartograd.gradcheck(right, cartograd.tensor(torch.ones(0, dtype=torch.float64), requires_grad=True))


def test_single_precision_needs_a_tolerance_to_match():
    with pytest.raises(errors.UnsupportedError, match=r"float32.*float64"):
        cartograd.gradcheck(right, leaf(0.5, dtype=torch.float32))
    assert cartograd.gradcheck(right, leaf(0.5, dtype=torch.float32), eps=1e-2, atol=1e-2)


def test_nothing_to_check_is_an_error_not_a_pass():
    with pytest.raises(errors.UnsupportedError, match="requires grad"):
        cartograd.gradcheck(right, cartograd.tensor([1.0]))
    for function in (
        lambda x: torch.ones(1),
        lambda x: x.argmax(),
        lambda x: None,
    ):
        with pytest.raises(errors.UnsupportedError):
            cartograd.gradcheck(function, leaf(0.3, 0.7))


def test_result_cut_from_its_input_fails():
    with pytest.raises(errors.CartogradError):
        cartograd.gradcheck(lambda x: x.detach() * 2, leaf(0.3))
    with pytest.raises(errors.GradcheckError):
        cartograd.gradcheck(lambda x: x * x.detach(), leaf(0.3))


def test_complex_outputs_do_not_pass_unseen():
    @cartograd.primitive()
    def bad(x: torch.Tensor):
        return x * 1.0

    bad.vjp("x")(lambda g: g * 2)
    with pytest.raises(errors.CartogradError):
        cartograd.gradcheck(lambda x: torch.complex(bad(x), x), leaf(0.3))


def test_wrong_second_derivative_fails_gradgradcheck_alone():
    bad = square_with(lambda g, x: 2 * g * x.detach())
    assert cartograd.gradcheck(bad, leaf(0.3, 0.7))
    with pytest.raises(errors.GradcheckError):
        cartograd.gradgradcheck(bad, leaf(0.3, 0.7))
    nan = square_with(lambda g, x: 2 * g * x + (x - x.detach()) * float("nan"))
    with pytest.raises(errors.GradcheckError):
        cartograd.gradgradcheck(nan, leaf(0.3, 0.7))


def test_rule_that_cuts_the_incoming_gradient_fails_gradgradcheck():
    bad = square_with(lambda g, x: 2 * g.detach() * x)
    with pytest.raises(errors.GradcheckError):
        cartograd.gradgradcheck(bad, leaf(0.3, 0.7))


def test_gradgradcheck_of_fallback_ops():
    x = cartograd.tensor(torch.tensor([[2.0, 0.3], [0.1, 1.5]], dtype=torch.float64), requires_grad=True)
    assert cartograd.gradgradcheck(torch.linalg.inv, x)
    assert cartograd.gradgradcheck(torch.linalg.det, x)
    assert cartograd.gradgradcheck(lambda x: torch.sort(x)[0] ** 2, x)
