"""Hostile values for every parameter of every estimator: a fit works, or one line of ours says what is wrong.

A case is an estimator, one of its parameters and a value. The value is given to the constructor, rows are fitted, and
20 new rows are placed. Accepted outcomes: a finite map of the right shape, or a `CartogradError` of one line that names
the parameter, before any work. `python tests/fuzz/test_parameters.py` tries all cases and prints a table.
"""

from __future__ import annotations

import inspect
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from numpy.testing import assert_array_equal

import cartograd
from cartograd.embedding import EncoderTraining

X = numpy.random.RandomState(0).rand(40, 4).astype("float32")
NEW = numpy.random.RandomState(1).rand(20, 4).astype("float32")
SHORT = {
    "UMAP": {"max_iter": 3, "n_neighbors": 5},
    "LargeVis": {"max_iter": 3, "perplexity": 5},
    "InfoTSNE": {"max_iter": 3, "perplexity": 5, "n_negatives": 4},
    "SNE": {"max_iter": 3, "perplexity": 5},
    "TSNE": {"max_iter": 3, "perplexity": 5},
    "TSNEkhorn": {"max_iter": 2, "perplexity": 5},
    "COSNE": {"max_iter": 2, "perplexity": 5},
    "PACMAP": {"max_iter": 3, "n_neighbors": 4},
    "PHATE": {"max_iter": 3, "t": 3},
    "PCA": {},
    "IncrementalPCA": {"n_components": 2},
    "ExactIncrementalPCA": {},
    "KernelPCA": {},
}


CASES, MOST_BYTES = 4000, 1 << 29
FAILED_BEFORE: list[int] = []
"""Seeds that have failed once: they are tried in each run."""
LIMITED = "UMAP LargeVis InfoTSNE SNE TSNE TSNEkhorn COSNE PACMAP PHATE".split()
OTHER_NAMES = {"learning_rate": "lr", "early_exaggeration": "early_exaggeration_coeff", "metric_in": "metric"}
"""Names by which messages may speak of a parameter."""


class Refuses:
    """An object whose text, truth, length and comparisons all raise, with texts of many lines."""

    def _raise(self, *args: Any) -> Any:
        raise RuntimeError("first line\nsecond line")

    __repr__ = __str__ = __bool__ = __len__ = __eq__ = __lt__ = __float__ = __int__ = __index__ = __array__ = _raise
    __hash__ = object.__hash__


class LongText(str):
    """A text whose `repr` has many lines."""

    def __repr__(self) -> str:
        return "long\n" * 100


VALUES: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "False": lambda: False,
    "0": lambda: 0,
    "-1": lambda: -1,
    "1": lambda: 1,
    "2": lambda: 2,
    "10**9": lambda: 10**9,
    "2**63": lambda: 2**63,
    "10**400": lambda: 10**400,
    "-10**400": lambda: -(10**400),
    "0.0": lambda: 0.0,
    "-0.5": lambda: -0.5,
    "0.5": lambda: 0.5,
    "1e30": lambda: 1e30,
    "1e-30": lambda: 1e-30,
    "1e300": lambda: 1e300,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "-inf": lambda: float("-inf"),
    "complex": lambda: 1 + 2j,
    "Fraction": lambda: Fraction(1, 3),
    "Decimal": lambda: Decimal("1e50"),
    "numpy int": lambda: numpy.int64(3),
    "numpy float": lambda: numpy.float32(0.7),
    "numpy bool": lambda: numpy.bool_(True),
    "0-d array": lambda: numpy.array(3),
    "array": lambda: numpy.arange(6.0).reshape(2, 3),
    "empty array": lambda: numpy.empty((0, 2)),
    "object array": lambda: numpy.array([[1], [2, 3]], dtype=object),
    "tensor": lambda: torch.arange(6.0).reshape(3, 2),
    "0-d tensor": lambda: torch.tensor(2),
    "our tensor": lambda: cartograd.tensor([1.0, 2.0], requires_grad=True),
    "empty text": lambda: "",
    "unknown text": lambda: "nonsense",
    "number as text": lambda: "3",
    "auto": lambda: "auto",
    "NUL": lambda: "a\0b",
    "surrogate": lambda: "a\udc80",
    "lines": lambda: "first\nsecond\nthird",
    "long text": lambda: "x" * 5000,
    "long name": lambda: "y" * 256,
    "odd text": lambda: LongText("odd"),
    "bytes": lambda: b"bytes\0",
    "path": lambda: Path("/proc/nothing/here"),
    "list": lambda: [1, 2],
    "deep list": lambda: [[[[]]], [1, [2, [3]]]],
    "long list": lambda: list(range(10_000)),
    "tuple": lambda: (1, 2),
    "pair of arrays": lambda: (numpy.zeros((40, 3)), numpy.zeros((40, 3))),
    "triple": lambda: (1, 2, 3),
    "negative sizes": lambda: (-1, 0),
    "huge sizes": lambda: (10**9, 10**9),
    "dict": lambda: {"a": 1},
    "dict of 1": lambda: {1: 2},
    "lr dict": lambda: {"lr": "x", "momentum": float("nan")},
    "wrong momentum": lambda: {"momentum": -1.0},
    "set": lambda: {1, 2},
    "generator": lambda: (i for i in range(3)),
    "range": lambda: range(3),
    "object": object,
    "class": lambda: dict,
    "function": lambda: lambda *args, **kwargs: 1 / 0,
    "function of none": lambda: lambda: None,
    "function of nan": lambda: lambda *args: float("nan"),
    "module": lambda: torch.nn.Linear(3, 3),
    "optimizer class": lambda: torch.optim.SGD,
    "LBFGS": lambda: "LBFGS",
    "SparseAdam": lambda: "SparseAdam",
    "Optimizer": lambda: "Optimizer",
    "LambdaLR": lambda: "LambdaLR",
    "ReduceLROnPlateau": lambda: "ReduceLROnPlateau",
    "LRScheduler": lambda: "LRScheduler",
    "precomputed": lambda: "precomputed",
    "meta device": lambda: "meta",
    "cuda device": lambda: "cuda:77",
    "mps device": lambda: "mps",
    "device": lambda: torch.device("cpu"),
    "dtype": lambda: torch.float16,
    "ellipsis": lambda: ...,
    "NotImplemented": lambda: NotImplemented,
    "datetime": lambda: numpy.datetime64("2020-01-01"),
    "refuses": Refuses,
    "training": lambda: EncoderTraining(learning_rate=float("nan")),
    "callbacks": lambda: [lambda *args: "x" * 3],
    "callbacks of two": lambda: [lambda a, b: None],
}


