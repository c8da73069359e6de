"""Mamba3: forward = unrolled step = split prefill, in every formulation, values and all gradients, on both engines."""

import numpy
import pytest
import torch
from parity import randn

import cartograd
from cartograd.nn import Mamba3, Mamba3Cache

FORMULATIONS = ["double", "single", "stacked"]
Q = 4
LENGTHS = [1, Q - 1, Q, Q + 1, 3 * Q + 5]
HEADS = 4


def block(formulation="double", seed=0, **options):
    """A small block in float64 with random parameters everywhere, so that no term hides behind a 0 or 1."""
    options = {"d_state": 6, "headdim": 3, "chunk_size": Q, "angle_bound": 2.0, "rope_fraction": 0.7} | options
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = Mamba3(6, formulation=formulation, **options).double()
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
            made.dt_bias.add_(1)  # steps of the order of 1: decays and turns that matter
    return made


def random_cache(made, batch=2):
    return Mamba3Cache(*(randn(*one.shape, seed=20 + i) for i, one in enumerate(made.empty_cache(batch))))


def at_once(made, u, cache):
    return made(u, cache, return_cache=True)


def step_by_step(made, u, cache):
    rows = []
    for t in range(u.shape[1]):
        y, cache = made.step(u[:, t], cache)
        rows.append(y)
    return torch.stack(rows, 1), cache


def in_two_parts(made, u, cache):
    cut = u.shape[1] // 2
    first, cache = made(u[:, :cut], cache, return_cache=True)
    second, cache = made(u[:, cut:], cache, return_cache=True)
    return torch.cat([first, second], 1), cache


def our_leaf(value):
    return cartograd.tensor(value.clone(), requires_grad=True)


def torch_leaf(value):
    return value.clone().requires_grad_()


def plain(value):
    return (value.data if isinstance(value, cartograd.Tensor) else value).detach().clone()


def everything(made, way, length, leaf, random=True):
    """Outputs, outgoing cache, and the gradients of the input, the incoming cache and all parameters.

    The loss weighs outputs and outgoing cache with random numbers, so gradients come through both.
    """
    made.zero_grad()
    u = leaf(randn(2, length, 6, seed=10))
    incoming = Mamba3Cache(*map(leaf, random_cache(made))) if random else None
    y, outgoing = way(made, u, incoming)
    outs = [y, *outgoing]
    loss = sum((one * randn(*one.shape, seed=30 + i).to(one.dtype)).sum() for i, one in enumerate(outs) if one.numel())
    loss.backward()
    gradients = [u.grad, *(one.grad for one in (incoming or ()) if one.numel())]
    assert all(one.grad is not None for one in made.parameters())
    return [plain(one) for one in [*outs, *gradients, *(one.grad for one in made.parameters())] if one.numel()]


