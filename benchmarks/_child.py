"""One contestant in a process of its own: reads a job (JSON) from its arguments, prints what it measured (JSON).

The job: `make`, the Python expression that makes the estimator; `data` and `rows`; `threads`; `warm`, whether compilers
finish in a smaller fit first, and of how many `warm_rows`; `task`, one of `fit`, `transform` and `import`; `out`, where
the map is saved for `_scores.py`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

WARM_ROWS = 5_000
"""Above umap-learn's 4,096, up to which it searches otherwise and would compile less."""


def clocks() -> tuple[float, float]:
    """CPU seconds of this process, all threads, and the wall clock."""
    return time.process_time(), time.perf_counter()


def timed(work: Any) -> tuple[dict[str, float], Any]:
    """CPU and wall seconds of a call, and its answer."""
    cpu, wall = clocks()
    answer = work()
    cpu_now, wall_now = clocks()
    return {"cpu": cpu_now - cpu, "wall": wall_now - wall}, answer


def import_of(make: str) -> Any:
    """Import the module that an expression begins with."""
    name = make.split("(")[0].rpartition(".")[0]
    importlib.import_module(name)
    return sys.modules[name.split(".")[0]]


def data_of(job: dict[str, Any]) -> Any:
    """The rows, float32."""
    import numpy

    if job["data"] == "digits":
        from sklearn.datasets import load_digits

        return load_digits().data.astype("float32")
    if job["data"] == "clusters":
        draws = numpy.random.default_rng(0)
        centres = draws.normal(size=(200, 50)).astype("float32") * 4
        rows = draws.standard_normal((job["rows"], 50), dtype="float32")
        for start in range(0, len(rows), 1 << 16):  # in pieces: a benchmark of memory must not make the peak itself
            part = rows[start : start + (1 << 16)]
            part += centres[draws.integers(200, size=len(part))]
        return rows
    file = numpy.load(Path(job["folder"]) / "fashion_mnist.npz")
    rows = file["X"][: job["rows"]].astype("float32")
    rows /= 255
    return rows


def peak_mib() -> float:
    """The most memory this process has held since `forget_peak`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def forget_peak() -> None:
    """Let the peak begin anew; where the system does not allow that, it counts from the start of the process."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Measure one job."""
    make = job["make"]
    if job["task"] == "import":
        for name in job.get("before", []):
            importlib.import_module(name)
        return timed(lambda: exec(job["code"], {}))[0]
    package = import_of(make)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(job["threads"])
    X = data_of(job)

    def made() -> Any:
        return eval(make, {package.__name__: package})

    if job["warm"]:
        made().fit_transform(X[: job.get("warm_rows", WARM_ROWS)])
        for thread in threading.enumerate():
            if thread.name == "cartograd-compile":  # behind the fit
                thread.join()
    if job["task"] == "transform":
        return placed(made(), X, job)
    forget_peak()
    before = peak_mib()
    figures, Z = timed(lambda: made().fit_transform(X))
    figures |= {"peak": peak_mib(), "before": before}
    save(Z, job)
    return figures


def placed(model: Any, X: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Fit all but the last 10,000 rows, then place those."""
    model.fit(X[:-10_000])
    model.transform(X[-10_000:-9_900])
    figures, Z = timed(lambda: model.transform(X[-10_000:]))
    save(Z, job)
    return figures


def save(Z: Any, job: dict[str, Any]) -> None:
    """Keep the map, for its scores."""
    import numpy

    if job.get("out"):
        numpy.save(job["out"], numpy.asarray(Z, dtype="float32"))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    asked = json.loads(sys.argv[1])
    found = run(asked)
    print(json.dumps(found | {"load": os.getloadavg()[0]}))
