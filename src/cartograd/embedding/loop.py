"""The steps of a fit: gradient, optimiser, schedule; what is watched on the way, and how it ends."""

from __future__ import annotations

import logging
import math
import time
import warnings
from typing import TYPE_CHECKING, Any

import torch

from cartograd.embedding.optimisers import (
    make_optimiser,
    make_scheduler,
    optimiser_class,
    optimiser_options,
)
from cartograd.embedding.resuming import kept
from cartograd.errors import DivergedError

if TYPE_CHECKING:
    from cartograd.embedding.base import AffinityMatcher


log = logging.getLogger("cartograd.embedding")


def begin_phase(model: AffinityMatcher, steps: int) -> None:
    """A new optimiser and schedule for the next `steps` steps. Velocity starts anew: the forces are different ones."""
    exaggeration = getattr(model, "early_exaggeration_coeff_", 1.0)
    chosen = optimiser_class(model.optimizer)
    model.lr_ = model._rate_of_phase(chosen, exaggeration)
    options = optimiser_options(model.optimizer_kwargs, chosen, exaggeration)
    model._moved = model._layout[model._own_rows()] if model._bounds else model._layout
    model.optimizer_ = make_optimiser(model.optimizer, [model._moved], model.lr_, options)
    model.scheduler_ = make_scheduler(model.scheduler, model.optimizer_, model.scheduler_kwargs, steps)


def run(model: AffinityMatcher) -> None:
    """All steps of the fit of `model`, whose `_layout` holds the starting points and is moved in place."""
    bar = _bar(model)
    try:
        with kept(model) as keeper:
            over, clock = keeper.over, Clock(model.timeout)
            while not over and model.n_iter_ < model._steps:
                over = keeper.after_step(not _leap(model, bar, clock) and _step(model, bar), _is_over(model, clock))
    except KeyboardInterrupt:
        model.report_["interrupted"] = True
        warnings.warn(
            f"interrupted after {model.n_iter_} of {model._steps} steps: the map is what was reached by then",
            RuntimeWarning,
            stacklevel=2,
        )
    finally:
        bar.close()


def _is_over(model: AffinityMatcher, clock: Clock) -> bool:
    """Return whether the time of the fit is over; on several processes, whether it is over on any of them."""
    if model.timeout is None:
        return False
    over = clock.is_over()
    if model._ranks is not None:
        over = any(one for (one,) in model._ranks.agree("time", int(over)))
    if over:
        log.info("timeout after %d of %d steps: the map is what was reached by then", model.n_iter_, model._steps)
        model.report_["stopped"] = "timeout"
    return over


class Clock:
    """The time of a fit, and how many steps fit into a second of it.

    Parameters
    ----------
    timeout : float or None
        Seconds that the steps may take.
    """

    def __init__(self, timeout: float | None) -> None:
        self.timeout, self.began, self.steps = timeout, time.monotonic(), 1

    def is_over(self) -> bool:
        """Return whether the time is over."""
        return self.timeout is not None and time.monotonic() - self.began >= self.timeout

    def steps_at_once(self, count: int) -> int:
        """Return how many of `count` steps to take before the clock is read again: about a tenth of the time."""
        return count if self.timeout is None else min(count, self.steps)

    def took(self, steps: int, seconds: float) -> None:
        """Learn from `steps` steps how many take a tenth of the time."""
        if self.timeout is not None:
            share = min(0.1 * self.timeout, 1.0)
            self.steps = max(1, min(4 * self.steps, int(steps * share / max(seconds, 1e-9))))


def _leap(model: AffinityMatcher, bar: Any, clock: Clock) -> bool:
    """The steps before the next that is watched, all at once, where the method has a way to take them.

    That is ``model._many_steps()``: None, or a function of the first step and the learning rates of all, which moves
    the layout in place and keeps `n_iter_`. False where no step was taken.
    """
    first, prepare = model.n_iter_, getattr(model, "_many_steps", None)
    count = clock.steps_at_once(_until_watched(model, first))
    if prepare is None or count < 1:
        return False
    take = prepare(first)
    if take is None:
        return False
    before, began = model._layout.clone(), time.monotonic()
    take(first, _learning_rates(model, count))
    clock.took(count, time.monotonic() - began)
    if not math.isfinite(float(model._layout.sum())):
        message = (
            f"the map left all bounds between steps {first} and {model.n_iter_}: use a smaller lr than {model.lr_:g}"
        )
        raise DivergedError(message, model._shown(before))
    bar.update(count)
    return True


