"""One process against several on this machine: search and layout, CPU seconds of the busiest process, bytes sent.

    python benchmarks/distributed.py --rows 10000 --processes 2

Times are CPU seconds (``time.process_time``, which other programs do not disturb), one thread a process. A step of the
layout is the difference of two fits of 300 and 100 steps, so that all that comes before the steps drops out; so are the
bytes, which must be those of docs/scale.md. Both numbers of processes run in turns, the best of three counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy
import torch

import cartograd
from cartograd.distributed import find_ranks, row_bounds
from cartograd.distributed.search import Wanted, search_own, search_ring
from cartograd.neighbors.rows import TensorRows

K, HEADER = 15, 48
STEPS = (100, 300)


def rows(n: int, d: int) -> numpy.ndarray:
    random = numpy.random.RandomState(0)
    return (random.randn(n, d) + 4 * random.randn(20, d)[random.randint(0, 20, n)]).astype("float32")


def spent(work) -> tuple[float, object]:
    began = time.process_time()
    found = work()
    return time.process_time() - began, found


def loopback() -> int:
    """Bytes that went over the loopback device so far, headers of packets included."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        if line.strip().startswith("lo:"):
            return int(line.split()[9])
    return 0


def measure(n: int, d: int) -> dict[str, float]:
    X, ranks = rows(n, d), find_ranks("auto")
    size, rank = (1, 0) if ranks is None else (ranks.size, ranks.rank)
    bounds = row_bounds(n, size)
    wanted, device = Wanted(K, "euclidean", "exact", 0), torch.device("cpu")
    found: dict[str, float] = {}
    seconds, knn = spent(lambda: search_own(X, bounds[rank], bounds[rank + 1], wanted, device))
    found["search, all rows here"] = seconds
    if ranks is not None:
        own = TensorRows(torch.from_numpy(X[bounds[rank] : bounds[rank + 1]]))
        before = ranks.sent_bytes
        found["search, ring"], ring = spent(lambda: search_ring(ranks, own, bounds, wanted))
        found["bytes of the ring"] = ranks.sent_bytes - before
        assert torch.equal(ring[0], knn[0])
        knn = tuple(ranks.gathered(part, "neighbours") for part in knn)
    for kind, options in {"UMAP": {}, "TSNE": {"early_exaggeration_iter": 0}}.items():
        steps, sent, wire = [], [], []
        for count in (2, *STEPS):  # the first loads kernels
            model = getattr(cartograd, kind)(
                max_iter=count, precomputed_knn=knn, check_interval=1000, random_state=0, **options
            )
            if kind == "UMAP":
                model.set_params(n_neighbors=K)
            else:
                model.set_params(perplexity=K / 3)
            before, on_wire = (0 if ranks is None else ranks.sent_bytes), loopback()
            steps.append(spent(lambda model=model: model.fit(X))[0])
            sent.append(0 if ranks is None else ranks.sent_bytes - before)
            wire.append(loopback() - on_wire)
        apart = STEPS[1] - STEPS[0]
        found[f"{kind}, a step"] = (steps[2] - steps[1]) / apart
        found[f"{kind}, bytes of a step"] = (sent[2] - sent[1]) / apart
        found[f"{kind}, on the wire"] = (wire[2] - wire[1]) / apart / size
    return found


def launched(processes: int, n: int, d: int) -> list[dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder:
        starter = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        script = [__file__, "--rows", str(n), "--columns", str(d), "--worker", folder]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        command = [*starter, *script] if processes > 1 else [sys.executable, *script]
        subprocess.run(command, env=environment, check=True, timeout=600)
        return [json.loads(path.read_text()) for path in sorted(Path(folder).iterdir())]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=10_000)
    options.add_argument("--columns", type=int, default=50)
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--worker", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.worker:
        torch.set_num_threads(1)
        found = measure(given.rows, given.columns)
        (Path(given.worker) / f"{os.environ.get('RANK', '0')}.json").write_text(json.dumps(found))
        return
    best: dict[int, dict[str, float]] = {}
    for _ in range(given.rounds):
        for processes in (1, given.processes):
            parts = launched(processes, given.rows, given.columns)
            slowest = {name: max(part[name] for part in parts) for name in parts[0]}
            kept = best.setdefault(processes, slowest)
            best[processes] = {name: min(value, kept[name]) for name, value in slowest.items()}
    one, many = best[1], best[given.processes]
    print(f"{given.rows} rows of {given.columns}, k = {K}; CPU seconds of the busiest process")
    print(f"{'':28}{'1 process':>12}{f'{given.processes} processes':>14}{'ratio':>8}")
    for name in ("search, all rows here", "UMAP, a step", "TSNE, a step"):
        print(f"{name:28}{one[name]:12.5f}{many[name]:14.5f}{one[name] / many[name]:8.2f}")
    print(f"{'search, ring':28}{one['search, all rows here']:12.5f}{many['search, ring']:14.5f}", end="")
    print(f"{one['search, all rows here'] / many['search, ring']:8.2f}")
    bounds = row_bounds(given.rows, given.processes)
    most = max(b - a for a, b in pairwise(bounds))
    formula = (given.processes - 1) * (HEADER + most * 2 * 4)
    print(f"bytes a UMAP step sends: counted {many['UMAP, bytes of a step']:.0f}, formula {formula}, ", end="")
    print(f"seen on the loopback device {many['UMAP, on the wire']:.0f} (with packet headers and other programs')")
    print(f"bytes a t-SNE step sends: {many['TSNE, bytes of a step']:.0f} (with the charges of the grid)")
    print(f"bytes a process sends for the ring: {many['bytes of the ring']:.0f}")
    if many["UMAP, bytes of a step"] != formula:
        raise SystemExit("the bytes counted are not those of the formula")


if __name__ == "__main__":
    main()
