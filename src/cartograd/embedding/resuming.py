"""Checkpoints of the steps of a fit: what is kept, what it must agree with, and how the fit goes on from it.

Negatives, acting edges and phases follow from the seed and the number of the step, so that points, optimiser, schedule
and history are all there is to keep. Neighbours and affinities are found again: the same, since they depend on the data
and the seed alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cartograd.affinity.data import plain
from cartograd.distributed import checkpoint
from cartograd.distributed.signals import Asked, listening
from cartograd.errors import FileAccessError, OptionError, UnsupportedError

if TYPE_CHECKING:
    from cartograd.embedding.base import AffinityMatcher

log = logging.getLogger("cartograd.embedding")

BESIDE = {"verbose", "callbacks", "checkpoint_dir", "checkpoint_every", "resume", "distributed", "device", "training"}
BESIDE |= {"n_jobs", "timeout"}
"""Parameters that do not change the map."""
HEARING = 10
"""Steps between looks at the others' signals where nothing else is exchanged."""


class Keeper:
    """The checkpoints of one fit.

    Parameters
    ----------
    model : AffinityMatcher
        The estimator, about to take its steps.
    folder : Path or None
        Where they go; None for none at all.
    asked : Asked
        Whether a signal asks the fit to stop.
    """

    def __init__(self, model: AffinityMatcher, folder: Path | None, asked: Asked) -> None:
        self.model, self.folder, self.asked = model, folder, asked
        self.over = False
        self.identity = {} if folder is None else identity(model)
        if folder is not None:
            self._begin(folder)

    def _begin(self, folder: Path) -> None:
        ranks = self.model._ranks
        found = None
        if self.model.resume:
            found = checkpoint.newest(folder)
        elif ranks is None or ranks.rank == 0:
            checkpoint.clear(folder)
        step = -1 if found is None else int(found[0]["step"])
        if ranks is not None:
            steps = [one for (one,) in ranks.agree("resuming", step)]
            if len(set(steps)) > 1:
                raise UnsupportedError(
                    f"the processes see different checkpoints in {folder} (of steps {steps}): checkpoint_dir must be "
                    "one folder that all of them can read"
                )
        if found is not None:
            checkpoint.check_same(found[0]["same"], self.identity, folder)
            self._restore(*found)
            log.info("going on from step %d, kept in %s", step, folder)

    def _restore(self, facts: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        model, step = self.model, int(facts["step"])
        model._layout.copy_(tensors["layout"])
        for begin in phases(model, step):
            model._before_step(begin)
        own = model._own_rows()
        state: dict[int, dict[str, Any]] = {}
        for name, value in {**facts["optimiser"], **_named(tensors, "optimiser.")}.items():
            number, _, key = name.partition(".")
            whole = isinstance(value, torch.Tensor) and value.dim() and len(value) == len(model._layout)
            state.setdefault(int(number), {})[key] = value[own] if whole else value
        groups = model.optimizer_.state_dict()["param_groups"]
        for group, kept in zip(groups, facts["groups"], strict=True):
            group.update({name: tuple(value) if isinstance(value, list) else value for name, value in kept.items()})
        model.optimizer_.load_state_dict({"state": state, "param_groups": groups})
        if model.scheduler_ is not None:
            model.scheduler_.load_state_dict(facts["scheduler"])
        model._carry_on(_named(tensors, "more."))
        model.loss_, model.n_iter_, self.over = list(facts["loss"]), step, bool(facts["over"])

    def after_step(self, over: bool, late: bool) -> bool:
        """Write a checkpoint where one is due; return whether the fit is over, or `late`, its time is."""
        model = self.model
        over = over or model.n_iter_ >= model._steps
        asked = self._asked()
        if late and not over:
            if self.folder is not None:
                self.save(over=False)
            return True
        if self.folder is not None and (over or asked or model.n_iter_ % model.checkpoint_every == 0):
            self.save(over)
        if asked and not over:
            self.asked.leave()
        return over

    def _asked(self) -> int:
        """The signal that ends the fit; processes that share it answer at the same step, once all have heard of it."""
        model = self.model
        if model._ranks is None:
            return self.asked.number
        if model._bounds is None and model.n_iter_ % HEARING == 0:
            model._ranks.hear("steps of a map that each process makes")
        heard, model._ranks.heard = model._ranks.heard, 0
        self.asked.number = heard or self.asked.number  # one that came since is told with the next step
        return heard

    def save(self, over: bool) -> None:
        """Write the present state; with several processes the first one does, for all."""
        assert self.folder is not None
        model = self.model
        facts: dict[str, Any] = {"same": self.identity, "loss": model.loss_, "over": over, "optimiser": {}}
        tensors = {"layout": model._layout, **{f"more.{name}": one for name, one in model._carried().items()}}
        for number, entries in model.optimizer_.state_dict()["state"].items():
            for name, value in entries.items():
                if isinstance(value, torch.Tensor):
                    tensors[f"optimiser.{number}.{name}"] = self._whole(value, f"{number}.{name}")
                else:
                    facts["optimiser"][f"{number}.{name}"] = _written(value, name)
        facts["groups"] = [
            {name: _written(value, name) for name, value in group.items() if name != "params"}
            for group in model.optimizer_.state_dict()["param_groups"]
        ]
        schedule = {} if model.scheduler_ is None else model.scheduler_.state_dict()
        facts["scheduler"] = {name: _written(value, name) for name, value in schedule.items()}
        if model._ranks is None or model._ranks.rank == 0:
            checkpoint.write(self.folder, model.n_iter_, facts, tensors)

    def _whole(self, value: torch.Tensor, name: str) -> torch.Tensor:
        """The state of all rows, of which each process holds its own."""
        ranks, own = self.model._ranks, self.model._own_rows()
        if ranks is None or value.dim() == 0 or len(value) != own.stop - own.start:
            return value
        return ranks.gathered(value, f"state {name}")


def check_checkpoints(folder: Any, resume: bool) -> None:
    """Refuse a folder that is a file, and resuming without a folder."""
    if folder is None:
        if resume:
            raise OptionError("resume=True goes on from a folder of checkpoints: give it as checkpoint_dir=")
        return
    if Path(folder).exists() and not Path(folder).is_dir():
        raise FileAccessError(f"checkpoint_dir={os.fspath(folder)!r} is a file; give the name of a folder")


@contextlib.contextmanager
def kept(model: AffinityMatcher) -> Iterator[Keeper]:
    """Checkpoints while the block runs, as the model's parameters ask; signals are answered after whole steps."""
    if model.checkpoint_dir is None and model._ranks is None:
        yield Keeper(model, None, Asked())
        return
    folder = None if model.checkpoint_dir is None else checkpoint.open_folder(model.checkpoint_dir)
    with listening() as asked:
        if model._ranks is not None:
            model._ranks.asked, model._ranks.heard = asked, 0
        yield Keeper(model, folder, asked)


def phases(model: AffinityMatcher, step: int) -> list[int]:
    """The steps at which a phase has begun before `step`: what was set up there is set up again."""
    first = getattr(model, "early_exaggeration_iter", None) or 0
    return [0, first] if 0 < first < step else [0]


def identity(model: AffinityMatcher) -> dict[str, Any]:
    """What a checkpoint must agree with: the method, its parameters, the seed, the data and the labels."""
    source, labels = model._source, getattr(model, "_labels", None)
    found = hashlib.sha256(checkpoint.digest(source.register.keys).encode())
    found.update(checkpoint.digest(source.register.ids).encode())
    if source.distinct is not None:
        found.update(checkpoint.digest(source.distinct.inverse).encode())
    named = {f"the parameter {name}": told(value) for name, value in parameters_of(model).items()}
    return {
        "the method": type(model).__name__,
        "the number of different rows": source.n,
        "the data's digest": found.hexdigest(),
        "the labels' digest": None if labels is None else checkpoint.digest(plain(labels)),
        "the seed": model._seed,
        **named,
    }


def parameters_of(model: AffinityMatcher) -> dict[str, Any]:
    """The parameters that a map depends on, by name."""
    return {name: value for name, value in sorted(model.get_params(deep=False).items()) if name not in BESIDE}


def told(value: Any) -> str:
    """A parameter as text: arrays by their digest, objects without their address."""
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}({', '.join(map(told, value))})"
    if hasattr(value, "shape"):
        return f"array {tuple(value.shape)} {checkpoint.digest(plain(value))}"
    text = repr(value)
    return f"{type(value).__module__}.{type(value).__qualname__}" if " at 0x" in text else text


def _named(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}


def _written(value: Any, name: str) -> Any:
    """A number, text or list of them for a file; refused where it is something else."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        raise UnsupportedError(
            f"checkpoint_dir: {name!r} of the optimiser or schedule is a {type(value).__name__}, which cannot be "
            "written to a checkpoint; use an optimiser and a schedule of torch without functions in them"
        ) from None
