"""How an encoder is trained: the options beside those that an estimator names itself."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from cartograd.affinity import checks
from cartograd.embedding.optimisers import optimiser_class
from cartograd.errors import OptionError, UnsupportedError

log = logging.getLogger("cartograd.embedding")
INSTEAD = {
    "lr": "training=EncoderTraining(learning_rate=...)",
    "learning_rate": "training=EncoderTraining(learning_rate=...)",
    "optimizer": "training=EncoderTraining(optimizer=...)",
    "optimizer_kwargs": "training=EncoderTraining(...)",
    "scheduler": "training=EncoderTraining(learning_rate=...), which falls to 0",
    "max_iter": "n_epochs=",
}
"""Parameters of a map without an encoder, and what says the same of the training of one."""


def tell_of_unused(model: Any) -> None:
    """Log which parameters were set that the training of an encoder does not look at, and what to use."""
    usual = {one.name: one.default for one in fields(model)}
    for name, other in INSTEAD.items():
        value = getattr(model, name, None)
        if name in usual and value is not usual[name] and value != usual[name]:
            log.warning("%s=%r is for maps without an encoder, and not used: see %s", name, value, other)


class Progress(NamedTuple):
    """What a progress callback is told after every epoch."""

    epoch: int
    """Epochs done."""
    loss: float
    """The mean loss of the last one."""
    best: float
    """The smallest so far."""
    elapsed: float
    """Seconds since the training began."""
    seconds_per_epoch: float
    """Seconds of the last epoch."""


@dataclass(frozen=True, kw_only=True)
class EncoderTraining:
    """How an encoder is trained.

    Parameters
    ----------
    learning_rate : float, default=3e-3
        Of the first step; it falls linearly to 0 over the epochs.
    optimizer : str or class, default="Adam"
        An optimiser of ``torch.optim``.
    weight_penalty : float, default=1e-4
        The optimiser's weight decay.
    negative_rate : int, default=None
        Negatives for each edge; None for the method's own number.
    standardize : bool, default=True
        Whether the encoder reads standardised rows; with False as they are, such as the numbers of tokens (values
        beyond a million are cut off).
    warm_start_epochs : int, default=5
        Epochs in which the encoder first learns the map's start, the principal components by default; at least 100
        steps, or none with 0.
    cooldown : float, default=0.0
        Seconds to rest after every epoch, for machines that get hot.
    checkpoint : str or path, default=None
        A file to which the training is saved, whole or not at all.
    checkpoint_every : int, default=10
        Epochs between saves.
    resume : bool, default=False
        Whether to go on from `checkpoint` where that file is there.
    progress : callable, default=None
        Called with a `Progress` after every epoch; if it returns True the training ends.

    Examples
    --------
    >>> EncoderTraining(learning_rate=1e-3).warm_start_epochs
    5
    """

    learning_rate: float = 3e-3
    optimizer: Any = "Adam"
    weight_penalty: float = 1e-4
    negative_rate: int | None = None
    standardize: bool = True
    warm_start_epochs: int = 5
    cooldown: float = 0.0
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: int = 10
    resume: bool = False
    progress: Callable[[Progress], Any] | None = None

    def check(self) -> None:
        """Refuse values that cannot be right."""
        checks.number(self.learning_rate, "learning_rate", 0.0, strict=True)
        optimiser_class(self.optimizer)
        checks.number(self.weight_penalty, "weight_penalty", 0.0)
        if self.negative_rate is not None:
            checks.count(self.negative_rate, "negative_rate")
        checks.count(self.warm_start_epochs, "warm_start_epochs", 0)
        checks.number(self.cooldown, "cooldown", 0.0)
        checks.count(self.checkpoint_every, "checkpoint_every")
        checks.choice(self.resume, "resume", (True, False))
        checks.choice(self.standardize, "standardize", (True, False))
        if self.resume and self.checkpoint is None:
            raise OptionError("resume=True goes on from a file: give its name as checkpoint=")
        if self.progress is not None and not callable(self.progress):
            raise UnsupportedError(f"progress must be a function of one Progress, got {self.progress!r}")
