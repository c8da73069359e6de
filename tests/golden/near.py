"""Ten steps from stored neighbors and a stored start: what can be compared on machines whose last bits differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
from cases import LARGE, SMALL

import cartograd

FILE = Path(__file__).resolve().parent / "steps.npz"
STEPS = {"max_iter": 10, "check_interval": 10, "random_state": 0, "init_scaling": None}
METHODS: dict[str, dict[str, Any]] = {
    "UMAP": {"n_neighbors": 8},
    "TSNE": {"perplexity": 5, "early_exaggeration_iter": 5},
    "SNE": {"perplexity": 5},
    "TSNEkhorn": {"perplexity": 5},
    "COSNE": {"perplexity": 5},
    "LargeVis": {"perplexity": 5},
    "InfoTSNE": {"perplexity": 5, "n_negatives": 20, "early_exaggeration_iter": 5},
    "PACMAP": {"n_neighbors": 6, "iter_per_phase": 4},
    "PHATE": {"t": 5},
}
WITHOUT_NEIGHBORS = {"TSNEkhorn", "PHATE"}
KERNELS = ("UMAP", "TSNE", "LargeVis", "InfoTSNE", "PACMAP")
K = 60
OWN_RANDOM_ROWS = ("LargeVis", "InfoTSNE")
"""Methods that draw other random rows on a GPU."""


def cases() -> dict[str, tuple[str, Any]]:
    """Return the method and the rows of each case: small ones by torch, large ones by kernels."""
    small = {
        f"{name}, torch": (name, SMALL[:120] if name in WITHOUT_NEIGHBORS | {"COSNE"} else SMALL) for name in METHODS
    }
    return small | {f"{name}, kernels": (name, LARGE) for name in KERNELS}


def start_of(rows: Any) -> Any:
    """Return where the points begin: two columns of the rows, within the unit disk."""
    return (rows[:, :2] / (3 * numpy.abs(rows[:, :2]).max())).astype("float64")


def steps(name: str, rows: Any, neighbors: Any, device: str = "cpu") -> Any:
    """Return the map after ten steps, from given neighbors."""
    given = {} if name in WITHOUT_NEIGHBORS else {"precomputed_knn": neighbors}
    model = getattr(cartograd, name)(**STEPS, **METHODS[name], **given, init=start_of(rows), device=device)
    return numpy.asarray(model.fit_transform(rows), dtype=numpy.float64)


def stored() -> Any:
    """Return the stored arrays: neighbors of both sets of rows, and the maps."""
    return numpy.load(FILE)


def write() -> None:
    """Store neighbors and maps as this machine finds them."""
    arrays: dict[str, Any] = {}
    for size, rows in (("small", SMALL), ("large", LARGE)):
        indices, distances = cartograd.neighbors.search(rows, K if size == "small" else 24)
        arrays[f"{size}.indices"], arrays[f"{size}.distances"] = indices.astype("int32"), distances
    for case, (name, rows) in cases().items():
        arrays[case] = steps(name, rows, neighbors_of(arrays, rows)).astype("float32")
    numpy.savez_compressed(FILE, **arrays)


def neighbors_of(arrays: Any, rows: Any) -> Any:
    """Return the stored neighbors of some rows; those of the first small rows come from the rows themselves."""
    if len(rows) in (len(SMALL), len(LARGE)):
        size = "small" if len(rows) == len(SMALL) else "large"
        return arrays[f"{size}.indices"].astype("int64"), arrays[f"{size}.distances"]
    return cartograd.neighbors.search(rows, K)
