"""Write model files, a checkpoint and a pickle of this cartograd, with which later versions prove they still read them.

python scripts/make_witnesses.py tests/data/0.1    writes them; run it once for each released version

tests/test_witnesses.py loads each file and compares the coordinates of 20 new rows with those kept here.
"""

from __future__ import annotations

import json
import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy
from machine_key import machine_key
from scipy.sparse import csr_array

import cartograd

QUICK = {"random_state": 0, "max_iter": 60}
MATRIX = {"random_state": 0}


def blobs(n: int, d: int, seed: int) -> tuple[Any, Any]:
    """Return n rows in four clusters, (n, d) float32, and their classes."""
    random = numpy.random.RandomState(seed)
    classes = random.randint(0, 4, n)
    rows = random.randn(4, d)[classes] * 3 + random.randn(n, d)
    return rows.astype("float32"), classes


def cases() -> dict[str, tuple[Any, Any, Any, Any]]:
    """Return for each witness an unfitted estimator, its rows, its labels and 20 new rows."""
    X, y = blobs(140, 6, seed=0)
    new, _ = blobs(20, 6, seed=1)
    twice = numpy.concatenate([X, X[:10]]), numpy.concatenate([y, (y[:10] + 1) % 4])
    wide, wide_new = blobs(140, 120, seed=2)[0], blobs(20, 120, seed=3)[0]
    thin, thin_new = (rows * (abs(rows) > 1.5) for rows in (X, new))
    long, long_new = blobs(4500, 4, seed=4)[0], blobs(20, 4, seed=5)[0]
    series, series_new = X.reshape(140, 3, 2), new.reshape(20, 3, 2)
    network = {"hidden_sizes": (8,), "n_epochs": 8}
    layouts = {
        name: (getattr(cartograd, name)(**QUICK, **options), X, None, new)
        for name, options in {
            "UMAP": {},
            "TSNE": {"perplexity": 12},
            "SNE": {"perplexity": 12},
            "TSNEkhorn": {"perplexity": 12},
            "COSNE": {"perplexity": 12},
            "LargeVis": {"perplexity": 12},
            "InfoTSNE": {"perplexity": 12, "n_negatives": 30},
            "PACMAP": {"iter_per_phase": 15},
            "PHATE": {"t": 5},
        }.items()
    }
    matrices = {
        name: (getattr(cartograd, name)(**MATRIX, **options), X, None, new)
        for name, options in {
            "PCA": {},
            "IncrementalPCA": {"n_components": 2},
            "ExactIncrementalPCA": {},
            "KernelPCA": {},
        }.items()
    }
    special = {
        "UMAP-supervised": (cartograd.UMAP(**QUICK), X, numpy.where(y == 3, -1, y), new),
        "UMAP-supervised-equal-rows": (cartograd.UMAP(**QUICK), *twice, new),
        "UMAP-equal-rows": (cartograd.UMAP(**QUICK), twice[0], None, new),
        "UMAP-sparse": (cartograd.UMAP(**QUICK), csr_array(thin), None, csr_array(thin_new)),
        "TSNE-sparse": (cartograd.TSNE(perplexity=12, **QUICK), csr_array(thin), None, csr_array(thin_new)),
        "PCA-sparse": (cartograd.PCA(**MATRIX), csr_array(thin), None, csr_array(thin_new)),
        "UMAP-float64": (cartograd.UMAP(**QUICK), X.astype("float64"), None, new.astype("float64")),
        "UMAP-kernels": (cartograd.UMAP(n_neighbors=8, **QUICK), long, None, long_new),
        "PACMAP-reduced": (cartograd.PACMAP(iter_per_phase=15, **QUICK), wide, None, wide_new),
        "UMAP-mlp": (cartograd.UMAP(encoder="mlp", decoder="mlp", **network, **MATRIX), X, None, new),
        "TSNE-gru": (cartograd.TSNE(encoder="gru", perplexity=12, **network, **MATRIX), series, None, series_new),
        "PACMAP-mlp": (cartograd.PACMAP(encoder="mlp", **network, **MATRIX), X, None, new),
        "TSNE-unfitted": (cartograd.TSNE(perplexity=12, **QUICK), None, None, None),
    }
    return {**layouts, **matrices, **special}


class Interrupted(Exception):
    """Ends a fit after its first checkpoints."""


def interrupt(step: int, embedding: Any, loss: float) -> None:
    """Raise at step 40."""
    if step == 40:
        raise Interrupted


def main(folder: Path) -> None:
    """Write every witness to the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {}
    for name, (model, rows, labels, new) in cases().items():
        if rows is not None:
            fitted = model.fit_transform(rows, labels)
            arrays[f"{name}.map"], arrays[f"{name}.new"] = fitted, model.transform(new)
        if hasattr(model, "clear_memory"):
            model.clear_memory()  # the affinity, which placing new rows does not need
        model.save(folder / f"{name}.cartograd")
    numpy.savez_compressed(folder / "places.npz", **arrays)
    X = blobs(140, 6, seed=0)[0]
    kept = {"checkpoint_dir": folder / "checkpoint", "checkpoint_every": 20, "check_interval": 20}
    try:
        cartograd.UMAP(**QUICK, **kept, callbacks=[interrupt]).fit(X)
    except Interrupted:
        pass
    (folder / "UMAP.pickle").write_bytes(pickle.dumps(cartograd.UMAP(**QUICK).fit(X)))
    (folder / "machine.json").write_text(json.dumps(machine_key(), indent=2) + "\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))
