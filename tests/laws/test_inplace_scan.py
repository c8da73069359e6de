"""Every in-place function of torch on a tensor of ours has torch's value and gradient."""

import pytest
import torch
from harness import compare, database

import cartograd
from cartograd import errors

NOT_IN_TORCH = {"acosh", "asinh", "atanh"}  # torch has no derivative of their in-place forms


def in_place_form(entry):
    form = entry.inplace_variant
    name = getattr(form, "__name__", "")
    method = type(form).__name__ == "method_descriptor"

    def call(first, *rest, **options):
        copy = first.clone()
        return getattr(copy, name)(*rest, **options) if method else form(copy, *rest, **options)

    return call


def samples():
    """(entry, sample) for every entry that torch itself can differentiate in place."""
    for variants in database().values():
        for entry in variants:
            usable = entry.inplace_variant is not None and entry.supports_autograd
            if usable and torch.float64 in entry.supported_dtypes("cpu"):
                torch.manual_seed(0)
                yield entry, next(iter(entry.sample_inputs("cpu", torch.float64, requires_grad=True)))


@pytest.mark.filterwarnings("ignore::UserWarning")  # some of torch's own functions warn that they are in beta
def test_every_in_place_function_of_torch_has_torchs_gradient():
    right, refused, wrong = [], [], []
    for entry, sample in samples():
        if entry.name in NOT_IN_TORCH:
            continue
        try:
            compare(in_place_form(entry), sample, own=False, rtol=1e-8)
            right.append(entry.name)
        except errors.CartogradError as error:
            refused.append(f"{entry.name}: {str(error)[:80]}")
        except Exception as error:
            wrong.append(f"{entry.name}.{entry.variant_test_name}: {type(error).__name__} {str(error)[:200]}")
    print(f"in place: {len(right)} right, {len(refused)} refused: {refused}")
    assert not wrong, "\n".join(wrong)
    assert len(right) >= 120
    assert len(refused) <= 6, "only changes of shape are refused"


@pytest.mark.parametrize("name", ["fill", "zero_"])
def test_overwriting_with_a_constant_gives_a_constant(name):
    x = cartograd.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    getattr(y, name.strip("_") + "_")(*([3.0] if name == "fill" else []))
    assert y.tolist() == ([3.0, 3.0] if name == "fill" else [0.0, 0.0])
    (y.sum() + x.sum()).backward()
    assert x.grad.tolist() == [1.0, 1.0]
