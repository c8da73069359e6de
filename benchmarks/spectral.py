"""The spectral start of a map against umap-learn's, of the same graph: CPU seconds on one thread, and how smooth it is.

    python benchmarks/spectral.py [--rows 10000 70000] [--repeats 3] [--data FOLDER]

The graph is that of UMAP with 15 neighbours of rows of Fashion-MNIST. Both get it, in turns; seconds are medians. The
Rayleigh quotient of a function on the graph is how much it changes along edges: the two smoothest, apart from the
constant one, are what is sought, and their mean is printed. Once before, both start a map of few rows, unmeasured.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
from _child import data_of
from cpu import DATA
from scipy.sparse import diags_array
from threadpoolctl import threadpool_limits

from cartograd.affinity import UMAPAffinity
from cartograd.embedding.spectral_start import spectral_coordinates
from cartograd.neighbors.rows import TensorRows

WARM_ROWS = 3_000


def quotient(places: Any, weights: Any) -> float:
    """The mean Rayleigh quotient of the functions that span the same plane as the columns of a start."""
    root = numpy.sqrt(numpy.asarray(weights.sum(axis=1)).ravel())
    scale, constant = diags_array(1 / root), root / numpy.linalg.norm(root)
    functions = numpy.linalg.qr(places - numpy.outer(constant, constant @ places))[0]
    return float(numpy.trace(functions.T @ (functions - scale @ (weights @ (scale @ functions))))) / functions.shape[1]


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of a call, and its answer."""
    start = time.process_time()
    answer = work()
    return time.process_time() - start, answer


def contestants(X: Any) -> tuple[Any, dict[str, Callable[[], Any]]]:
    """The weights (a scipy matrix of float64) of the graph of some rows, and who starts a map of it."""
    from umap.spectral import spectral_layout

    rows = torch.from_numpy(X)
    graph = UMAPAffinity(n_neighbors=15)(rows)
    weights = graph.to(dtype=torch.float64).to_scipy()
    single = graph.to_scipy()  # what umap-learn hands over
    return weights, {
        "ours": lambda: spectral_coordinates(graph, 2, TensorRows(rows), 0).numpy().astype("float64"),
        "peer": lambda: spectral_layout(X, single, 2, numpy.random.RandomState(0)),
    }


def compare(X: Any, repeats: int) -> None:
    """Print the line of these rows."""
    weights, sides = contestants(X)
    spent: dict[str, list[float]] = {side: [] for side in sides}
    smooth = {}
    for _ in range(repeats):
        for side, work in sides.items():
            took, places = seconds(work)
            spent[side].append(took)
            smooth[side] = quotient(places, weights)
    ours, peer = (statistics.median(times) for times in spent.values())
    print(
        f"spectral start, graph of {len(X):,} rows (cpu) {ours:8.2f} {peer:8.2f}  s  ratio {peer / ours:6.2f}  "
        f"mean Rayleigh quotient {smooth['ours']:.6f} | {smooth['peer']:.6f}; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def main() -> None:
    """Compare at each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", type=int, default=[10_000, 70_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", type=Path, default=DATA)
    given = parser.parse_args()
    torch.set_num_threads(1)
    X = data_of({"data": "fashion", "folder": given.data, "rows": max(given.rows)})
    with threadpool_limits(1):
        for work in contestants(X[:WARM_ROWS])[1].values():
            work()
        for rows in given.rows:
            compare(X[:rows], given.repeats)


if __name__ == "__main__":
    main()
