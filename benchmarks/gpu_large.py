"""Searches of millions of rows on a GPU, and CO-SNE's repulsion there.

    python benchmarks/gpu_large.py [--rows 1000000,3000000] [--cells-only 10000000] [--joins]

Rows are 64 columns around 200 centres, of 20 dimensions each. Exact search, cells by one kernel, and with `--joins` the
join of cells in torch. Seconds are of the second search of each kind, the first of a small part compiling the kernels;
recall at 15 is of 2,000 rows against the exact search; GiB are the peak of `torch.cuda.max_memory_allocated`.
"""

import argparse
import logging
import platform
import time
from unittest import mock

import torch
import triton

from cartograd.embedding.forces import poincare
from cartograd.kernels import gpu
from cartograd.neighbors import fused_cells, search

CARD = torch.device("cuda")
K = 15


def clusters(n, d=64, seed=0):
    generator = torch.Generator(CARD).manual_seed(seed)
    centres = 4 * torch.randn(200, d, device=CARD, generator=generator)
    spans = torch.randn(200, 20, d, device=CARD, generator=generator)
    label = torch.randint(0, 200, (n,), device=CARD, generator=generator).sort().values
    rows = 0.1 * torch.randn(n, d, device=CARD, generator=generator)
    for one, part in enumerate(torch.split(rows, torch.bincount(label, minlength=200).tolist())):
        part += centres[one] + torch.randn(len(part), 20, device=CARD, generator=generator) @ spans[one] / 4
    return rows[torch.randperm(n, device=CARD, generator=generator)]


def seconds(work):
    """The result, the seconds until the card is done, and the most memory used, in GiB."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    result = work()
    torch.cuda.synchronize()
    return result, time.perf_counter() - start, torch.cuda.max_memory_allocated() / 2**30


def shown(name, X, truth, rows, backend):
    (ids, _), taken, memory = seconds(lambda: search(X, K, backend=backend, random_state=0))
    found = (ids[rows][:, :, None] == truth[:, None, :]).any(2).double().mean()
    print(f"{name:<18} {len(X):>9} x 64  {taken:8.3f} s  recall {float(found):.4f}  {memory:6.2f} GiB", flush=True)


def searches(n, exact, joins):
    X = clusters(n)
    rows = torch.arange(0, n, n // 2000, device=CARD)[:2000]
    truth, _ = search(X, K + 1, queries=X[rows], backend="exact")
    own = truth == rows[:, None]
    own[~own.any(1), -1] = True
    truth = truth[~own].view(len(rows), K)
    if exact:
        shown("exact", X, truth, rows, "exact")
    shown("cells, one kernel", X, truth, rows, "cells")
    if joins:
        with mock.patch.object(fused_cells, "serves", return_value=False):
            shown("cells, joined", X, truth, rows, "cells")


def repulsion(n=40_000):
    Z = torch.randn(n, 2, dtype=torch.float64, device=CARD)
    Z *= (torch.rand(n, 1, dtype=torch.float64, device=CARD) / Z.norm(dim=1, keepdim=True)).clamp(max=1)
    kernels = gpu.load("poincare")
    for rows, columns, warps in ((4, 128, 4), (4, 64, 4), (2, 128, 4), (8, 64, 4), (4, 64, 2)):
        run = lambda r=rows, c=columns, w=warps: kernels.repulsion_sums(Z, Z, True, 2.0, rows=r, columns=c, warps=w)  # noqa: E731
        run()
        _, taken, _ = seconds(lambda: [run() for _ in range(5)])
        print(
            f"CO-SNE repulsion, all pairs of {n}, {rows} x {columns}, {warps} warps: {taken / 5 * 1e3:.2f} ms",
            flush=True,
        )
    with mock.patch.object(poincare, "_by_kernel", return_value=False):
        poincare.repulsion_sums(Z, Z, True, 2.0)
        _, taken, _ = seconds(lambda: poincare.repulsion_sums(Z, Z, True, 2.0))
    print(f"the same by tiles in torch: {taken * 1e3:.2f} ms", flush=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1000000,3000000")
    parser.add_argument("--cells-only", default="10000000")
    parser.add_argument("--joins", action="store_true")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="    [%(relativeCreated)d ms] %(message)s")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}, "
          f"Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}", flush=True)  # fmt: skip
    repulsion()
    searches(100_000, True, False)
    for n in filter(None, options.rows.split(",")):
        searches(int(n), True, False)
    for n in filter(None, options.cells_only.split(",")):
        searches(int(n), False, False)
    if options.joins:
        searches(int(options.rows.split(",")[-1]), False, True)


if __name__ == "__main__":
    main()
