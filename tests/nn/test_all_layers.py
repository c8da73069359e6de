"""Every layer of torch.nn, with our engine and with torch's: outputs, buffers, and the gradients of all parameters and
float inputs are equal in float64, and none of them is missing.
"""

import contextlib
import copy
import inspect

import pytest
import torch
from layers import CASES
from torch import nn
from torch.utils._pytree import tree_flatten

import cartograd
from cartograd.engine.fallback import TorchPlan

CONTAINERS = {"Container", "Module", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"}
BASES = {"RNNBase", "RNNCellBase"}
NEED_MORE_THAN_ONE_DEVICE = {"DataParallel", "SyncBatchNorm"}
OTHER_NAMES = {"NLLLoss2d"}  # a deprecated one for NLLLoss


def marked(name):
    return pytest.param(CASES[name], id=name)


def twins(case):
    """Two equal modules, for torch and for us, and their inputs."""
    torch.manual_seed(0)
    mine = case.make().double().train(case.training)
    given = case.inputs()
    if any(isinstance(one, nn.parameter.UninitializedParameter) for one in mine.parameters()):
        with torch.no_grad():
            mine(*lift(given, case, cartograd.tensor))  # a lazy layer learns its sizes from a tensor of ours
    other = copy.deepcopy(mine)
    return (other, lift(given, case, torch_leaf)), (mine, lift(given, case, cartograd.tensor))


def torch_leaf(data, wanted):
    return data.detach().clone().requires_grad_(wanted)


def lift(given, case, make):
    lifted = []
    for i, one in enumerate(given):
        if isinstance(one, tuple):
            lifted.append(lift(one, case, make))
        else:
            lifted.append(make(one, one.is_floating_point() and i not in case.fixed))
    return tuple(lifted)


def run(module, inputs):
    """(outputs, loss.backward() done): the loss weighs every output with fixed random numbers."""
    torch.manual_seed(1)
    result = module(*inputs)
    outs = [one for one in flat(result) if one.is_floating_point()]
    generator = torch.Generator().manual_seed(2)
    seeds = [torch.rand(one.shape, dtype=one.dtype, generator=generator) for one in outs]
    sum((one * seed).sum() for one, seed in zip(outs, seeds, strict=True)).backward()
    return outs


def flat(result):
    return [one for one in tree_flatten(result)[0] if isinstance(one, (torch.Tensor, cartograd.Tensor))]


def plain(value):
    value = value.data if isinstance(value, cartograd.Tensor) else value
    return value.detach().to_dense() if value.is_sparse else value.detach()


def close(mine, other, what):
    assert mine is not None, f"{what} is missing"
    assert torch.isfinite(plain(mine)).all(), f"{what} is not finite"
    torch.testing.assert_close(plain(mine), plain(other), rtol=1e-10, atol=1e-11, msg=lambda text: f"{what}: {text}")


def compare(case, mode):
    (other, their_inputs), (mine, our_inputs) = twins(case)
    expected = run(other, their_inputs)
    with mode:
        result = run(mine, our_inputs)
    for i, (a, b) in enumerate(zip(result, expected, strict=True)):
        assert isinstance(a, cartograd.Tensor), f"output {i} is a {type(a)}"
        close(a, b, f"output {i}")
    for i, (a, b) in enumerate(zip(flat(our_inputs), flat(their_inputs), strict=True)):
        if b.requires_grad:
            close(a.grad, b.grad, f"the gradient of input {i}")
    for (name, a), b in zip(mine.named_parameters(), other.parameters(), strict=True):
        close(a.grad, b.grad, f"the gradient of {name}")
    for (name, a), b in zip(mine.named_buffers(), other.buffers(), strict=True):
        close(a, b, f"the buffer {name}")


@pytest.mark.parametrize("case", [marked(name) for name in CASES])
def test_equals_torch(case):
    compare(case, contextlib.nullcontext())


@pytest.mark.parametrize("case", [marked(name) for name in CASES])
def test_equals_torch_while_recording(case):
    compare(case, cartograd.recording())


@pytest.mark.parametrize("name", ["Embedding", "Embedding.by_frequency", "EmbeddingBag.mean", "EmbeddingBag.max"])
def test_a_plain_index_is_enough_while_recording(name):
    (other, their_inputs), (mine, _) = twins(CASES[name])
    with cartograd.recording():
        out = mine(*their_inputs)
    assert isinstance(out, cartograd.Tensor)
    out.sum().backward()
    other(*their_inputs).sum().backward()
    close(mine.weight.grad, other.weight.grad, "the gradient of the weight")


def test_every_layer_of_torch_has_a_case():
    layers = {name for name, kind in vars(nn).items() if inspect.isclass(kind) and issubclass(kind, nn.Module)}
    skipped = CONTAINERS | BASES | NEED_MORE_THAN_ONE_DEVICE | OTHER_NAMES
    covered = {name.split(".")[0] for name in CASES}
    assert layers - skipped - covered == set()
    assert skipped <= layers
    assert not skipped & covered


def test_only_sparse_gradients_are_left_to_torch():
    foreign = {}
    for name, case in CASES.items():
        _, (module, inputs) = twins(case)
        outs = [one for one in flat(module(*inputs)) if one.node is not None]
        nodes = cartograd.trace(*outs).nodes if outs else []
        used = {node.name for node in nodes if isinstance(node.plan, TorchPlan)}
        if used:
            foreign[name] = used
    # CrossMapLRN2d is a torch.autograd.Function, whose derivative only torch knows.
    assert foreign == {"Embedding.sparse": {"embedding"}, "CrossMapLRN2d": {"CrossMapLRN2d"}}
