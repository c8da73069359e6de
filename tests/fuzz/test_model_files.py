"""Damaged and forged model files: refused by one line of ours when they are loaded, or models that work.

A case is a model file of version 0.1 with bytes flipped, cut or put in, or with its content changed and signed anew.
Accepted: a `CartogradError` of one line from `load`, or a model whose `transform` gives a finite map of new rows, as
many rows as were given and as many columns as the model has components.
"""

from __future__ import annotations

import copy
import os
import random
import signal
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from model_mutants import FOLDER, File, changed, damaged

import cartograd
from cartograd.errors import CartogradError

FAILED_BEFORE: list[int] = []
"""Seeds that have failed once: they are tried in each run."""
RAW, SIGNED = 4000, 3000
SECONDS_A_CASE = 20
FILES = sorted(path for path in FOLDER.glob("*.cartograd") if path.stat().st_size < 100_000)
LONGEST_LINE = 600


class TookTooLongError(BaseException):
    """A case was not over in time."""


def new_rows(file: File) -> Any:
    """Three rows that were not in the fit, as wide as the model's."""
    width = file.header["model"]["state"].get("n_features_in_", 6)
    return numpy.random.RandomState(1).normal(size=(3, width)).astype("float32")


def outcome(path: Path, rows: Any) -> str:
    """What became of a file: "refused" or "works", otherwise what is wrong."""
    try:
        model = cartograd.load(path)
    except CartogradError as error:
        text = str(error)
        fine = "\n" not in text and len(text) <= LONGEST_LINE and text.isprintable()
        return (
            "refused"
            if fine
            else f"an error of {text.count(chr(10)) + 1} lines, {len(text)} characters: {text[:200]!r}"
        )
    except Exception as error:
        return f"load raised {type(error).__name__}: {str(error)[:200]}"
    if getattr(model, "is_fitted_", False) is not True:
        return "works" if not fitted_names(model) else "a model that is fitted and does not know it"
    try:
        places = model.transform(rows)
    except Exception as error:
        return f"transform raised {type(error).__name__}: {str(error)[:200]}"
    return wrong_places(model, numpy.asarray(places, dtype=float), len(rows)) or "works"


def fitted_names(model: Any) -> list[str]:
    return [name for name in ("_placement", "components_", "eigenvectors_") if hasattr(model, name)]


def wrong_places(model: Any, places: Any, count: int) -> str | None:
    """What is wrong with coordinates; None where nothing is."""
    if not numpy.isfinite(places).all():
        return "transform gave NaN or infinity"
    fitted = getattr(model, "embedding_", None)
    columns = numpy.shape(fitted)[1:] if fitted is not None else (len(getattr(model, "components_", ())),)
    return None if places.shape == (count, *columns) else f"transform gave the shape {places.shape}, of {columns}"


def timed(path: Path, rows: Any) -> str:
    def ring(*given: Any) -> None:
        raise TookTooLongError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS_A_CASE)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return outcome(path, rows)
    except TookTooLongError:
        return "took too long"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def tried(seed: int, raw: int, signed: int, folder: Path, keep: Path | None = None) -> Counter[str]:
    """How many mutants of a seed were refused, work, or are wrong in which way."""
    rng, found = random.Random(seed), Counter[str]()
    files = {path: File(path) for path in FILES}
    path = folder / "mutant.cartograd"
    for number in range(raw + signed):
        source = rng.choice(FILES)
        case = random.Random(rng.getrandbits(64))
        mutant = damaged(source.read_bytes(), case) if number < raw else changed(copy.deepcopy(files[source]), case)
        path.write_bytes(mutant)
        said = timed(path, new_rows(files[source]))
        if said not in ("refused", "works"):
            said = f"{source.stem}: {said}"
            if keep is not None:
                (keep / f"{seed}-{number}.cartograd").write_bytes(mutant)
        found[said] += 1
    return found


def check(seed: int, raw: int, signed: int, folder: Path) -> None:
    print(f"seed {seed}")
    found = tried(seed, raw, signed, folder)
    wrong = {said: count for said, count in found.items() if said not in ("refused", "works")}
    assert not wrong, f"seed {seed}: {sum(wrong.values())} of {raw + signed}: {wrong}"
    assert found["refused"] > (raw + signed) / 2
    assert not signed or found["works"] > signed / 20


def fresh_seed() -> int:
    return int(os.environ.get("CARTOGRAD_FUZZ_SEED") or time.time_ns() % 2**32)


def test_the_files_themselves_work(tmp_path):
    for path in FILES:
        file = File(path)
        (tmp_path / path.name).write_bytes(file.signed())
        assert timed(tmp_path / path.name, new_rows(file)) == "works", path.name


def test_mutants(tmp_path):
    check(fresh_seed(), RAW, SIGNED, tmp_path)


@pytest.mark.parametrize("seed", FAILED_BEFORE)
def test_seeds_that_failed_before(seed, tmp_path):
    check(seed, RAW, SIGNED, tmp_path)


@pytest.mark.slow
def test_mutants_for_long(tmp_path):
    check(fresh_seed(), 10 * RAW, 20 * SIGNED, tmp_path)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        began = time.time()
        kept = Path(sys.argv[4]) if len(sys.argv) > 4 else None
        outcomes = tried(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(place), kept)
        print(
            f"{time.time() - began:.0f} s",
            sum(n for said, n in outcomes.items() if said not in ("refused", "works")),
            "wrong",
        )
        for said, count in outcomes.most_common(int(os.environ.get("SHOWN", "60"))):
            print(count, said[:260])
