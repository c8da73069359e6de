"""Second derivatives of every torch function equal torch's, or are refused: never silently wrong (F10)."""

import pytest
import torch
from harness import database, lift, outputs

import cartograd
from cartograd import errors

LEFT_OUT = {
    "native_layer_norm": "ours also differentiates the statistics",
    "native_batch_norm": "ours also differentiates the statistics",
    "linalg.eig": "only functions that do not depend on the vectors' phase have a derivative",
    "zero_": "in place only",
    "masked.logaddexp": "minus infinity plus minus infinity: NaN here and there",
}


def entries():
    for name, variants in database().items():
        for entry in variants:
            double = torch.float64 in entry.supported_dtypes("cpu")
            if double and entry.supports_autograd and entry.supports_gradgrad and name not in LEFT_OUT:
                yield entry


def call(entry, first, rest, options):
    """Methods are called on the tensor: ``torch.Tensor.xxx(ours)`` itself refuses what is no torch tensor."""
    torch.manual_seed(1)
    if type(entry.op).__name__ in ("method_descriptor", "wrapper_descriptor"):
        return getattr(first, entry.op.__name__)(*rest, **options)
    return entry.op(first, *rest, **options)


def second_derivatives(entry, sample, arguments, leaves, grad):
    """The gradients of a random combination of the first gradients; `None` if there are none at all."""
    outs = outputs(sample.output_process_fn_grad(call(entry, *arguments)))
    outs = [out for out in outs if out.requires_grad]
    if not outs:
        return None
    random = torch.Generator().manual_seed(2)
    seeds = [torch.randn(out.shape, dtype=out.dtype, generator=random) for out in outs]
    first = grad(outs, leaves, seeds, create_graph=True, allow_unused=True)
    weights = [torch.randn(leaf.shape, dtype=torch.float64, generator=random) for leaf in leaves]
    parts = [(one * w).sum() for one, w in zip(first, weights, strict=True) if one is not None and one.requires_grad]
    zeros = [torch.zeros(leaf.shape, dtype=torch.float64) for leaf in leaves]
    if not parts:
        return zeros
    found = grad(sum(parts), leaves, allow_unused=True)
    return [zero if one is None else one.detach() for zero, one in zip(zeros, found, strict=True)]


def check(entry, sample):
    """Raise unless ours are torch's."""
    theirs, ours, pairs = lift((sample.input, sample.args, sample.kwargs))
    if any(t.is_complex() for t, _ in pairs):
        return
    expected = second_derivatives(entry, sample, theirs, [t for t, _ in pairs], torch.autograd.grad)
    found = second_derivatives(entry, sample, ours, [o for _, o in pairs], cartograd.grad)
    assert (found is None) == (expected is None)
    for mine, other in zip(found or [], expected or [], strict=True):
        mine = mine.data if isinstance(mine, cartograd.Tensor) else mine
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-8, equal_nan=True)


@pytest.mark.filterwarnings("ignore")  # torch's own beta and deprecation warnings
def test_second_derivatives_of_every_torch_function():
    right, refused, wrong = 0, [], []
    for entry in entries():
        torch.manual_seed(0)
        sample = next(iter(entry.sample_inputs("cpu", torch.float64, requires_grad=True)), None)
        if sample is None:
            continue
        try:
            check(entry, sample)
            right += 1
        except (errors.NotTwiceDifferentiableError, RuntimeError) as error:
            refused.append(f"{entry.name}.{entry.variant_test_name}: {str(error)[:90]}")
        except Exception as error:
            wrong.append(f"{entry.name}.{entry.variant_test_name}: {type(error).__name__} {str(error)[:300]}")
    print(f"second derivatives: {right} equal torch's, {len(refused)} refused: {refused}; left out: {LEFT_OUT}")
    assert not wrong, "\n".join(wrong)
    assert right >= 480
    assert len(refused) <= 6, refused
