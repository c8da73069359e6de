"""gradcheck, and gradgradcheck or a declared refusal, of every primitive on the examples that stand beside it."""

import gc

import pytest
import torch

import cartograd
from cartograd.engine.apply import pick
from cartograd.engine.primitive import Primitive
from cartograd.ops.attention import kept


def primitives():
    found = {}
    for module in vars(cartograd.ops).values():
        for value in vars(module).values() if hasattr(module, "__file__") else ():
            if isinstance(value, Primitive):
                found[value.name] = value
    return [found[name] for name in sorted(found)]


def maker(seed):
    print("seed", seed)
    generator = torch.Generator().manual_seed(seed)

    def make(*shape, low=-1.0, high=1.0):
        return torch.rand(*shape, dtype=torch.float64, generator=generator) * (high - low) + low

    return make


def arguments(op, example):
    values = example(maker(0))
    bound = op.bind(tuple(values) if isinstance(values, tuple) else (values,), {})
    assert bound is not None, f"the example of {op.name} does not fit its parameters"

    def lifted(value):
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return cartograd.tensor(value, requires_grad=True)
        return value

    if op.takes_list:
        slot = op.places[op.takes_list]
        tensors = [lifted(value) for value in bound[slot]]
        return tensors, lambda *given: op(*bound[:slot], list(given), *bound[slot + 1 :])
    slots = [slot for slot in op.input_slots if isinstance(bound[slot], torch.Tensor)]

    def call(*given):
        full = list(bound)
        for slot, value in zip(slots, given, strict=True):
            full[slot] = op.through[example](value)
        return op(*full[:-1], *full[-1]) if op.variadic else op(**dict(zip(op.params, full, strict=True)))

    return [lifted(bound[slot]) for slot in slots], call


ALL = [op for op in primitives() if op is not kept]  # it draws truth values, which have no derivative


@pytest.mark.parametrize("op", ALL, ids=lambda op: op.name)
def test_first_derivative(op):
    assert op.examples, f"{op.name} has no example beside it"
    for example in op.examples:
        tensors, call = arguments(op, example)
        assert cartograd.gradcheck(call, tensors)


@pytest.mark.parametrize("op", ALL, ids=lambda op: op.name)
def test_second_derivative_or_refusal(op):
    for example in op.examples:
        tensors, call = arguments(op, example)
        if op.once is not None:
            outs = call(*tensors)
            outs = outs if isinstance(outs, (tuple, list)) else [outs]
            with pytest.raises(cartograd.errors.NotTwiceDifferentiableError, match="twice"):
                cartograd.grad([out.sum() for out in outs if out.requires_grad], tensors, create_graph=True)
        else:
            assert cartograd.gradgradcheck(call, tensors)


def test_every_primitive_was_found():
    made = {op.name for op in gc.get_objects() if type(op) is Primitive and op.torch_functions}
    assert made <= {op.name for op in ALL}
    assert pick not in ALL
