"""Mamba3Layer, Mamba3Stack, Bidirectional and ClassTokens."""

import math

import pytest
import torch
import torch.nn.functional as F
from parity import randn
from torch import nn

import cartograd
from cartograd.nn import Bidirectional, ClassTokens, Mamba3, Mamba3Layer, Mamba3Stack

BLOCK = {"d_state": 4, "headdim": 4, "chunk_size": 4}


@pytest.fixture(autouse=True)
def seed():
    print("seed 0")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_a_layer_is_two_residual_additions():
    layer = Mamba3Layer(8, mlp_width=5, **BLOCK).double()
    with torch.no_grad():
        for one in (layer.norm.weight, layer.norm2.weight):
            one.add_(torch.randn_like(one))
    u = randn(2, 6, 8)
    middle = u + layer.mixer(F.rms_norm(u, (8,), layer.norm.weight, 1e-5))
    value, gate = layer.mlp.fc1(F.rms_norm(middle, (8,), layer.norm2.weight, 1e-5)).split(5, -1)
    close(layer(u), middle + layer.mlp.fc2(value * gate * torch.sigmoid(gate)))


def test_layer_without_and_with_the_usual_feed_forward_part():
    bare, usual = Mamba3Layer(9, mlp_width=0, expand=4 / 3, **BLOCK), Mamba3Layer(9, expand=4 / 3, **BLOCK)
    assert bare.mlp is None
    assert usual.mlp.fc1.weight.shape == (48, 9)
    u = torch.randn(1, 3, 9)
    assert torch.equal(bare(u), u + bare.mixer(bare.norm(u)))


@pytest.mark.parametrize("lift", [lambda u: u, cartograd.tensor], ids=["torch", "ours"])
@pytest.mark.parametrize("options", [{}, {"class_tokens": 2, "class_position": "first"}], ids=["plain", "tokens"])
def test_stack_forward_is_unrolled_step_and_split_prefill(options, lift):
    stack = Mamba3Stack(8, 2, n_virtual_layers=5, **options, **BLOCK).double()
    u = lift(randn(2, 9, 8))
    y, cache = stack(u, return_cache=True)
    assert len(cache) == 5
    known = None
    rows = []
    for t in range(9):
        row, known = stack.step(u[:, t], known)
        rows.append(row)
    first, half = stack(u[:, :4], return_cache=True)
    second, split = stack(u[:, 4:], half, return_cache=True)
    added = options.get("class_tokens", 0)
    plain = [one.data if isinstance(one, cartograd.Tensor) else one for one in (y, torch.stack(rows, 1))]
    close(plain[1].detach(), plain[0].detach()[:, added:])
    joined = torch.cat([first, second], 1)
    close((joined.data if isinstance(joined, cartograd.Tensor) else joined).detach(), plain[0].detach())
    for a, b, c in zip(cache, known, split, strict=True):
        for one, other, third in zip(a, b, c, strict=True):
            for found in (other, third):
                found, expected = (
                    value.data if isinstance(value, cartograd.Tensor) else value for value in (found, one)
                )
                close(found.detach(), expected.detach())


def test_virtual_layers_share_weights_in_the_order_of_the_schedule():
    cyclic = Mamba3Stack(8, 3, n_virtual_layers=7, **BLOCK)
    stretched = Mamba3Stack(8, 3, n_virtual_layers=7, schedule="stretched", **BLOCK)
    assert cyclic.order == [0, 1, 2, 0, 1, 2, 0]
    assert stretched.order == [0, 0, 0, 1, 1, 2, 2]
    assert len(cyclic.layers) == 3
    assert Mamba3Stack(8, 3, **BLOCK).order == [0, 1, 2]
    u = torch.randn(1, 4, 8)
    expected = u
    for place in cyclic.order:
        expected = cyclic.layers[place](expected)
    torch.testing.assert_close(cyclic(u), cyclic.norm_f(expected))


def test_gradients_of_shared_weights_add_up():
    stack = Mamba3Stack(8, 1, n_virtual_layers=2, **BLOCK).double()
    u = randn(2, 5, 8)
    stack(u).square().sum().backward()
    theirs = [one.grad.clone() for one in stack.parameters()]
    stack.zero_grad()
    stack(cartograd.tensor(u)).square().sum().backward()
    for one, other in zip(stack.parameters(), theirs, strict=True):
        torch.testing.assert_close(one.grad, other, rtol=1e-10, atol=1e-10)
        assert other.abs().max() > 0


