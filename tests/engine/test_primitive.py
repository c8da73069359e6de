"""Ops that users declare: every form of @primitive and @vjp, and what a wrong rule is told (F15)."""

import pytest
import torch
from torch import nn

import cartograd
from cartograd import errors
from cartograd.engine.primitive import RULES


def leaf(*numbers):
    return cartograd.tensor(list(numbers), requires_grad=True, dtype=torch.float64)


# Forms of declaration


def test_one_rule_for_each_input_and_gradcheck():
    @cartograd.primitive()
    def blend(a: torch.Tensor, b: torch.Tensor):
        return a * b + a

    blend.vjp("a")(lambda g, b: g * (b + 1))
    blend.vjp("b")(lambda g, a: g * a)
    assert cartograd.gradcheck(blend, (leaf(0.3, 0.4), leaf(0.5, 0.6)))
    assert cartograd.gradgradcheck(blend, (leaf(0.3, 0.4), leaf(0.5, 0.6)))


def test_bare_vjp_is_for_all_tensor_inputs():
    @cartograd.primitive()
    def blend(a: torch.Tensor, b: torch.Tensor, *, scale=1.0):
        return a * b * scale

    @blend.vjp
    def _(g, a, b, scale):
        return g * b * scale, g * a * scale

    assert cartograd.gradcheck(lambda a, b: blend(a, b, scale=3.0), (leaf(0.3), leaf(0.5)))
    x = leaf(2.0)
    blend(x, 4.0).backward()
    assert x.grad.item() == 4.0


def test_unannotated_positional_parameters_are_tensors():
    @cartograd.primitive()
    def product(a, b):
        return a * b

    @product.vjp
    def _(g, a, b):
        return g * b, g * a

    x, y = leaf(2.0), leaf(3.0)
    product(x, y).backward()
    assert (x.grad.item(), y.grad.item()) == (3.0, 2.0)


def test_rule_is_asked_only_for_inputs_that_need_it():
    asked = []

    @cartograd.primitive()
    def product(a: torch.Tensor, b: torch.Tensor):
        return a * b

    @product.vjp("a")
    def _(g, b):
        asked.append("a")
        return g * b

    @product.vjp("b")
    def _(g, a):
        asked.append("b")
        return g * a

    product(leaf(2.0), cartograd.tensor([3.0], dtype=torch.float64)).backward()
    product(torch.tensor([2.0], dtype=torch.float64), leaf(3.0)).backward()
    assert asked == ["a", "b"]
    y = product(leaf(2.0), cartograd.tensor([3.0], dtype=torch.float64))
    assert len(y.node.saved) == 1, "what only the other rule needs is not saved"


def test_rule_of_several_inputs_is_told_which_are_needed():
    told = []

    @cartograd.primitive()
    def product(a: torch.Tensor, b: torch.Tensor):
        return a * b

    @product.vjp("a", "b")
    def _(g, a, b, need):
        told.append(need)
        return (g * b if need[0] else None), (g * a if need[1] else None)

    product(leaf(2.0), 3.0).backward()
    product(torch.ones(1, dtype=torch.float64), leaf(3.0)).backward()
    product(leaf(2.0), leaf(3.0)).backward()
    assert told == [(True, False), (False, True), (True, True)]


def test_options_reach_forward_and_rule_with_their_defaults():
    @cartograd.primitive()
    def power(x: torch.Tensor, n: int = 2, *, scale: float = 1.0):
        return scale * x**n

    @power.vjp("x")
    def _(g, x, n, scale):
        return g * scale * n * x ** (n - 1)

    for call in (power, lambda x: power(x, 3), lambda x: power(x, n=4, scale=2.0), lambda x: power(x=x)):
        assert cartograd.gradcheck(call, leaf(0.3, 0.7))
        assert cartograd.gradgradcheck(call, leaf(0.3, 0.7))


def test_several_outputs():
    @cartograd.primitive(multiple=True)
    def polar(x: torch.Tensor, y: torch.Tensor):
        r = torch.hypot(x, y)
        return r, torch.atan2(y, x)

    @polar.vjp
    def _(g, x, y, out):
        r, _ = out
        return (g[0] * x / r - g[1] * y / r**2), (g[0] * y / r + g[1] * x / r**2)

    assert cartograd.gradcheck(polar, (leaf(0.3), leaf(0.7)))
    assert cartograd.gradgradcheck(polar, (leaf(0.3), leaf(0.7)))
    x, y = leaf(3.0), leaf(4.0)
    radius, _ = polar(x, y)
    radius.backward()
    assert x.grad.item() == pytest.approx(0.6), "the unused output counts as zero"


def test_integer_outputs_are_outside_the_graph():
    @cartograd.primitive(multiple=True)
    def largest(x: torch.Tensor):
        value, place = x.max(dim=0)
        return value, place

    @largest.vjp("x")
    def _(g, x, out):
        assert g[1] is None
        return torch.zeros_like(x).index_put((out[1],), g[0])

    x = leaf(1.0, 5.0, 2.0)
    value, place = largest(x)
    assert not place.requires_grad
    assert place.item() == 1
    value.backward()
    assert x.grad.tolist() == [0.0, 1.0, 0.0]


