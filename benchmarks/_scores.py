"""Scores of maps of one data set: `python _scores.py JOB`, where JOB (JSON) names the data and the saved maps.

Up to 20,000 rows by `cartograd.metrics`, over all rows. Above, the same formulas over a fixed sample of 2,000 rows,
each of them compared with all rows. With `kl`, the divergence that t-SNE minimises, of each map from the same P.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy
import torch
from _child import data_of

from cartograd import metrics
from cartograd.affinity import EntropicAffinity, joint_probabilities
from cartograd.neighbors import Graph, search

ALL_UP_TO = 20_000
SAMPLE = 2_000
RANKS = 15
VOTES = 10


def of_all(X: Any, Z: Any, labels: Any) -> dict[str, float]:
    """Scores over all rows."""
    return {
        "trust": float(metrics.trustworthiness(X, Z, k=RANKS)),
        "recall": float(metrics.neighborhood_preservation(X, Z, RANKS)),
        "label": float(metrics.knn_label_accuracy(Z, labels, k=VOTES)),
        "triplets": float(metrics.random_triplet_accuracy(X, Z)),
    }


class Sample:
    """A fixed sample of the rows, with their neighbours and ranks among all."""

    def __init__(self, X: Any, labels: Any) -> None:
        self.X, self.labels = X, torch.from_numpy(labels)
        self.rows = torch.from_numpy(numpy.random.RandomState(0).permutation(len(X))[:SAMPLE].copy())
        self.near = self._neighbours(X, RANKS)

    def _neighbours(self, points: Any, k: int) -> torch.Tensor:
        """The k nearest other rows of each of the sample, (m, k)."""
        found, _ = search(points, k + 1, queries=points[self.rows.numpy()], backend="exact")
        ids = torch.as_tensor(found)
        return torch.stack([row[row != own][:k] for row, own in zip(ids, self.rows, strict=True)])

    def scores(self, Z: Any) -> dict[str, float]:
        """Scores of a map."""
        mapped = self._neighbours(Z, RANKS)
        shared = (mapped[:, :, None] == self.near[:, None, :]).any(2).to(torch.float64).mean()
        votes = torch.mode(self.labels[mapped[:, :VOTES]], 1).values == self.labels[self.rows]
        return {
            "trust": self._trustworthiness(mapped),
            "recall": float(shared),
            "label": float(votes.to(torch.float64).mean()),
            "triplets": float(metrics.random_triplet_accuracy(self.X, Z, 200_000)),
        }

    def _trustworthiness(self, mapped: torch.Tensor) -> float:
        data = torch.from_numpy(self.X)
        half = data.square().sum(1) / 2
        n, excess = len(data), 0
        for rows, near in zip(self.rows.split(50), mapped.split(50), strict=True):
            away = half - data[rows] @ data.T
            away[torch.arange(len(rows)), rows] = torch.inf
            ranks = (away[:, None, :] < away.gather(1, near)[:, :, None]).sum(2) + 1
            excess += int((ranks - RANKS).clamp(min=0).sum())
        return 1 - excess * 2 / (len(self.rows) * RANKS * (2 * n - 3 * RANKS - 1))


def divergence(P: Graph, Z: Any) -> float:
    r""":math:`\sum_{ij} p_{ij} \log (p_{ij} / q_{ij})`, q of all pairs: Student's kernel over its sum."""
    points = torch.from_numpy(numpy.asarray(Z, dtype="float64"))
    total = 0.0
    for part in points.split(2_000):
        total += float((1 / (1 + torch.cdist(part, points).square_())).sum()) - len(part)
    p = P.weights.to(torch.float64)
    s = (points[P.rows()] - points[P.indices]).square().sum(1)
    there = p > 0
    return float((p * (torch.log(p.clamp(min=1e-300)) + torch.log1p(s) + numpy.log(total)))[there].sum())


def main(job: dict[str, Any]) -> list[dict[str, float]]:
    """The scores of each map."""
    X = data_of(job)
    labels = numpy.load(Path(job["folder"]) / "fashion_mnist.npz")["y"][: job["rows"]].astype("int64")
    X, labels = X[job.get("first", 0) :], labels[job.get("first", 0) :]
    sample = Sample(X, labels) if len(X) > ALL_UP_TO else None
    P = None
    if job.get("kl"):
        P = joint_probabilities(EntropicAffinity(perplexity=job["kl"])(X))
    scores = []
    for path in job["maps"]:
        Z = numpy.load(path)
        scores.append(of_all(X, Z, labels) if sample is None else sample.scores(Z))
        if P is not None:
            scores[-1]["kl"] = divergence(P, Z)
    return scores


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