def _until_watched(model: AffinityMatcher, step: int) -> int:
    """How many steps there are before one that is watched or that begins a phase of its own."""
    interval = model.check_interval
    watched = min(step // interval * interval + interval, model._steps) - 1
    exaggerated = getattr(model, "early_exaggeration_iter", None) or 0
    stop = min(watched, exaggerated) if step < exaggerated else watched
    if model.checkpoint_dir is not None:
        stop = min(stop, step + model.checkpoint_every - step % model.checkpoint_every)
    return stop - step


def _learning_rates(model: AffinityMatcher, count: int) -> list[float]:
    """The learning rates of the next steps; the optimiser, which has no gradient and so moves nothing, and the
    schedule are where they would be after them.
    """
    model._moved.grad = None
    rates = []
    for _ in range(count):
        rates.append(float(model.optimizer_.param_groups[0]["lr"]))
        model.optimizer_.step()
        if model.scheduler_ is not None:
            model.scheduler_.step()
    return rates


def _step(model: AffinityMatcher, bar: Any) -> bool:
    """One step; True where the fit is over before its time."""
    step = model.n_iter_
    model._before_step(step)
    model.on_training_step_start()
    gradient = model._gradient()
    if model._bounds:
        gradient = gradient[model._own_rows()].contiguous()
    watched = (step + 1) % model.check_interval == 0 or step + 1 == model._steps
    if (watched or gradient.device.type == "cpu") and not math.isfinite(float(gradient.sum())):
        raise diverged(model, gradient)
    model._moved.grad = gradient
    loss = model._over_all(model._loss_now(), "losses") if watched else None
    model.optimizer_.step()
    if model.scheduler_ is not None:
        model.scheduler_.step()
    model._share_layout()
    model.on_training_step_end()
    model.n_iter_ = step + 1
    bar.update()
    if not watched:
        return False
    norm = math.sqrt(model._over_all(float(torch.linalg.vector_norm(gradient)) ** 2, "squares of the gradient"))
    return _look(model, norm, loss, bar)


def _look(model: AffinityMatcher, norm: float, loss: float | None, bar: Any) -> bool:
    """What happens every `check_interval` steps: history, callbacks, the test for the end."""
    assert loss is not None
    model.loss_.append(loss)
    bar.set_postfix_str(f"loss {loss:.4g}", refresh=False)
    stop = [callback(model.n_iter_, model._shown(model._layout), loss) for callback in model.callbacks or ()]
    if model._ranks is not None:
        stop = [bool(one) for (one,) in model._ranks.agree("callbacks", int(any(one is True for one in stop)))]
    if model._may_stop() and (norm < model.min_grad_norm or model._has_settled()):
        return True
    return any(answer is True for answer in stop)


def diverged(model: AffinityMatcher, gradient: torch.Tensor) -> DivergedError:
    """The error for a gradient with NaN or infinity, with the step, the term and the row; holds the last finite map."""
    place = model._layout
    if not bool(torch.isfinite(place).all()):
        row = int(torch.nonzero(~torch.isfinite(place).all(1))[0])
        message = f"the map left all bounds at step {model.n_iter_}, row {row}: use a smaller lr than {model.lr_:g}"
        return DivergedError(message, None)
    row = int(torch.nonzero(~torch.isfinite(gradient).all(1))[0]) if not torch.isfinite(gradient).all() else 0
    message = (
        f"NaN or infinity in the {model._bad_term()} at step {model.n_iter_}, row {row} of the map; use a smaller lr "
        f"than {model.lr_:g}, or check the weights of row {row} in the affinity"
    )
    return DivergedError(message, model._shown(place))


class _NoBar:
    """Stands in for a progress bar where none is wanted: the import of one costs more than a small fit."""

    def update(self, count: int = 1) -> None: ...

    def set_postfix_str(self, text: str, refresh: bool = True) -> None: ...

    def close(self) -> None: ...


def _bar(model: AffinityMatcher) -> Any:
    if not model.verbose:
        return _NoBar()
    from tqdm.auto import tqdm

    name = f"{type(model).__name__} layout"
    return tqdm(total=model._steps, desc=name, disable=None, leave=False)