def test_extra_is_kept_for_the_rule_and_hidden_from_the_user():
    @cartograd.primitive(extra=True)
    def clipped(x: torch.Tensor):
        inside = x.abs() < 1
        return x * inside, (inside, tuple(x.shape))

    @clipped.vjp("x")
    def _(g, extra):
        inside, shape = extra
        assert shape == (2,)
        return g * inside

    x = leaf(0.5, 2.0)
    y = clipped(x)
    assert type(y) is cartograd.Tensor
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 0.0]


def test_list_inputs():
    @cartograd.primitive(takes_list="parts")
    def weighted(parts, weights: tuple = ()):
        return sum(w * p for w, p in zip(weights, parts, strict=True))

    @weighted.vjp("parts")
    def _(g, parts, weights, need):
        return [g * w if needed else None for w, needed in zip(weights, need, strict=True)]

    x, y = leaf(1.0), leaf(1.0)
    plain = torch.ones(1, dtype=torch.float64)
    weighted([x, plain, y, x], (2.0, 3.0, 5.0, 7.0)).backward()
    assert (x.grad.item(), y.grad.item()) == (9.0, 5.0)
    assert cartograd.gradgradcheck(lambda a, b: weighted([a, b], (2.0, 3.0)) ** 2, (leaf(0.3), leaf(0.4)))


def test_list_op_with_a_further_tensor():
    @cartograd.primitive(takes_list="parts")
    def scaled(parts, by: torch.Tensor):
        return (parts[0] + parts[1]) * by

    @scaled.vjp("parts")
    def _(g, by):
        return [g * by, g * by]

    x = leaf(1.0)
    y = scaled([x, x], cartograd.tensor([3.0], dtype=torch.float64))
    assert type(y.data) is torch.Tensor
    y.backward()
    assert x.grad.item() == 6.0
    with pytest.raises(errors.UnsupportedError, match="'by'"):
        scaled([x, x], leaf(3.0))


def test_broadcasting_is_undone_only_where_declared():
    @cartograd.primitive(broadcasts=True)
    def plus(a: torch.Tensor, b: torch.Tensor):
        return a + b

    plus.vjp("a")(lambda g: g)
    plus.vjp("b")(lambda g: g)
    for left, right in [((2, 3), (3,)), ((2, 1), (1, 3)), ((), (2, 3)), ((2, 3), (1, 1, 1)), ((0, 3), (1, 3))]:
        a = cartograd.tensor(torch.ones(left), requires_grad=True)
        b = cartograd.tensor(torch.ones(right, dtype=torch.float64), requires_grad=True)
        out = plus(a, b)
        out.backward(torch.ones(out.shape, dtype=torch.float64))
        assert a.grad.shape == left
        assert b.grad.shape == right
        assert (a.grad.dtype, b.grad.dtype) == (torch.float32, torch.float64)
        assert a.grad.sum().item() == out.numel()


def test_torch_function_can_be_given_a_rule_and_is_taken_back():
    function = torch.special.bessel_j1
    assert function not in RULES

    @cartograd.primitive(function)
    def bessel_j1(input: torch.Tensor):
        return torch.special.bessel_j1(input)

    try:
        bessel_j1.vjp("input")(lambda g, input: g * (torch.special.bessel_j0(input) - bessel_j1(input) / input))
        assert cartograd.gradcheck(torch.special.bessel_j1, leaf(0.7))  # torch itself has no derivative of it
    finally:
        del RULES[function]


def test_composite_records_only_what_it_calls():
    @cartograd.composite()
    def softsign(x):
        return x * 2 * 3

    x = leaf(1.0)
    y = softsign(x)
    assert [node.name for node in cartograd.trace(y).nodes] == ["mul", "mul"]


def test_plain_values_pass_through_unrecorded():
    @cartograd.primitive()
    def double(x: torch.Tensor):
        return x * 2

    double.vjp("x")(lambda g: g * 2)
    out = double(torch.ones(2))
    assert isinstance(out, cartograd.Tensor)
    assert out.tolist() == [2.0, 2.0]
    assert out.node is None
    with cartograd.no_grad():
        assert double(leaf(1.0)).node is None


def test_parameters_are_leaves():
    @cartograd.primitive()
    def double(x: torch.Tensor):
        return x * 2

    double.vjp("x")(lambda g: g * 2)
    w = nn.Parameter(torch.ones(2))
    double(w).sum().backward()
    assert w.grad.tolist() == [2.0, 2.0]


# Wrong rules


