"""Modes, hooks and re-entrance in a backward pass on several threads; the threads themselves."""

import contextvars
import os
import subprocess
import sys
import threading
import time

import pytest
import torch
from torch import nn

import cartograd
from cartograd import errors
from cartograd.engine.meter import PeakBytes


def within(seconds, function, *args):
    """``function(*args)`` in a thread of its own; fails if it takes longer."""
    outcome = []

    def run():
        try:
            outcome.append((True, function(*args)))
        except BaseException as error:
            outcome.append((False, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), f"no answer within {seconds} s: the pass hangs"
    done, value = outcome[0]
    if not done:
        raise value
    return value


def leaf(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return cartograd.tensor(torch.randn(shape, generator=generator, dtype=torch.float64), requires_grad=True)


def bits(*tensors):
    return [None if t.grad is None else torch.as_tensor(getattr(t.grad, "data", t.grad)).clone() for t in tensors]


def assert_same(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert (a is None) == (b is None)
        assert a is None or torch.equal(a, b)


def bush(x, inner, branches=6):
    """Branches that all pass through `inner`, with fan-out before and after."""
    trunk = x.sin()
    parts = [inner(trunk * (k + 1)).tanh() * trunk for k in range(branches)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part * trunk
    return (total * total).sum()


# Modes, hooks, re-entrance


@cartograd.primitive()
def spying(x: torch.Tensor, seen: list | None = None, pause: float = 0.0):
    return x * 1


@spying.vjp("x")
def _(g, seen, pause):
    time.sleep(pause)
    seen.append((threading.get_ident(), torch.is_grad_enabled(), variable.get(), torch.is_autocast_enabled("cpu")))
    return g


variable = contextvars.ContextVar("variable", default="outside")


def test_F6_modes_hold_in_the_workers():
    seen = []
    variable.set("inside")
    x = leaf(3)
    loss = sum(spying(x * k, seen, 0.02).sum() for k in range(8))
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.enable_grad():
        loss.backward(workers=4)
    assert len({thread for thread, *_ in seen}) > 1, "several threads took part"
    assert {modes for _, *modes in map(tuple, seen) for modes in [tuple(modes)]} == {(False, "inside", True)}
    assert torch.is_grad_enabled()
    seen.clear()
    loss = sum(spying(x * k, seen, 0.02).sum() for k in range(8))
    loss.backward(workers=4)
    assert {modes for _, *modes in map(tuple, seen) for modes in [tuple(modes)]} == {(False, "inside", False)}


def test_a_recorded_pass_has_the_same_second_derivatives():
    found = []
    for workers in (1, 4):
        x = leaf(4)
        bush(x, torch.exp).backward(create_graph=True, workers=workers)
        (second,) = cartograd.grad((x.grad * x.grad).sum(), x)
        found.append([second.data])
    assert_same(*found)


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_anomaly_mode_holds_in_the_workers(workers):
    x = cartograd.tensor([0.0, 1.0], requires_grad=True)
    loss = bush(x + 1, torch.exp) + x.sqrt().sum()
    with (
        pytest.raises(errors.AnomalyError, match=r"gradient of sqrt has an Inf.*test_parallel_modes\.py"),
        cartograd.detect_anomaly(),
    ):
        loss.backward(workers=workers)


@pytest.mark.parametrize("workers", [2, 8])
def test_saved_tensors_hooks_and_checkpoints(workers):
    calls = []

    def piece(t):
        calls.append(1)
        return (t.sin() * t).exp()

    found = []
    for count in (1, workers):
        calls.clear()
        x = leaf(4)
        with cartograd.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            loss = bush(x, lambda t: cartograd.checkpoint(piece, t))
        within(30, lambda loss=loss, count=count: loss.backward(workers=count))
        assert len(calls) == 12, "six checkpoints, each computed twice"
        found.append(bits(x))
    assert_same(*found)


@pytest.mark.parametrize("workers", [2, 8])
def test_checkpoints_that_draw_at_random(workers):
    """The generators belong to the whole process: recomputations on two threads must not turn them back at once."""
    found = []
    for count in (1, workers):
        torch.manual_seed(0)
        x = leaf(20_000)
        parts = [cartograd.checkpoint(lambda t: torch.dropout(t.sin(), 0.5, True).exp(), x * k) for k in range(8)]
        loss = sum(part.sum() for part in parts)
        within(30, lambda loss=loss, count=count: loss.backward(workers=count))
        found.append([*bits(x), torch.rand(2)])
    assert_same(*found)


def test_hooks_run_once_on_the_total_and_never_at_the_same_time():
    inside, most, totals = [0], [0], {}

    def hook(name):
        def run(g):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.002)
            totals[name] = totals.get(name, 0) + g.data
            inside[0] -= 1

        return run

    x = leaf(3)
    branches = [x * (k + 1) for k in range(8)]
    for k, branch in enumerate(branches):
        branch.register_hook(hook(k))
    x.register_hook(hook("x"))
    after = []
    x.register_post_accumulate_grad_hook(lambda t: after.append(t.grad.data.clone()))
    loss = sum((branch * branch).sum() + branch.sum() for branch in branches)
    within(30, lambda: loss.backward(workers=8))
    assert most[0] == 1
    for k in range(8):
        torch.testing.assert_close(totals[k], 2 * (k + 1) * x.data + 1)
    torch.testing.assert_close(totals["x"], x.grad.data)
    assert len(after) == 1
    assert torch.equal(after[0], x.grad.data)


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_backward_inside_a_hook(workers):
    x, z = leaf(3), leaf(3, seed=5)
    depth = []

    @cartograd.enable_grad()
    def hook(g):
        inner = bush(z, torch.exp)
        if len(depth) < 5:
            depth.append(1)
            inner_leaf = leaf(3)
            again = inner_leaf.sin()
            again.register_hook(hook)
            bush(again, torch.exp).backward(workers=workers)
        inner.backward(workers=workers)
        return g * 2

    h = x.sin()
    h.register_hook(hook)
    within(60, lambda: bush(h, torch.cos).backward(workers=workers))
    plain = leaf(3, seed=5)
    bush(plain, torch.exp).backward()
    torch.testing.assert_close(z.grad.data, 6 * plain.grad.data)
    other = leaf(3)
    bush(other.sin(), torch.cos).backward()
    torch.testing.assert_close(x.grad.data, 2 * other.grad.data)


def test_hooks_may_register_and_remove_hooks():
    x = leaf(3)
    h = x.sin()
    seen = []

    def first(g):
        seen.append("first")
        handle.remove()
        h.register_hook(lambda g: seen.append("late"))

    handle = h.register_hook(first)
    loss = bush(h, torch.exp)
    within(30, lambda: loss.backward(workers=4, retain_graph=True))
    within(30, lambda: loss.backward(workers=4))
    assert seen == ["first", "late"]


def test_passes_at_the_same_time_from_several_threads():
    expected = leaf(4)
    bush(expected, torch.exp).backward()
    wrong = []

    def user(seed):
        for _ in range(50):
            x = leaf(4)
            bush(x, torch.exp).backward(workers=4)
            if not torch.equal(x.grad.data, expected.grad.data):
                wrong.append(seed)

    def everybody():
        threads = [threading.Thread(target=user, args=(k,)) for k in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    within(120, everybody)
    assert not wrong


def test_threads_are_kept_between_passes():
    x = leaf(4)
    seen = []
    for _ in range(20):
        sum(spying(x * k, seen, 0.003).sum() for k in range(4)).backward(workers=3)
    assert len({thread for thread, *_ in seen}) <= 3 + threading.active_count()
    before = threading.active_count()
    for _ in range(20):
        sum(spying(x * k, seen, 0.001).sum() for k in range(4)).backward(workers=3)
    assert threading.active_count() == before


@pytest.mark.parametrize("workers", [0, -1, 2.0, True, "2", None, 5000])
def test_numbers_of_workers_that_are_none(workers):
    with pytest.raises(errors.OptionError, match=r"whole number from 1 to 1024, got"):
        leaf(1).sum().backward(workers=workers)


def test_long_chains_need_no_stack():
    x = leaf(1)
    y = x
    for _ in range(100_000):
        y = y + 1
    within(120, lambda: y.sum().backward(workers=2))
    assert x.grad.item() == 1.0


def test_a_weight_used_often_does_not_hold_all_its_contributions():
    weight = nn.Parameter(torch.randn(100, 100) / 10)
    peaks = []
    for workers in (1, 4):
        x = cartograd.tensor(torch.randn(1, 100))
        weight.grad = None
        h = x
        for _ in range(100):
            h = torch.tanh(h @ weight)
        loss = h.sum()
        with PeakBytes() as meter:
            loss.backward(workers=workers)
        peaks.append(meter.peak)
    print(peaks)
    assert peaks[1] < 2 * peaks[0] < 100 * 40_000 / 4


def run_script(script):
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=60, check=True
    ).stdout


SETUP = """
import os, sys, torch, cartograd
torch.set_num_threads(1)
def go():
    x = cartograd.tensor([1.0, 2.0], requires_grad=True)
    sum((x * k).sin().sum() for k in range(8)).backward(workers=4)
    return x.grad.tolist()
first = go()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_starts_its_own_threads():
    script = SETUP + "pid = os.fork()\nassert go() == first\nif pid:\n    print(os.waitpid(pid, 0)[1])\n"
    assert run_script(script).strip() == "0"


def test_the_interpreter_ends_although_the_threads_wait():
    start = time.monotonic()
    assert run_script(SETUP + "print('end')").strip() == "end"
    assert time.monotonic() - start < 50
