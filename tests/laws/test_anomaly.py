"""detect_anomaly names the first op that makes a NaN or an Inf; every node knows where it was called (acceptance 7)."""

import inspect

import pytest
import torch
from torch import nn
from torch.nn import functional

import cartograd
from cartograd import errors


def leaf(*values):
    return cartograd.tensor(list(values), requires_grad=True, dtype=torch.float64)


def next_line():
    """`file:line` of the line below the call, as the messages write it."""
    frame = inspect.currentframe().f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno + 1}"


def anomaly(function):
    """What the error says that `function` causes."""
    with cartograd.detect_anomaly(), pytest.raises(errors.AnomalyError) as caught:
        function()
    return str(caught.value)


# Forward


def test_log_of_zero_is_named_with_file_line_shape_and_range():
    x = leaf(0.0, 1.0, 4.0)
    where = next_line()
    text = anomaly(lambda: x.log())
    assert text.startswith("log made an Inf")
    assert where in text
    assert "(3,) float64 in [0, 4]" in text


def test_zero_by_zero_is_a_nan_and_both_operands_are_shown():
    x, y = leaf(1.0, 0.0), leaf(5.0, 0.0)
    where = next_line()
    text = anomaly(lambda: x / y)
    assert "div made a NaN" in text
    assert where in text
    assert "in [0, 1]" in text
    assert "in [0, 5]" in text


def test_the_first_op_is_named_not_the_one_that_suffers():
    x = leaf(-1.0)
    with cartograd.detect_anomaly(), pytest.raises(errors.AnomalyError, match="sqrt made a NaN"):
        ((x.sqrt() * 2).exp() + 1).log().sum()


def test_fallback_ops_are_watched_too():
    with cartograd.detect_anomaly(), pytest.raises(errors.AnomalyError, match="digamma") as caught:
        torch.special.digamma(leaf(-1.0, 2.0))
    assert "test_anomaly.py" in str(caught.value)


def test_ops_that_record_nothing_are_watched_too():
    x = cartograd.tensor([0.0])
    with cartograd.detect_anomaly(), pytest.raises(errors.AnomalyError, match="log made an Inf"):
        x.log()
    with cartograd.detect_anomaly(), cartograd.no_grad(), pytest.raises(errors.AnomalyError, match="log made an Inf"):
        leaf(0.0).log()


def test_overflow_of_half_precision_is_an_inf():
    x = cartograd.tensor([300.0], requires_grad=True, dtype=torch.float16)
    with cartograd.detect_anomaly(), pytest.raises(errors.AnomalyError, match="mul made an Inf"):
        x * x


def test_a_sum_that_overflows_alone_is_no_anomaly():
    x = cartograd.tensor([60000.0, 60000.0], requires_grad=True, dtype=torch.float16)
    with cartograd.detect_anomaly():
        y = x + 0  # every element is finite, though their sum is not
    assert torch.isfinite(y.data).all()


def test_plus_and_minus_infinity_do_not_cancel():
    with cartograd.detect_anomaly(), pytest.raises(errors.AnomalyError, match="an Inf"):
        1 / leaf(0.0, -0.0)


def test_a_mask_of_minus_infinity_is_not_blamed():
    scores = leaf(1.0, 2.0, 3.0)
    mask = torch.tensor([0.0, float("-inf"), 0.0], dtype=torch.float64)
    with cartograd.detect_anomaly():
        weights = functional.softmax(scores + mask, dim=0)
        filled = functional.softmax(scores.masked_fill(mask < 0, float("-inf")), dim=0)
        (weights * filled).sum().backward()
    assert weights[1].item() == 0.0
    assert torch.isfinite(scores.grad.data).all()


def test_a_whole_row_masked_out_is_named():
    scores = leaf(1.0, 2.0)
    with cartograd.detect_anomaly(), pytest.raises(errors.AnomalyError, match="softmax made a NaN"):
        functional.softmax(scores + float("-inf"), dim=0)


def test_infinities_can_be_left_out():
    with cartograd.detect_anomaly(inf=False):
        leaf(0.0).log()
        with pytest.raises(errors.AnomalyError, match="a NaN"):
            leaf(-1.0).log()


def test_integers_and_booleans_are_fine():
    x = leaf(1.0, 2.0)
    with cartograd.detect_anomaly():
        assert (x > 1).tolist() == [False, True]
        assert x.argmax().item() == 1
        assert x.to(torch.int64).tolist() == [1, 2]


def test_empty_tensors_are_fine():
    x = cartograd.tensor(torch.ones(0, 3), requires_grad=True)
    with cartograd.detect_anomaly():
        (x * x).sum().backward()
    assert x.grad.shape == (0, 3)


# Backward


