"""The training of an encoder: epochs of batches, what is watched on the way, and how it ends."""

from __future__ import annotations

import contextlib
import logging
import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from cartograd.affinity.counter import integers, stream
from cartograd.distributed.gradients import SharedGradients
from cartograd.embedding.loop import _NoBar
from cartograd.embedding.optimisers import make_optimiser
from cartograd.embedding.parametric_batches import Objective
from cartograd.embedding.parametric_keeping import TrainingKeeper, kept_training, restore_draws
from cartograd.embedding.parametric_network import Network, steady
from cartograd.embedding.parametric_options import EncoderTraining, Progress
from cartograd.engine import Tensor, recording
from cartograd.errors import DivergedError

if TYPE_CHECKING:
    from cartograd.embedding.parametric import Parametric

log = logging.getLogger("cartograd.embedding")
USUAL_STEPS = 1500
FEWEST_EPOCHS = 30
"""Without n_epochs: as many as give the usual number of steps, but no fewer than this."""
FEWEST_WARM_STEPS = 100
FEWEST_IN_BATCH = 64


@dataclass
class Training:
    """A training under way.

    Parameters
    ----------
    model : Parametric
        The estimator, with its rows, start and options.
    network : Network
        What is trained.
    objective : Objective
        The loss.
    options : EncoderTraining
        How.
    steps_per_epoch, epochs : int
        How long.
    """

    model: Parametric
    network: Network
    objective: Objective
    options: EncoderTraining
    steps_per_epoch: int
    epochs: int
    epoch: int = 0
    losses: list[float] = field(default_factory=list)
    best: float = math.inf
    best_epoch: int = 0

    def __post_init__(self) -> None:
        parameters: list[torch.Tensor] = [one for one in self.network.module.parameters() if one.requires_grad]
        decay = {"weight_decay": self.options.weight_penalty} if self.options.weight_penalty else {}
        self.optimiser = make_optimiser(self.options.optimizer, parameters, self.options.learning_rate, decay)
        ranks = self.model._ranks
        self.shared = None if ranks is None else SharedGradients(ranks, parameters)
        self.kept = self.network.copied_weights()
        self.total = self._nothing()
        self.over: str | None = None
        self.draws: dict[str, torch.Tensor] = {}
        self._began = time.monotonic()
        self._looked = 0

    # one training, from its start to its end

    def run(self) -> None:
        """Train until the epochs are over or something ends it; the network has the best weights then."""
        stopped = "interrupted"
        bar = self._bar()
        with own_draws_given_back(self.network), steady(self.network.centre_in.device):
            try:
                with kept_training(self) as keeper:
                    in_time = keeper.resumed() or self._warm_start(keeper)
                    stopped = self.over or (self._epochs(bar, keeper) if in_time else "timeout")
            except KeyboardInterrupt:
                self.model.report_["interrupted"] = True
                message = f"interrupted in epoch {self.epoch + 1} of {self.epochs}: the best weights so far are kept"
                warnings.warn(message, RuntimeWarning, stacklevel=2)
            finally:
                bar.close()
        if self.best == math.inf and stopped in ("interrupted", "timeout"):
            self.kept = self.network.copied_weights()  # not one epoch is over: what was reached
        self.network.module.load_state_dict(self.kept)
        self.network.module.eval()
        self.model.report_.update(stopped=stopped, epochs=self.epoch, best_epoch=self.best_epoch)
        log.info("training ended after %d epochs (%s), loss %.4g", self.epoch, stopped, self.best)

    def _epochs(self, bar: Any, keeper: TrainingKeeper) -> str:
        """Epoch after epoch; why it ended."""
        while self.epoch < self.epochs:
            began = time.monotonic()
            loss = self._one_epoch(keeper)
            if loss is None:
                return "timeout"
            if not math.isfinite(loss):
                return self._not_finite()
            self._take_note(loss)
            bar.set_postfix_str(f"loss {loss:.4g}", refresh=False)
            bar.update()
            reason = self._reason_to_stop(loss, time.monotonic() - began)
            if reason is not None or self.epoch == self.epochs or self.epoch % self.options.checkpoint_every == 0:
                keeper.save(reason)
            if reason is not None:
                return reason
            if keeper.stops() and self.epoch < self.epochs:
                keeper.leave()
            if self.options.cooldown:
                time.sleep(self.options.cooldown)
        return "epochs"

    def _one_epoch(self, keeper: TrainingKeeper) -> float | None:
        """The mean loss of an epoch's steps; None where the time is over."""
        self._seed_draws(self.epoch + 1)
        restore_draws(self.draws, self.network.centre_in.device)  # of an epoch that was interrupted
        self.draws = {}
        self.network.module.train()
        stop = (self.epoch + 1) * self.steps_per_epoch
        for step in range(self.model.n_iter_, stop):
            progress = step / (self.epochs * self.steps_per_epoch)
            for group in self.optimiser.param_groups:
                group["lr"] = self.options.learning_rate * (1 - progress)
            ids = self.objective.draw(step)
            self.total += self._step(ids, lambda Z: self.objective.loss(Z, progress))
            self.model.n_iter_ += 1
            if self._time_is_over():
                return None
            if step + 1 < stop and keeper.stops():
                keeper.leave()
        self.epoch += 1
        if self.shared is not None:
            self.shared.like_first(self.network.module.buffers())
        mean, self.total = float(self.total) / self.steps_per_epoch, self._nothing()
        return mean

    def _nothing(self) -> torch.Tensor:
        return torch.zeros((), dtype=torch.float64, device=self.network.centre_in.device)

    def _time_is_over(self) -> bool:
        """Whether the time is over; where several processes train, in any of them."""
        if self.model.timeout is None:
            return False
        over = time.monotonic() - self._began > self.model.timeout
        if self.shared is None:
            return over
        return any(one for (one,) in self.shared.ranks.agree("time of a training", int(over)))

    def _shared_step(self, shared: SharedGradients, ids: torch.Tensor, loss_of: Any) -> torch.Tensor:
        """The same step by several processes: each sends some of the rows through the encoder.

        The places of all are exchanged, so that the loss is that of the whole batch in each; its gradient goes back
        through a process's own rows, and the gradients of the weights are added up.
        """
        rank, size = shared.ranks.rank, shared.ranks.size
        start, stop = len(ids) * rank // size, len(ids) * (rank + 1) // size
        inputs = self.network.prepared(self.model._source.rows.take(ids[start:stop]))
        self.optimiser.zero_grad(set_to_none=True)
        with contextlib.nullcontext() if isinstance(self.network.kind, str) else recording():
            own = self.network.module(Tensor(inputs))
            whole = shared.ranks.gathered(own.data.detach(), "places of a batch")
            parts: list[Any] = [Tensor(whole[:start]), own, Tensor(whole[stop:])]
            loss = loss_of(torch.cat(parts))
        with shared.summed():
            loss.backward()
        self.optimiser.step()
        return loss.data.detach().to(torch.float64)

    def _step(self, ids: torch.Tensor, loss_of: Any) -> torch.Tensor:
        """One step of the optimiser on the loss of these rows' places; the gradient is the engine's."""
        if self.shared is not None:
            return self._shared_step(self.shared, ids, loss_of)
        inputs = self.network.prepared(self.model._source.rows.take(ids))
        self.optimiser.zero_grad(set_to_none=True)
        # parameters of a module of one's own may meet each other before they meet the rows
        with contextlib.nullcontext() if isinstance(self.network.kind, str) else recording():
            loss = loss_of(self.network.module(Tensor(inputs)))
        loss.backward()
        self.optimiser.step()
        return loss.data.detach().to(torch.float64)

    def _warm_start(self, keeper: TrainingKeeper) -> bool:
        """Learn the start of the map, scaled to a first coordinate of variance 1; False where the time is over."""
        if self.options.warm_start_epochs == 0:
            return True
        self._seed_draws(0)
        self.network.module.train()
        start = self.model._layout
        target = (start / start[:, :1].std().clamp(min=torch.finfo(start.dtype).tiny)).to(self.network.dtype)
        size = self.model._batch_rows()
        for step in range(max(FEWEST_WARM_STEPS, self.options.warm_start_epochs * self.steps_per_epoch)):
            ids = integers(stream(self.model._seed, "warm start", step), len(target), (size,), target.device)
            self._step(ids, lambda Z, ids=ids: ((Z - target[ids]) ** 2).mean())
            if keeper.stops():
                keeper.asked.leave()  # there is nothing to keep yet
            if self._time_is_over():
                return False
        self.optimiser.state.clear()  # moments of another loss
        return True

    # what is watched

    def _take_note(self, loss: float) -> None:
        self.losses.append(loss)
        self.model.loss_ = self.losses
        settled = self.model._settled_at((self.epoch - 1) / self.epochs)
        if settled and not self.model._settled_at((self.epoch - 2) / self.epochs):
            self.best = math.inf  # losses of earlier phases are of another kind
        if loss < self.best:
            self.best, self.best_epoch, self.kept = loss, self.epoch, self.network.copied_weights()

    def _reason_to_stop(self, loss: float, seconds: float) -> str | None:
        model = self.model
        told = self._tell(loss, seconds)
        if not model._settled_at((self.epoch - 1) / self.epochs):
            return "callback" if told else None
        if model.min_desired_loss is not None and loss <= model.min_desired_loss:
            return "min_desired_loss"
        if model.patience is not None and self.epoch - self.best_epoch >= model.patience:
            return "patience"
        return "callback" if told else None

    def _tell(self, loss: float, seconds: float) -> bool:
        """Call those who want to know; True where one of them wants the end."""
        answers = []
        if self.options.progress is not None:
            elapsed = time.monotonic() - self._began
            answers.append(self.options.progress(Progress(self.epoch, loss, self.best, elapsed, seconds)))
        if self.model.callbacks and self.model.n_iter_ - self._looked >= self.model.check_interval:
            self._looked = self.model.n_iter_
            places = self.model._shown(self.network.of(self.model._source.rows))
            answers += [callback(self.model.n_iter_, places, loss) for callback in self.model.callbacks]
        told = any(answer is True for answer in answers)
        if self.shared is None:
            return told
        return any(one for (one,) in self.shared.ranks.agree("callbacks of a training", int(told)))

    def _not_finite(self) -> str:
        message = f"the loss of epoch {self.epoch} is NaN or infinite; use a smaller learning rate than "
        message += f"{self.options.learning_rate:g} in training=EncoderTraining(learning_rate=...)"
        if self.best == math.inf:
            raise DivergedError(message, None)
        warnings.warn(f"{message}. The best weights so far are kept", RuntimeWarning, stacklevel=2)
        return "not finite"

    def _seed_draws(self, epoch: int) -> None:
        """What a module of one's own draws (dropout) depends on the seed and the epoch."""
        if not isinstance(self.network.kind, str):
            torch.manual_seed(stream(self.model._seed, "draws of a module", epoch) >> 1)

    def _bar(self) -> Any:
        if not self.model.verbose:
            return _NoBar()
        from tqdm.auto import tqdm

        return tqdm(total=self.epochs, desc=f"{type(self.model).__name__} encoder", disable=None, leave=False)


@contextlib.contextmanager
def own_draws_given_back(network: Network) -> Iterator[None]:
    """Give the global generators back as they were: a module of one's own may draw from them (dropout does)."""
    if isinstance(network.kind, str):
        yield
        return
    device = network.centre_in.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


def duration(n: int, batch: int, n_epochs: int | None) -> tuple[int, int]:
    """Steps of an epoch, in which as many edges are drawn as there are rows, and the number of epochs."""
    steps = math.ceil(n / batch)
    return steps, max(FEWEST_EPOCHS, math.ceil(USUAL_STEPS / steps)) if n_epochs is None else n_epochs
