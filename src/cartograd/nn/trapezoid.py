r"""The exponential-trapezoidal recurrence of Mamba-3 as standard scans, in three equal formulations.

With :math:`\alpha = e^{da}`, :math:`\gamma = \lambda dt`, :math:`\nu = (1 - \lambda) dt` and :math:`\beta = \nu\alpha`,

    h_t = alpha_t h_{t-1} + beta_t sum_m X_{t-1}[m] B_{t-1}[m]' + gamma_t sum_m X_t[m] B_t[m]',   y_t[m] = h_t C_t[m].

- "double": the recurrence is linear in what it is fed, so it is the sum of a scan of gamma X and one of beta X_{t-1}.
- "stacked": the same in one scan of twice as many ranks of keys.
- "single": summed by the step a term comes from, it is one scan of (gamma_t + nu_{t+1}) X_t, which gives step t itself
  nu_{t+1} too much: that is taken off again.

All end on the true state h. On a GPU that has kernels for it, "double" is done in one pass (`ops.ssd_trapezoid`), with
the values of the two scans, and turns its keys and queries on the way (`ops.ssd_turned`).

Shapes: X (b, t, m, h, p), B and C (b, t, m, h, r), da, gamma and nu (b, t, h), state
(b, h, p, r); the previous step's X and B (b, m, h, p) and (b, m, h, r).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from cartograd.engine.accumulate import raw
from cartograd.engine.tensor import Tensor as Recorded
from cartograd.nn.rotation import Turn, turned
from cartograd.ops.ssd import double_ssd
from cartograd.ops.ssd_gpu import gpu_kernels
from cartograd.ops.ssd_trapezoid import trapezoid_ssd
from cartograd.ops.ssd_turned import turned_ssd

_torch_ssd = double_ssd.as_torch()
_torch_trapezoid = trapezoid_ssd.as_torch()
_torch_turned = turned_ssd.as_torch()

Scan = Callable[[Any, Any, Any, Any, Any], tuple[Any, Any]]
"""(values, da, keys, queries, first state) -> (y, last state), on whole sequences."""


class Terms(NamedTuple):
    """What goes into the recurrence. With a turn, which only `fused` takes, B and C are still rows of groups."""

    X: Any
    B: Any
    C: Any
    da: Any
    gamma: Any
    nu: Any
    X_last: Any
    B_last: Any
    state: Any
    turn: Turn | None = None

    def turned(self) -> Terms:
        """The same with keys and queries of every head."""
        if self.turn is None:
            return self
        b_bias, c_bias, theta, pairing = self.turn
        B, C = turned(self.B, b_bias, theta, pairing), turned(self.C, c_bias, theta, pairing)
        return self._replace(B=B, C=C, turn=None)

    def last_key(self) -> Any:
        """B of every head at the last step, turned, (b, m, h, r)."""
        if self.turn is None:
            return self.B[:, -1]
        b_bias, _, theta, pairing = self.turn
        return turned(self.B[:, -1:], b_bias, theta[:, -1:], pairing)[:, 0]


@dataclass(frozen=True)
class ChunkedScan:
    """A scan that cuts the sequence into chunks; what fills up the last one changes nothing."""

    chunk_size: int
    algorithm: str

    def __call__(self, v: Any, da: Any, B: Any, C: Any, state: Any, /) -> tuple[Any, Any]:
        """Values, decays, keys and queries of whole sequences, and the first state."""
        length = da.shape[1]
        steps = min(self.chunk_size, length)
        missing = -length % steps
        v, da, B, C = (_cut(one, missing, steps) for one in (v, da, B, C))
        ours = any(type(one) is Recorded for one in (v, da, B, C, state))
        y, last = (double_ssd if ours else _torch_ssd)(v, da, B, C, state, algorithm=self.algorithm)
        y = y.flatten(1, 2)
        return (y[:, :length] if missing else y), last

    def fuses(self, terms: Terms) -> bool:
        """Whether kernels can do both terms of the trapezoidal rule in one pass."""
        X, da, B, C = (raw(one).unsqueeze(1) for one in (terms.X, terms.da, terms.B, terms.C))
        return self.algorithm == "recompute" and gpu_kernels(X, da, B, C, raw(terms.state)) is not None


def chunked_scan(chunk_size: int, algorithm: str) -> ChunkedScan:
    """A scan in chunks of this many steps, by this algorithm of `double_ssd`."""
    return ChunkedScan(chunk_size, algorithm)


def _cut(rows: Any, missing: int, steps: int) -> Any:
    if missing:
        rows = F.pad(rows, (0, 0) * (rows.dim() - 2) + (0, missing))
    return rows.unflatten(1, (-1, steps))


def double(terms: Terms, scan: Scan) -> tuple[Any, Any]:
    """Two scans, or one pass that gives their sum."""
    if isinstance(scan, ChunkedScan) and scan.fuses(terms):
        return fused(terms)
    fresh, one = scan(_spread(terms.gamma) * terms.X, terms.da, terms.B, terms.C, terms.state)
    older, other = scan(_older_values(terms), terms.da, _shifted(terms.B, terms.B_last), terms.C, None)
    return fresh + older, one + other


def stacked(terms: Terms, scan: Scan) -> tuple[Any, Any]:
    """One scan, both terms as ranks of it."""
    values = torch.cat([_spread(terms.gamma) * terms.X, _older_values(terms)], 2)
    keys = torch.cat([terms.B, _shifted(terms.B, terms.B_last)], 2)
    return scan(values, terms.da, keys, terms.C, terms.state)


def single(terms: Terms, scan: Scan) -> tuple[Any, Any]:
    """One scan by the step a term comes from."""
    ahead, first = _ahead(terms), _first(terms)
    y, last = scan(_spread(terms.gamma + ahead) * terms.X, terms.da, terms.B, terms.C, first)
    scores = torch.einsum("btmhr,btuhr->bthmu", terms.C, terms.B)
    same_step = torch.einsum("bthmu,btuhp->btmhp", scores, terms.X)
    return y - _spread(ahead) * same_step, last


def fused(terms: Terms) -> tuple[Any, Any]:
    """Run one pass by the step a term comes from, the step itself weighted apart; all weights are positive."""
    values, da, B, C, gamma = (one.unsqueeze(1) for one in (terms.X, terms.da, terms.B, terms.C, terms.gamma))
    scale, first = gamma + _ahead(terms).unsqueeze(1), _first(terms)
    ours = any(type(one) is Recorded for one in (values, da, B, C, scale, first))
    given = values, da, B, C, scale, gamma
    if terms.turn is None:
        y, last = (trapezoid_ssd if ours else _torch_trapezoid)(*given, first, True)
    else:
        b_bias, c_bias, theta, pairing = terms.turn
        run = turned_ssd if ours else _torch_turned
        y, last = run(*given, b_bias, c_bias, theta.unsqueeze(1), first, pairing, True)
    return y.squeeze(1), last


def _ahead(terms: Terms) -> Any:
    """nu of the next step, 0 after the last."""
    return F.pad(terms.nu[:, 1:], (0, 0, 0, 1))


def _first(terms: Terms) -> Any:
    """The state with what the step before the first still writes, but for the decay."""
    written = torch.einsum("bmhp,bmhr->bhpr", terms.X_last, terms.B_last)
    return terms.state + terms.nu[:, 0, :, None, None] * written


FORMULATIONS: dict[str, Callable[[Terms, Scan], tuple[Any, Any]]] = {
    "double": double,
    "single": single,
    "stacked": stacked,
}


def one_step(terms: Terms) -> tuple[Any, Any]:
    """The recurrence as it stands, of sequences of length 1."""
    weights = (terms.da.exp() * terms.nu)[:, 0, :, None, None], terms.gamma[:, 0, :, None, None]
    older = torch.einsum("bmhp,bmhr->bhpr", terms.X_last, terms.B_last)
    fresh = torch.einsum("bmhp,bmhr->bhpr", terms.X[:, 0], terms.B[:, 0])
    state = terms.da[:, 0, :, None, None].exp() * terms.state + weights[0] * older + weights[1] * fresh
    return torch.einsum("bhpr,bmhr->bmhp", state, terms.C[:, 0].to(state.dtype)).unsqueeze(1), state


def _spread(factor: Any) -> Any:
    """(b, t, h) as (b, t, 1, h, 1)."""
    return factor.unsqueeze(2).unsqueeze(-1)


def _older_values(terms: Terms) -> Any:
    """beta_t X_{t-1}."""
    return _spread(terms.nu * terms.da.exp()) * _shifted(terms.X, terms.X_last)


def _shifted(rows: Any, before: Any) -> Any:
    """Every step's predecessor."""
    return torch.cat([before.unsqueeze(1).to(rows.dtype), rows[:, :-1]], 1)
