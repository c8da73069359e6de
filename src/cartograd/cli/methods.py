"""From names to estimators: which methods there are, and their parameters from options."""

from __future__ import annotations

import difflib
import inspect
import itertools
import json
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from cartograd.cli.command import Kind, together
from cartograd.errors import CartogradError

METHODS = {
    "umap": "UMAP",
    "tsne": "TSNE",
    "pacmap": "PACMAP",
    "pca": "PCA",
    "phate": "PHATE",
    "largevis": "LargeVis",
    "infotsne": "InfoTSNE",
    "sne": "SNE",
    "tsnekhorn": "TSNEkhorn",
    "cosne": "COSNE",
    "kernelpca": "KernelPCA",
    "incrementalpca": "IncrementalPCA",
    "exactincrementalpca": "ExactIncrementalPCA",
}
OWN_OPTION = {"random_state": "--seed", "verbose": "--quiet", "device": "--device"}
"""Parameters that `--set` leaves to options."""
DEEPEST = 50
"""A parser of JSON calls itself for each bracket."""


class Method(Kind):
    """The name of a method, in any case, with or without hyphens."""

    name = "METHOD"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name as `METHODS` has it."""
        plain = "".join(letter for letter in str(value).lower() if letter.isalnum())
        if plain in METHODS:
            return plain
        near = difflib.get_close_matches(plain, METHODS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        self.fail(f"there is no method {value!r}{hint} There are {', '.join(METHODS)}.", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Names that begin as what was typed."""
        return [CompletionItem(name) for name in METHODS if name.startswith(incomplete.lower())]


class NumberOrWord(Kind):
    """A number, or a word such as auto."""

    name = "number or auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or the word as it is."""
        if isinstance(value, str) and _depth(value):
            self.fail(f"{value!r} is neither a number nor a word.", param, ctx)
        return value if not isinstance(value, str) else parsed(value)


COMMON: dict[str, tuple[Any, str]] = {
    "n_neighbors": (int, "Neighbours of each row (umap, pacmap, ...)."),
    "perplexity": (float, "The effective number of neighbours (tsne, sne, largevis, ...)."),
    "min_dist": (float, "How close points may lie (umap)."),
    "metric": (str, "How rows are compared: euclidean, cosine, manhattan, ..."),
    "n_components": (int, "Dimensions of the map: 2, or 3 for a map that turns."),
    "max_iter": (int, "Steps of the layout."),
    "lr": (NumberOrWord(), "The learning rate: a number, or auto."),
    "init": (str, "The start: pca, spectral or normal."),
    "backend": (str, "How neighbours are searched: auto, exact, faiss, nndescent, ..."),
}
"""Parameters that have an option of their own; every other one is given by `--set`."""
METAVARS = {str: "NAME", int: "N"}

PARAMETERS = together(
    *(
        click.option(f"--{name.replace('_', '-')}", name, type=kind, metavar=METAVARS.get(kind, "NUMBER"), help=text)
        for name, (kind, text) in COMMON.items()
    ),
    click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="NAME=VALUE",
        help="Any other parameter of the method, as in Python; the value is JSON or a word. May be repeated.",
    ),
)


def parsed(text: str) -> Any:
    """A value of a parameter: JSON where it is, otherwise the text itself.

    Examples
    --------
    >>> parsed("0.5"), parsed("true"), parsed("fft"), parsed('{"momentum": 0.9}')
    (0.5, True, 'fft', {'momentum': 0.9})
    """
    try:
        return json.loads(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text, text)


def make_estimator(method: str, options: dict[str, Any], assignments: Sequence[str], **given: Any) -> Any:
    """The estimator of a method with its parameters, all of them checked; a wrong one is a wrong command.

    Parameters
    ----------
    method : str
        A key of `METHODS`.
    options : dict
        The values of the options of `COMMON`; None for those that were not used.
    assignments : sequence of str
        The values of `--set`.
    **given : Any
        Parameters every method is given that has them: the seed, the device, whether to show progress.
    """
    cls = estimator_class(method)
    known = inspect.signature(cls).parameters
    chosen = {name: options[name] for name in COMMON if options.get(name) is not None}
    for name, value in map(_assigned, assignments):
        if name in chosen:
            raise click.UsageError(f"{name} is given twice.")
        chosen[name] = value
    for name in chosen:
        if name not in known:
            raise click.UsageError(f"{cls.__name__} has no parameter {name!r}. {_listed(name, list(known))}")
    if chosen.get("n_components", known["n_components"].default) is None:
        chosen["n_components"] = 2  # some keep all components otherwise, which is no map
    if given.get("device") not in (None, "auto") and "device" not in known:
        raise click.UsageError(f"{cls.__name__} has no parameter 'device': it computes where the data are.")
    model = cls(**chosen, **{name: value for name, value in given.items() if name in known})
    _check(model)
    return model


def estimator_class(method: str) -> Any:
    """The class of a method."""
    from cartograd import embedding

    try:
        return getattr(embedding, METHODS[method])
    except AttributeError:
        raise click.UsageError(f"the method {method} is not in this version of cartograd.") from None


def _assigned(assignment: str) -> tuple[str, Any]:
    name, equals, value = assignment.partition("=")
    name = name.strip().replace("-", "_")
    if not equals or not name:
        raise click.UsageError(f"--set takes NAME=VALUE, got {assignment!r}.")
    if _depth(value) > DEEPEST:
        raise click.UsageError(f"--set {name}: brackets in a value lie at most {DEEPEST} deep, got {value!r}.")
    if name in OWN_OPTION:
        raise click.UsageError(f"--set {name}: use {OWN_OPTION[name]} for that.")
    return name, parsed(value)


def _depth(text: str) -> int:
    """Return how deep brackets lie in each other; in JSON at least as deep as lists and objects do."""
    steps = ((letter in "[{") - (letter in "]}") for letter in text)
    return max(itertools.accumulate(steps), default=0)


def _listed(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    settable = ", ".join(sorted(set(known) - set(OWN_OPTION)))
    return (f"Did you mean {near[0]!r}? " if near else "") + f"It has: {settable}."


def _check(model: Any) -> None:
    """Let the estimator check its parameters now, before anything is read."""
    check = getattr(model, "check_parameters", None)
    if check is not None:
        try:
            check()
        except CartogradError as error:
            raise click.UsageError(f"{type(model).__name__}: {error}.".replace("..", ".")) from error
