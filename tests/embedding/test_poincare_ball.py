"""The ball's geometry against complex numbers: in the disc all of it is Möbius transformations."""

import math

import pytest
import torch

from cartograd.embedding.poincare_ball import RIM, added, inside, moved, transported


def points(count, seed, scale=0.9):
    generator = torch.Generator().manual_seed(seed)
    angle = 2 * math.pi * torch.rand(count, dtype=torch.float64, generator=generator)
    radius = scale * torch.rand(count, dtype=torch.float64, generator=generator).sqrt()
    return torch.stack([radius * angle.cos(), radius * angle.sin()])


def as_complex(z):
    return torch.complex(z[0], z[1])


def distance(x, y):
    x, y = as_complex(x), as_complex(y)
    return 2 * torch.atanh(((x - y) / (1 - x.conj() * y)).abs())


X, Y, V = points(50, 0), points(50, 1), points(50, 2) * 0.3


def test_addition_in_the_disc():
    x, y = as_complex(X), as_complex(Y)
    assert torch.allclose(as_complex(added(X, Y)), (x + y) / (1 + x.conj() * y), rtol=1e-12)
    assert torch.allclose(added(-X, X), torch.zeros_like(X), atol=1e-12)


def test_exponential_map_goes_as_far_as_the_velocity_says():
    stretched = 2 / (1 - X.square().sum(0))
    assert torch.allclose(distance(X, moved(X, V)), stretched * V.norm(dim=0), rtol=1e-9)
    # and halfway in half the time, on the same geodesic
    half, whole = moved(X, V / 2), moved(X, V)
    assert torch.allclose(distance(X, half) + distance(half, whole), distance(X, whole), rtol=1e-9)
    assert torch.equal(moved(X, torch.zeros_like(X)), X)
    # from the middle it is the hyperbolic tangent of the length
    lengths = moved(torch.zeros_like(V), V).norm(dim=0)
    assert torch.allclose(lengths, torch.tanh(V.norm(dim=0)), rtol=1e-12)


def test_transport_turns_as_a_gyration_and_keeps_lengths():
    x, y, v = as_complex(X), as_complex(Y), as_complex(V)
    turn = (1 - y * x.conj()) / (1 - y.conj() * x)
    ratio = (1 - y.abs().square()) / (1 - x.abs().square())
    assert torch.allclose(as_complex(transported(V, X, Y)), ratio * turn * v, rtol=1e-12)
    before = 2 * V.norm(dim=0) / (1 - X.square().sum(0))
    after = 2 * transported(V, X, Y).norm(dim=0) / (1 - Y.square().sum(0))
    assert torch.allclose(before, after, rtol=1e-12)
    assert torch.allclose(transported(transported(V, X, Y), Y, X), V, rtol=1e-10)


def test_transport_of_the_velocity_stays_along_the_geodesic():
    there = moved(X, V)
    onward = moved(there, transported(V, X, there))
    assert torch.allclose(onward, moved(X, 2 * V), rtol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_points_are_drawn_back_into_the_ball(dtype):
    z = torch.tensor([[0.0, 0.3, 0.99999999, 5.0], [0.0, 0.4, 0.0, 0.0]], dtype=dtype)
    kept = inside(z)
    assert torch.equal(kept[:, :2], z[:, :2])
    assert torch.allclose(kept[0, 2:], torch.tensor(RIM[dtype], dtype=dtype))
    assert bool((kept.norm(dim=0) < 1).all())


def test_more_dimensions():
    x = torch.randn(5, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) * 0.2
    v = torch.randn(5, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(4)) * 0.1
    y = moved(x, v)
    gap = added(-x, y).norm(dim=0)
    assert torch.allclose(2 * torch.atanh(gap), 2 / (1 - x.square().sum(0)) * v.norm(dim=0), rtol=1e-9)
    assert torch.allclose(moved(y, -transported(v, x, y)), x, rtol=1e-9, atol=1e-12)
