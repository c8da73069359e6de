"""Every op of OpInfo on Parameters alone, inside `cartograd.recording()`: as a function, and as a method.

What comes out is ours, and its gradients reach the Parameters.
"""

import pytest
import torch
from harness import database, outputs, samples
from torch.utils._pytree import tree_flatten, tree_unflatten

import cartograd

DIFFERENTIABLE = [
    pytest.param(entry, id=f"{entry.name}.{entry.variant_test_name}".rstrip("."))
    for variants in database().values()
    for entry in variants
    if entry.supports_autograd
    and entry.supports_dtype(torch.float64, "cpu")
    and not entry.name.startswith("sparse")  # torch has no view of a leaf in the CSR layout
]


def ways(entry):
    """The functions that the op is called by."""
    return [way for way in (entry.op, entry.get_method()) if way is not None]


def run(call, sample, flat, structure):
    first, rest, options = tree_unflatten(flat, structure)
    torch.manual_seed(1)
    return outputs(sample.output_process_fn_grad(call(first, *rest, **options)))


def check_sample(call, sample):
    flat, structure = tree_flatten((sample.input, sample.args, sample.kwargs))
    theirs = [
        one.detach().clone().requires_grad_(one.requires_grad) if isinstance(one, torch.Tensor) else one for one in flat
    ]
    ours = [
        torch.nn.Parameter(one.detach().clone()) if isinstance(one, torch.Tensor) and one.requires_grad else one
        for one in flat
    ]
    places = [place for place, one in enumerate(ours) if isinstance(one, torch.nn.Parameter)]
    expected = run(call, sample, theirs, structure)
    with cartograd.recording():
        found = run(call, sample, ours, structure)
    chosen = [(mine, other) for mine, other in zip(found, expected, strict=True) if other.requires_grad]
    if not chosen:
        return
    for mine, other in chosen:
        assert isinstance(mine, cartograd.Tensor), f"recorded by torch: {mine.grad_fn}"
        assert mine.requires_grad
        torch.testing.assert_close(mine.data, other.detach(), rtol=1e-6, atol=1e-7, equal_nan=True)
    seeds = [torch.randn_like(other) for _, other in chosen]
    wanted = [theirs[place] for place in places]
    expected = torch.autograd.grad([other for _, other in chosen], wanted, seeds, allow_unused=True)
    with cartograd.recording():
        torch.autograd.backward([mine for mine, _ in chosen], seeds)
    for other, place in zip(expected, places, strict=True):
        mine = torch.zeros_like(ours[place]) if ours[place].grad is None else ours[place].grad
        other = torch.zeros_like(ours[place]) if other is None else other
        torch.testing.assert_close(mine.to_dense(), other.to_dense(), rtol=1e-6, atol=1e-7, equal_nan=True)


@pytest.mark.filterwarnings("ignore")  # torch's own, about what is deprecated
@pytest.mark.parametrize("entry", DIFFERENTIABLE)
def test_parameters_alone_are_recorded(entry):
    for call in ways(entry):
        for number, sample in enumerate(samples(entry, cap=2)):
            try:
                check_sample(call, sample)
            except Exception as error:
                error.add_note(f"{entry.name} sample {number}: {sample.summary()}")
                raise