class Hung(Exception):
    """A case took longer than its time."""


def parameters(name: str) -> list[str]:
    """Return the constructor parameters of an estimator."""
    return list(inspect.signature(getattr(cartograd, name)).parameters)


def all_cases() -> list[tuple[str, str, str]]:
    """Return every (estimator, parameter, value's name)."""
    cases = [(name, parameter, value) for name in SHORT for parameter in parameters(name) for value in VALUES]
    return [case for case in cases if case[1:] != ("compile", "True")]  # torch's compiler takes its time


def outcome(case: tuple[str, str, str], seconds: int = 20) -> tuple[str, str]:
    """Run a case; return "works", "refused", or what is wrong with it, and the details."""

    def stop(*args: Any) -> Any:
        raise Hung

    name, parameter, value = case
    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.alarm(seconds)
        found = _outcome(name, parameter, VALUES[value]())
        signal.alarm(0)
    except Hung:
        return "hangs", f"more than {seconds} s"
    finally:
        signal.signal(signal.SIGALRM, before)
    return found


def _outcome(name: str, parameter: str, value: Any) -> tuple[str, str]:
    limit = {"timeout": 2.0} if name in LIMITED else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = getattr(cartograd, name)(**{**SHORT[name], **limit, "random_state": 0, parameter: value})
            found = model.fit_transform(X)
            placed = model.transform(NEW)
    except cartograd.CartogradError as error:
        text = str(error)
        if "\n" in text or len(text) > 600:
            return "many lines", f"{type(error).__name__}: {text[:200]!r}"
        names = (parameter, OTHER_NAMES.get(parameter, parameter))
        return ("refused" if any(one in text for one in names) else "unnamed"), text
    except Hung:
        raise
    except ZeroDivisionError as error:  # of the functions among the values: a user's error is shown as it is
        return "refused", str(error)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return "foreign error", f"{type(error).__name__}: {str(error)[:150]!r} in {last.filename}:{last.lineno}"
    values = [numpy.asarray(getattr(one, "data", one), dtype=float) for one in (found, placed)]
    if not all(numpy.isfinite(one).all() for one in values):
        return "not finite", ""
    right = values[0].shape[0] == len(X) and values[1].shape == (len(NEW), values[0].shape[1])
    return ("works", "") if right else ("wrong shape", str([one.shape for one in values]))


def sampled(count: int, seed: int) -> Iterator[tuple[str, str, str]]:
    """Yield cases in an order that the seed decides, the same share of each estimator."""
    cases = all_cases()
    random.Random(seed).shuffle(cases)
    yield from cases[:count]


def peak_bytes() -> int:
    """Return the most memory that this process has held."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) * 1024


def check(count: int, seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Try cases of a seed; assert that each works or is refused, and that nothing large is allocated."""
    print(f"seed {seed}")
    monkeypatch.chdir(folder)  # checkpoints go there
    outcome(("UMAP", "n_neighbors", "2"))
    before = peak_bytes()
    bad = [(*case, *found) for case in sampled(count, seed) if (found := outcome(case))[0] not in ("works", "refused")]
    assert not bad, f"seed {seed}: {len(bad)} of {count}, the first: {bad[0]}"
    assert peak_bytes() - before < MOST_BYTES


def fresh_seed() -> int:
    """Return a new seed, or that of CARTOGRAD_FUZZ_SEED."""
    return int(os.environ.get("CARTOGRAD_FUZZ_SEED") or time.time_ns() % 2**32)


@pytest.mark.timeout(900)
def test_hostile_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(CASES, fresh_seed(), tmp_path, monkeypatch)


@pytest.mark.parametrize("seed", FAILED_BEFORE)
def test_seeds_that_failed_before(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(1000, seed, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(len(all_cases()), 0, tmp_path, monkeypatch)


def test_a_refused_value_leaves_a_fitted_model_as_it_was() -> None:
    model = cartograd.UMAP(**SHORT["UMAP"], random_state=0).fit(X)
    before = model.transform(NEW)
    with pytest.raises(cartograd.CartogradError, match="n_neighbors must be a whole number"):
        model.set_params(n_neighbors="many").fit(X)
    assert_array_equal(model.transform(NEW), before)


def main(only: str = "", parameter: str = "") -> None:
    """Try all cases, print the bad ones and the counts."""
    counts: Counter[str] = Counter()
    begun = time.perf_counter()
    for case in all_cases():
        if (only and case[0] not in only.split(",")) or (parameter and case[1] != parameter):
            continue
        kind, details = outcome(case, 5)
        counts[kind] += 1
        if kind not in ("works", "refused"):
            print(kind, *case, details, sep=" | ", flush=True)
    print(f"{sum(counts.values())} cases in {time.perf_counter() - begun:.0f} s:", dict(counts))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        main(*sys.argv[1:])
