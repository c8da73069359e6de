"""The Mamba-3 block: a sequence layer with a state of fixed size, run in parallel or one token at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from cartograd.engine.accumulate import raw
from cartograd.engine.tensor import Tensor as Recorded
from cartograd.errors import InputError
from cartograd.kernels import gpu
from cartograd.nn import mamba3_arguments as check
from cartograd.nn.placement import on_engine_of
from cartograd.nn.rotation import Turn, running_angles
from cartograd.nn.trapezoid import FORMULATIONS, Terms, chunked_scan, one_step
from cartograd.ops.ssd import as_recorded

EPSILON = 1e-5
A_FLOOR = 1e-4
_LOW = (torch.float16, torch.bfloat16)


class Mamba3Cache(NamedTuple):
    """All that a block remembers of the tokens it has read; zeros before the first. Gradients flow through it."""

    state: Any
    """(b, h, p, r): the state h of the recurrence, float32 or float64."""
    B_last: Any
    """(b, m, h, r): the last token's B, rotated."""
    x_last: Any
    """(b, h, p): the last token's x, before it is spread over ranks."""
    theta: Any
    """(b, h, a): the running angles."""

    def detach(self) -> Mamba3Cache:
        """The same values outside the graph."""
        return Mamba3Cache(*(one.detach() for one in self))


class Parts(NamedTuple):
    """What the input projection gives for every token."""

    z: Any
    x: Any
    B: Any
    C: Any
    dt: Any
    da: Any
    lam: Any
    increments: Any


