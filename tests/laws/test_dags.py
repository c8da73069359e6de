"""Random graphs by Hypothesis: torch's gradients, the same bits twice, hooks once, nothing left saved."""

from collections import Counter

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cartograd

UNARY = [
    torch.sin,
    torch.tanh,
    torch.neg,
    torch.exp,
    torch.sigmoid,
    torch.special.i0e,
    lambda x: x * 0.5,
    lambda x: 1.5 - x,
    lambda x: x * x,
    lambda x: x.detach() * x,
    lambda x: x.t().contiguous().t(),
    lambda x: torch.sort(x, dim=1)[0],
    lambda x: x.max(dim=0, keepdim=True)[0] + x,
    lambda x: torch.stack(torch.unbind(x, dim=1), dim=1),
]
BINARY = [
    torch.add,
    torch.sub,
    torch.mul,
    lambda x, y: torch.where(x.detach() > 0, x, y),
    lambda x, y: x / (y * y + 1),
    lambda x, y: torch.cat([x, y], dim=0)[1:3] if x.shape[0] == 2 else x + y,
    lambda x, y: x * y.sum(dim=1, keepdim=True),
    lambda x, y: x + y.mean(),
]
SHAPE = (2, 3)

programs = st.tuples(
    st.lists(st.booleans(), min_size=1, max_size=4).filter(any),  # which leaves require grad
    st.lists(
        st.tuples(st.integers(0, len(UNARY) + len(BINARY) - 1), st.integers(0, 60), st.integers(0, 60)),
        min_size=1,
        max_size=40,
    ),
    st.integers(0, 2**20),  # seed of the values
)
law = settings(
    max_examples=100, deadline=None, print_blob=True, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


def values(program):
    flags, _, seed = program
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(SHAPE, dtype=torch.float64, generator=generator) - 0.5 for _ in flags]


