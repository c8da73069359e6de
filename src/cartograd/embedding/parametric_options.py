"""How an encoder is trained: the options beside those that an estimator names itself."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from cartograd.core.checks import FLAG, Constraint, Real, Test, Whole, check_function, check_path, optional
from cartograd.embedding.optimisers import check_descent, check_optimizer
from cartograd.errors import OptionError

log = logging.getLogger("cartograd.embedding")

MOST_DRAWS = 10_000
"""Random rows of a row, or of an edge, at a step."""
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
        same = value is usual.get(name) or (type(value) is type(usual.get(name)) and value == usual[name])
        if name in usual and not same:
            log.warning("%s=%r is for maps without an encoder, and not used: see %s", name, value, other)


CONSTRAINTS: dict[str, Constraint] = {
    "learning_rate": Real(0.0, strict=True),
    "optimizer": Test(check_optimizer),
    "weight_penalty": Real(0.0),
    "negative_rate": optional(Whole(1, MOST_DRAWS)),
    "standardize": FLAG,
    "warm_start_epochs": Whole(0),
    "cooldown": Real(0.0, high=86_400.0),
    "checkpoint": optional(Test(check_path)),
    "checkpoint_every": Whole(),
    "resume": FLAG,
    "progress": optional(Test(check_function)),
}
"""What each option may be."""


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
        for name, constraint in CONSTRAINTS.items():
            constraint.check(getattr(self, name), name)
        decay = {"weight_decay": self.weight_penalty} if self.weight_penalty else {}
        check_descent(self.optimizer, self.learning_rate, decay, None, None)
        if self.resume and self.checkpoint is None:
            raise OptionError("resume=True goes on from a file: give its name as checkpoint=")