def test_sqrt_at_zero_is_named_in_the_backward_pass():
    x = leaf(0.0, 4.0)
    with cartograd.detect_anomaly():
        where = next_line()
        y = x.sqrt()
        with pytest.raises(errors.AnomalyError) as caught:
            y.sum().backward()
    text = str(caught.value)
    assert "gradient of sqrt has an Inf" in text
    assert where in text
    assert "(2,) float64" in text
    assert x.grad is None


def test_backward_is_watched_even_if_the_forward_was_not():
    x = leaf(0.0)
    y = x.sqrt()
    with cartograd.detect_anomaly(), pytest.raises(errors.AnomalyError, match="sqrt"):
        y.backward()


def test_zero_times_infinity_in_the_backward_pass():
    x = leaf(0.0)
    y = x.sqrt() * 0.0  # the gradient is 0 * inf
    with cartograd.detect_anomaly(), pytest.raises(errors.AnomalyError, match="gradient of sqrt has a NaN"):
        y.backward()


def test_gradients_of_fallback_ops_are_watched():
    x = leaf(-1.0, 0.0)
    y = torch.special.entr(x + 1)  # -x ln x: 0 at 0, its derivative infinite
    with cartograd.detect_anomaly(), pytest.raises(errors.AnomalyError, match="gradient of special_entr has an Inf"):
        y.sum().backward()


def test_second_derivatives_are_watched():
    x = leaf(0.0)
    (g,) = cartograd.grad(x**1.5, x, create_graph=True)  # 1.5 sqrt(x): finite, its derivative is not
    with cartograd.detect_anomaly(), pytest.raises(errors.AnomalyError, match="gradient of"):
        g.backward()


def test_a_clean_step_raises_nothing_and_changes_nothing():
    torch.manual_seed(0)
    layer = nn.Linear(3, 2)
    data = torch.randn(4, 3)
    layer(cartograd.tensor(data)).pow(2).sum().backward()
    expected = layer.weight.grad.clone()
    layer.zero_grad()
    with cartograd.detect_anomaly():
        layer(cartograd.tensor(data)).pow(2).sum().backward()
    assert torch.equal(layer.weight.grad, expected)


# On and off


def test_off_outside_the_context():
    x = leaf(0.0)
    with cartograd.detect_anomaly():
        pass
    y = x.log()
    y.backward()
    assert y.item() == float("-inf")
    assert x.grad.item() == float("inf")


def test_off_again_after_an_error():
    with pytest.raises(errors.AnomalyError), cartograd.detect_anomaly():
        leaf(0.0).log()
    assert leaf(0.0).log().item() == float("-inf")


def test_contexts_nest():
    with cartograd.detect_anomaly(inf=False):
        with cartograd.detect_anomaly(), pytest.raises(errors.AnomalyError):
            leaf(0.0).log()
        leaf(0.0).log()
    leaf(0.0).log()


def test_only_the_thread_that_asked_is_watched():
    from concurrent.futures import ThreadPoolExecutor

    with cartograd.detect_anomaly(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: leaf(0.0).log().item()).result() == float("-inf")


# Where a node was called


def test_every_node_knows_its_line():
    x = leaf(1.0)
    first = next_line()
    y = x * 2
    second = next_line()
    z = torch.special.i0(y)
    third = next_line()
    w = z.exp()
    assert [y.node.where(), z.node.where(), w.node.where()] == [first, second, third]


def test_line_of_a_call_over_several_lines():
    x = leaf(1.0)
    y = (
        x
        .exp()
        .neg()
    )  # fmt: skip
    nodes = cartograd.trace(y).nodes
    base = test_line_of_a_call_over_several_lines.__code__.co_firstlineno
    assert [node.where() for node in nodes] == [f"{__file__}:{base + 5}", f"{__file__}:{base + 4}"]


def test_place_is_the_users_call_of_a_module():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.LayerNorm(3), nn.Linear(3, 1))
    x = cartograd.tensor(torch.ones(4, 2))
    where = next_line()
    y = model(x)
    assert {node.where() for node in cartograd.trace(y).nodes} == {where}


def test_place_is_inside_the_users_own_module():
    class Mine(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x):
            return x * self.weight

    y = nn.Sequential(Mine())(cartograd.tensor([1.0, 2.0]))
    assert y.node.where() == f"{__file__}:{Mine.forward.__code__.co_firstlineno + 1}"


def test_place_through_composites_comprehensions_and_operators():
    x = leaf(1.0, 2.0)
    where = next_line()
    parts = [torch.add(x, x, alpha=2), 3 - x, x @ x, x.sum() / 2, torch.nn.functional.gelu(x)]
    assert {node.where() for part in parts for node in cartograd.trace(part).nodes} == {where}


def test_place_of_code_without_a_file():
    space = {"x": leaf(1.0)}
    exec(compile("y = x * 2", "<typed>", "exec"), space)
    assert space["y"].node.where() == "<typed>:1"