def worst(found, expected):
    return max(
        ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item() for a, b in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("groups", [1, 2, HEADS])
@pytest.mark.parametrize("rank", [1, 2, 3, 4])
@pytest.mark.parametrize("length", LENGTHS)
def test_forward_is_unrolled_step_is_split_prefill(length, rank, groups):
    """Every formulation, values, outgoing cache and all gradients, from a random cache."""
    expected = everything(block(mimo_rank=rank, ngroups=groups), step_by_step, length, torch_leaf)
    for formulation in FORMULATIONS:
        made = block(formulation, mimo_rank=rank, ngroups=groups)
        for way in (at_once, in_two_parts):
            assert worst(everything(made, way, length, torch_leaf), expected) < 1e-10, (formulation, way)


OPTIONS = [
    {"rope_fraction": 0.0},
    {"rope_fraction": 1.0},
    {"mimo_rank": 2, "rope_fraction": 1.0},
    {"a_activation": "heavy_tail"},
    {"out_norm": True},
    {"mimo_rank": 3, "out_norm": True, "a_activation": "heavy_tail"},
    {"expand": 1, "headdim": 6},
    {"chunk_size": 1},
    {"chunk_size": None},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options(options):
    for random in (True, False):
        expected = everything(block(**options), step_by_step, 6, torch_leaf, random)
        for formulation in FORMULATIONS:
            found = everything(block(formulation, **options), at_once, 6, torch_leaf, random)
            assert worst(found, expected) < 1e-10, formulation


@pytest.mark.parametrize("way", [at_once, step_by_step, in_two_parts])
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_our_engine_agrees_with_torchs(formulation, way):
    made = block(formulation, mimo_rank=2, ngroups=2, out_norm=True)
    expected = everything(made, way, Q + 3, torch_leaf)
    assert worst(everything(made, way, Q + 3, our_leaf), expected) < 1e-12


@pytest.mark.parametrize("algorithm", ["serial", "minimal"])
def test_the_algorithm_does_not_matter(algorithm):
    made = block(mimo_rank=2)
    expected = everything(made, at_once, 3 * Q + 1, our_leaf)
    made.algorithm = algorithm
    assert worst(everything(made, at_once, 3 * Q + 1, our_leaf), expected) < 1e-12


@pytest.mark.parametrize("engine", ["ours", "torch"])
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_gradients_against_differences(formulation, engine):
    made = block(formulation, mimo_rank=2, d_state=2, expand=1, rope_fraction=1.0, chunk_size=2)
    cache = random_cache(made, 1)

    def function(u, *fields):
        y, after = made(u, Mamba3Cache(*fields), return_cache=True)
        return (y, *after)

    given = [randn(1, 3, 6, seed=3), *cache]
    if engine == "ours":
        assert cartograd.gradcheck(function, [our_leaf(one) for one in given])
    else:
        assert torch.autograd.gradcheck(function, [torch_leaf(one) for one in given])


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_float32_is_right_to_five_digits(formulation, rank):
    """Outputs, outgoing cache and all gradients, of three chunks of 16 steps and five more."""
    expected = everything(block(formulation, mimo_rank=rank, chunk_size=16), at_once, 53, torch_leaf)
    low = block(formulation, mimo_rank=rank, chunk_size=16).float()
    for way in (at_once, step_by_step):
        found = everything(low, way, 53, lambda one: our_leaf(one.float()))
        assert {one.dtype for one in found} == {torch.float32}
        assert worst([one.double() for one in found], expected) < 1e-5


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_float32_over_long_sequences(formulation):
    made = block(formulation, mimo_rank=2, chunk_size=16)
    u = randn(1, 200, 6, seed=1)
    expected, cache = made(u, return_cache=True)
    made.float()
    y, low = made(u.float(), return_cache=True)
    stepped, _ = step_by_step(made, u.float(), None)
    for found in (y, stepped):
        assert ((found - expected).abs().max() / expected.abs().max()).item() < 1e-5
    assert ((low.state - cache.state).abs().max() / cache.state.abs().max()).item() < 1e-5


def test_bfloat16_keeps_states_and_angles_in_float32():
    made = block().bfloat16()
    u = randn(2, 40, 6, seed=1).bfloat16()
    y, cache = made(u, return_cache=True)
    expected = made.double()(u.double())
    assert y.dtype is torch.bfloat16
    assert {one.dtype for one in cache} == {torch.float32}
    assert ((y.double() - expected).abs().max() / expected.abs().max()).item() < 0.03


@pytest.mark.parametrize("leaf", [our_leaf, torch_leaf])
def test_autocast(leaf):
    """Projections run in bfloat16; norms, decays, angles and states do not."""
    made = block(mimo_rank=2, ngroups=2).float()
    u = leaf(randn(2, 9, 6, seed=1).float())
    expected = made(u.detach())
    with torch.autocast("cpu", torch.bfloat16):
        y, cache = made(u, return_cache=True)
    assert y.dtype is torch.bfloat16
    assert {one.dtype for one in cache} == {torch.float32}
    y.float().sum().backward()
    assert all(one.grad.dtype is torch.float32 for one in made.parameters())
    assert ((plain(y).float() - plain(expected)).abs().max() / plain(expected).abs().max()).item() < 0.05


def test_sizes_may_be_numbers_of_numpy():
    made = Mamba3(numpy.int64(6), d_state=numpy.int32(4), headdim=numpy.int64(3), chunk_size=numpy.int64(2))
    assert made(torch.zeros(1, 3, 6)).shape == (1, 3, 6)


def test_a_cache_changes_what_follows_and_nothing_before():
    made = block()
    u = randn(2, 9, 6, seed=1)
    y, cache = made(u, random_cache(made), return_cache=True)
    assert (made(u) - y).abs().max() > 1e-3
    later = u.clone()
    later[:, 5:] += 1
    changed = made(later, random_cache(made))
    assert torch.equal(changed[:, :5], y[:, :5])
    assert (changed[:, 5:] - y[:, 5:]).abs().max() > 1e-3
    assert not any(one.requires_grad for one in cache.detach())


def test_no_tokens_and_tokens_with_a_time_axis():
    made = block()
    cache = random_cache(made)
    y, after = made(torch.zeros(2, 0, 6, dtype=torch.float64), cache, return_cache=True)
    assert y.shape == (2, 0, 6)
    assert after is cache
    u = randn(2, 1, 6, seed=1)
    both = made.step(u, cache)[0], made.step(u[:, 0], cache)[0]
    assert torch.equal(both[0][:, 0], both[1])


def test_angles_do_not_drift():
    """16,384 turns of about 1 rad in float32: the running angle is as exact as the increments."""
    from cartograd.nn.rotation import running_angles

    increments = randn(1, 16_384, 1, 1, seed=4).abs().float()
    theta = running_angles(increments, torch.zeros(1, 1, 1))
    exact = increments.double().cumsum(1)
    assert (torch.cos(theta.double()) - torch.cos(exact)).abs().max() < 2e-7
    assert theta.abs().max() <= 3.1415928


def test_only_our_rules_are_used_and_only_inputs_of_the_scan_are_kept():
    made = block(mimo_rank=2, out_norm=True, a_activation="heavy_tail")
    graph = cartograd.trace(made(cartograd.tensor(randn(2, 9, 6))))
    assert "torch" not in {line.split()[2] for line in graph.explain().splitlines()[1:]}
    assert [node.name for node in graph.nodes].count("ssd") == 2
    assert all(leaf.is_leaf for leaf in graph.leaves if isinstance(leaf, torch.Tensor))


def test_recording_needs_no_tensor_of_ours():
    made = block(mimo_rank=2)
    u = randn(2, 5, 6, seed=1)
    with cartograd.recording():
        loss = made(u).sum()
    assert isinstance(loss, cartograd.Tensor)
    loss.backward()
    found = made.in_proj.weight.grad.clone()
    made.zero_grad()
    made(u).sum().backward()
    torch.testing.assert_close(found, made.in_proj.weight.grad, rtol=1e-12, atol=1e-12)


def test_a_cache_of_one_engine_continues_on_the_other():
    made = block()
    u = randn(2, 6, 6, seed=1)
    expected = made(u)[:, 3:]
    _, ours = made(cartograd.tensor(u[:, :3]), return_cache=True)
    _, theirs = made(u[:, :3], return_cache=True)
    for tokens, cache in ((u[:, 3:], ours), (cartograd.tensor(u[:, 3:]), theirs)):
        y = made(tokens, cache)
        assert isinstance(y, cartograd.Tensor)
        torch.testing.assert_close(plain(y), expected.detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("activation", ["softplus", "heavy_tail"])
def test_decay_has_a_floor(activation):
    """However negative what A is made of: h_t = exp(-1e-4 dt) h_{t-1} + ..., not h_{t-1} + ..."""
    made = block(a_activation=activation)
    with torch.no_grad():
        made.in_proj.weight.zero_()
        _, _, _, _, _, a, _, _ = made.in_proj.weight.split(made.split)
        a.fill_(-1e9)  # x = 0, so nothing is written
    cache = random_cache(made)._replace(x_last=torch.zeros(2, HEADS, 3, dtype=torch.float64))
    _, after = made(torch.ones(2, 5, 6, dtype=torch.float64), cache, return_cache=True)
    decay = torch.exp(-5e-4 * torch.nn.functional.softplus(made.dt_bias))
    torch.testing.assert_close(after.state, decay[:, None, None] * cache.state, rtol=1e-13, atol=0)


def test_starts_as_published():
    made = Mamba3(32, d_state=16, headdim=8, mimo_rank=4)
    steps = torch.nn.functional.softplus(made.dt_bias)
    assert made.nheads == 8
    assert made.in_proj.weight.shape == (2 * 64 + 2 * 4 * 16 + 3 * 8 + 4, 32)
    assert ((steps >= 0.99e-3) & (steps <= 1.01e-1)).all()
    assert torch.equal(made.mimo_x, torch.full((8, 4, 8), 0.25))
    assert torch.equal(made.mimo_z, torch.ones(8, 4, 8))
    assert torch.equal(made.B_bias, torch.ones(8, 4, 16))
    assert made.chunk_size == 16
    assert made.pairing == "halves"
    assert [name for name, one in made.named_parameters() if getattr(one, "_no_weight_decay", False)] == [
        "dt_bias",
        "D",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"headdim": 5}, "headdim=5 does not divide expand"),
        ({"ngroups": 3}, "ngroups=3 does not divide the 4 heads"),
        ({"rope_fraction": 1.5}, "rope_fraction must lie between 0 and 1, got 1.5"),
        ({"a_activation": "relu"}, "unknown a_activation 'relu': known are softplus, heavy_tail"),
        ({"formulation": "triple"}, "unknown formulation 'triple': known are double, single, stacked"),
        ({"mimo_rank": 0}, "mimo_rank must be at least 1, got 0"),
        ({"chunk_size": 0}, "chunk_size must be at least 1, got 0"),
        ({"d_state": 2.5}, "d_state must be a whole number, got 2.5"),
    ],
)
def test_options_that_do_not_fit(options, message):
    with pytest.raises(cartograd.CartogradError, match=message):
        Mamba3(6, **{"headdim": 3, "d_state": 4} | options)


def test_inputs_that_do_not_fit():
    made = block()
    with pytest.raises(ValueError, match=r"reads \(batch, time, 6\), got shape \(2, 3, 5\)"):
        made(torch.zeros(2, 3, 5))
    with pytest.raises(ValueError, match=r"step reads one token, \(b, 6\), got shape \(2, 3, 6\)"):
        made.step(torch.zeros(2, 3, 6, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"the cache's state has shape \(3, 4, 3, 6\), .* need \(2, 4, 3, 6\)"):
        made(torch.zeros(2, 3, 6, dtype=torch.float64), made.empty_cache(3))
    with pytest.raises(TypeError, match="cache must be a Mamba3Cache, got a tuple"):
        made(torch.zeros(2, 3, 6, dtype=torch.float64), tuple(made.empty_cache(2)))
