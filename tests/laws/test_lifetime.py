"""How long a graph and what it saved live: freed node by node, never recursively, never left behind (F13)."""

import gc
import tracemalloc

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

import cartograd
from cartograd import errors
from cartograd.engine.graph import Leaf, Node

MILLION = 1_000_000


def leaf(*values):
    return cartograd.tensor(list(values), requires_grad=True, dtype=torch.float64)


def resident():
    """Bytes of memory this process holds."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def count(kind):
    gc.collect()
    return sum(type(one) is kind for one in gc.get_objects())


def watch(tensor):
    """A weak reference to the memory under a tensor."""
    return StorageWeakRef(tensor.data.untyped_storage())


# A second backward


def test_F13_second_backward_raises_and_says_what_to_do():
    x = leaf(2.0)
    y = (x * x).exp()
    y.backward()
    first = x.grad.item()
    with pytest.raises(errors.GraphFreedError, match="retain_graph=True") as caught:
        y.backward()
    assert "test_lifetime.py" in str(caught.value)
    assert x.grad.item() == first, "nothing was added twice"


@pytest.mark.parametrize(
    "function",
    [lambda x: x + x, lambda x: -x, lambda x: x * 2, torch.special.i0, lambda x: torch.sort(x.reshape(1))[0].sum()],
    ids=["add", "neg", "scale", "fallback", "several outputs"],
)
def test_F13_second_backward_raises_whatever_was_saved(function):
    x = leaf(2.0)
    y = function(x).sum()
    y.backward()
    with pytest.raises(errors.GraphFreedError, match="retain_graph=True"):
        y.backward()


def test_second_backward_through_a_shared_part_raises():
    x = leaf(2.0)
    shared = x.exp()
    one, other = shared * 2, shared * 3
    one.backward()
    with pytest.raises(errors.GraphFreedError, match="exp"):
        other.backward()


def test_retain_graph_keeps_it_for_one_more():
    x = leaf(3.0)
    y = x * x
    y.backward(retain_graph=True)
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.item() == 18.0
    with pytest.raises(errors.GraphFreedError):
        y.backward()


def test_create_graph_retains_unless_told_not_to():
    x = leaf(3.0)
    y = x * x
    y.backward(create_graph=True)
    y.backward()
    z = x * x
    z.backward(create_graph=True, retain_graph=False)
    with pytest.raises(errors.GraphFreedError):
        z.backward()


def test_a_failed_pass_can_be_seen_as_such():
    x = leaf(1.0)
    y = x.exp()
    z = y * 2
    handle = y.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        z.backward()
    handle.remove()
    assert x.grad is None
    with pytest.raises(errors.GraphFreedError):
        z.backward()


# Saved values


def test_saved_values_are_freed_node_by_node():
    x = leaf(0.1, 0.2)
    alive = []
    watched = []
    h = x
    for _ in range(6):
        h = h.exp() * 0.1  # exp saves its result
        h.register_hook(lambda g: alive.append(sum(not one.expired() for one in watched)))
        (exp_node,) = h.node.parents
        watched.append(StorageWeakRef(exp_node.saved[0].untyped_storage()))
    loss = h.sum()
    del h
    loss.backward()
    assert alive == [6, 5, 4, 3, 2, 1], "one less at every step down"
    assert all(one.expired() for one in watched)
    assert loss.item() > 0, "the graph itself may stay"


def test_saved_values_of_fallback_nodes_are_freed_node_by_node():
    x = leaf(0.1, 0.2)
    alive = []
    watched = []
    h = x
    for _ in range(6):
        h = torch.special.i0e(h)
        watched.append(watch(h))
        h = h * 0.5
        h.register_hook(lambda g: alive.append(sum(not one.expired() for one in watched)))
    h = h.sum()
    h.backward()
    assert alive == sorted(alive, reverse=True)
    assert alive[-1] < alive[0]
    del h
    assert all(one.expired() for one in watched)


def test_no_saved_value_remains_after_backward():
    x = leaf(0.5, 0.7)
    y = (torch.special.i0(x.exp() * x) + torch.sort(x)[0]).sum()
    y.backward()
    assert cartograd.trace(y).saved() == []


def test_dropping_the_result_frees_everything_without_the_collector():
    x = leaf(0.5, 0.7)
    gc.collect()
    gc.disable()
    try:
        hidden = x.exp()
        watched = watch(hidden)
        y = (hidden * hidden).sum() + torch.special.i0(hidden).sum()
        del hidden
        assert not watched.expired()
        del y
        assert watched.expired(), "a graph makes no reference cycles"
    finally:
        gc.enable()


def test_backward_leaves_no_reference_cycles():
    gc.collect()
    gc.disable()
    try:
        before = sum(type(one) in (Node, Leaf) for one in gc.get_objects())
        for _ in range(20):
            x = leaf(0.5, 0.7)
            y = (x.exp() * x).sum() + torch.special.i0(x).sum() + torch.sort(x)[0].sum()
            y.backward()
        del x, y
        after = sum(type(one) in (Node, Leaf) for one in gc.get_objects())
    finally:
        gc.enable()
    assert after <= before


def test_gradients_of_inner_tensors_are_freed_as_the_pass_goes():
    x = leaf(*([1.0] * 1000))
    watched = []
    alive = []

    def hook(g):
        alive.append(sum(not one.expired() for one in watched))
        watched.append(watch(g))

    h = x
    for _ in range(10):
        h = h * 1.5
        h.register_hook(hook)
    h.sum().backward()
    assert max(alive) <= 2


def test_no_grad_records_and_keeps_nothing():
    x = leaf(0.5)
    with cartograd.no_grad():
        hidden = x.exp()
        watched = watch(hidden)
        y = hidden * hidden
        del hidden
    assert watched.expired()
    assert y.node is None


# A million nodes


@pytest.mark.timeout(120)
def test_F13_million_node_chain_runs_and_goes_without_recursion():
    x = leaf(1.0)
    (x + 1).backward()  # everything lazy is loaded
    x.grad = None
    nodes, before = count(Node), resident()
    h = x
    for _ in range(MILLION):
        h = h + 1.0
    assert h.item() == MILLION + 1
    h.backward()
    assert x.grad.item() == 1.0
    del h
    assert count(Node) == nodes
    gc.collect()
    grown = resident() - before
    assert grown < 100 * 2**20, f"{grown / 2**20:.0f} MiB of a million nodes stayed"


@pytest.mark.timeout(120)
def test_F13_deep_graph_is_dropped_without_a_backward():
    x = leaf(1.0)
    h = x
    for _ in range(300_000):
        h = -h
    nodes = count(Node)
    del h
    assert count(Node) <= nodes - 300_000


def test_F13_deep_graph_with_hooks_saved_values_and_fallback_ops():
    x = leaf(0.5)
    h = x
    calls = []
    for i in range(20_000):
        h = torch.special.expit(h) if i % 10 == 0 else h * h.detach() + 0.5
        if i % 1000 == 0:
            h.register_hook(lambda g: calls.append(1))
    h.backward()
    assert len(calls) == 20
    assert x.grad is not None
    del h
    gc.collect()


def test_F13_deep_graph_with_create_graph_is_dropped():
    x = leaf(0.9)
    h = x
    for _ in range(20_000):
        h = h * x
    (g,) = cartograd.grad(h, x, create_graph=True)
    (second,) = cartograd.grad(g, x)
    assert second.item() == pytest.approx(20_001 * 20_000 * 0.9**19_999)
    before = count(Node)
    del h, g
    assert count(Node) < before - 40_000


def test_python_memory_is_flat_over_many_steps():
    x = leaf(0.5, 0.7)

    def step():
        x.grad = None
        ((x * x).exp() + torch.special.i0(x)).sum().backward()

    def kept_after(steps):
        gc.collect()
        tracemalloc.start()
        try:
            for _ in range(steps):
                step()
            gc.collect()
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    kept_after(100)
    few, many = kept_after(200), kept_after(2200)
    assert many - few < 2000 * 16, f"2000 more steps left {many - few} more bytes behind"


def test_many_ops_on_one_leaf_leave_nothing_on_it():
    x = leaf(0.5)
    nodes = count(Node)
    for _ in range(1000):
        y = x * 2
        del y
    assert count(Node) <= nodes
