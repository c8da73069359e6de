"""The losses written down with Tensors and differentiated by the engine, and layouts that are hard on them."""

import torch

import cartograd


def drawn(seed):
    print("seed", seed)
    return torch.Generator().manual_seed(seed)


def layouts(c, n=40, seed=0):
    """Random, coincident, partly coincident and far points, float64."""
    draw = drawn(seed)
    normal = torch.randn(n, c, generator=draw, dtype=torch.float64)
    pairs = normal.clone()
    pairs[n // 2 :] = normal[: n - n // 2]
    far = normal.clone()
    far[: n // 4] += 1e4
    return {
        "random": 2 * normal,
        "small": 1e-4 * normal,
        "coincident": torch.ones(n, c, dtype=torch.float64),
        "pairs in one place": pairs,
        "far": far,
        "all far": 1e4 * normal,
    }


NAMES = tuple(layouts(2))


def gradient(loss, *values):
    """The loss, and its gradient by the first value."""
    leaves = [cartograd.tensor(value, requires_grad=place == 0) for place, value in enumerate(values)]
    result = loss(*leaves)
    result.backward()
    return leaves[0].grad.data, float(result.item())


def squared(Z, Y=None):
    Y = Z if Y is None else Y
    return (Z[:, None, :] - Y[None, :, :]).square().sum(-1)


def others(n):
    return ~torch.eye(n, dtype=torch.bool)


def tsne_repulsion(Z):
    return torch.log(torch.where(others(len(Z)), 1 / (1 + squared(Z)), 0.0).sum())


def sne_repulsion(Z):
    return torch.logsumexp((-squared(Z)).masked_fill(~others(len(Z)), -torch.inf), 1).mean()


def poincare(Z, Y=None):
    a = 1 - Z.square().sum(1)
    b = a if Y is None else 1 - Y.square().sum(1)
    return torch.arccosh(1 + 2 * squared(Z, Y) / (a[:, None] * b[None, :])).square()


def relative(found, expected):
    return float((found - expected).norm() / expected.norm().clamp(min=1e-300))
