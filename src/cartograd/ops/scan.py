"""One layer of a recurrent network in one direction, as one op: all steps forward, all steps back.

The rows of all steps stand one below the other, step after step; `sizes` tells how many rows (sequences) each step has.
A dense batch has the same number at every step. Packed sequences are sorted by length, so the numbers fall, and a
state that a step has no row for stays as it is. ``reverse`` runs from the last step to the first.

Each gradient is back-propagation through time in closed form: what does not depend on the gradient itself is computed
for all steps at once, and the loop is left with little more than one product with the recurrent weight a step.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cartograd.engine.primitive import primitive

_tanh_backward = torch.ops.aten.tanh_backward.default
_tanh_backward_to = torch.ops.aten.tanh_backward.grad_input
_sigmoid_backward_to = torch.ops.aten.sigmoid_backward.grad_input

Sizes = tuple[int, ...]
Needs = tuple[bool, ...]


def _order(sizes: Sizes, reverse: bool) -> range:
    return range(len(sizes) - 1, -1, -1) if reverse else range(len(sizes))


def _by_step(sizes: Sizes, *tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """For each step, its rows of each tensor: views, made all at once because that is much faster."""
    if len(sizes) == 1:
        return [tensors]
    return list(zip(*[torch.split_with_sizes(one, sizes) for one in tensors], strict=True))


def _current(state: Any, rows: int) -> Any:
    """The states that a step of so many rows works on."""
    return state if rows == state.shape[0] else state[:rows]


def _advanced(state: Any, new: Any) -> Any:
    """All states after a step."""
    return new if new.shape[0] == state.shape[0] else torch.cat([new, state[new.shape[0] :]])


def _before(first: Tensor, values: Tensor, sizes: Sizes, reverse: bool) -> Tensor:
    """The state that each row met, from the state each row left."""
    if sizes[0] == sizes[-1]:
        rest = values.shape[0] - sizes[0]
        return torch.cat([values[sizes[0] :], first]) if reverse else torch.cat([first, values[:rest]])
    met, left, state = [first] * len(sizes), values.split(list(sizes)), first
    for step in _order(sizes, reverse):
        met[step] = _current(state, sizes[step])
        state = _advanced(state, left[step])
    return torch.cat(met)


def _weight_gradients(of_input: Tensor, of_hidden: Tensor, input: Tensor, met: Tensor, need: Needs) -> list[Any]:
    """Of w_ih, w_hh, b_ih and b_hh, from the gradients of the two sums that they are part of."""
    bias = of_input.sum(0) if need[2] else None
    if not need[3]:
        other = None
    else:
        other = of_hidden.sum(0) if bias is None or of_hidden is not of_input else bias.clone()
    return [of_input.t() @ input if need[0] else None, of_hidden.t() @ met if need[1] else None, bias, other]


@primitive(multiple=True)
def rnn_scan(
    input: Tensor,
    h0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    nonlinearity: str,
    sizes: Sizes,
    reverse: bool,
) -> Any:
    """h = f(x w_ih' + b_ih + h w_hh' + b_hh) with f = tanh or relu. With s = f'(...) * (g + what the next step sends):

    d/dx = s w_ih,  d/dh = s w_hh,  d/dw_ih = s' x,  d/dw_hh = s' h,  d/db = sum(s).   Returns every h, and the last.
    """
    out = F.linear(input, w_ih, b_ih)
    out = out if b_hh is None else out.add_(b_hh)
    steps, recurrent, state = torch.split_with_sizes(out, sizes), w_hh.t(), h0
    for step in _order(sizes, reverse):
        new = steps[step].addmm_(_current(state, sizes[step]), recurrent)
        new = new.tanh_() if nonlinearity == "tanh" else new.relu_()
        state = _advanced(state, new)
    return out, state.clone()


@rnn_scan.vjp("input", "h0", "w_ih", "w_hh", "b_ih", "b_hh")
def _(
    g: Any,
    input: Tensor,
    h0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    nonlinearity: str,
    sizes: Sizes,
    reverse: bool,
    out: Any,
    need: Needs,
) -> Any:
    values = out[0]
    slope = 1 - values * values if nonlinearity == "tanh" else (values > 0).to(values.dtype)
    sums = torch.empty_like(values)
    parts = _by_step(sizes, g[0], slope, sums)
    back = g[1]
    for step in reversed(_order(sizes, reverse)):
        arriving, factor, s = parts[step]
        torch.add(arriving, _current(back, sizes[step]), out=s)
        back = _advanced(back, s.mul_(factor) @ w_hh)
    weights = _weight_gradients(sums, sums, input, _before(h0, values, sizes, reverse) if need[3] else values, need[2:])
    return sums @ w_ih if need[0] else None, back, *weights


@rnn_scan.restate
def _(
    input: Any,
    h0: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any,
    b_hh: Any,
    nonlinearity: str,
    sizes: Sizes,
    reverse: bool,
) -> Any:
    activation = torch.tanh if nonlinearity == "tanh" else torch.relu
    steps, state, out = F.linear(input, w_ih, b_ih).split(list(sizes)), h0, {}
    for step in _order(sizes, reverse):
        out[step] = activation(steps[step] + F.linear(_current(state, sizes[step]), w_hh, b_hh))
        state = _advanced(state, out[step])
    return torch.cat([out[step] for step in range(len(sizes))]), state


@rnn_scan.example
def _(make: Any) -> Any:
    return make(5, 2), make(2, 2), make(2, 2), make(2, 2), make(2), make(2), "tanh", (2, 2, 1), True


@rnn_scan.example
def _(make: Any) -> Any:
    return make(4, 1, low=0.5), make(2, 2), make(2, 1, low=0.5), make(2, 2, low=0.1), None, None, "relu", (2, 2), False


@primitive(multiple=True, extra="constant")
def gru_scan(
    input: Tensor,
    h0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    sizes: Sizes,
    reverse: bool,
) -> Any:
    """h = n + z * (h - n) with r, z = sigmoid(x w' + b + h u' + c) and n = tanh(x w' + b + r * (h u' + c)).

    With d = g + what the next step sends:  z receives d * (h - n) * z (1 - z),  n receives s = d * (1 - z) (1 - n^2),
    r receives s * (h u' + c) * r (1 - r),  h u' + c of n receives s * r,  h receives d * z and what its products give.
    """
    gates = F.linear(input, w_ih, b_ih)
    hidden = w_hh.shape[1]
    inner, out = (gates.new_empty(gates.shape[0], hidden) for _ in range(2))
    parts = _by_step(sizes, gates[:, : 2 * hidden], *gates.chunk(3, 1), inner, out)
    state = h0
    for step in _order(sizes, reverse):
        both, r, z, n, kept, new = parts[step]
        met = _current(state, sizes[step])
        product = F.linear(met, w_hh, b_hh)
        kept.copy_(product[:, 2 * hidden :])
        both.add_(product[:, : 2 * hidden]).sigmoid_()
        torch.lerp(n.addcmul_(r, kept).tanh_(), met, z, out=new)
        state = _advanced(state, new)
    return (out, state.clone()), (gates, inner)


@gru_scan.vjp("input", "h0", "w_ih", "w_hh", "b_ih", "b_hh")
def _(
    g: Any,
    input: Tensor,
    h0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    sizes: Sizes,
    reverse: bool,
    out: Any,
    extra: Any,
    need: Needs,
) -> Any:
    (r, z, n), inner, met = extra[0].chunk(3, 1), extra[1], _before(h0, out[0], sizes, reverse)
    into_n = _tanh_backward(1 - z, n)
    slopes = torch.empty(len(n), 3, n.shape[1], dtype=n.dtype, device=n.device)
    _sigmoid_backward_to(into_n * inner, r, grad_input=slopes[:, 0])
    _sigmoid_backward_to(met - n, z, grad_input=slopes[:, 1])
    torch.mul(into_n, r, out=slopes[:, 2])
    arrived, of_hidden = torch.empty_like(into_n), torch.empty_like(slopes)
    parts = _by_step(sizes, g[0], arrived, slopes, of_hidden, of_hidden.flatten(1), z)
    back = g[1]
    for step in reversed(_order(sizes, reverse)):
        arriving, d, slope, s, all_s, carry = parts[step]
        torch.add(arriving, _current(back, sizes[step]), out=d)
        torch.mul(slope, d.unsqueeze(1), out=s)
        back = _advanced(back, torch.addmm(d * carry, all_s, w_hh))
    of_input = torch.cat([of_hidden[:, :2].flatten(1), into_n * arrived], 1)
    weights = _weight_gradients(of_input, of_hidden.flatten(1), input, met, need[2:])
    return of_input @ w_ih if need[0] else None, back, *weights


@gru_scan.restate
def _(input: Any, h0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, sizes: Sizes, reverse: bool) -> Any:
    steps, state, out = F.linear(input, w_ih, b_ih).split(list(sizes)), h0, {}
    for step in _order(sizes, reverse):
        met = _current(state, sizes[step])
        xr, xz, xn = steps[step].chunk(3, 1)
        hr, hz, hn = F.linear(met, w_hh, b_hh).chunk(3, 1)
        n = torch.tanh(xn + torch.sigmoid(xr + hr) * hn)
        out[step] = n + torch.sigmoid(xz + hz) * (met - n)
        state = _advanced(state, out[step])
    return torch.cat([out[step] for step in range(len(sizes))]), state


@gru_scan.example
def _(make: Any) -> Any:
    return make(3, 1), make(2, 1), make(3, 1), make(3, 1), make(3), make(3), (2, 1), False


@gru_scan.example
def _(make: Any) -> Any:
    return make(4, 1), make(2, 2), make(6, 1), make(6, 2), None, None, (2, 2), True


@primitive(multiple=True, extra="constant")
def lstm_scan(
    input: Tensor,
    h0: Tensor,
    c0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    w_hr: Tensor | None,
    sizes: Sizes,
    reverse: bool,
) -> Any:
    """c = f * c + i * a,  m = o * tanh(c),  h = m or m w_hr';  i, f, o are sigmoids of sums, a is the tanh of one.

    With e = g + what the next step sends (times w_hr) and d = what it sends to c, + e * o (1 - tanh(c)^2): i receives
    d * a * i (1 - i),  f receives d * c * f (1 - f),  a receives d * i (1 - a^2),  o receives e * tanh(c) * o (1 - o),
    the c before receives d * f.   Returns every h, the last h, and the last c.
    """
    gates = F.linear(input, w_ih, b_ih)
    gates = gates if b_hh is None else gates.add_(b_hh)
    cells = gates.new_empty(gates.shape[0], c0.shape[1])
    out = gates.new_empty(gates.shape[0], h0.shape[1])
    parts = _by_step(sizes, gates, gates[:, : 2 * c0.shape[1]], *gates.chunk(4, 1), cells, out)
    recurrent, h, c = w_hh.t(), h0, c0
    for step in _order(sizes, reverse):
        gate, i_and_f, i, f, a, o, cell, new = parts[step]
        gate.addmm_(_current(h, sizes[step]), recurrent)
        i_and_f.sigmoid_(), a.tanh_(), o.sigmoid_()
        torch.mul(f, _current(c, sizes[step]), out=cell).addcmul_(i, a)
        torch.mul(o, cell.tanh(), out=new) if w_hr is None else torch.mm(o * cell.tanh(), w_hr.t(), out=new)
        h, c = _advanced(h, new), _advanced(c, cell)
    return (out, h.clone(), c.clone()), (gates, cells)


@lstm_scan.vjp("input", "h0", "c0", "w_ih", "w_hh", "b_ih", "b_hh", "w_hr")
def _(
    g: Any,
    input: Tensor,
    h0: Tensor,
    c0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    w_hr: Tensor | None,
    sizes: Sizes,
    reverse: bool,
    out: Any,
    extra: Any,
    need: Needs,
) -> Any:
    (i, f, a, o), cells = extra[0].chunk(4, 1), extra[1]
    squashed = cells.tanh()
    into_c = _tanh_backward(o, squashed)
    slopes = torch.empty(len(cells), 4, cells.shape[1], dtype=cells.dtype, device=cells.device)
    for k, (factor, gate) in enumerate(((a, i), (_before(c0, cells, sizes, reverse), f), (i, a), (squashed, o))):
        (_tanh_backward_to if gate is a else _sigmoid_backward_to)(factor, gate, grad_input=slopes[:, k])
    sums, arrived = torch.empty_like(slopes), torch.empty_like(out[0])
    parts = _by_step(
        sizes, g[0], arrived, into_c, slopes[:, :3], slopes[:, 3], sums[:, :3], sums[:, 3], sums.flatten(1), f
    )
    back_h, back_c = g[1], g[2]
    for step in reversed(_order(sizes, reverse)):
        arriving, e, toward_c, slope, slope_o, s, s_o, all_s, carry = parts[step]
        torch.add(arriving, _current(back_h, sizes[step]), out=e)
        e = e if w_hr is None else e @ w_hr
        d = torch.addcmul(_current(back_c, sizes[step]), e, toward_c)
        torch.mul(slope, d.unsqueeze(1), out=s)
        torch.mul(slope_o, e, out=s_o)
        back_h = _advanced(back_h, all_s @ w_hh)
        back_c = _advanced(back_c, d.mul_(carry))
    every = sums.flatten(1)
    before = _before(h0, out[0], sizes, reverse) if need[4] else out[0]
    weights = _weight_gradients(every, every, input, before, need[3:])
    of_projection = arrived.t() @ (o * squashed) if need[7] else None
    return every @ w_ih if need[0] else None, back_h, back_c, *weights, of_projection


@lstm_scan.restate
def _(
    input: Any,
    h0: Any,
    c0: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any,
    b_hh: Any,
    w_hr: Any,
    sizes: Sizes,
    reverse: bool,
) -> Any:
    steps, h, c, out = F.linear(input, w_ih, b_ih).split(list(sizes)), h0, c0, {}
    for step in _order(sizes, reverse):
        i, f, a, o = (steps[step] + F.linear(_current(h, sizes[step]), w_hh, b_hh)).chunk(4, 1)
        cell = torch.sigmoid(f) * _current(c, sizes[step]) + torch.sigmoid(i) * torch.tanh(a)
        new = torch.sigmoid(o) * torch.tanh(cell)
        out[step] = new if w_hr is None else F.linear(new, w_hr)
        h, c = _advanced(h, out[step]), _advanced(c, cell)
    return torch.cat([out[step] for step in range(len(sizes))]), h, c


@lstm_scan.example
def _(make: Any) -> Any:
    return make(3, 1), make(2, 1), make(2, 1), make(4, 1), make(4, 1), make(4), make(4), None, (2, 1), True


@lstm_scan.example
def _(make: Any) -> Any:
    return make(2, 1), make(1, 1), make(1, 2), make(8, 1), make(8, 1), None, None, make(1, 2), (1, 1), False
