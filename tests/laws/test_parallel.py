"""The backward pass on several threads: the same bits as on one, and it always returns or raises (F1 to F6).

Every case runs under a watchdog: a pass that does not come back fails the test instead of hanging it.
"""

import random
import threading

import pytest
import torch
from torch import nn

import cartograd
from cartograd import errors

WORKERS = [1, 2, 3, 4, 8, 16, 64]


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


@cartograd.primitive()
def failing(x: torch.Tensor, kind: type = ValueError):
    return x * 1


@failing.vjp("x")
def _(g, kind):
    raise kind("cannot")


@cartograd.primitive()
def undefined(x: torch.Tensor):
    return x * 1


@undefined.vjp("x")
def _(g):
    return None


@cartograd.primitive()
def misshapen(x: torch.Tensor):
    return x * 1


@misshapen.vjp("x")
def _(g):
    return g.sum()


def bush(x, inner, branches=6):
    """Branches that all pass through `inner`, with fan-out before and after."""
    trunk = x.sin()
    parts = [inner(trunk * (k + 1)).tanh() * trunk for k in range(branches)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part * trunk
    return (total * total).sum()


# Every failure kind: workers=n does what workers=1 does


def refuse(gradient):
    raise OSError("no")


def hooked(where):
    def build(x):
        h = x.exp()
        if where == "inner":
            h.register_hook(refuse)
        elif where == "leaf":
            x.register_hook(refuse)
        elif where == "post":
            x.register_post_accumulate_grad_hook(refuse)
        return bush(h, lambda t: t.cos())

    return build


def freed(x):
    h = x.exp()
    (h * 2).sum().backward()
    return bush(h, torch.sin)


def changed(x):
    h = x.exp()
    loss = bush(h, torch.sin)
    h.data.add_(1)
    return loss


FAILURES = {
    "error in an op": (lambda x: bush(x, failing), ValueError),
    "exit in an op": (lambda x: bush(x, lambda t: failing(t, SystemExit)), SystemExit),
    "error in one branch": (lambda x: bush(x, torch.exp) + failing(x.sin()).sum(), ValueError),
    "two errors": (lambda x: failing(x.sin(), KeyError).sum() + failing(x.cos(), ValueError).sum(), ValueError),
    "wrong shape": (lambda x: bush(x, misshapen), errors.VjpError),
    "hook on an inner tensor": (hooked("inner"), OSError),
    "hook on a leaf": (hooked("leaf"), OSError),
    "post-accumulate hook": (hooked("post"), OSError),
    "freed graph": (freed, errors.GraphFreedError),
    "changed in place": (changed, errors.InplaceError),
}


def message(error):
    return [str(error), *getattr(error, "__notes__", [])]


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", FAILURES)
def test_F2_F3_errors_end_the_pass_and_say_what_one_thread_says(kind, workers):
    build, expected = FAILURES[kind]
    for _ in range(5):
        caught = []
        for count in (1, workers):
            loss = build(leaf(4))
            with pytest.raises(expected) as info:
                within(30, lambda loss=loss, count=count: loss.backward(workers=count))
            caught.append(info.value)
        assert type(caught[0]) is type(caught[1])
        assert message(caught[0]) == message(caught[1])
    if kind == "error in an op":
        assert "in the gradient of failing, called at" in caught[1].__notes__[0]


GRAPHS = {
    "bush": lambda x: bush(x, torch.exp),
    "undefined everywhere": lambda x: bush(x, undefined),
    "undefined in one branch": lambda x: bush(x, torch.exp) + undefined(x.sin()).exp().sum(),
    "undefined only": lambda x: undefined(x.sin()).sum(),
    "frozen inside": lambda x: bush(x, lambda t: t.detach() * t),
    "root ()": lambda x: bush(x, torch.exp),
    "root (1,)": lambda x: (bush(x, torch.exp) + x.sum()).reshape(1) + 1,
    "root (1, 1)": lambda x: (bush(x, torch.exp) + x.sum()).reshape(1, 1) + 1,
    "the leaf is the root": lambda x: x,
    "several outputs": lambda x: sum(p.exp().sum() * k for k, p in enumerate(torch.unbind(x.sin()))) + x.max(0)[0],
    "torch's derivative": lambda x: bush(x, torch.special.i0e),
    "same input twice": lambda x: ((x + x) * (x + x)).sum(),
    "lists": lambda x: (torch.cat([x, x.sin(), x]) * torch.stack([x, x.cos(), x]).flatten()).sum(),
    "one leaf, many uses": lambda x: sum((x * k).sin().sum() for k in range(20)),
}


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", GRAPHS)
def test_F1_F4_F6_same_bits(kind, workers):
    found = []
    for count in (1, workers):
        x = leaf(4) if kind != "the leaf is the root" else leaf(1)
        loss = GRAPHS[kind](x)
        within(30, lambda loss=loss, count=count: loss.backward(workers=count))
        found.append(bits(x))
    assert_same(*found)


def random_graph(seed):
    """A random graph over three leaves and a Parameter, with undefined and multi-output parts."""
    chance = random.Random(seed)
    leaves = [leaf(2, 3, seed=seed + k) for k in range(3)]
    weight = nn.Parameter(torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))
    made = list(leaves)
    unary = [torch.sin, torch.tanh, undefined, torch.special.i0e, lambda t: t @ weight, lambda t: torch.sort(t, 1)[0]]
    unary += [lambda t: torch.stack(torch.unbind(t, 1), 1), lambda t: t * t, torch.exp]
    binary = [torch.add, torch.mul, torch.sub, lambda a, b: a * b.mean(), lambda a, b: a + b.sum(1, keepdim=True)]
    for _ in range(chance.randint(1, 40)):
        a, b = chance.choice(made[-8:]), chance.choice(made)
        made.append(chance.choice(unary)(a) if chance.random() < 0.5 else chance.choice(binary)(a, b).tanh())
    return [*leaves, weight], made[-1].sum() + made[len(made) // 2].mean() + (made[-1] * leaves[0]).sum()


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_have_the_same_bits(seed):
    print("seed", seed)
    expected = None
    for workers in (1, 2, 5, 8):
        leaves, loss = random_graph(seed)
        order = []
        for number, one in enumerate(leaves):
            one.register_hook(lambda g, number=number: order.append(number))
        within(30, lambda loss=loss, workers=workers: loss.backward(workers=workers))
        found = bits(*leaves)
        if expected is None:
            expected = (found, order)
        assert_same(found, expected[0])
        assert order == expected[1], "leaves are finished in the same order"


@pytest.mark.parametrize("workers", [2, 8])
def test_inputs_and_retain_graph(workers):
    for seed in range(10):
        print("seed", seed)
        found = []
        for count in (1, workers):
            leaves, loss = random_graph(seed)
            inner = leaves[0].sin()
            whole = loss + (inner * leaves[1]).sum()
            for _ in range(2):
                chosen = [inner, leaves[1]]
                within(30, lambda: whole.backward(inputs=chosen, retain_graph=True, workers=count))
            found.append(bits(*leaves, inner))
        assert_same(*found)
        assert found[1][0] is None


# 10^5 passes: no wake-up is ever lost, and every pass has the same bits


def watchdog_graphs():
    x, y = leaf(3), leaf(3, seed=1)
    weight = nn.Parameter(torch.ones(3, dtype=torch.float64))
    a, b = x.sin(), y * weight
    plain = (a * b + a * x).sum() + (b * b).sum()
    wide = sum(((x * k) * weight).sum() for k in range(6))
    bad = (failing(a) * b + a).sum() + b.sum()
    return (x, y, weight), plain, wide, bad


def many_passes(passes, workers):
    leaves, plain, wide, bad = watchdog_graphs()
    expected = {}
    for loss in (plain, wide):
        loss.backward(retain_graph=True)
        expected[loss] = bits(*leaves)
        for one in leaves:
            one.grad = None
    stuck = threading.Event()
    progress = [0]

    def run():
        for number in range(passes):
            loss = wide if number % 4 == 0 else plain
            if number % 16 == 5:
                with pytest.raises(ValueError, match="cannot"):
                    bad.backward(retain_graph=True, workers=workers)
            else:
                loss.backward(retain_graph=True, workers=workers)
                for one, right in zip(leaves, expected[loss], strict=True):
                    assert (one.grad is None) == (right is None)
                    assert right is None or torch.equal(getattr(one.grad, "data", one.grad), right)
            for one in leaves:
                one.grad = None
            progress[0] = number
        stuck.set()

    failure = []

    def guarded():
        try:
            run()
        except BaseException as error:
            failure.append(error)
            stuck.set()

    threading.Thread(target=guarded, daemon=True).start()
    seen = -1
    while not stuck.wait(30):
        assert progress[0] > seen, f"stuck at pass {progress[0]} with {workers} workers"
        seen = progress[0]
    if failure:
        raise failure[0]


@pytest.mark.parametrize(
    ("workers", "passes"), [(1, 20_000), (2, 30_000), (4, 20_000), (8, 16_000), (16, 10_000), (64, 4_000)]
)
def test_F5_a_hundred_thousand_passes(workers, passes):
    many_passes(passes, workers)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 6, 8, 16, 32, 48, 64])
def test_F5_a_million_passes(workers):
    many_passes(100_000, workers)
