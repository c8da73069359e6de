"""Every error class, where it is raised and what it says. Messages tell what was given, what fits, what to do."""

import inspect
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import cartograd
from cartograd import errors


def leaf(*numbers):
    return cartograd.tensor(list(numbers), requires_grad=True, dtype=torch.float64)


CLASSES = [one for _, one in inspect.getmembers(errors, inspect.isclass) if one.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_is_ours_and_a_builtin_one(kind):
    assert issubclass(kind, errors.CartogradError)
    assert kind.__doc__
    builtin = [base for base in kind.__mro__ if base.__module__ == "builtins"]
    assert Exception in builtin
    if kind is not errors.CartogradError:
        assert builtin[0] is not Exception, "callers who know nothing of us catch a built-in error"
        assert kind.__name__.endswith("Error")


def bad_rule():
    @cartograd.primitive()
    def bad(x: torch.Tensor):
        return x * 1

    bad.vjp("x")(lambda g: g.sum())
    bad(leaf(1.0, 2.0)).sum().backward()


def freed():
    y = leaf(1.0) * 2
    y.backward()
    y.backward()


def changed():
    x = leaf(1.0) + 1
    y = x * x
    x += 1
    y.backward()


def once():
    @cartograd.primitive(once="reason")
    def op(x: torch.Tensor):
        return x * 1

    op.vjp("x")(lambda g: g)
    x = leaf(1.0)
    cartograd.grad(op(x), x, create_graph=True)


def anomaly():
    with cartograd.detect_anomaly():
        leaf(0.0).log()


def undecided():
    turns = iter([torch.sin, torch.cos])
    cartograd.checkpoint(lambda t: next(turns)(t), leaf(1.0)).backward()


def over_budget():
    with cartograd.memory_budget("10 B"):
        (leaf(1.0, 2.0).exp() * 2).sin().sum().backward()


def undecided_step():
    cartograd.capture(lambda x: x * 2 if x > 0 else x, leaf(1.0))


def wrong_gradcheck():
    cartograd.gradcheck(lambda x: x * x.detach(), leaf(2.0))


CASES = {
    "GradientShapeError": (
        lambda: leaf(1.0, 2.0).backward(torch.ones(3, dtype=torch.float64)),
        r"gradient must have shape \(2,\), dtype torch\.float64 on cpu, but has shape \(3,\)",
    ),
    "GradientTypeError": (lambda: leaf(1.0).backward(2.0), r"gradient must be a Tensor or a torch\.Tensor, got float"),
    "NonScalarRootError": (lambda: leaf(1.0, 2.0).backward(), r"needs gradient=.*shape \(2,\).*\.sum\(\)"),
    "NoGradientError": (lambda: cartograd.tensor(1.0).backward(), r"does not require grad.*no_grad\(\)"),
    "GraphFreedError": (freed, r"mul \(called at .*test_errors\.py:\d+\).*retain_graph=True"),
    "InplaceError": (changed, r"mul \(called at .*test_errors\.py:\d+\).*changed in place.*\.clone\(\)"),
    "NotTwiceDifferentiableError": (once, r"op \(called at .*test_errors\.py:\d+\).*twice: reason"),
    "VjpError": (bad_rule, r"bad \(called at .*test_errors\.py:\d+\).*shape \(\).*shape \(2,\)"),
    "CheckpointError": (undecided, r"checkpointed at .*test_errors\.py:\d+.*cos of \(1,\).*instead of sin.*every time"),
    "BudgetError": (over_budget, r"budget of 10 bytes is too small.*at least 32 bytes.*smaller batch"),
    "OptionError": (lambda: leaf(1.0).backward(workers=0), r"whole number from 1 to 1024, got 0"),
    "CaptureError": (undecided_step, r"reads a value of a tensor, at .*test_errors\.py:\d+.*torch\.where"),
    "InputError": (
        lambda: cartograd.per_sample_grad(lambda x: x, [leaf(1.0)], torch.ones(())),
        r"samples along the first axis of each of its tensors; got \(\)",
    ),
    "AnomalyError": (anomaly, r"log made an Inf at .*test_errors\.py:\d+; its inputs: \(1,\) float64 in \[0, 0\]"),
    "GradcheckError": (wrong_gradcheck, r"output 0 element 0 by input 0 element 0: analytic 2, numeric 4"),
    "LeafError": (lambda: (leaf(1.0) * 2).requires_grad_(False), r"only .*on a leaf.*mul.*\.detach\(\)"),
    "UnsupportedError": (lambda: cartograd.tensor([1], requires_grad=True), r"floating-point.*int64.*\.to\("),
}


@pytest.mark.parametrize("name", CASES)
def test_message(name):
    cause, text = CASES[name]
    with pytest.raises(getattr(errors, name), match=f"(?s){text}"):
        cause()


def test_every_class_the_engine_raises_has_a_case():
    raised = set()
    for path in Path(cartograd.engine.__file__).parent.glob("*.py"):
        raised |= set(re.findall(r"raise (\w+Error)\(", path.read_text()))
    ours = raised & {kind.__name__ for kind in CLASSES}
    assert ours <= set(CASES), "add a case above"


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: cartograd.tensor("a"), errors.UnsupportedError, "cannot make a tensor of str"),
        (lambda: leaf(1.0).numpy(), errors.NoGradientError, r"use \.detach\(\)\.numpy\(\)"),
        (
            lambda: cartograd.tensor(1.0).register_hook(print),
            errors.NoGradientError,
            "hook needs a tensor that requires",
        ),
        (lambda: cartograd.tensor(1.0).retain_grad(), errors.NoGradientError, "retain_grad"),
        (lambda: cartograd.trace(leaf(1.0)), errors.NoGradientError, "computed from something that requires grad"),
        (lambda: leaf(1.0).add_(1), errors.InplaceError, r"leaf.*no_grad\(\)"),
        (lambda: torch.ones(1).add_(leaf(1.0)), errors.InplaceError, r"plain torch tensor.*cartograd\.tensor"),
        (lambda: torch.neg(leaf(1.0), out=torch.ones(1)), errors.UnsupportedError, "leave out= away"),
        (lambda: cartograd.grad(leaf(1.0), leaf(1.0)), errors.NoGradientError, "allow_unused=True"),
        (lambda: cartograd.gradcheck(torch.exp, cartograd.tensor([1.0])), errors.UnsupportedError, "requires grad"),
        (
            lambda: (nn.Parameter(torch.ones(1)) * leaf(1.0).to(torch.float32) * 2).backward(create_graph=True),
            errors.NotTwiceDifferentiableError,
            r"cartograd\.grad\(loss, parameters, create_graph=True\)",
        ),
    ],
)
def test_other_messages(call, kind, text):
    with pytest.raises(kind, match=f"(?s){text}"):
        call()


def test_errors_are_caught_as_cartograds_own_and_as_builtins():
    for kind in (errors.CartogradError, RuntimeError, errors.NoGradientError):
        with pytest.raises(kind):
            cartograd.tensor(1.0).backward()
    with pytest.raises(ValueError):
        leaf(1.0, 2.0).backward(torch.ones(3, dtype=torch.float64))
