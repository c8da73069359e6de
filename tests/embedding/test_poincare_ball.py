"""The ball's geometry against complex numbers: in the disc all of it is Möbius transformations."""

import math

import pytest
import torch

from cartograd.embedding.poincare_ball import RIM, flowed, inside, moved


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


def test_the_point_reached_is_a_sum_in_the_disc():
    x = as_complex(X)
    step = as_complex(torch.tanh(V.norm(dim=0) / (1 - X.square().sum(0))) * V / V.norm(dim=0))
    assert torch.allclose(as_complex(moved(X, V)), (x + step) / (1 + x.conj() * step), rtol=1e-12)


def test_the_velocity_there_is_turned_as_by_a_gyration_and_keeps_its_length():
    there, velocity = flowed(X, V)
    x, y, v = as_complex(X), as_complex(there), as_complex(V)
    turn = (1 - y * x.conj()) / (1 - y.conj() * x)
    ratio = (1 - y.abs().square()) / (1 - x.abs().square())
    assert torch.allclose(as_complex(velocity), ratio * turn * v, rtol=1e-10)
    before = 2 * V.norm(dim=0) / (1 - X.square().sum(0))
    after = 2 * velocity.norm(dim=0) / (1 - there.square().sum(0))
    assert torch.allclose(before, after, rtol=1e-10)


def test_going_on_with_that_velocity_and_going_back():
    there, velocity = flowed(X, V)
    assert torch.allclose(moved(there, velocity), moved(X, 2 * V), rtol=1e-8)
    assert torch.allclose(moved(there, -velocity), X, rtol=1e-8)


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
    there, velocity = flowed(x, v)
    u = (x - there).square().sum(0) / ((1 - x.square().sum(0)) * (1 - there.square().sum(0)))
    assert torch.allclose(2 * torch.asinh(u.sqrt()), 2 / (1 - x.square().sum(0)) * v.norm(dim=0), rtol=1e-9)
    assert torch.allclose(moved(there, -velocity), x, rtol=1e-9, atol=1e-12)