def wrong(rule, inputs=("x",), forward=None):
    """An op called `wrong` with this rule."""
    if forward is None:

        def forward(x: torch.Tensor):
            return x * 1

    forward.__name__ = "wrong"
    op = cartograd.primitive()(forward)
    op.vjp(*inputs)(rule)
    return op


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (lambda g: g.sum(), r"shape \(\).*shape \(2,\)"),
        (lambda g: g.reshape(2, 1), r"shape \(2, 1\).*shape \(2,\)"),
        (lambda g: g[:1], r"shape \(1,\).*shape \(2,\)"),
        (lambda g: g.flip(0).repeat(2), r"shape \(4,\).*shape \(2,\)"),
        (lambda g: g.to(torch.float32), r"float32.*float64"),
        (lambda g: g.to("meta"), "meta.*cpu"),
    ],
    ids=["scalar", "same number of elements", "broadcastable", "too long", "dtype", "device"],
)
@pytest.mark.parametrize("place", ["leaf", "inner"])
def test_F15_wrong_gradient_is_refused_the_first_time_it_arrives(rule, text, place):
    x = leaf(1.0, 2.0)
    y = wrong(rule)(x if place == "leaf" else x * 2)
    with pytest.raises(errors.VjpError, match=f"(?s)wrong.*{text}") as caught:
        y.sum().backward()
    assert "test_primitive.py" in str(caught.value)
    assert x.grad is None


@pytest.mark.parametrize("result", [1.0, "x", [1.0, 2.0]], ids=["float", "str", "list"])
def test_rule_that_returns_no_tensor_is_told_so(result):
    with pytest.raises(errors.VjpError, match="wrong"):
        wrong(lambda g: result)(leaf(1.0, 2.0)).sum().backward()


@pytest.mark.parametrize("result", [lambda g: (g,), lambda g: (g, g, g), lambda g: g], ids=["few", "many", "bare"])
def test_wrong_number_of_gradients_names_the_op(result):
    def forward(a: torch.Tensor, b: torch.Tensor):
        return a + b

    op = wrong(result, ("a", "b"), forward)
    with pytest.raises(errors.VjpError, match="wrong"):
        op(leaf(1.0, 2.0, 3.0), leaf(3.0, 4.0, 5.0)).sum().backward()


def test_wrong_number_of_gradients_for_a_list_names_the_op():
    @cartograd.primitive(takes_list="parts")
    def wrong_list(parts):
        return parts[0] + parts[1]

    wrong_list.vjp("parts")(lambda g: [g])
    with pytest.raises(errors.VjpError, match="wrong_list"):
        wrong_list([leaf(1.0), leaf(2.0)]).backward()


def test_error_in_a_rule_gets_a_note_with_op_and_place():
    def rule(g):
        raise ZeroDivisionError("mine")

    y = wrong(rule)(leaf(1.0))
    for call in (lambda: y.backward(retain_graph=True), lambda: y.backward(create_graph=True)):
        with pytest.raises(ZeroDivisionError, match="mine") as caught:
            call()
        note = " ".join(caught.value.__notes__)
        assert "wrong" in note
        assert "test_primitive.py" in note
        assert torch.is_grad_enabled()


def test_rule_that_returns_none_stops_there_and_runs_once():
    calls = []
    op = wrong(lambda g: calls.append(1))
    x = leaf(1.0)
    (op(x * 2) + x).backward()
    assert calls == [1]
    assert x.grad.item() == 1.0


def test_rule_for_an_unknown_input_is_refused():
    op = wrong(lambda g: g)
    with pytest.raises(errors.UnsupportedError, match=r"'nonsense'.*'x'"):
        op.vjp("nonsense")


def test_input_without_a_rule_is_refused_not_cut():
    def forward(x: torch.Tensor, w: torch.Tensor):
        return x * w

    op = wrong(lambda g, w: g * w, ("x",), forward)
    with pytest.raises(errors.UnsupportedError, match=r"'w'.*requires grad"):
        op(leaf(1.0), leaf(2.0))
    assert op(leaf(1.0), leaf(2.0).detach()).requires_grad


def test_tensor_in_the_place_of_an_option_is_refused_not_cut():
    def forward(x: torch.Tensor, scale=1.0):
        return x * scale

    op = wrong(lambda g, scale: g * scale, ("x",), forward)
    with pytest.raises(errors.UnsupportedError, match=r"'scale'.*requires grad"):
        op(leaf(1.0), leaf(2.0))
    x = leaf(1.0)
    y = op(x, cartograd.tensor([2.0], dtype=torch.float64))
    assert type(y.data) is torch.Tensor
    y.backward()
    assert x.grad.item() == 2.0


def test_call_that_does_not_fit_says_what_does():
    op = wrong(lambda g: g)
    with pytest.raises(errors.UnsupportedError, match=r"wrong takes \(x\)"):
        op(leaf(1.0), 2, 3)
    with pytest.raises(errors.UnsupportedError, match=r"wrong takes \(x\)"):
        op(leaf(1.0), flavour="sweet")
    with pytest.raises(errors.UnsupportedError, match=r"wrong takes \(x\)"):
        op()
