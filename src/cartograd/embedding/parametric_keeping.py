"""The checkpoints of a training: what is kept, where, and how the training goes on from it.

With `checkpoint_dir` they are files in a folder, the last two of which are kept, as those of a layout; with
`EncoderTraining.checkpoint` one file. A signal is answered after a step, in the middle of an epoch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cartograd.distributed import checkpoint
from cartograd.distributed.signals import Asked, listening
from cartograd.embedding import parametric_checkpoint as one_file
from cartograd.embedding.resuming import identity
from cartograd.errors import UnsupportedError

if TYPE_CHECKING:
    from cartograd.embedding.parametric_training import Training

Found = tuple[dict[str, Any], dict[str, torch.Tensor]]


class TrainingKeeper:
    """The checkpoints of one training.

    Parameters
    ----------
    training : Training
        What is kept.
    asked : Asked
        Whether a signal asks it to stop.
    """

    def __init__(self, training: Training, asked: Asked) -> None:
        model = training.model
        self.training, self.asked, self.ranks = training, asked, model._ranks
        self.file = training.options.checkpoint
        alone = self.file is not None or model.checkpoint_dir is None
        self.folder = None if alone else Path(model.checkpoint_dir)
        if self.ranks is not None:
            self.ranks.asked, self.ranks.heard = asked, 0

    def stops(self) -> bool:
        """Whether a signal asks the training to stop; processes that share it are told with each step's gradients."""
        if self.ranks is None:
            return self.asked.number > 0
        heard, self.ranks.heard = self.ranks.heard, 0
        self.asked.number = heard or self.asked.number
        return heard > 0

    def leave(self, over: str | None = None) -> None:
        """Save, and end as the signal has it."""
        self.save(over)
        self.asked.leave()

    def save(self, over: str | None = None) -> None:
        """Write the present state; with several processes the first one does. `over`: why the training has ended."""
        if (self.file is None and self.folder is None) or (self.ranks is not None and self.ranks.rank > 0):
            return
        now = self.training
        numbers, state = one_file.flat_state(now.optimiser)
        tensors = {f"weights.{name}": one for name, one in now.network.copied_weights().items()}
        tensors |= {f"best.{name}": one for name, one in now.kept.items()}
        tensors |= {f"optimiser.{name}": one for name, one in state.items()}
        tensors |= {f"more.{name}": one for name, one in {"total": now.total, **_draws(now)}.items()}
        done = {"epoch": now.epoch, "losses": now.losses, "best": now.best, "best_epoch": now.best_epoch, "over": over}
        facts = {"same": self._same(), "done": done, "steps": now.model.n_iter_, "optimiser": numbers}
        if self.folder is not None:
            checkpoint.write(self.folder, now.model.n_iter_, facts, tensors)
        else:
            one_file.write_checkpoint(self.file, facts, tensors)

    def resumed(self) -> bool:
        """Go on from what was kept; False where there is nothing."""
        found = self._found()
        step = -1 if found is None else int(found[0]["steps"])
        steps = [step] if self.ranks is None else [one for (one,) in self.ranks.agree("resuming a training", step)]
        if len(set(steps)) > 1:
            raise UnsupportedError(
                f"the processes see different checkpoints (of steps {steps}): they must be where all of them can read"
            )
        if found is None:
            return False
        if self.folder is not None:
            checkpoint.check_same(found[0]["same"], self._same(), self.folder)
        else:
            one_file.check_same(found[0]["same"], self._same(), self.file)
        self._restore(*found)
        return True

    def _found(self) -> Found | None:
        now = self.training
        if self.file is not None:
            device = now.network.centre_in.device
            return one_file.read_checkpoint(self.file, device) if now.options.resume else None
        if self.folder is None:
            return None
        if now.model.resume:
            return checkpoint.newest(self.folder)
        if self.ranks is None or self.ranks.rank == 0:
            checkpoint.clear(self.folder)
        return None

    def _restore(self, facts: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        now, device = self.training, self.training.network.centre_in.device
        parts: dict[str, dict[str, torch.Tensor]] = {"weights": {}, "best": {}, "optimiser": {}, "more": {}}
        for name, one in tensors.items():
            part, _, rest = name.partition(".")
            parts[part][rest] = one
        now.network.module.load_state_dict(parts["weights"])
        one_file.restore_state(now.optimiser, facts["optimiser"], parts["optimiser"])
        now.kept = {name: one.to(device) for name, one in parts["best"].items()}
        done = facts["done"]
        now.epoch, now.losses, now.best, now.best_epoch = (
            done[name] for name in ("epoch", "losses", "best", "best_epoch")
        )
        now.over, now.draws, now.total = done["over"], parts["more"], parts["more"].pop("total").to(device)
        now.model.n_iter_, now.model.loss_ = facts["steps"], now.losses

    def _same(self) -> dict[str, Any]:
        """What must be the same for a training to go on."""
        now, network = self.training, self.training.network
        kind = network.kind if isinstance(network.kind, str) else type(network.kind).__name__
        return {
            **({} if self.folder is None else identity(now.model)),
            "method": type(now.model).__name__,
            "rows": now.model._source.n,
            "encoder": kind,
            "shapes": {name: list(one.shape) for name, one in network.module.state_dict().items()},
            "seed": now.model._seed,
            "steps of an epoch": now.steps_per_epoch,
            "centre": float(network.centre_in.sum()),
        }


@contextlib.contextmanager
def kept_training(training: Training) -> Iterator[TrainingKeeper]:
    """Checkpoints while the block runs; where there are any, or other processes, signals are answered after steps."""
    model = training.model
    if model._ranks is None and model.checkpoint_dir is None and training.options.checkpoint is None:
        yield TrainingKeeper(training, Asked())
        return
    with listening() as asked:
        yield TrainingKeeper(training, asked)


def _draws(training: Training) -> dict[str, torch.Tensor]:
    """Where the generators are that a module of one's own draws from; at the end of an epoch they are seeded anew."""
    whole = training.model.n_iter_ == training.epoch * training.steps_per_epoch
    if whole or isinstance(training.network.kind, str):
        return {}
    device = training.network.centre_in.device
    on_gpu = {"draws on the GPU": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {}
    return {"draws": torch.get_rng_state(), **on_gpu}


def restore_draws(draws: dict[str, torch.Tensor], device: torch.device) -> None:
    """Put the generators where `_draws` found them."""
    if "draws" in draws:
        torch.set_rng_state(draws["draws"].cpu())
    if "draws on the GPU" in draws:
        torch.cuda.set_rng_state(draws["draws on the GPU"].cpu(), device)
