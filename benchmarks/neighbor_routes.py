"""The routes to recall@k of 0.95 beside each other: CPU seconds of one thread, recall on 1,000 rows, warm.

    python benchmarks/neighbor_routes.py [--data fashion_mnist] [--pca 50] [--k 15] [--out benchmarks/neighbors.md]

All routes run in turns in one process, twice, and the second turn counts; only ratios within one table do.
"""

import argparse
import logging
import os
import time
from pathlib import Path

import numpy as np
import torch

from cartograd.neighbors import calibrate, compiled_search, sample, search, sketch
from neighbors import load, versions


def changed(*changes):
    """A search by cells with other values of some names: (module, name, value) each."""

    def run(X, k):
        before = [getattr(module, name) for module, name, _ in changes]
        for module, name, value in changes:
            setattr(module, name, value)
        try:
            return search(X, k, backend="cells", random_state=0)[0]
        finally:
            for (module, name, _), value in zip(changes, before, strict=True):
                setattr(module, name, value)

    return run


def more_cells(needed, recall, cells, errors=1.5):
    """As many cells as it takes without descent, the share that sketches may hide included."""
    return sample.fewest_probes(needed, 0.965, cells, 1.5)


def pynndescent(X, k):
    from pynndescent import NNDescent

    return torch.from_numpy(NNDescent(X.numpy(), n_neighbors=k + 1, random_state=0).neighbor_graph[0][:, 1:].copy())


ROUTES = {
    "auto: sketches, cells, descent, measured in full": changed(),
    "without descent, more cells": changed((compiled_search, "fewest_probes", more_cells)),
    "without sketches": changed((sketch, "WIDE", 10**9)),
    "torch cells, no kernels": changed((calibrate, "serves", lambda problem: False)),
    "pynndescent": pynndescent,
}


def recall(X, indices, k):
    rows = torch.randperm(len(X), generator=torch.Generator().manual_seed(9))[:1000]
    apart = torch.cdist(X[rows], X)
    apart[torch.arange(len(rows)), rows] = torch.inf
    wanted = apart.topk(k, largest=False).indices
    return float((indices.to(torch.int64)[rows][:, :, None] == wanted[:, None, :]).any(1).float().mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="fashion_mnist")
    parser.add_argument("--pca", type=int, help="first reduce to so many principal components")
    parser.add_argument("--k", type=int, default=15)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("cartograd").setLevel(logging.WARNING)
    X = torch.from_numpy(load(args.data, None))
    if args.pca:
        mean = X.mean(0)
        _, V = torch.linalg.eigh(torch.from_numpy(np.cov(X[::10].numpy().T)))
        X = ((X - mean) @ V[:, -args.pca :].to(X.dtype)).contiguous()
    lines = ["| route | CPU s | recall |", "|---|---|---|"]
    found = {}
    for turn in range(2):
        for name, run in ROUTES.items():
            if name != "without sketches" or X.shape[1] > sketch.WIDE:
                start = time.process_time()
                indices = run(X, args.k)
                found[name] = (time.process_time() - start, recall(X, indices, args.k) if turn else 0.0)
    lines += [f"| {name} | {seconds:.2f} | {share:.4f} |" for name, (seconds, share) in found.items()]
    given = " ".join(f"--{name} {value}" for name, value in vars(args).items() if name != "out" and value)
    head = f"## Routes: {args.data}, {len(X)} x {X.shape[1]}, k = {args.k}, 1 thread, load {os.getloadavg()[0]:.1f}"
    command = f"`python benchmarks/neighbor_routes.py {given}`; {versions()}"
    text = "\n".join(["", head, "", command, "", *lines, ""])
    print(text)
    if args.out:
        with args.out.open("a") as file:
            file.write(text)


if __name__ == "__main__":
    main()