def run(program, leaves, each=lambda value: None):
    """Run the program; the result sums the last values and some inner one, so that fan-out is high."""
    made = list(leaves)
    for op, left, right in program[1]:
        x = made[-1 - left % len(made)]
        y = made[-1 - right % len(made)]
        made.append(UNARY[op](x) if op < len(UNARY) else BINARY[op - len(UNARY)](x, y))
        each(made[-1])
    return made[-1].sum() + made[len(made) // 2].mean() + (made[0] * made[-1]).sum()


def ours(program):
    return [
        cartograd.tensor(value.clone(), requires_grad=flag)
        for value, flag in zip(values(program), program[0], strict=True)
    ]


def gradients(leaves):
    return [None if one.grad is None else torch.as_tensor(one.grad.data) for one in leaves]


@law
@given(programs)
def test_gradients_are_torchs(program):
    mine = ours(program)
    theirs = [v.clone().requires_grad_(flag) for v, flag in zip(values(program), program[0], strict=True)]
    loss, expected = run(program, mine), run(program, theirs)
    torch.testing.assert_close(loss.data, expected.detach())
    assert loss.requires_grad == expected.requires_grad
    if not expected.requires_grad:
        return
    loss.backward()
    expected.backward()
    for x, t in zip(mine, theirs, strict=True):
        assert (x.grad is None) == (t.grad is None)
        if t.grad is not None:
            torch.testing.assert_close(x.grad.data, t.grad, rtol=1e-9, atol=1e-12)


@law
@given(programs)
def test_two_runs_give_the_same_bits_and_nothing_stays_saved(program):
    found = []
    for _ in range(2):
        leaves = ours(program)
        loss = run(program, leaves)
        if not loss.requires_grad:
            return
        loss.backward()
        assert cartograd.trace(loss).saved() == []
        found.append(gradients(leaves))
    for one, other in zip(*found, strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)


@law
@given(programs)
def test_hooks_fire_once_per_tensor_on_the_total(program):
    leaves = ours(program)
    calls, totals = Counter(), {}
    watched = []

    def watch(value):
        if value.requires_grad:
            name = len(watched)
            watched.append(value)
            value.register_hook(lambda g: calls.update([name]) or totals.__setitem__(name, g.data.clone()))

    for one in leaves:
        watch(one)
    loss = run(program, leaves, watch)
    if not loss.requires_grad:
        return
    places = list(watched)
    expected = cartograd.grad(loss, places, retain_graph=True, allow_unused=True)
    calls.clear()
    totals.clear()
    loss.backward()
    reached = {i for i, one in enumerate(expected) if one is not None}
    if len({id(one._edge) for one in places}) == len(places):
        assert calls == Counter(dict.fromkeys(reached, 1))
    for i in reached:
        assert torch.equal(totals[i], expected[i].data)


@law
@given(programs, st.integers(0, 3))
def test_every_way_to_ask_gives_the_same_bits(program, chosen):
    leaves = ours(program)
    loss = run(program, leaves)
    if not loss.requires_grad:
        return
    wanted = [one for one in leaves if one.requires_grad]
    some = wanted[: chosen + 1]
    through_grad = cartograd.grad(loss, some, retain_graph=True, allow_unused=True)
    loss.backward(inputs=some, retain_graph=True)
    limited = gradients(some)
    for one in leaves:
        one.grad = None
    loss.backward()
    for one, other, stored in zip(through_grad, limited, gradients(some), strict=True):
        assert (one is None) == (other is None) == (stored is None)
        assert one is None or (torch.equal(one.data, stored) and torch.equal(other, stored))


@law
@given(programs)
def test_no_two_gradients_share_memory(program):
    leaves = ours(program)
    kept = []

    def keep(value):
        if value.requires_grad and not value.is_leaf:
            value.retain_grad()
            kept.append(value)

    loss = run(program, leaves, keep)
    if not loss.requires_grad:
        return
    seed = torch.ones((), dtype=torch.float64)
    for _ in range(2):
        loss.backward(seed, retain_graph=True)
    distinct = {id(one._edge): one for one in [*leaves, *kept] if one.grad is not None}.values()
    blocks = [one.grad.data.untyped_storage().data_ptr() for one in distinct]
    assert len(set(blocks)) == len(blocks)
    values = {one.data.untyped_storage().data_ptr() for one in [*leaves, *kept]} | {seed.data_ptr()}
    assert not values & set(blocks)
    assert seed.item() == 1.0


@law
@given(programs)
def test_second_derivatives_are_torchs(program):
    short = (program[0], program[1][:12], program[2])
    mine = ours(short)
    theirs = [v.clone().requires_grad_(flag) for v, flag in zip(values(short), short[0], strict=True)]
    loss, expected = run(short, mine), run(short, theirs)
    if not expected.requires_grad:
        return
    wanted = [(x, t) for x, t in zip(mine, theirs, strict=True) if t.requires_grad]
    first = cartograd.grad(loss, [x for x, _ in wanted], create_graph=True, allow_unused=True)
    other = torch.autograd.grad(expected, [t for _, t in wanted], create_graph=True, allow_unused=True)
    penalty = sum((one * one).sum() for one in first if one is not None)
    penalty_of_torch = sum((one * one).sum() for one in other if one is not None)
    second = derivatives(cartograd.grad, penalty, [x for x, _ in wanted])
    other = derivatives(torch.autograd.grad, penalty_of_torch, [t for _, t in wanted])
    for x, t in zip(second, other, strict=True):
        torch.testing.assert_close(x, t, rtol=1e-7, atol=1e-10)


def derivatives(grad, penalty, leaves):
    """The gradients of `penalty`, zeros where there are none."""
    found = [None] * len(leaves)
    if getattr(penalty, "requires_grad", False):
        found = grad(penalty, leaves, allow_unused=True)
    return [torch.zeros(SHAPE, dtype=torch.float64) if one is None else one.data for one in found]
