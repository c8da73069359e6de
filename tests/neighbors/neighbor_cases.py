"""Data that suit each metric."""

import numpy as np

METRICS = ["euclidean", "sqeuclidean", "manhattan", "cosine", "angular", "hamming", "jaccard", "sqhyperbolic"]


def data_for(metric, n=300, d=6, seed=0):
    rng = np.random.default_rng(seed)
    if metric == "hamming":
        return rng.integers(0, 4, size=(n, d)).astype(np.float32)
    if metric == "jaccard":
        return (rng.random((n, d + 10)) < 0.4).astype(np.float32)
    X = rng.normal(size=(n, d)).astype(np.float32)
    return X / (1.2 * np.linalg.norm(X, axis=1).max()) if metric == "sqhyperbolic" else X
