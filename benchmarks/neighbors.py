"""Neighbour search: seconds, recall@15 and peak memory of every backend, and of pynndescent called directly.

    python benchmarks/neighbors.py [--data fashion_mnist] [--threads 1] [--quick] [--out benchmarks/neighbors.md]

Every case runs in a process of its own. "new process" is the import and the first search, "warm" the best of three
more searches in the same process, both without reading the data. Seconds are CPU seconds (user + system) of that
process, because the wall clock of a shared machine says little; the wall clock and the load stand beside them. Only
ratios of one run count.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

FOLDER = Path(os.environ.get("CARTOGRAD_DATA", Path(__file__).parents[2] / "shared" / "data"))
K = 15
QUICK = ["auto", "pynndescent"]
CASES = ["auto", "exact", "cells", "nndescent", "faiss HNSW", "faiss IVF", "faiss IVFPQ", "faiss Flat", "pynndescent"]
REPEATS = 3
TWICE = {"auto", "cells", "nndescent", "pynndescent"}
"""Cases in which later searches differ from the first, or a claim speaks of them."""


def load(name, rows):
    path = FOLDER / f"{name}.npz"
    if not path.exists():
        raise SystemExit(f"{path} is not there: set CARTOGRAD_DATA to the folder of the data sets")
    X = np.load(path)["X"]
    return np.ascontiguousarray(X[:rows].astype(np.float32) / (255 if X.dtype == np.uint8 else 1))


def truth(X, count=2000):
    """The true neighbours of a random part of the rows, from centred float64 products."""
    rows = np.random.default_rng(0).choice(len(X), min(count, len(X)), replace=False)
    centred = X - X.mean(0, dtype=np.float64).astype(np.float32)
    squares = (centred.astype(np.float64) ** 2).sum(1)
    wanted = []
    for part in np.array_split(rows, max(1, len(rows) // 250)):
        apart = squares[None] - 2 * (centred[part].astype(np.float64) @ centred.T.astype(np.float64))
        apart[np.arange(len(part)), part] = np.inf
        wanted.append(np.argpartition(apart, K, axis=1)[:, :K])
    return rows, np.concatenate(wanted)


def runner(case):
    """The search of one case as a function of X; importing is part of it."""
    if case == "pynndescent":
        import pynndescent

        def run(X):
            return pynndescent.NNDescent(X, n_neighbors=K + 1, random_state=0).neighbor_graph[0][:, 1:]

        return run
    from cartograd.neighbors import FaissConfig, search

    backend = FaissConfig(index_type=case.split()[1]) if case.startswith("faiss") else case
    return lambda X: search(X, K, backend=backend, random_state=0)[0]


def clocked(work):
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, time.process_time() - cpu, time.perf_counter() - wall


def held(line):
    """A line of this process's status in MiB: VmRSS, what it holds, or VmHWM, the most it has held."""
    return int(Path("/proc/self/status").read_text().split(line + ":")[1].split()[0]) / 1024


def forget_peak():
    """Let VmHWM begin anew with what is held now. (``ru_maxrss`` would even remember the parent's.)"""
    Path("/proc/self/clear_refs").write_text("5")


def measure(case, data, rows, answer):
    """One case, in this process; prints one line of JSON."""
    X = load(data, rows)
    forget_peak()
    before = held("VmRSS")
    run, import_cpu, import_wall = clocked(lambda: runner(case))
    indices, cpu, wall = clocked(lambda: run(X))
    report = {"new": import_cpu + cpu, "new_wall": import_wall + wall, "import": import_cpu}
    if case in TWICE:
        again = [clocked(lambda: run(X))[1:] for _ in range(REPEATS)]
        report["warm"], report["warm_wall"] = (min(times) for times in zip(*again, strict=True))
    saved = np.load(answer)
    found = indices[saved["rows"]]
    hits = [len(set(a) & set(b)) for a, b in zip(found.tolist(), saved["wanted"].tolist(), strict=True)]
    report |= {"recall": float(np.mean(hits)) / K, "memory": held("VmHWM") - before}
    print(json.dumps(report))


def in_a_new_process(case, args, answer):
    threads = str(args.threads)
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), threads)
    command = [sys.executable, __file__, "--case", case, "--data", args.data, "--answer", answer]
    if args.rows:
        command += ["--rows", str(args.rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"{case} failed:\n{done.stderr}")
    report = json.loads(done.stdout.strip().splitlines()[-1])
    report["load"] = os.getloadavg()[0]
    return report


def table(reports):
    names = ["case", "new process s", "warm s", "wall new / warm s", "recall@15", "peak MiB above the data", "load"]
    lines = ["| " + " | ".join(names) + " |"]
    lines.append("|---|---|---|---|---|---|---|")
    for case, r in reports.items():
        warm = f"{r['warm']:.1f}" if "warm" in r else "-"
        walls = f"{r['new_wall']:.1f} / {r['warm_wall']:.1f}" if "warm" in r else f"{r['new_wall']:.1f} / -"
        numbers = f"{r['recall']:.4f} | {r['memory']:.0f} | {r['load']:.1f}"
        lines.append(f"| {case} | {r['new']:.1f} | {warm} | {walls} | {numbers} |")
    return lines


def claims(reports, command):
    ours, peer = reports["auto"], reports["pynndescent"]
    rows = [
        ("auto, warm, CPU s against pynndescent (at most 1.2)", ours["warm"], peer["warm"]),
        ("auto, new process, CPU s against pynndescent (at most 0.5)", ours["new"], peer["new"]),
        ("auto, recall@15 (at least 0.95)", ours["recall"], peer["recall"]),
    ]
    lines = ["claim, ours, peer, ratio, command"]
    return lines + [f"{claim}, {a:.3f}, {b:.3f}, {a / b:.2f}, {command}" for claim, a, b in rows]


def versions():
    found = []
    for package in ("cartograd", "torch", "numpy", "pynndescent", "numba", "faiss-cpu"):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} not installed")
    return ", ".join([f"Python {platform.python_version()}", *found])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="fashion_mnist", help="name of a data set; 'wordnet' for the text vectors")
    parser.add_argument("--rows", type=int, help="use only so many rows")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--skip", nargs="*", default=[], help="cases to leave out")
    parser.add_argument("--out", type=Path, help="append the table to this file")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--answer", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.data = {"wordnet": "wordnet_glosses_minilm"}.get(args.data, args.data)
    if args.case:
        measure(args.case, args.data, args.rows, args.answer)
        return
    X = load(args.data, args.rows)
    rows, wanted = truth(X)
    reports = {}
    with tempfile.TemporaryDirectory() as folder:
        answer = str(Path(folder) / "truth.npz")
        np.savez(answer, rows=rows, wanted=wanted)
        for case in QUICK if args.quick else CASES:
            if case not in args.skip:
                reports[case] = in_a_new_process(case, args, answer)
                print(case, reports[case], flush=True)
    command = "python " + " ".join(["benchmarks/neighbors.py", *sys.argv[1:]])
    head = f"{args.data}, {X.shape[0]} x {X.shape[1]}, k = {K}, {args.threads} thread(s), {time.strftime('%Y-%m-%d')}"
    lines = ["", f"## {head}", "", f"`{command}`; {versions()}", "", *table(reports), "", "```"]
    lines += [*claims(reports, command), "```", ""]
    print("\n".join(lines))
    if args.out:
        with args.out.open("a") as file:
            file.write("\n".join(lines))


if __name__ == "__main__":
    main()
