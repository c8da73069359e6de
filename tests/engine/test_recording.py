"""recording(): whole models, views of Parameters, and what must stay torch's, on plain tensors."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import cartograd


class Block(nn.Module):
    """A decoder block, written as most people write it: fused projections, views, masks."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.attend(self.first(x)).split(width, dim=2)
        query, key, value = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        weights = (query @ key.transpose(-2, -1)) / (width // self.heads) ** 0.5
        hidden = torch.ones(length, length, dtype=torch.bool).tril().logical_not()
        weights = functional.softmax(weights.masked_fill(hidden, float("-inf")), dim=-1)
        x = x + self.project((weights @ value).transpose(1, 2).contiguous().view(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Decoder(nn.Module):
    """Token and position tables, blocks, and an output layer that shares the table."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(11, 8), nn.Parameter(torch.randn(6, 8))
        self.blocks = nn.Sequential(Block(8, 2), Block(8, 2))
        self.out = nn.Linear(8, 11, bias=False)
        self.out.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        return self.out(self.blocks(x))


def test_recording_a_decoder_gives_torchs_gradients():
    torch.manual_seed(0)
    model = Decoder().double()
    tokens = torch.randint(0, 11, (3, 5))

    def loss():
        logits = model(tokens)
        decay = sum((p * p).sum() for p in model.parameters())
        return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()) + 0.01 * decay

    expected = torch.autograd.grad(loss(), list(model.parameters()))
    with cartograd.recording():
        value = loss()
        assert isinstance(value, cartograd.Tensor)
        value.backward()
    for one, p in zip(expected, model.parameters(), strict=True):
        torch.testing.assert_close(p.grad, one)


VIEWS = {
    "slice": lambda p: p[:2].exp(),
    "transpose": lambda p: p.T[0].sin(),
    "view": lambda p: p.view(3, 4) ** 2,
    "parts": lambda p: torch.stack([part.cos() for part in p.unbind(1)]),
    "real": lambda p: p.real.exp(),
    "detached": lambda p: p * p.detach(),
    "type": lambda p: p.type(torch.float32).exp(),
    "clone": lambda p: p.clone().mul_(2).exp(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_recording_views_of_parameters(name):
    torch.manual_seed(0)
    p = nn.Parameter(torch.randn(4, 3, dtype=torch.float64))
    (expected,) = torch.autograd.grad(VIEWS[name](p).sum(), [p])
    with cartograd.recording():
        out = VIEWS[name](p)
    assert isinstance(out, cartograd.Tensor)
    out.sum().backward()
    torch.testing.assert_close(p.grad, expected)


def test_recording_custom_functions_and_scripts_on_parameters():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3 * x * x

    p = nn.Parameter(torch.tensor([1.0, 2.0]))
    with cartograd.recording():
        ((Cube.apply(p) + p.exp() * 0) * p).sum().backward()
    torch.testing.assert_close(p.grad, 4 * p.detach() ** 3)
