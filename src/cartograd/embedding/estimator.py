"""What every estimator shares: scikit-learn's contract, input of any kind, output of the same kind.

Parameters are the fields of a dataclass: its constructor stores them untouched, lists them in its signature, and
refuses keywords it does not know. A subclass changes a default by declaring the field again.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Concatenate, ParamSpec, TypeVar, dataclass_transform

import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from cartograd.embedding.unknown_arguments import refuse_unknown
from cartograd.errors import InputError, UnsupportedError
from cartograd.neighbors import validate
from cartograd.neighbors.default_device import device_or_default
from cartograd.neighbors.intake import Given, intake
from cartograd.neighbors.tiles import tile_rows
from cartograd.neighbors.workers import limit_threads

Own = TypeVar("Own")
Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")
ROOM = 8.0
"""Values may be as large as the largest number over this and the root of the width: distances then have one, too."""


PLACING = (
    "n_components n_neighbors n_negatives negative_sample_rate repulsion_strength local_connectivity lr learning_rate "
    "metric metric_in backend gamma learning_rate_for_h_loss encoder decoder affinity_in affinity"
).split()
"""Parameters that decide where new rows are placed."""


@dataclass_transform(eq_default=False)
def estimator(cls: type[Own]) -> type[Own]:
    """Make a class a dataclass whose constructor says what to write instead of an unknown argument."""
    made = dataclass(eq=False, repr=False)(cls)
    construct = made.__init__
    signature = inspect.signature(construct)

    @functools.wraps(construct)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        refuse_unknown(type(self).__name__, signature, args, kwargs)
        construct(self, *args, **kwargs)

    setattr(made, "__init__", __init__)  # noqa: B010  (a type checker sees the dataclass's own)
    return made


def loses_nothing(
    fit: Callable[Concatenate[Own, Arguments], Answer],
) -> Callable[Concatenate[Own, Arguments], Answer]:
    """Make a method that fits leave the estimator as it was where it fails: what was fitted before stays in use."""

    @functools.wraps(fit)
    def careful(self: Own, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        before = dict(vars(self))
        try:
            return fit(self, *args, **kwargs)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return careful


@dataclass(eq=False, repr=False, kw_only=True)
class Estimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """The base of all estimators.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions of the map.
    device : torch.device or str, default="auto"
        Where to compute; "auto" for the device that the environment variable CARTOGRAD_DEVICE names, or else where the
        data are, or, for a map of more than 20,000 rows in the memory of the CPU, a GPU where there is one.
    verbose : bool, default=False
        Whether to show progress bars, where standard error is a terminal.
    random_state : int, numpy.random.RandomState or numpy.random.Generator, default=None
        Seed of all that is random; None for a fixed one. The same seed gives the same bits at any thread count.
    n_jobs : int, default=None
        Threads of this estimator's work on a CPU: None for as many as torch uses, -1 for all cores, -2 for all but one.
        The map does not depend on their number.
    precision : str, default="float32"
        The precision in which points are moved: "float32", or "float64" for everything. Neighbors are searched in the
        precision of the rows, and the map has the dtype of the rows, either way.
    """

    n_components: int = 2
    device: Any = "auto"
    verbose: bool = False
    random_state: Any = None
    n_jobs: int | None = None
    precision: str = "float32"

    def check_parameters(self) -> None:
        """Raise where a parameter has a value that it cannot have; fits do so before any work.

        Raises
        ------
        OptionError
            Of a value; a ValueError.
        UnsupportedError
            Of a type; a TypeError.
        """
        from cartograd.embedding.parameters import constraint_of  # which imports the estimators' parts

        for one in fields(self):
            if one.init:
                constraint = constraint_of(type(self), one.name)
                if constraint is not None:
                    constraint.check(getattr(self, one.name), one.name)
        self._check_together()

    def _check_together(self) -> None:
        """Raise where parameters do not fit each other."""

    def _keep_parameters(self) -> None:
        """Keep the parameters that place new rows as they are at the end of a fit."""
        self._fitted_with = {name: getattr(self, name) for name in PLACING if hasattr(self, name)}

    def _as_fitted(self) -> Any:
        """Return this estimator with the parameters that it was fitted with, whatever `set_params` did since."""
        fitted = copy.copy(self)
        fitted.__dict__.update(getattr(self, "_fitted_with", {}))
        return fitted

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        """Use the threads that `n_jobs` allows."""
        with limit_threads(self.n_jobs):
            yield

    def _read(self, X: Any, *, reset: bool) -> Given:
        """X as rows, checked: shape, kind of numbers, NaN and infinity; with `reset` its columns are remembered."""
        given = intake(X, "X", self._device(reset))
        if not reset:
            self._check_width(given)
        if given.sparse is None:
            largest = validate.scan(given.rows, "X", tile_rows(given.rows.width))
        else:
            largest = validate.scan_sparse(given.sparse, "X")
        _check_range(given, largest)
        self._check_names(X, reset)
        if reset:
            self.n_features_in_ = given.rows.width
            self.n_samples_in_ = given.rows.count
        return given

    def _device(self, reset: bool) -> Any:
        """Where to compute: with a fitted map, where its points are; None for where the data are."""
        if not reset and hasattr(self, "_placement"):
            return self._placement.places.device
        return device_or_default(self.device)

    def _check_names(self, X: Any, reset: bool) -> None:
        """The names of the columns of a frame: remembered with `reset`, otherwise compared."""
        try:
            _check_feature_names(self, X, reset=reset)
        except TypeError as error:
            raise UnsupportedError(str(error)) from None
        except ValueError as error:
            raise InputError(str(error)) from None

    def save(self, path: Any) -> None:
        """Write the model to one file, without pickle; `cartograd.load` reads it.

        Parameters
        ----------
        path : str or path
            The file; what is there before stays as it is until the new one is whole.
        """
        importlib.import_module("cartograd.io").save_model(self, path)  # a model offers it, files are made above it

    def _check_width(self, given: Given) -> None:
        check_is_fitted(self)
        if given.rows.width != self.n_features_in_:
            raise InputError(
                f"X has {given.rows.width} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input; give the columns it was fitted with, in the same order"
            )

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1]) if hasattr(self, "embedding_") else self.n_components

    def __sklearn_is_fitted__(self) -> bool:
        return getattr(self, "is_fitted_", False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _check_range(given: Given, largest: float) -> None:
    """Refuse values whose differences cannot be told in the precision of the data."""
    dtype = given.rows.dtype
    if largest > torch.finfo(dtype).max / ROOM / math.sqrt(given.rows.width):
        advice = "scale them down, or give float64" if dtype == torch.float32 else "scale them down"
        raise InputError(
            f"X holds values as large as {largest:.3g}, whose distances leave the range of {str(dtype)[6:]}; {advice}"
        )


def at_least_two_rows(given: Given, what: str) -> None:
    """Refuse a single row: there is nothing to compare it with."""
    if given.rows.count < 2:
        raise InputError(f"{what} needs at least 2 rows, got 1 sample (shape={(given.rows.count, given.rows.width)})")


def detached(values: torch.Tensor, given: Given) -> Any:
    """`values` in the precision and of the kind of the data given, without history."""
    return given.answer(values.detach().to(given.rows.dtype))


def in_range(values: torch.Tensor, given: Given) -> torch.Tensor:
    """`values`, refused where they have no number in the precision of the data given."""
    largest, dtype = float(values.abs().max()), given.rows.dtype
    if not largest <= torch.finfo(dtype).max:
        raise InputError(
            f"the answer holds values as large as {largest:.3g}, beyond the range of {str(dtype)[6:]}; give the rows "
            "in float64, or scaled down"
        )
    return values
