"""`double_ssd`: the scan that Mamba-3 calls twice, with three algorithms of equal results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from cartograd.engine.tensor import Tensor as Recorded
from cartograd.engine.tensor import from_raw
from cartograd.engine.transparent import lifted
from cartograd.ops.ssd_arguments import known_algorithm, operands
from cartograd.ops.ssd_chunks import composed_ssd
from cartograd.ops.ssd_recompute import full_precision, ssd


class DoubleSSD:
    """The type of `double_ssd`: a function, and its `as_torch`."""

    __name__ = "double_ssd"

    def __call__(
        self, v: Any, da: Any, B: Any, C: Any, initial_state: Any = None, *, algorithm: str = "recompute"
    ) -> tuple[Any, Any]:
        r"""Run one scan of a state-space model with a scalar decay a head, chunk by chunk.

        For every head, with the state h of shape (p, r),

        .. math:: h_t = e^{da_t} h_{t-1} + \sum_m v_t[m] \otimes B_t[m], \qquad y_t[m] = h_t\, C_t[m].

        Time is cut into chunks of equal length beforehand: step l of chunk n is time ``n * steps + l``. Steps that
        only fill the last chunk have v = B = C = 0 and da = 0; they change nothing.

        Mamba-3's trapezoidal rule is two such scans, of :math:`\gamma_t x_t` and of :math:`\beta_t x_{t-1}`, summed:
        hence the name.

        Parameters
        ----------
        v : Tensor, (b, n, l, m, h, p)
            Values: batch, chunks, steps of a chunk, ranks, heads, channels.
        da : Tensor, (b, n, l, h)
            Logarithms of the decays, 0 or less.
        B : Tensor, (b, n, l, m, g, r)
            Keys: g groups, each shared by h / g heads that follow each other; r channels of the state.
        C : Tensor, (b, n, l, m', g, r)
            Queries; they may have another number of ranks than the keys.
        initial_state : Tensor, (b, h, p, r), default=None
            The state before the first step; None for zeros.
        algorithm : str, default="recompute"
            "recompute" saves only these five inputs for the backward pass, and works on one chunk at a time in it;
            "serial" and "minimal" are made of differentiable ops on all chunks at once, and pass states on by a loop
            or by one product. All have the same values and gradients, and can be differentiated twice.

        Returns
        -------
        y : Tensor, (b, n, l, m', h, p)
            What each step reads, in the dtype of v.
        final_state : Tensor, (b, h, p, r)
            The state after the last step, float32 or float64. Both outputs carry gradients to all five inputs.

        Examples
        --------
        >>> import torch, cartograd
        >>> ones = torch.ones(1, 1, 3, 1, 1, 1)  # three steps; the state is the sum of what came in
        >>> da = cartograd.tensor(torch.zeros(1, 1, 3, 1), requires_grad=True)
        >>> y, final_state = cartograd.double_ssd(ones, da, ones, ones)
        >>> y.flatten().tolist(), final_state.item()
        ([1.0, 2.0, 3.0], 3.0)
        >>> final_state.sum().backward()
        >>> da.grad.flatten().tolist()  # how much of the last state each decay has passed on
        [0.0, 1.0, 2.0]
        """
        chosen = known_algorithm(algorithm)
        given = [one if one is None else as_recorded(one) for one in operands(v, da, B, C, initial_state)]
        run = ssd if chosen == "recompute" else partial(composed_ssd, parallel=chosen == "minimal")
        with full_precision(given[0]):
            y, final_state = run(*given)
        return y, final_state

    def as_torch(self) -> Callable[..., tuple[Tensor, Tensor]]:
        """The same function of torch tensors, with the same arguments, which torch's own autograd differentiates."""
        recompute = ssd.as_torch()

        def double_ssd(
            v: Any, da: Any, B: Any, C: Any, initial_state: Any = None, *, algorithm: str = "recompute"
        ) -> tuple[Tensor, Tensor]:
            chosen = known_algorithm(algorithm)
            given = operands(v, da, B, C, initial_state)
            run = recompute if chosen == "recompute" else partial(composed_ssd, parallel=chosen == "minimal")
            with full_precision(given[0]):
                y, final_state = run(*given)
            return y, final_state

        double_ssd.__doc__ = self.__call__.__doc__
        return double_ssd

    def __repr__(self) -> str:
        return "<function cartograd.double_ssd(v, da, B, C, initial_state)>"


def as_recorded(value: Any) -> Any:
    """A torch tensor as one of ours, at its place in the graph: a Parameter stays the leaf it is."""
    if type(value) is Recorded:
        return value
    placed = lifted(value)
    return placed if type(placed) is Recorded else from_raw(value.detach())


double_ssd = DoubleSSD()