class Mamba3(nn.Module):
    r"""A Mamba-3 block: (b, t, d_model) to (b, t, d_model), causal, in linear time.

    For each token the input projection gives a gate z, values x, keys B, queries C, a step dt, a decay A < 0, a mixing
    weight :math:`\lambda` and angles. Keys and queries are normalised, biased and turned by the running sum of the
    angles, and the state of each head follows

    .. math::
        h_t = e^{dt A} h_{t-1} + (1 - \lambda)\, dt\, e^{dt A} \sum_m X_{t-1}[m] \otimes B_{t-1}[m]
            + \lambda\, dt \sum_m X_t[m] \otimes B_t[m], \qquad y_t[m] = h_t C_t[m] + D X_t[m],

    then out = W_out sum over ranks m of mimo_o[m] y[m] silu(z mimo_z[m]). With one rank, X = x and there are no mimo
    weights. It runs on torch tensors with torch's autograd, and on cartograd's tensors with cartograd's.

    Parameters
    ----------
    d_model : int
        Channels of a token.
    d_state : int, default=128
        Channels of the state, r.
    headdim : int, default=64
        Channels of a head, p; it divides expand * d_model.
    expand : float, default=2
        Heads have expand * d_model channels in all.
    ngroups : int, default=1
        Keys and queries are projected once for each group of heads.
    mimo_rank : int, default=1
        How many keys, queries and values a token has in each head.
    chunk_size : int, default=None
        Steps that are worked on as one matrix; None for 64 / mimo_rank. The result does not depend on it.
    rope_fraction : float, default=0.5
        The share of the state's channels that is rotated; 0 for none.
    angle_bound : float, default=1.0
        A step turns by at most angle_bound * pi * dt.
    a_activation : str, default="softplus"
        How A is kept negative: "softplus", or "heavy_tail", 1 + u for u >= 0 and 1 / (1 - u) below.
    out_norm : bool, default=False
        Whether each head's y is normalised before the gate.
    formulation : str, default="double"
        "double", "single" or "stacked": how the recurrence is made of scans (see `cartograd.nn.trapezoid`). Equal.

    Attributes
    ----------
    algorithm : str
        The algorithm of `cartograd.double_ssd`, "recompute" unless set.
    pairing : str
        Which channels are rotated together: "adjacent" for rank 1, "halves" above, as in published weights.
    a_floor : float
        -A is at least this much, 1e-4.

    Examples
    --------
    >>> import torch, cartograd
    >>> block = cartograd.nn.Mamba3(8, d_state=4, headdim=8)
    >>> u = torch.randn(2, 5, 8)
    >>> y, cache = block(u, return_cache=True)
    >>> following, cache = block.step(torch.randn(2, 8), cache)
    >>> y.shape, following.shape
    (torch.Size([2, 5, 8]), torch.Size([2, 8]))
    >>> block(cartograd.tensor(u)).sum().backward()  # on cartograd's engine
    >>> block.dt_bias.grad.shape
    torch.Size([2])
    """

    def __init__(
        self,
        d_model: int,
        d_state: int = 128,
        headdim: int = 64,
        expand: float = 2,
        ngroups: int = 1,
        mimo_rank: int = 1,
        chunk_size: int | None = None,
        rope_fraction: float = 0.5,
        angle_bound: float = 1.0,
        a_activation: str = "softplus",
        out_norm: bool = False,
        formulation: str = "double",
    ) -> None:
        super().__init__()
        self.d_model, self.d_state, self.headdim = d_model, d_state, headdim
        self.ngroups, self.mimo_rank = ngroups, mimo_rank
        self.d_inner, self.nheads = check.sizes(d_model, d_state, headdim, expand, ngroups, mimo_rank)
        self.chunk_size = max(1, 64 // mimo_rank) if chunk_size is None else check.positive("chunk_size", chunk_size)
        self.num_angles = int(d_state * check.fraction(rope_fraction)) // 2
        self.angle_bound = angle_bound
        self.a_activation = check.one_of("a_activation", a_activation, tuple(ACTIVATIONS))
        self.formulation = check.one_of("formulation", formulation, tuple(FORMULATIONS))
        self.algorithm = "recompute"
        self.pairing = "adjacent" if mimo_rank == 1 else "halves"
        self.a_floor = A_FLOOR
        self._make_parameters(out_norm)

    def _make_parameters(self, out_norm: bool) -> None:
        """Parameters by their published names, at their published starts."""
        keys = self.ngroups * self.d_state * self.mimo_rank
        self.split = [self.d_inner] * 2 + [keys] * 2 + [self.nheads] * 3 + [self.num_angles]
        self.in_proj = nn.Linear(self.d_model, sum(self.split), bias=False)
        steps = torch.exp(torch.empty(self.nheads).uniform_(math.log(1e-3), math.log(1e-1))).clamp_min(1e-4)
        self.dt_bias = nn.Parameter(steps + torch.log(-torch.expm1(-steps)))  # softplus gives `steps` back
        self.D = nn.Parameter(torch.ones(self.nheads))
        self.B_norm, self.C_norm = (nn.RMSNorm(self.d_state, eps=EPSILON) for _ in range(2))
        self.B_bias, self.C_bias = (
            nn.Parameter(torch.ones(self.nheads, self.mimo_rank, self.d_state)) for _ in range(2)
        )
        shape = (self.nheads, self.mimo_rank, self.headdim)
        many = self.mimo_rank > 1
        self.mimo_x = nn.Parameter(torch.full(shape, 1 / self.mimo_rank)) if many else None
        self.mimo_z = nn.Parameter(torch.ones(shape)) if many else None
        self.mimo_o = nn.Parameter(torch.full(shape, 1 / self.mimo_rank)) if many else None
        self.norm = HeadNorm(self.nheads, self.headdim) if out_norm else None
        self.out_proj = nn.Linear(self.d_inner, self.d_model, bias=False)
        for one in (self.dt_bias, self.D):
            one._no_weight_decay = True  # type: ignore[attr-defined]

    def forward(self, u: Any, cache: Mamba3Cache | None = None, return_cache: bool = False) -> Any:
        """Read a whole sequence.

        Parameters
        ----------
        u : Tensor, (b, t, d_model)
            The tokens.
        cache : Mamba3Cache, default=None
            What is remembered of the tokens before; None for nothing.
        return_cache : bool, default=False
            Whether to return ``(y, cache)`` and not y alone; the cache continues in `forward` or `step`.
        """
        u, cache = self._prepared(u, cache)
        if u.shape[1] == 0:
            return (u, cache) if return_cache else u
        scan = chunked_scan(self.chunk_size, self.algorithm)
        y, cache = self._read(
            u,
            cache,
            lambda terms: FORMULATIONS[self.formulation](terms, scan),
            lambda terms: self.formulation == "double" and scan.fuses(terms),
        )
        return (y, cache) if return_cache else y

    def step(self, u_t: Any, cache: Mamba3Cache | None = None) -> tuple[Any, Mamba3Cache]:
        """Read one token: the recurrence itself, at a cost that does not grow with what was read before.

        Parameters
        ----------
        u_t : Tensor, (b, d_model) or (b, 1, d_model)
            The token; y_t has its shape.
        cache : Mamba3Cache, default=None
            What is remembered of the tokens before; None for nothing.
        """
        u, cache = self._prepared(u_t.unsqueeze(1) if u_t.dim() == 2 else u_t, cache)
        if u.shape[1] != 1:
            raise InputError(f"step reads one token, (b, {self.d_model}), got shape {tuple(u_t.shape)}: use forward")
        y, cache = self._read(u, cache, one_step, lambda terms: False)
        return (y.squeeze(1) if u_t.dim() == 2 else y), cache

    def empty_cache(self, batch: int) -> Mamba3Cache:
        """The cache before the first token."""
        like = torch.empty(0, dtype=_wide_dtype(self.dt_bias.dtype), device=self.dt_bias.device)
        return Mamba3Cache(
            like.new_zeros(batch, self.nheads, self.headdim, self.d_state),
            like.new_zeros(batch, self.mimo_rank, self.nheads, self.d_state),
            like.new_zeros(batch, self.nheads, self.headdim),
            like.new_zeros(batch, self.nheads, self.num_angles),
        )

    def load_official(self, state_dict: dict[str, torch.Tensor]) -> None:
        """Take over the weights of a published Mamba-3 block; see `cartograd.nn.load_official`."""
        from cartograd.nn.official import load_official

        load_official(self, state_dict)

    def extra_repr(self) -> str:
        """Sizes, for ``print(block)``."""
        return (
            f"d_model={self.d_model}, heads={self.nheads}x{self.headdim}, d_state={self.d_state}, "
            f"ngroups={self.ngroups}, mimo_rank={self.mimo_rank}, angles={self.num_angles}, {self.formulation!r}"
        )

    def _prepared(self, u: Any, cache: Mamba3Cache | None) -> tuple[Any, Mamba3Cache]:
        """Both, checked, and on one engine."""
        if u.dim() != 3 or u.shape[-1] != self.d_model:
            raise InputError(f"Mamba3 reads (batch, time, {self.d_model}), got shape {tuple(u.shape)}")
        empty = self.empty_cache(u.shape[0])
        if cache is None:
            cache = empty
        check.fitting_cache(cache, empty)
        if any(type(one) is Recorded for one in (u, *cache)):
            return as_recorded(u), Mamba3Cache(*map(as_recorded, cache))
        return u, cache

    def _read(
        self,
        u: Any,
        cache: Mamba3Cache,
        recurrence: Callable[[Terms], tuple[Any, Any]],
        fuses: Callable[[Terms], bool],
    ) -> tuple[Any, Mamba3Cache]:
        """Everything around the recurrence, which `forward` and `step` differ in, and whether it turns keys itself."""
        parts = self._project(u)
        theta = running_angles(parts.increments, cache.theta)
        b_bias, c_bias = (_wide(on_engine_of(parts.B, one)) for one in (self.B_bias, self.C_bias))
        turn = Turn(b_bias, c_bias, theta, self.pairing)
        X, X_last = self._by_rank(parts.x, self.mimo_x), self._by_rank(cache.x_last.unsqueeze(1), self.mimo_x)
        gamma, nu = parts.lam * parts.dt, (1 - parts.lam) * parts.dt
        given = X.to(parts.B.dtype), parts.B, parts.C, parts.da, gamma, nu
        terms = Terms(*given, X_last.squeeze(1), cache.B_last, cache.state, turn)
        terms = terms if fuses(terms) else terms.turned()
        y, state = recurrence(terms)
        y = _wide(y) + on_engine_of(y, self.D).unsqueeze(-1) * X
        return self._gated(y, parts.z, u.dtype), Mamba3Cache(
            state, _wide(terms.last_key()), parts.x[:, -1], theta[:, -1]
        )

    def _project(self, u: Any) -> Parts:
        """Steps 1 to 6 of the block: everything of a token that does not depend on others."""
        z, x, B, C, dt, a, lam, angles = self.in_proj(u).split(self.split, -1)
        z, x = (_wide(one).unflatten(-1, (self.nheads, self.headdim)) for one in (z, x))
        B, C = self._keys(B, self.B_norm), self._keys(C, self.C_norm)
        dt = F.softplus(_wide(dt) + self.dt_bias)
        decay = ACTIVATIONS[self.a_activation](_wide(a)).clamp_min(self.a_floor)
        turns = dt.unsqueeze(-1) * (self.angle_bound * math.pi * torch.tanh(_wide(angles))).unsqueeze(2)
        return Parts(z, x, B, C, dt, -dt * decay, torch.sigmoid(_wide(lam)), turns)

    def _keys(self, flat: Any, norm: nn.RMSNorm) -> Any:
        """Keys or queries of every group, (b, t, m, g, r), normalised.

        Kernels multiply half precision as it is and sum in float32; without them everything is float32.
        """
        rows = flat.unflatten(-1, (self.mimo_rank, self.ngroups, self.d_state))
        served = self.algorithm == "recompute" and gpu.served(raw(rows))
        if served and rows.dtype == norm.weight.dtype:
            return norm(rows)
        wide = F.rms_norm(_wide(rows), (self.d_state,), None, EPSILON) * norm.weight
        return wide.to(rows.dtype) if served else wide

    def _by_rank(self, rows: Any, weight: nn.Parameter | None) -> Any:
        """(b, t, h, p) as (b, t, m, h, p)."""
        return rows.unsqueeze(2) if weight is None else torch.einsum("bthp,hmp->btmhp", rows, weight)

    def _gated(self, y: Any, z: Any, dtype: torch.dtype) -> Any:
        """Steps 11 and 12: norm, gate, sum over ranks, output projection."""
        y = y if self.norm is None else self.norm(y)
        out = y * F.silu(self._by_rank(z, self.mimo_z))
        out = out.squeeze(2) if self.mimo_o is None else torch.einsum("btmhp,hmp->bthp", out, self.mimo_o)
        return self.out_proj(out.flatten(-2).to(dtype))


class HeadNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) over the channels of each head, times a weight for every channel of all heads."""

    def __init__(self, heads: int, channels: int) -> None:
        super().__init__()
        self.shape = (heads, channels)
        self.weight = nn.Parameter(torch.ones(heads * channels))

    def forward(self, y: Any) -> Any:
        """Normalise (..., heads, channels)."""
        return F.rms_norm(y, self.shape[1:], None, EPSILON) * on_engine_of(y, self.weight).unflatten(0, self.shape)


def _heavy_tail(u: Any) -> Any:
    return torch.where(u >= 0, 1 + u, 1 / (1 - u.clamp(max=0)))


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {"softplus": F.softplus, "heavy_tail": _heavy_tail}


def _wide_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in _LOW else dtype


def _wide(value: Any) -> Any:
    """Half precision as float32: decays, angles and states need it."""
    return value.float() if value.dtype in _LOW else value
