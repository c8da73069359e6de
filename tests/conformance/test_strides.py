"""Every op of OpInfo on tensors with unusual strides: inputs, parameters, indices and gradients.

Kernels that are called below torch's own entry may read their operands as if they were contiguous. The reference is
torch on contiguous copies. Where torch itself gives something else on the strided tensors, because the op is about
strides (`view`, `as_strided`), there is nothing to compare.
"""

import pytest
import torch
from harness import database, outputs, samples
from torch.utils._pytree import tree_flatten, tree_unflatten

import cartograd

CAP = 6


def spaced(tensor):
    """Every second element of a wider tensor, from the second on."""
    wide = torch.full((*tensor.shape[:-1], 2 * max(tensor.shape[-1:], default=1)), 7, dtype=tensor.dtype)
    view = wide[..., 1::2] if tensor.dim() else wide[..., 1].view(())
    return view.copy_(tensor)


def reversed_axes(tensor):
    """The last axis moves slowest in memory."""
    order = list(range(tensor.dim()))[::-1]
    return tensor.permute(order).contiguous().permute(order) if len(order) > 1 else spaced(tensor)


def channels_last(tensor):
    """The axis of channels moves fastest in memory."""
    return tensor.movedim(1, -1).contiguous().movedim(-1, 1) if tensor.dim() > 2 else spaced(tensor)


def expanded(tensor):
    """Parameters of one axis as one number, repeated without memory."""
    if tensor.dim() == 1 and tensor.is_floating_point() and len(tensor):
        return tensor[:1].clone().expand(tensor.shape)
    return spaced(tensor)


NOT_COMPARED = (
    *("sparse", "empty", "new_empty"),  # no strides, or no values
    *("as_strided", "__r", "__getitem__", "cdouble", "cfloat", "chalf"),  # about strides; compared elsewhere
    *("_native_batch_norm_legit", "_batch_norm_with_update"),  # no rule of ours, and torch's gradients are wrong
    "grid_sampler_3d",  # large samples; grid_sample is compared
)
LAYOUTS = [spaced, reversed_axes, channels_last, expanded]
DIFFERENTIABLE = [
    pytest.param(entry, id=f"{entry.name}.{entry.variant_test_name}".rstrip("."))
    for variants in database().values()
    for entry in variants
    if entry.supports_autograd
    and entry.supports_dtype(torch.float64, "cpu")
    and not entry.name.startswith(NOT_COMPARED)
]


def run(entry, sample, flat, structure):
    first, rest, options = tree_unflatten(flat, structure)
    torch.manual_seed(1)
    return outputs(sample.output_process_fn_grad(entry.op(first, *rest, **options)))


def torch_agrees(entry, sample, flat, structure, expected):
    """Whether torch gives the same values on the strided tensors."""
    try:
        found = run(entry, sample, flat, structure)
    except RuntimeError:
        return False
    return all(torch.allclose(one, other, equal_nan=True) for one, other in zip(found, expected, strict=True))


def check_sample(entry, sample, layout):
    flat, structure = tree_flatten((sample.input, sample.args, sample.kwargs))
    theirs, strided, ours = list(flat), list(flat), list(flat)
    pairs = []
    for place, value in enumerate(flat):
        if isinstance(value, torch.Tensor):
            wanted = value.requires_grad
            arrange = layout if wanted or layout is not expanded else spaced  # what is written must have its own memory
            made = arrange(value.detach())
            theirs[place] = made.clone(memory_format=torch.contiguous_format).requires_grad_(wanted)
            strided[place] = arrange(value.detach()).requires_grad_(wanted)
            first = not any(isinstance(one, cartograd.Tensor) for one in ours)
            ours[place] = cartograd.tensor(made, requires_grad=wanted) if first else made.requires_grad_(wanted)
            if wanted:
                pairs.append((theirs[place], ours[place]))
    expected = run(entry, sample, theirs, structure)
    if not torch_agrees(entry, sample, strided, structure, expected):
        return
    found = run(entry, sample, ours, structure)
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.data, other.detach(), rtol=1e-6, atol=1e-7, equal_nan=True)
    pairs_of_results = zip(found, expected, strict=True)
    chosen = [(mine, other) for mine, other in pairs_of_results if other.requires_grad and mine.requires_grad]
    for seeds in ([layout(torch.randn_like(other)) for _, other in chosen],
                  [torch.ones((), dtype=other.dtype).expand(other.shape) for _, other in chosen]):  # fmt: skip
        compare_gradients(chosen, pairs, seeds)


def compare_gradients(chosen, pairs, seeds):
    if not chosen:
        return
    options = {"allow_unused": True, "retain_graph": True}
    dense = [seed.contiguous() for seed in seeds]
    wanted = torch.autograd.grad([other for _, other in chosen], [leaf for leaf, _ in pairs], dense, **options)
    found = cartograd.grad([mine for mine, _ in chosen], [leaf for _, leaf in pairs], seeds, **options)
    for mine, other, (leaf, _) in zip(found, wanted, pairs, strict=True):
        mine = torch.zeros_like(leaf) if mine is None else mine.data
        other = torch.zeros_like(leaf) if other is None else other
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-7, equal_nan=True)


@pytest.mark.filterwarnings("ignore")  # torch's own, about what is deprecated
@pytest.mark.parametrize("entry", DIFFERENTIABLE)
def test_strides_change_nothing(entry):
    for number, sample in enumerate(samples(entry, CAP)):
        layout = LAYOUTS[number % len(LAYOUTS)]
        try:
            check_sample(entry, sample, layout)
        except Exception as error:
            error.add_note(f"{entry.name} {layout.__name__} sample {number}: {sample.summary()}")
            raise
