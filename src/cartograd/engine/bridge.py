"""Our ops inside torch's autograd: ``op.as_torch()``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cartograd.engine.plan import Plan
from cartograd.engine.primitive import Primitive
from cartograd.errors import NotTwiceDifferentiableError, UnsupportedError


def torch_function(op: Primitive) -> Callable[..., Any]:
    """A function of torch tensors that runs `op` forward and its gradient rules backward.

    In the backward, rules run on torch tensors, so a rule made of torch functions is differentiable again there.
    """

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *values: Any) -> Any:
            with torch.no_grad():
                result = op.run(list(values))
            out, extra = result if op.extra else (result, None)
            flags = [ctx.needs_input_grad[slot] for slot in op.input_slots]
            ctx.plan = op.plan(tuple(flags)) if any(flags) else None
            if ctx.plan is not None:
                ctx.saved = _Saved(ctx, ctx.plan.take([*values, out, extra]))
            outs = tuple(out) if op.multiple else (out,)
            ctx.mark_non_differentiable(*(one for one in outs if not one.is_floating_point()))
            return tuple(outs) if op.multiple else out

        @staticmethod
        def backward(ctx: Any, *g: Any) -> Any:
            plan: Plan = ctx.plan
            if torch.is_grad_enabled() and op.once is not None:
                raise NotTwiceDifferentiableError(f"{op.name} cannot be differentiated twice: {op.once}")
            saved = ctx.saved.values(ctx)
            if torch.is_grad_enabled() and op.restated is not None:
                gradients = iter(_through_restatement(op, plan, g, saved))
            else:
                gradients = iter(plan.gradients(g if op.multiple else g[0], saved))
            wanted = {slot for slot, needed in zip(op.input_slots, plan.need, strict=True) if needed}
            return tuple(next(gradients) if slot in wanted else None for slot in range(len(op.params)))

    Function.__name__ = op.name

    def call(*args: Any, **kwargs: Any) -> Any:
        values = op.bind(args, kwargs)
        if values is None or op.takes_list:
            raise UnsupportedError(
                f"{op.name} takes ({', '.join(op.params)}), got {len(args)} arguments, {list(kwargs)}"
            )
        return Function.apply(*values)

    call.__name__ = op.name
    call.__doc__ = op.__doc__
    return call


def _through_restatement(op: Primitive, plan: Plan, g: tuple[Any, ...], saved: tuple[Any, ...]) -> Any:
    """Let torch differentiate the op's restatement, which is made of torch functions."""
    assert op.restated is not None
    values = dict(zip(plan.saves, saved, strict=True))
    outs = op.restated(**{name: values[name] for name in op.params})
    pairs = [(out, one) for out, one in zip(outs if op.multiple else (outs,), g, strict=True) if out.requires_grad]
    wanted = [values[name] for name, needed in zip(op.inputs, plan.need, strict=True) if needed]
    return torch.autograd.grad(
        [out for out, _ in pairs], wanted, [one for _, one in pairs], create_graph=True, allow_unused=True
    )


class _Saved:
    """Saved values on a torch context: tensors through ``save_for_backward``, the rest beside it."""

    def __init__(self, ctx: Any, values: tuple[Any, ...]) -> None:
        tensors: list[torch.Tensor] = []
        self.rest = [self._stow(value, tensors) for value in values]
        ctx.save_for_backward(*tensors)

    def _stow(self, value: Any, tensors: list[torch.Tensor]) -> Any:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            return _Slot(len(tensors) - 1)
        if isinstance(value, (tuple, list)):
            return tuple(self._stow(item, tensors) for item in value)
        return value

    def values(self, ctx: Any) -> tuple[Any, ...]:
        """The saved values, put together again."""
        return tuple(self._fetch(value, ctx.saved_tensors) for value in self.rest)

    def _fetch(self, value: Any, tensors: tuple[torch.Tensor, ...]) -> Any:
        if isinstance(value, _Slot):
            return tensors[value.index]
        return tuple(self._fetch(item, tensors) for item in value) if isinstance(value, tuple) else value


class _Slot:
    def __init__(self, index: int) -> None:
        self.index = index
