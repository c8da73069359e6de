r"""A step of SGD with momentum, or of Adam, whose numbers lie on the device, so that launches can be replayed.

.. math:: v \leftarrow m v + g, \qquad z \leftarrow z - \eta_t v \qquad \text{(SGD)}

.. math:: m \leftarrow m + (1 - \beta_1)(g - m), \quad v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \quad
    z \leftarrow z - \eta_t \frac{m}{\sqrt v / r_t + \epsilon} \qquad \text{(Adam)}

with :math:`\eta_t` the learning rate, of Adam divided by :math:`1 - \beta_1^t`, and
:math:`r_t = \sqrt{1 - \beta_2^t}`. The twins are ``torch.optim.SGD`` and ``torch.optim.Adam``.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 1024
"""Numbers of a program."""


def by_momentum(
    Z: torch.Tensor, gradient: torch.Tensor, velocity: torch.Tensor, rate: torch.Tensor, momentum: float
) -> None:
    """Move Z by a step of SGD, in place.

    Parameters
    ----------
    Z, gradient, velocity : torch.Tensor
        float32, contiguous and of one shape.
    rate : torch.Tensor
        (1,) float32, the learning rate.
    momentum : float
        m.
    """
    size = Z.numel()
    _by_momentum[(triton.cdiv(size, BLOCK),)](Z, gradient, velocity, rate, size, momentum, BLOCK=BLOCK)


def by_adam(
    Z: torch.Tensor, gradient: torch.Tensor, mean: torch.Tensor, square: torch.Tensor, rate: torch.Tensor,
    root: torch.Tensor, betas: tuple[float, float], eps: float,
) -> None:  # fmt: skip
    """Move Z by a step of Adam, in place.

    Parameters
    ----------
    Z, gradient, mean, square : torch.Tensor
        float32, contiguous and of one shape; the last two are the moments.
    rate, root : torch.Tensor
        (1,) float32, eta and r.
    betas, eps : float
        As in ``torch.optim.Adam``.
    """
    size, (first, second) = Z.numel(), betas
    _by_adam[(triton.cdiv(size, BLOCK),)](
        Z, gradient, mean, square, rate, root, size, 1 - first, second, 1 - second, eps, BLOCK=BLOCK
    )


@triton.jit(do_not_specialize=["rate"])  # by its alignment, which differs from step to step
def _by_momentum(places, gradient, velocity, rate, size, momentum, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = at < size
    v = momentum * tl.load(velocity + at, mask=here, other=0.0) + tl.load(gradient + at, mask=here, other=0.0)
    tl.store(velocity + at, v, mask=here)
    tl.store(places + at, tl.load(places + at, mask=here, other=0.0) - tl.load(rate) * v, mask=here)


@triton.jit(do_not_specialize=["rate", "root"])
def _by_adam(places, gradient, mean, square, rate, root, size, new, kept, new_square, eps, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = at < size
    g = tl.load(gradient + at, mask=here, other=0.0)
    m = tl.load(mean + at, mask=here, other=0.0)
    m += new * (g - m)
    v = kept * tl.load(square + at, mask=here, other=0.0) + new_square * g * g
    tl.store(mean + at, m, mask=here)
    tl.store(square + at, v, mask=here)
    moved = tl.load(rate) * (m / (tl.sqrt(v) / tl.load(root) + eps))
    tl.store(places + at, tl.load(places + at, mask=here, other=0.0) - moved, mask=here)
