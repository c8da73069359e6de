"""Fuzzing led by coverage, with atheris: `python tests/fuzz/coverage_guided.py TARGET [SECONDS] [OPTIONS]`.

A target is one of `TARGETS`; options are those of libFuzzer. Each begins with whole files, which atheris changes; it
goes on with those that reach new code, and stops at the first error that is none of ours, keeping the file. Install
atheris with pip; it needs Linux or macOS, and a version of Python that it is built for.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

SECONDS = 300
LARGEST_FILE = 65_536
SECONDS_A_CASE = 25
MEGABYTES = 4096


def tables(folder: Path) -> tuple[list[bytes], Callable[[bytes], None]]:
    """Return whole tables, and a function that reads one: the first byte is the format."""
    from table_mutants import whole_files

    from cartograd.errors import CartogradError
    from cartograd.io import Table, read

    whole = {
        suffix: data for suffix, data in whole_files(folder).items() if suffix not in ("h5ad", "png", "jpg", "tiff")
    }
    suffixes = list(whole)

    def try_one(data: bytes) -> None:
        path = folder / f"case.{suffixes[data[0] % len(suffixes)]}"
        path.write_bytes(data[1:])
        try:
            assert isinstance(read(path, missing="zero"), Table)
        except CartogradError as error:
            if "\n" in str(error):
                raise RuntimeError("an error of many lines") from error

    return [bytes([place]) + data for place, data in enumerate(whole.values())], try_one


def models(folder: Path) -> tuple[list[bytes], Callable[[bytes], None]]:
    """Return headers of model files, and a function that signs one anew, loads it and places rows.

    The first byte says whose tensors go with it.
    """
    import copy
    import json

    import numpy
    from model_mutants import File
    from sklearn.exceptions import NotFittedError
    from test_model_files import FILES, new_rows

    from cartograd import load
    from cartograd.errors import CartogradError

    files = [File(path) for path in FILES]

    def try_one(data: bytes) -> None:
        file = copy.copy(files[data[0] % len(files)])
        rows = new_rows(file)
        try:
            file.header = json.loads(data[1:])
        except ValueError:
            return
        if not isinstance(file.header, dict):
            return
        (folder / "case.cartograd").write_bytes(file.signed())
        try:
            placed = load(folder / "case.cartograd").transform(rows)
            assert numpy.isfinite(numpy.asarray(placed)).all()
        except NotFittedError:  # one of the files holds an estimator that was never fitted
            return
        except CartogradError as error:
            if "\n" in str(error):
                raise RuntimeError("an error of many lines") from error

    headers = [json.dumps(file.header).encode() for file in files]
    return [bytes([place]) + header for place, header in enumerate(headers)], try_one


TARGETS: dict[str, Callable[[Path], tuple[list[bytes], Callable[[bytes], None]]]] = {"tables": tables, "models": models}
"""Functions of a folder that return whole inputs, and a function that tries one."""


def main(target: str, seconds: str = str(SECONDS), *options: str) -> None:
    """Fuzz a target until the time is over or an input fails."""
    import atheris

    importlib.import_module("cartograd.embedding")
    with atheris.instrument_imports(include=["cartograd.io", "cartograd.core"], enable_loader_override=False):
        importlib.import_module("cartograd.io")
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder, corpus = Path(name), Path(name, "corpus")
        corpus.mkdir()
        whole, try_one = TARGETS[target](folder)
        for place, data in enumerate(whole):
            (corpus / str(place)).write_bytes(data)
        limits = [f"-max_total_time={seconds}", f"-max_len={LARGEST_FILE}", f"-timeout={SECONDS_A_CASE}"]
        limits += [f"-rss_limit_mb={MEGABYTES}", f"-artifact_prefix={target}-"]
        atheris.Setup([sys.argv[0], *limits, *options, str(corpus)], lambda data: try_one(data) if data else None)
        atheris.Fuzz()


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"usage: python {sys.argv[0]} TARGET [SECONDS] [OPTIONS]; targets are {', '.join(TARGETS)}")
    sys.path.insert(0, str(Path(__file__).parent))
    main(*sys.argv[1:])
