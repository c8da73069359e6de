"""Optimisers and schedules: torch's, by name or class, with the defaults that neighbour embeddings want."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import torch

from cartograd.affinity import checks
from cartograd.core.checks import shorten, show
from cartograd.embedding.quick_optimiser import quick
from cartograd.errors import OptionError, UnsupportedError

MOMENTUM = 0.8
EXAGGERATED_MOMENTUM = 0.5
"""Momentum of SGD by phase, as in the original t-SNE: small while clusters form."""
SMALLEST_AUTO_LR = 50.0


def optimiser_class(optimizer: Any) -> type[torch.optim.Optimizer]:
    """The class of an optimiser given by its name in ``torch.optim`` (or "RiemannianAdam"), or itself a class."""
    if isinstance(optimizer, str):
        if optimizer == "RiemannianAdam":
            from cartograd.embedding.riemannian import RiemannianAdam

            return RiemannianAdam
        found = getattr(torch.optim, optimizer, None) if optimizer.isidentifier() else None
        if not (inspect.isclass(found) and issubclass(found, torch.optim.Optimizer)):
            raise OptionError(
                f"unknown optimizer {show(optimizer)}: give a name in torch.optim, such as 'SGD' or 'Adam'"
            )
        return found
    if inspect.isclass(optimizer) and issubclass(optimizer, torch.optim.Optimizer):
        return optimizer
    raise UnsupportedError(f"optimizer must be a name or a class of torch.optim, got {show(optimizer)}")


def learning_rate(lr: Any, optimizer: type[torch.optim.Optimizer], n: int, exaggeration: float) -> float:
    r"""The learning rate of a phase: a number, or "auto".

    For gradient descent :math:`\max(n / (4 \lambda), 50)`, lambda being the exaggeration (Belkina et al., 2019; the 4
    is the factor that the gradient of t-SNE carries). Optimisers that scale gradients themselves take a step of about
    the learning rate: 0.1 for them, 0.2 of the distance in the unit ball.
    """
    if not (isinstance(lr, str) and lr == "auto"):
        return checks.number(lr, "lr", 0.0, strict=True)
    if issubclass(optimizer, torch.optim.SGD):
        return max(n / exaggeration / 4.0, SMALLEST_AUTO_LR)
    return 0.2 if optimizer.__name__ == "RiemannianAdam" else 0.1


def optimiser_options(kwargs: Any, optimizer: type[torch.optim.Optimizer], exaggeration: float) -> dict[str, Any]:
    """The keyword arguments of an optimiser: those given, or for "auto" the momentum of the phase."""
    if kwargs is None:
        return {}
    if isinstance(kwargs, dict):
        return dict(kwargs)
    checks.choice(kwargs, "optimizer_kwargs", ("auto",))
    if not issubclass(optimizer, torch.optim.SGD):
        return {}
    return {"momentum": EXAGGERATED_MOMENTUM if exaggeration > 1 else MOMENTUM}


def make_optimiser(
    optimizer: Any, parameters: list[torch.Tensor], lr: float, options: dict[str, Any]
) -> torch.optim.Optimizer:
    """The optimiser of the parameters, with a clear error where it does not know an option."""
    chosen = optimiser_class(optimizer)
    try:
        return quick(chosen, parameters, {"lr": lr, **options})
    except (TypeError, ValueError, RuntimeError) as error:
        kind = UnsupportedError if isinstance(error, TypeError) else OptionError
        message = f"optimizer_kwargs={_names(options)} do not fit {chosen.__name__}: {shorten(str(error))}"
        raise kind(message) from None


def make_scheduler(
    scheduler: Any, optimiser: torch.optim.Optimizer, kwargs: Any, steps: int
) -> torch.optim.lr_scheduler.LRScheduler | None:
    """The scheduler of a phase of `steps` steps; `None` without one.

    "LinearLR" without options of its own falls from the learning rate to 0 over the phase:
    lr(t) = lr (1 - t / steps).
    """
    if scheduler is None:
        return None
    chosen = scheduler_class(scheduler)
    options = dict(kwargs) if isinstance(kwargs, dict) else {}
    if chosen is torch.optim.lr_scheduler.LinearLR and not options:
        options = {"start_factor": 1.0, "end_factor": 0.0, "total_iters": max(steps, 1)}
    try:
        return chosen(optimiser, **options)
    except (TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        kind = UnsupportedError if isinstance(error, TypeError) else OptionError
        message = f"scheduler_kwargs={_names(options)} do not fit {chosen.__name__}: {shorten(str(error))}"
        raise kind(message) from None


def scheduler_class(scheduler: Any) -> type[torch.optim.lr_scheduler.LRScheduler]:
    """The class of a scheduler given by its name in ``torch.optim.lr_scheduler``, or itself a class."""
    base = torch.optim.lr_scheduler.LRScheduler
    found = vars(torch.optim.lr_scheduler).get(scheduler) if isinstance(scheduler, str) else scheduler
    if inspect.isclass(found) and issubclass(found, base):
        return found
    raise OptionError(
        f"unknown scheduler {show(scheduler)}: give None, a class, or a name in "
        "torch.optim.lr_scheduler such as 'LinearLR'"
    )


def check_options(kwargs: Any, name: str) -> None:
    """Refuse options that are neither a dictionary of keyword arguments, "auto" nor None."""
    if kwargs is None or (isinstance(kwargs, str) and kwargs == "auto"):
        return
    if not isinstance(kwargs, dict) or not all(isinstance(key, str) for key in kwargs):
        raise UnsupportedError(f'{name} must be a dictionary of keyword arguments, "auto" or None, got {show(kwargs)}')


def check_optimizer(optimizer: Any, name: str) -> None:
    """Refuse what is no optimizer that takes a step from one dense gradient."""
    chosen = optimiser_class(optimizer)
    reasons = {
        torch.optim.Optimizer: "it is abstract",
        torch.optim.LBFGS: "it evaluates the loss several times a step",
        torch.optim.SparseAdam: "it needs sparse gradients",
    }
    if chosen in reasons:
        raise OptionError(f"{name} cannot be {chosen.__name__}: {reasons[chosen]}; use 'SGD' or 'Adam'")


def check_scheduler(scheduler: Any, name: str) -> None:
    """Refuse what is no scheduler."""
    if scheduler is not None and scheduler_class(scheduler) is torch.optim.lr_scheduler.LRScheduler:
        raise OptionError(f"{name} cannot be LRScheduler: it is abstract; use 'LinearLR', or None")


def check_descent(optimizer: Any, lr: Any, optimizer_kwargs: Any, scheduler: Any, scheduler_kwargs: Any) -> None:
    """Take one step of a single point, so that options which do not fit each other are refused before any work."""
    point = torch.zeros(1, 2)
    chosen = optimiser_class(optimizer)
    options = optimiser_options(optimizer_kwargs, chosen, 1.0)
    made = make_optimiser(optimizer, [point], learning_rate(lr, chosen, 1, 1.0), options)
    point.grad = torch.zeros(1, 2)
    _try_step(made, f"optimizer_kwargs={_names(options)} do not fit {chosen.__name__}")
    schedule = make_scheduler(scheduler, made, scheduler_kwargs, 1)
    if schedule is not None:
        _try_step(schedule, f"scheduler {type(schedule).__name__} cannot be stepped by the number of the step alone")


def _try_step(stepped: Any, message: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stepped.step()
    except Exception as error:  # torch checks few options, and those it does not check fail in any way
        raise OptionError(f"{message}: {shorten(str(error))}") from None


def _names(options: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{name!r}: {show(value)}" for name, value in options.items()) + "}"
