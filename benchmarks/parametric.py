"""Maps by an encoder: rows not trained on, the time to place them, and sequences.

    python benchmarks/parametric.py [--rows 10000] [--seeds 0 1] [--peer] [--sequences]

Fashion-MNIST: `UMAP(encoder="mlp")` is fitted on the first rows and places as many that follow. Printed are
trustworthiness@15 among the rows placed, of those not trained on and of those trained on, the largest difference
between ``transform(X_train)`` and ``embedding_``, and seconds (wall) of the fit and of `transform`, the least of five.
With ``--peer`` umap-learn, which has no encoder without TensorFlow, fits and places the same rows its own way. With
``--sequences`` the rows of scikit-learn's digits are read as sequences, by "gru" and "mamba3": 10-NN accuracy.

The data is read from the folder ``CARTOGRAD_DATA``.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy
from sklearn.datasets import load_digits

import cartograd
from cartograd.metrics import knn_label_accuracy, trustworthiness


def fashion(count: int) -> Any:
    """The first rows, flat, from 0 to 1."""
    X = numpy.load(Path(os.environ["CARTOGRAD_DATA"]) / "fashion_mnist.npz")["X"][:count]
    return (X.reshape(len(X), -1) / 255).astype("float32")


def seconds(function: Any, *args: Any) -> tuple[float, Any]:
    """Wall time of a call, and what it gives."""
    began = time.perf_counter()
    result = function(*args)
    return time.perf_counter() - began, result


def placed(model: Any, X: Any, n: int, repeats: int) -> float:
    """Fit on the first n rows, place all; prints a line and returns the seconds of a transform."""
    took, Z = seconds(model.fit_transform, X[:n])
    old = model.transform(X[:n])
    runs = [seconds(model.transform, X[n:]) for _ in range(repeats)]
    least, new = min(one for one, _ in runs), runs[0][1]
    scores = [float(trustworthiness(*rows, k=15)) for rows in ((X[n:], new), (X[:n], old))]
    print(
        f"{type(model).__module__.split('.')[0]:10} trustworthiness@15 {scores[0]:.4f} held out, {scores[1]:.4f} "
        f"trained on; transform(X_train) - embedding_ {abs(old - Z).max():.1e}; "
        f"fit {took:.1f} s, transform {least:.3f} s",
        flush=True,
    )
    return least


def read_as_sequences(encoder: str, epochs: int, learning_rate: float) -> None:
    """Pictures of 8 by 8 row by row."""
    X, y = load_digits(return_X_y=True)
    training = cartograd.EncoderTraining(learning_rate=learning_rate)
    model = cartograd.UMAP(encoder=encoder, n_epochs=epochs, training=training, random_state=0)
    took, Z = seconds(model.fit_transform, X.astype("float32").reshape(-1, 8, 8))
    print(
        f"{encoder:10} 10-NN accuracy {knn_label_accuracy(Z, y, k=10):.4f}, {epochs} epochs, fit {took:.1f} s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--sequences", action="store_true")
    options = parser.parse_args()
    X = fashion(2 * options.rows)
    ours = [placed(cartograd.UMAP(15, encoder="mlp", random_state=seed), X, options.rows, 5) for seed in options.seeds]
    if options.peer:
        import umap

        theirs = placed(umap.UMAP(n_neighbors=15), X, options.rows, 1)
        print(f"umap-learn's transform takes {theirs / min(ours):.0f} times as long")
    if options.sequences:
        read_as_sequences("gru", 80, 1e-2)
        read_as_sequences("mamba3", 90, 3e-3)


if __name__ == "__main__":
    main()
