"""The scores of a map, on all rows or a sample of them."""

from __future__ import annotations

from typing import Any

from cartograd.cli.console import Console
from cartograd.errors import InputError

NEIGHBOURS, VOTERS = 15, 10
MEANING = {
    "trustworthiness": "neighbours on the map are neighbours in the data",
    "continuity": "neighbours in the data are neighbours on the map",
    "recall@{k}": "share of the {k} nearest rows that the map keeps",
    "triplets": "share of random triples whose distances keep their order",
    "label_accuracy": "share of rows whose label the nearest on the map tell",
}


def scores_of(
    console: Console,
    X: Any,
    Z: Any,
    labels: Any = None,
    *,
    metric: str = "euclidean",
    embedding_metric: str = "euclidean",
    most: int = 10_000,
    seed: int = 0,
    device: str | None = None,
) -> dict[str, Any]:
    """Score a map: between 0 and 1 each, 1 is best.

    Parameters
    ----------
    console : Console
        Where it is said what was left out.
    X : numpy.ndarray
        (n, d) the rows; with ``metric="precomputed"`` their distances, (n, n).
    Z : numpy.ndarray
        (n, c) their places.
    labels : numpy.ndarray, default=None
        (n,) their classes; None where there are none.
    metric, embedding_metric : str, default="euclidean"
        How rows and places are compared.
    most : int, default=10000
        Rows that are scored at most; of more, so many are drawn, and neighbours are sought among them.
    seed : int, default=0
        For the draw, and for the triples.
    device : str, default=None
        Where to compute; None for where the data are.

    Returns
    -------
    dict
        ``rows``, how many were scored; ``k``, how many neighbours were looked at; and the scores by name.
    """
    from cartograd import metrics

    if most == 0 or len(X) < 3:
        if most:
            console.note("scores need at least 3 rows, and were left out")
        return {}
    if metric == "precomputed" and X.shape != (len(X), len(X)):
        raise InputError(
            f"metric 'precomputed' takes the distances of all pairs of rows, ({len(X)}, {len(X)}), got {X.shape}"
        )
    rows = _sample(len(X), most, seed)
    if rows is not None:
        X, Z = X[rows][:, rows] if metric == "precomputed" else X[rows], Z[rows]
        labels = None if labels is None else labels[rows]
    k = min(NEIGHBOURS, (len(X) - 1) // 2)
    both: dict[str, Any] = {"metric": metric, "embedding_metric": embedding_metric, "device": device}
    watched = both | {"verbose": console.progress}
    scores = {
        "rows": len(X),
        "k": k,
        "trustworthiness": metrics.trustworthiness(X, Z, k, **watched),
        "continuity": metrics.continuity(X, Z, k, **watched),
        f"recall@{k}": metrics.neighborhood_preservation(X, Z, k, **watched),
        "triplets": metrics.random_triplet_accuracy(X, Z, random_state=seed, **both),
    }
    accuracy = None if labels is None else _label_accuracy(console, Z, labels, embedding_metric)
    return scores if accuracy is None else scores | {"label_accuracy": accuracy}


def _sample(count: int, most: int, seed: int) -> Any:
    """Rows to score, in their order; None for all."""
    import numpy

    if count <= most:
        return None
    return numpy.sort(numpy.random.default_rng(seed).choice(count, max(3, most), replace=False))


def _label_accuracy(console: Console, Z: Any, labels: Any, metric: str) -> float | None:
    """How many labels the neighbours tell, of rows that have one; None where labels are no classes."""
    import numpy

    from cartograd import metrics

    if labels.dtype.kind in "Mm" or (labels.dtype.kind == "f" and not _whole(labels)):
        console.note("the labels are quantities, not classes: there is no label accuracy")
        return None
    known = numpy.array([value is not None and value == value for value in labels.tolist()])
    if labels.dtype.kind in "iuf":
        known &= labels != -1
    classes = numpy.unique(labels[known].astype(str), return_inverse=True)
    if len(classes[1]) < 2 or len(classes[0]) in (1, len(classes[1])):
        console.note("the labels are all alike or all different: there is no label accuracy")
        return None
    return metrics.knn_label_accuracy(Z[known], classes[1], min(VOTERS, len(classes[1]) - 1), metric=metric)


def _whole(values: Any) -> bool:
    import numpy

    there = values[~numpy.isnan(values)]
    return bool(numpy.isfinite(there).all() and (there == numpy.floor(there)).all())


def score_lines(scores: dict[str, Any], count: int) -> list[str]:
    """Scores for people: the figure, its name, what it means."""
    from cartograd.cli.wording import table_lines

    if not scores:
        return []
    rows, k = scores["rows"], scores["k"]
    which = "all rows" if rows == count else f"{rows:,} of the {count:,} rows, drawn at random"
    named = {name.format(k=k): meaning.format(k=k) for name, meaning in MEANING.items()}
    lines = [
        (name.replace("_", " "), f"{scores[name]:.3f}", meaning) for name, meaning in named.items() if name in scores
    ]
    return [f"Scores of {which} (1 is best):", *table_lines(lines)]
