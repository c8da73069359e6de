"""All thirteen estimators with short fits, and what the tests of awkward input need to know of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import cartograd

BASES = {"AffinityMatcher", "NeighborEmbedding", "NegativeSamplingNeighborEmbedding"}
"""Classes to build upon: no maps by themselves."""


@dataclass(frozen=True)
class Method:
    """One estimator.

    Parameters
    ----------
    name : str
        Its class.
    options : dict
        Parameters that make its fits short.
    enough : int, default=0
        With fewer different rows than this it warns that neighbours, perplexity or pairs are too many.
    metric : str, default="metric"
        The parameter for the metric; "" where there is none.
    is_layout : bool, default=True
        Whether it moves points: equal rows are then taken as one.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    enough: int = 0
    metric: str = "metric"
    is_layout: bool = True

    def make(self, **options: Any) -> Any:
        """A new estimator."""
        return getattr(cartograd, self.name)(**{"random_state": 0, **self.options, **options})

    def has(self, parameter: str) -> bool:
        """Whether it has this parameter."""
        return parameter in self.make().get_params()


def matrix(name: str, **options: Any) -> Method:
    """A method without a layout."""
    return Method(name, options, metric="", is_layout=False)


METHODS = {
    method.name: method
    for method in (
        Method("UMAP", {"n_neighbors": 15, "max_iter": 6}, enough=15),
        Method("LargeVis", {"max_iter": 6}, enough=31),
        Method("InfoTSNE", {"max_iter": 6, "early_exaggeration_iter": 3, "n_negatives": 20}, enough=31),
        Method("SNE", {"max_iter": 6}, enough=31),
        Method("TSNE", {"max_iter": 6, "early_exaggeration_iter": 3}, enough=31),
        Method("TSNEkhorn", {"max_iter": 4}, enough=31),
        Method("COSNE", {"max_iter": 4}, enough=31),
        Method("PACMAP", {"max_iter": 9, "iter_per_phase": 3}, enough=35),
        Method("PHATE", {"max_iter": 6, "t": 3}, enough=6, metric="metric_in"),
        matrix("PCA"),
        matrix("IncrementalPCA", n_components=2),
        matrix("ExactIncrementalPCA"),
        matrix("KernelPCA"),
    )
}
NAMES = list(METHODS)
LAYOUTS = [name for name in NAMES if METHODS[name].is_layout]
