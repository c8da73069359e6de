"""Maps on a CPU against umap-learn, openTSNE and pacmap: seconds, memory and quality, one line a claim.

    python benchmarks/cpu.py [--rows NAME ...] [--quick] [--seeds 3] [--data FOLDER]
    python benchmarks/cpu.py --scaling [--largest 1000000]

Prints `claim, ours, peer, ratio, target`, and below each fit the quality of both: trustworthiness@15, recall@15, 10-NN
label accuracy, random triplets (and for t-SNE the divergence, of the same P). The ratio is how many times ours goes
into the peer's. Every contestant runs in a process of its own, in turns, `--seeds` times, and figures are medians. Fits
are warm: a fit of 5,000 rows before lets compilers finish (ours of 17,000 where the fit has more than 16,000, from
which on it searches by other kernels; the peers' are the same from 5,000 on). With one thread CPU seconds are compared,
with two the wall clock, which means something only on a machine that is otherwise idle: the load is printed with each
line.

`--quick` runs what takes seconds, once. Settings are umap-learn's: 15 neighbours, min_dist 0.1, and as many epochs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("CARTOGRAD_DATA", HERE.parents[1] / "shared" / "data"))
OURS = "cartograd.UMAP(n_neighbors=15, min_dist=0.1, max_iter={epochs}, random_state={seed})"
UMAP = "umap.UMAP(n_neighbors=15, min_dist=0.1, n_epochs={epochs})"
UMAP_FIXED = "umap.UMAP(n_neighbors=15, min_dist=0.1, n_epochs={epochs}, random_state={seed})"
TSNE = "cartograd.TSNE(perplexity=30, max_iter=750, random_state={seed})"
OPENTSNE = "openTSNE.sklearn.TSNE(perplexity=30, negative_gradient_method='fft', n_jobs={threads}, random_state={seed})"
PACMAP = ("cartograd.PACMAP(random_state={seed})", "pacmap.PaCMAP(random_state={seed})")
TYPED = {
    "UMAP": ("cartograd.UMAP()", "umap.UMAP()"),
    "TSNE": ("cartograd.TSNE()", "openTSNE.sklearn.TSNE()"),
}
SIZES = (10_000, 30_000, 70_000, 200_000, 1_000_000)
CELLS_FROM = 16_000
"""Above so many rows ours searches by cells, with kernels that a fit of fewer does not load."""
SCORES = {"trust": "trustworthiness", "recall": "recall@15", "label": "labels", "triplets": "triplets", "kl": "KL"}


@dataclass(frozen=True)
class Row:
    """One claim.

    Parameters
    ----------
    claim : str
        What is compared.
    ours, peer : str
        Expressions that make the estimators, or statements for `import`.
    target : str
        What must be reached: the least ratio, or the most of ours as "< 6 s".
    task, data, rows, threads, epochs, warm, unit
        See `_child.py`; `unit` is the figure compared.
    kl : float
        The perplexity of the divergence that is computed; 0 for none.
    """

    claim: str
    ours: str
    peer: str
    target: str
    task: str = "fit"
    data: str = "fashion"
    rows: int = 10_000
    threads: int = 1
    epochs: int = 500
    warm: bool = True
    unit: str = "cpu"
    kl: float = 0.0
    quick: bool = False
    more: dict[str, Any] = field(default_factory=dict)


def fits(name: str, ours: str, peer: str, target: str, rows: int, threads: int, **more: Any) -> Row:
    """A row of a whole fit; with two threads the wall clock counts."""
    said = f"{name}, {rows:,} x 784, {threads} thread{'s' if threads > 1 else ''}"
    epochs = 500 if rows <= 10_000 else 200
    unit = "cpu" if threads == 1 else "wall"
    if rows > CELLS_FROM:
        more["more"] = {"warm_rows": CELLS_FROM + 1_000}
    return Row(said, ours, peer, target, rows=rows, threads=threads, epochs=epochs, unit=unit, **more)


IMPORTS = {"task": "import", "warm": False, "unit": "wall", "quick": True}
ROWS = {
    "umap-10k": fits("UMAP fit", OURS, UMAP, "3", 10_000, 1),
    "umap-10k-2": fits("UMAP fit", OURS, UMAP, "3", 10_000, 2),
    "umap-70k": fits("UMAP fit", OURS, UMAP, "3", 70_000, 1),
    "umap-70k-2": fits("UMAP fit", OURS, UMAP, "3", 70_000, 2),
    "seeded-10k-2": fits("UMAP fit, both with random_state", OURS, UMAP_FIXED, "5", 10_000, 2),
    "seeded-70k-2": fits("UMAP fit, both with random_state", OURS, UMAP_FIXED, "5", 70_000, 2),
    "tsne-10k": fits("TSNE fit", TSNE, OPENTSNE, "2", 10_000, 1, kl=30.0),
    "tsne-70k": fits("TSNE fit", TSNE, OPENTSNE, "2", 70_000, 1, kl=30.0),
    "pacmap-10k": fits("PACMAP fit", *PACMAP, "", 10_000, 1),
    "pacmap-70k": fits("PACMAP fit", *PACMAP, "1.5", 70_000, 1),
    "typed-umap-10k": fits("UMAP() as typed", *TYPED["UMAP"], "4", 10_000, 1),
    "typed-umap-70k": fits("UMAP() as typed", *TYPED["UMAP"], "7", 70_000, 1),
    "typed-tsne-10k": fits("TSNE() as typed", *TYPED["TSNE"], "3", 10_000, 1, kl=30.0),
    "import": Row("import cartograd | import umap", "import cartograd", "import umap", "5", **IMPORTS),
    "import-after-torch": Row(
        "import cartograd, torch there before",
        "import cartograd, cartograd.engine",
        "import umap",
        "< 0.5 s",
        more={"before": ["torch"]},
        **IMPORTS,
    ),
    "import-umap": Row(
        "from cartograd import UMAP | from umap import UMAP",
        "from cartograd import UMAP",
        "from umap import UMAP",
        "",
        **IMPORTS,
    ),
    "first-digits": Row(
        "very first fit, nothing compiled, 1,797 digits, whole process",
        "cartograd.UMAP()",
        "umap.UMAP()",
        "< 6 s",
        task="first",
        data="digits",
        threads=2,
        warm=False,
        unit="wall",
        quick=True,
    ),
    "new-process": Row(
        "first fit of a new process, kernels on disk, 10,000 x 784",
        OURS,
        UMAP,
        "5",
        task="cached",
        threads=2,
        warm=False,
        unit="wall",
    ),
    "memory-70k": Row("peak of a fit, 70,000 x 784", OURS, UMAP, "1", rows=70_000, epochs=200, warm=False, unit="peak"),
    "transform-10k": Row(
        "transform, 10,000 new rows into a map of 60,000",
        OURS,
        UMAP,
        "3",
        task="transform",
        rows=70_000,
        epochs=200,
        warm=False,
        more={"first": 60_000},
    ),
}
LINE = "{:<62} {:>9} {:>9}  {:<4} {:>6}  {:<7} {:<7} {}"


def job_of(row: Row, side: str, seed: int, folder: Path, out: str) -> dict[str, Any]:
    """What the child is to do."""
    make = getattr(row, side).format(epochs=row.epochs, seed=seed, threads=row.threads)
    task = row.task if row.task in ("import", "transform") else "fit"
    job = {"make": make, "code": make, "task": task, "data": row.data, "rows": row.rows, "threads": row.threads}
    return job | {"warm": row.warm, "folder": str(folder), "out": out} | (row.more if side == "ours" else {})


def child(script: str, job: dict[str, Any], threads: int, environment: dict[str, str]) -> Any:
    """What a script of ours prints, in a process of its own; with the seconds of the whole process."""
    names = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    limits = {name: str(threads) for name in names} | {"OMP_WAIT_POLICY": "passive"}
    before, start = os.times(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, str(HERE / script), json.dumps(job)],
        capture_output=True,
        text=True,
        env={**os.environ, **limits, **environment},
    )
    if done.returncode:
        raise RuntimeError(f"{job.get('make', script)}: {done.stderr.strip().splitlines()[-1:]}")
    wall, after = time.perf_counter() - start, os.times()
    whole = {"cpu": sum(after[2:4]) - sum(before[2:4]), "wall": wall}
    return json.loads(done.stdout.strip().splitlines()[-1]), whole


def measured(row: Row, side: str, seed: int, folder: Path, out: str) -> dict[str, float]:
    """The figures of one contestant."""
    job = job_of(row, side, seed, folder, out)
    with tempfile.TemporaryDirectory() as empty:
        environment = {"NUMBA_CACHE_DIR": empty} if row.task in ("first", "cached") else {}
        found, whole = child("_child.py", job, row.threads, environment)
        if row.task == "cached":  # the second process finds what the first one left
            found, whole = child("_child.py", job, row.threads, environment)
    return found | whole if row.task in ("first", "cached") else found


def compare(name: str, row: Row, seeds: int, folder: Path) -> None:
    """Run a claim, ours and the peer in turns, and print its lines."""
    figures: dict[str, list[dict[str, float]]] = {"ours": [], "peer": []}
    with tempfile.TemporaryDirectory() as kept:
        for seed in range(seeds):
            for side, runs in figures.items():
                runs.append(measured(row, side, seed, folder, str(Path(kept) / f"{side}{seed}.npy")))
        print(*lines(name, row, figures), sep="\n", flush=True)
        if row.data == "fashion" and row.task != "import":
            quality(row, folder, kept, seeds)


def lines(name: str, row: Row, figures: dict[str, list[dict[str, float]]]) -> list[str]:
    """The line of the claim, and the other clock beside it."""
    middle = {
        side: {key: statistics.median(run[key] for run in runs) for key in runs[0]} for side, runs in figures.items()
    }
    ours, peer = middle["ours"][row.unit], middle["peer"][row.unit]
    unit = "MiB" if row.unit == "peak" else "s"
    limit = float(row.target.strip("< s")) if row.target else 0.0
    missed = ours >= limit if row.target.startswith("<") else peer / ours < limit
    verdict = "" if not row.target else "MISSED" if missed else "reached"
    claim = f"{row.claim} ({row.unit})"
    said = [LINE.format(claim, f"{ours:.2f}", f"{peer:.2f}", unit, f"{peer / ours:.2f}", row.target, verdict, name)]
    other = "wall" if row.unit == "cpu" else "cpu"
    clock = ", ".join(f"{side} {middle[side][other]:.2f} s" for side in middle)
    epochs = "" if "{epochs}" not in row.ours else f"; {row.epochs} epochs each"
    load = max(run["load"] for runs in figures.values() for run in runs)
    return [*said, f"    {other}: {clock}; load {load:.1f}{epochs}"]


def quality(row: Row, folder: Path, kept: str, seeds: int) -> None:
    """Print the scores of both, medians over the seeds."""
    paths = {side: [str(Path(kept) / f"{side}{seed}.npy") for seed in range(seeds)] for side in ("ours", "peer")}
    job = job_of(row, "ours", 0, folder, "") | {"maps": [*paths["ours"], *paths["peer"]], "kl": row.kl}
    found, _ = child("_scores.py", job, 2, {})
    for side, scores in (("ours", found[:seeds]), ("peer", found[seeds:])):
        values = (
            f"{said} {statistics.median(s[key] for s in scores):.4f}"
            for key, said in SCORES.items()
            if key in scores[0]
        )
        print(f"    {side}: {', '.join(values)}", flush=True)


def scaling(largest: int, folder: Path) -> None:
    """Ours over sizes of 200 clusters in 50 columns, and the exponent of CPU seconds in the number of rows."""
    print(f"{'rows':>9} {'CPU s':>8} {'wall s':>8} {'peak MiB':>9}  load")
    seen = []
    for rows in (size for size in SIZES if size <= largest):
        row = Row("", OURS, "", "", data="clusters", rows=rows, threads=2, epochs=200, warm=rows == SIZES[0])
        found = measured(row, "ours", 0, folder, "")
        seen.append((math.log(rows), math.log(found["cpu"])))
        print(
            f"{rows:>9,} {found['cpu']:>8.1f} {found['wall']:>8.1f} {found['peak']:>9.0f}  {found['load']:.1f}",
            flush=True,
        )
    if len(seen) > 1:
        slope = statistics.linear_regression(*zip(*seen, strict=True)).slope
        verdict = "reached" if slope <= 1.15 else "MISSED"
        print(f"exponent of the CPU seconds: {slope:.3f}, at most 1.15: {verdict}")


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, metavar="NAME", help=", ".join(ROWS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    given = parser.parse_args()
    peers = ", ".join(
        f"{name} {metadata.version(name)}" for name in ("torch", "numba", "umap-learn", "openTSNE", "pacmap")
    )
    print(f"Python {platform.python_version()}, {peers}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    if given.scaling:
        scaling(given.largest, given.data)
        return
    chosen = given.rows or [name for name, row in ROWS.items() if row.quick or not given.quick]
    print(LINE.format("claim", "ours", "peer", "", "ratio", "target", "", "name"))
    for name in chosen:
        compare(name, ROWS[name], 1 if given.quick else given.seeds, given.data)


if __name__ == "__main__":
    main()
