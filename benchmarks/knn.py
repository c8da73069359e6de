"""knn with its gradient, against torch's dense way: ``topk`` of ``torch.cdist``, differentiated by torch.

    python benchmarks/knn.py [--rows 20000] [--columns 64] [--k 15] [--repeats 2]

Each way runs in processes of its own, one thread, in turns. Prints one line a claim: what is measured, ours, torch's,
their ratio. Seconds are CPU seconds of forward and backward, the least of the repeats; memory is the growth of the
process's peak.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

import torch


def peak() -> float:
    """The most memory this process has had, in MiB (Linux)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def ours(x: torch.Tensor, k: int) -> torch.Tensor:
    import cartograd

    X = cartograd.tensor(x, requires_grad=True)
    cartograd.knn(X, k)[1].sum().backward()
    return X.grad.data


def dense(x: torch.Tensor, k: int) -> torch.Tensor:
    X = x.clone().requires_grad_()
    torch.cdist(X, X).topk(k + 1, largest=False).values[:, 1:].sum().backward()
    return X.grad


WAYS = {"ours": ours, "dense": dense}


def once(way: str, rows: int, columns: int, k: int) -> None:
    """Measure one way in this process; print seconds and MiB."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    WAYS[way](torch.randn(100, columns, generator=generator), k)
    x = torch.randn(rows, columns, generator=generator)
    before, start = peak(), time.process_time()
    WAYS[way](x, k)
    print(time.process_time() - start, peak() - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("rows", 20_000), ("columns", 64), ("k", 15), ("repeats", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--once", choices=list(WAYS), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.once:
        once(asked.once, asked.rows, asked.columns, asked.k)
        return
    best = {way: [float("inf"), float("inf")] for way in WAYS}
    options = [f"--{name}={getattr(asked, name)}" for name in ("rows", "columns", "k")]
    for _ in range(asked.repeats):
        for way, least in best.items():
            command = [sys.executable, __file__, "--once", way, *options]
            shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            best[way] = [min(pair) for pair in zip(least, map(float, shown), strict=True)]
    of = f"knn forward and backward, n={asked.rows} d={asked.columns} k={asked.k}"
    for unit, mine, other in zip(("CPU s", "MiB"), best["ours"], best["dense"], strict=True):
        print(f"{of}, {unit}, {mine:.1f}, {other:.1f}, {mine / other:.3f}")


if __name__ == "__main__":
    main()
