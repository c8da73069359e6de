"""Thousands of damaged and hostile tables: each is read, or refused by one of our errors in one line.

Another process reads them, so that a library that crashes, never ends or takes gigabytes is seen. A new seed is printed
in each run; ``CARTOGRAD_FUZZ_SEED`` sets it. `python tests/fuzz/test_tables.py SEED COUNT [SUFFIX]` tries one seed.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import pytest

for package in ("pyarrow", "anndata", "PIL"):
    pytest.importorskip(package)

FAILED_BEFORE = [2406775789]
"""Seeds that have failed once: they are tried in each run."""
EACH = 150
"""Cases of each format."""
FEWER = {"h5ad": 10}
"""Cases of each format that a process of its own reads."""
IMAGES = ("png", "jpg", "tiff")
SECONDS_A_CASE = 20
MOST_MEMORY = 3 * 2**30
"""Bytes that reading a file of a few kilobytes may take."""
LONGEST_LINE = 1200


class Hung(BaseException):
    """A case took longer than its time."""


def outcome(source, options):
    """None where a file was read or refused as documented; otherwise what is wrong."""
    import numpy

    from cartograd.errors import CartogradError
    from cartograd.io import Table, read

    def ring(*given):
        raise Hung

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS_A_CASE)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            table = read(source, **options)
    except CartogradError as error:
        text = str(error)
        wrong = "\n" in text or "\r" in text or not text or len(text) > LONGEST_LINE
        return f"{len(text)} characters or many lines: {text[:200]!r}" if wrong else None
    except Hung:
        return f"more than {SECONDS_A_CASE} s"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]!r}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert isinstance(table, Table)
    lengths = {len(column) for column in (table.X, table.ids, table.rows, *table.columns.values())}
    if not numpy.isfinite(table.X).all() or lengths != {len(table)}:
        return f"a table that is none: {table!r}, {lengths}"
    return None


def check_whole(files, folder):
    """Refuse to go on where a whole file is not read: nothing would be tried then."""
    from cartograd.io import read

    for suffix, whole in files.items():
        if suffix not in IMAGES:
            (folder / f"whole.{suffix}").write_bytes(whole)
            assert len(read(folder / f"whole.{suffix}", missing="zero")) == 30, suffix


def tried(seed, count, only="", at="last"):
    """Try the cases of a seed in this process; yield (suffix, place, what is wrong). `at` names the case under way."""
    from table_mutants import case, whole_files

    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as name:
        folder = Path(name)
        files = whole_files(folder)
        check_whole(files, folder)
        images = folder / "images"
        images.mkdir()
        for suffix, whole in files.items():
            few = FEWER.get(suffix, EACH) * count // EACH
            for place in range(few if not only else count) if only in ("", suffix) else ():
                data, options = case(seed, suffix, place, whole, list(files.values()))
                image = suffix in IMAGES
                path = (images if image else folder) / f"case.{suffix}"
                path.write_bytes(data)
                Path(at).write_text(f"{suffix} {place}")
                wrong = outcome(images if image else path, options)
                path.unlink()
                if wrong:
                    yield suffix, place, f"{wrong} {options}"


def limit_memory():
    """Let this process take only so much more memory."""
    try:
        import resource

        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + MOST_MEMORY, resource.RLIM_INFINITY))
    except (ImportError, OSError):  # not on this system
        return


def main(seed, count, only="", at="last"):
    """Print what failed, one JSON list a line."""
    import pandas
    import polars
    import pyarrow.parquet

    import cartograd.io
    from cartograd.io import h5ad

    assert all((pandas, polars, pyarrow, cartograd.io))
    h5ad.PATIENCE = 5.0  # on some damaged files the HDF5 library never ends
    limit_memory()
    warnings.simplefilter("ignore")
    for found in tried(seed, count, only, at):
        print(json.dumps(found), flush=True)
    print(json.dumps("done"), flush=True)


def check(seed, count, folder):
    """Try a seed in a process of its own, and name the cases that failed."""
    print(f"seed {seed}")
    at = folder / "at"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    command = [sys.executable, __file__, str(seed), str(count), "", str(at)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60 + count, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[-1:] == ["done"], f"seed {seed}: ended at {at.read_text()}, {done.returncode}: {done.stderr[-500:]}"
    assert not lines[:-1], f"seed {seed}: {len(lines) - 1} cases fail, the first: {lines[0]}"


def fresh_seed():
    return int(os.environ.get("CARTOGRAD_FUZZ_SEED") or time.time_ns() % 2**32)


def test_damaged_tables(tmp_path):
    check(fresh_seed(), EACH, tmp_path)


@pytest.mark.parametrize("seed", FAILED_BEFORE)
def test_seeds_that_failed_before(tmp_path, seed):
    check(seed, EACH, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_damaged_tables_for_long(tmp_path):
    check(fresh_seed(), 10 * EACH, tmp_path)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
