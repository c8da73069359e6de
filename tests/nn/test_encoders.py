"""Encoders by name: the same weights for a seed, the same gradients on both engines, clear errors."""

import pytest
import torch

import cartograd
from cartograd.errors import OptionError, UnsupportedError
from cartograd.nn.encoder_seed import seeded
from cartograd.nn.encoders import NAMES, make_encoder

SHAPES = {"mlp": (5,), "cnn": (2, 9, 6), "gru": (6, 3), "lstm": (6, 3), "attention": (6, 3), "mamba3": (6, 3)}
SMALL = {"mlp": (7,), "cnn": (4, 8), "gru": (5, 4), "lstm": (5,), "attention": (8, 8), "mamba3": (8,)}


def test_every_name_is_tested():
    assert set(NAMES) == set(SHAPES) == set(SMALL)


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_gives_the_weights_and_nothing_else_is_drawn(name):
    before = torch.get_rng_state()
    first, again, other = (make_encoder(name, SHAPES[name], 2, SMALL[name], seed) for seed in (3, 3, 4))
    assert torch.equal(before, torch.get_rng_state())
    pairs = list(zip(first.state_dict().values(), again.state_dict().values(), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)
    assert any(not torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_torch(name):
    encoder = make_encoder(name, SHAPES[name], 3, SMALL[name]).double()
    x = torch.randn(4, *SHAPES[name], dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    (encoder(x) ** 2).sum().backward()
    expected = [one.grad.clone() for one in encoder.parameters()]
    encoder.zero_grad()
    (encoder(cartograd.tensor(x)) ** 2).sum().backward()
    for one, reference in zip(encoder.parameters(), expected, strict=True):
        torch.testing.assert_close(one.grad, reference, rtol=1e-9, atol=1e-11)
        assert one.grad.abs().max() > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_row_does_not_depend_on_the_others(name):
    encoder = make_encoder(name, SHAPES[name], 2, SMALL[name]).eval()
    x = torch.randn(6, *SHAPES[name], generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(encoder(x)[2:3], encoder(x[2:3]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 28, 28), (28, 28), (3, 5, 1), (1, 1, 1), (2, 2)])
def test_images_of_any_size(shape):
    assert make_encoder("cnn", shape, 2)(torch.zeros(3, *shape)).shape == (3, 2)


def test_the_order_of_a_sequence_counts():
    x = torch.randn(3, 6, 3, generator=torch.Generator().manual_seed(2))
    for name in ("gru", "lstm", "attention", "mamba3"):
        encoder = make_encoder(name, (6, 3), 2, SMALL[name])
        assert (encoder(x) - encoder(x.flip(1))).abs().max() > 1e-4, name


def test_errors():
    with pytest.raises(ValueError, match="unknown encoder 'tree': known are mlp, cnn"):
        make_encoder("tree", (3,), 2)
    with pytest.raises(ValueError, match=r"reads images \(n, c, h, w\).*reshape X"):
        make_encoder("cnn", (64,), 2)
    with pytest.raises(ValueError, match=r"reads sequences \(n, T, d\), got rows of shape \(64,\)"):
        make_encoder("gru", (64,), 2)
    with pytest.raises(ValueError, match="layers of one width"):
        make_encoder("attention", (6, 3), 2, (8, 16))
    with pytest.raises(ValueError, match="at least 1"):
        make_encoder("mlp", (3,), 2, (8, 0))
    with pytest.raises(TypeError, match="whole numbers"):
        make_encoder("mlp", (3,), 2, 8)


def test_a_generator_that_is_named_is_used():
    with seeded(0):
        drawn = torch.rand(3, generator=torch.Generator().manual_seed(5))
    assert torch.equal(drawn, torch.rand(3, generator=torch.Generator().manual_seed(5)))


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((), "hidden_sizes must be 1 to 64 numbers, got 0"),
        ([1] * 65, "hidden_sizes must be 1 to 64 numbers, got 65"),
        ((8, 0), "each of hidden_sizes must be at least 1 and at most 65536, got 0"),
        ((10**9,), "each of hidden_sizes must be at least 1 and at most 65536, got 1000000000"),
        ((2.5,), "each of hidden_sizes must be a whole number, got 2.5 of type float"),
        ((True,), "each of hidden_sizes must be a whole number, got True of type bool"),
        ("ab", r"hidden_sizes must be whole numbers in a tuple, such as \(256, 256\), got 'ab'"),
    ],
)
def test_sizes_are_checked_before_a_network_is_built(sizes, said):
    with pytest.raises((OptionError, UnsupportedError), match=f"^{said}$"):
        make_encoder("mlp", (3,), 2, hidden_sizes=sizes)


def test_a_long_name_of_an_encoder_is_shortened():
    with pytest.raises(OptionError, match=r"unknown encoder 'x+\.\.\.: known are mlp, "):
        make_encoder("x" * 500, (3,), 2)