def test_what_is_added_to_the_residual_starts_smaller_in_a_deep_stack():
    torch.manual_seed(1)
    layer = Mamba3Layer(8, **BLOCK)
    torch.manual_seed(1)
    stack = Mamba3Stack(8, 1, n_virtual_layers=8, **BLOCK)
    for name in ("mixer.out_proj.weight", "mlp.fc2.weight"):
        torch.testing.assert_close(stack.layers[0].get_parameter(name), layer.get_parameter(name) / math.sqrt(16))
    torch.testing.assert_close(stack.layers[0].mixer.in_proj.weight, layer.mixer.in_proj.weight)


@pytest.mark.parametrize("merge", ["mean", "sum", "concat"])
def test_both_directions(merge):
    ahead, back = (Mamba3(8, **BLOCK).double() for _ in range(2))
    u = randn(2, 6, 8)
    one, other = ahead(u), torch.stack(back(torch.stack(u.unbind(1)[::-1], 1)).unbind(1)[::-1], 1)
    expected = {"mean": (one + other) / 2, "sum": one + other, "concat": torch.cat([one, other], -1)}[merge]
    both = Bidirectional(ahead, back, merge)
    close(both(u), expected)
    ours = both(cartograd.tensor(u, requires_grad=True))
    close(ours.data.detach(), expected.detach())
    ours.sum().backward()
    assert back.in_proj.weight.grad.abs().max() > 0
    shared = Bidirectional(ahead, merge="sum")
    assert len(list(shared.parameters())) == len(list(ahead.parameters()))
    close(shared(u).flip(1), shared(u.flip(1)))


def test_a_bidirectional_stack_sees_the_whole_sequence_everywhere():
    stack = Mamba3Stack(8, 2, bidirectional=True, **BLOCK).double()
    u = randn(1, 6, 8).requires_grad_()
    stack(u)[0, 2].sum().backward()
    assert (u.grad[0].abs().amax(1) > 1e-8).all()
    causal = Mamba3Stack(8, 2, **BLOCK).double()
    v = randn(1, 6, 8).requires_grad_()
    causal(v)[0, 2].sum().backward()
    assert (v.grad[0].abs().amax(1) > 1e-8).tolist() == [True] * 3 + [False] * 3
    for call in (lambda: stack(u, return_cache=True), lambda: stack.step(u[:, 0])):
        with pytest.raises(TypeError, match="bidirectional"):
            call()


@pytest.mark.parametrize(("position", "start"), [("first", 0), ("middle", 2), ("last", 5)])
def test_class_tokens_are_put_and_found(position, start):
    tokens = ClassTokens(3, 2, position).double()
    u = randn(4, 5, 3)
    for lift in (lambda u: u, cartograd.tensor):
        longer = tokens(lift(u))
        picked = tokens.pick(longer)
        longer, picked = (one.data if isinstance(one, cartograd.Tensor) else one for one in (longer, picked))
        assert torch.equal(picked, tokens.weight.expand(4, 2, 3))
        assert torch.equal(torch.cat([longer[:, :start], longer[:, start + 2 :]], 1), u)
    tokens.zero_grad()
    (tokens(cartograd.tensor(u)) * 2).sum().backward()
    assert torch.equal(tokens.weight.grad, torch.full((2, 3), 8.0, dtype=torch.float64))


def test_class_tokens_that_need_the_whole_sequence_refuse_a_cache():
    stack = Mamba3Stack(8, 1, class_tokens=1, **BLOCK)
    for call in (lambda: stack(torch.zeros(1, 2, 8), return_cache=True), lambda: stack.step(torch.zeros(1, 8))):
        with pytest.raises(TypeError, match=r"class_position=.first."):
            call()
    with pytest.raises(ValueError, match="unknown position 'end': known are first, middle, last"):
        ClassTokens(3, position="end")
    with pytest.raises(ValueError, match="the cache is of 1 layers, but 2 are run"):
        Mamba3Stack(8, 2, **BLOCK)(torch.zeros(1, 2, 8), (Mamba3(8, **BLOCK).empty_cache(1),))


def test_a_summary_token_learns_to_sort_sequences():
    """Which of two tokens came first: forty steps of training on our engine bring the loss down."""
    stack, head = Mamba3Stack(8, 1, class_tokens=1, mlp_width=0, **BLOCK), nn.Linear(8, 2)
    tokens = torch.eye(8)[torch.tensor([[0, 1, 2, 2], [1, 0, 2, 2]] * 4)]
    labels = torch.tensor([0, 1] * 4)
    optimizer = torch.optim.Adam([*stack.parameters(), *head.parameters()], lr=0.02)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        summary = stack.class_tokens.pick(stack(cartograd.tensor(tokens)))[:, 0]
        loss = F.cross_entropy(head(summary), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
