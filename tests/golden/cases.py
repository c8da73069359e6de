"""The fits whose bits are kept: every method by torch and by kernels, with the options that change its path."""

from __future__ import annotations

import hashlib
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

import cartograd
from cartograd.affinity import EntropicAffinity, StudentAffinity


def clouds(n: int, d: int, seed: int) -> tuple[Any, Any]:
    """Return n rows in five clouds, (n, d) float32, and which cloud each row is from."""
    random = numpy.random.RandomState(seed)
    labels = random.randint(0, 5, n)
    return (random.randn(n, d) + 4 * random.randn(5, d)[labels]).astype("float32"), labels


SMALL, LABELS = clouds(300, 6, seed=0)
LARGE, LARGE_LABELS = clouds(4200, 6, seed=1)
NEW = clouds(20, 6, seed=2)[0]
TWICE = numpy.concatenate([SMALL[:200], SMALL[:40]])
SHORT = {"random_state": 0, "check_interval": 10}
FEW = {"max_iter": 40, **SHORT}


class OwnRepulsion(cartograd.TSNE):
    """t-SNE with a repulsion of its own, which the engine differentiates."""

    def _compute_repulsive_loss(self) -> Any:
        Z = self.embedding_
        s = ((Z[:, None] - Z[None]) ** 2).sum(-1)
        return (1 / (1 + s) ** 2).sum().log()


class OwnAttraction(cartograd.UMAP):
    """UMAP with an attraction of its own, which the engine differentiates."""

    def _compute_attractive_loss(self) -> Any:
        Z, graph = self.embedding_, self.affinity_in_
        rows = graph.rows()
        return (graph.weights * ((Z[rows] - Z[graph.indices]) ** 2).sum(1)).sum() / len(SMALL)


@dataclass(frozen=True)
class Case:
    """A fit.

    Parameters
    ----------
    make : function
        Makes the estimator, unfitted.
    X, y : arrays
        Rows and labels.
    new : array, default=None
        Rows to be placed; None where there is nothing to place.
    resumed : bool, default=True
        Whether it is interrupted and resumed, too.
    distributed : bool, default=False
        Whether it is fitted by two processes, too.
    """

    make: Callable[[], Any]
    X: Any
    y: Any = None
    new: Any = None
    resumed: bool = True
    distributed: bool = False


def _case(name: str, X: Any, y: Any = None, new: Any = NEW, *, shared: bool = False, **options: Any) -> Case:
    return Case(lambda: getattr(cartograd, name)(**{**FEW, **options}), X, y, new, distributed=shared)


def _plain(name: str, X: Any = SMALL, **options: Any) -> Case:
    return Case(lambda: getattr(cartograd, name)(random_state=0, **options), X, None, NEW, resumed=False)


NEIGHBORS = {"n_neighbors": 8}
PERPLEXITY = {"perplexity": 8}
EXAGGERATED = {**PERPLEXITY, "early_exaggeration_iter": 15}
PHASES = {"n_neighbors": 6, "iter_per_phase": 12}
NETWORK = {"encoder": "mlp", "hidden_sizes": (8,), "n_epochs": 4}

CASES: dict[str, Case] = {
    "UMAP, torch": _case("UMAP", SMALL, shared=True, **NEIGHBORS),
    "UMAP, kernels": _case("UMAP", LARGE, shared=True, max_iter=30, **NEIGHBORS),
    "UMAP, kernels, 3 dimensions, strength 2": _case(
        "UMAP", LARGE, max_iter=12, n_components=3, repulsion_strength=2.0, **NEIGHBORS
    ),
    "UMAP, kernels, float64 rows": _case("UMAP", LARGE.astype("float64"), max_iter=12, **NEIGHBORS),
    "UMAP, float64": _case("UMAP", SMALL, precision="float64", **NEIGHBORS),
    "UMAP, labels": _case("UMAP", SMALL, numpy.where(LABELS == 3, -1, LABELS), **NEIGHBORS),
    "UMAP, kernels, labels": _case("UMAP", LARGE, LARGE_LABELS, max_iter=12, **NEIGHBORS),
    "UMAP, equal rows": _case("UMAP", TWICE, **NEIGHBORS),
    "UMAP, spectral, cosine, strength": _case(
        "UMAP", SMALL, init="spectral", metric="cosine", repulsion_strength=1.5, negative_sample_rate=3, **NEIGHBORS
    ),
    "UMAP, Adam": _case("UMAP", SMALL, optimizer="Adam", lr=0.1, scheduler="ExponentialLR",
                        scheduler_kwargs={"gamma": 0.99}, **NEIGHBORS),
    "UMAP, momentum": _case("UMAP", SMALL, optimizer_kwargs={"momentum": 0.5}, **NEIGHBORS),
    "UMAP, exaggeration, discard": _case(
        "UMAP", SMALL, early_exaggeration_coeff=2.0, early_exaggeration_iter=10, discard_NNs=True, **NEIGHBORS
    ),
    "UMAP, one dimension": _case("UMAP", SMALL, n_components=1, **NEIGHBORS),
    "UMAP, own attraction": Case(lambda: OwnAttraction(**FEW, **NEIGHBORS), SMALL, None, NEW, resumed=False),
    "UMAP, mlp": Case(lambda: cartograd.UMAP(**NEIGHBORS, **NETWORK, random_state=0), SMALL, None, NEW, resumed=False),
    "TSNE, exact": _case("TSNE", SMALL, method="exact", shared=True, **EXAGGERATED),
    "TSNE, grid, torch": _case("TSNE", SMALL, method="fft", shared=True, **EXAGGERATED),
    "TSNE, kernels": _case("TSNE", LARGE, max_iter=24, shared=True, **EXAGGERATED),
    "TSNE, kernels, exact, 3 dimensions": _case(
        "TSNE", LARGE, max_iter=8, n_components=3, method="exact", **EXAGGERATED
    ),
    "TSNE, Adam": _case("TSNE", SMALL, optimizer="Adam", lr=0.5, method="exact", **EXAGGERATED),
    "TSNE, dense": _case("TSNE", SMALL, sparsity=False, method="exact", **EXAGGERATED),
    "TSNE, own repulsion": Case(lambda: OwnRepulsion(**FEW, **EXAGGERATED), SMALL, None, NEW, resumed=False),
    "TSNE, mlp": Case(lambda: cartograd.TSNE(**PERPLEXITY, **NETWORK, random_state=0), SMALL, None, NEW, resumed=False),
    "SNE": _case("SNE", SMALL, shared=True, **PERPLEXITY),
    "SNE, dense": _case("SNE", SMALL, sparsity=False, **PERPLEXITY),
    "TSNEkhorn": _case("TSNEkhorn", SMALL[:150], max_iter=20, shared=True, **PERPLEXITY),
    "TSNEkhorn, unrolling": _case("TSNEkhorn", SMALL[:100], max_iter=6, unrolling=True, **PERPLEXITY),
    "COSNE": _case("COSNE", SMALL[:200], max_iter=20, shared=True, **PERPLEXITY),
    "LargeVis, torch": _case("LargeVis", SMALL, shared=True, **PERPLEXITY),
    "LargeVis, kernels": _case("LargeVis", LARGE, max_iter=20, shared=True, **PERPLEXITY),
    "LargeVis, mlp": Case(
        lambda: cartograd.LargeVis(**PERPLEXITY, **NETWORK, random_state=0), SMALL, None, NEW, resumed=False
    ),
    "InfoTSNE, torch": _case("InfoTSNE", SMALL, n_negatives=20, shared=True, **EXAGGERATED),
    "InfoTSNE, kernels": _case("InfoTSNE", LARGE, max_iter=12, n_negatives=20, shared=True, **EXAGGERATED),
    "InfoTSNE, mlp": Case(
        lambda: cartograd.InfoTSNE(**PERPLEXITY, **NETWORK, n_negatives=20, random_state=0),
        SMALL, None, NEW, resumed=False,
    ),
    "PACMAP, torch": _case("PACMAP", SMALL, shared=True, **PHASES),
    "PACMAP, kernels": _case("PACMAP", LARGE, max_iter=36, shared=True, **PHASES),
    "PACMAP, kernels, 3 dimensions": _case("PACMAP", LARGE, max_iter=12, n_components=3, n_neighbors=6,
                                           iter_per_phase=4),
    "PACMAP, mlp": Case(
        lambda: cartograd.PACMAP(**PHASES, **NETWORK, random_state=0), SMALL, None, NEW, resumed=False
    ),
    "PHATE": _case("PHATE", SMALL[:200], max_iter=20, t=5),
    "AffinityMatcher": Case(
        lambda: cartograd.AffinityMatcher(
            affinity_in=EntropicAffinity(perplexity=8), affinity_out=StudentAffinity(),
            loss_fn="cross_entropy_loss", optimizer="Adam", lr=0.1, **FEW,
        ),
        SMALL[:150], None, None, resumed=False,
    ),
    "PCA": _plain("PCA", n_components=3),
    "IncrementalPCA": _plain("IncrementalPCA", n_components=3, batch_size=50),
    "ExactIncrementalPCA": _plain("ExactIncrementalPCA", n_components=3),
    "KernelPCA": _plain("KernelPCA", n_components=3),
}  # fmt: skip


def digest(array: Any) -> str:
    """Return the SHA-256 of an array's dtype, shape and bytes."""
    array = numpy.ascontiguousarray(array)
    return hashlib.sha256(f"{array.dtype} {array.shape} ".encode() + array.tobytes()).hexdigest()[:32]


def digests(model: Any, case: Case) -> dict[str, str]:
    """Return the digests of a fitted model: map, losses, number of steps, coordinates of new rows."""
    found = {
        "embedding_": digest(model.embedding_ if hasattr(model, "embedding_") else model.transform(case.X)),
        "loss_": digest(numpy.asarray(getattr(model, "loss_", []), dtype=numpy.float64)),
        "n_iter_": str(getattr(model, "n_iter_", 0)),
    }
    if case.new is not None:
        found["transform"] = digest(model.transform(case.new))
    return found


class Interrupted(Exception):
    """Ends a fit in its middle."""


def fitted(case: Case) -> Any:
    """Return the fitted estimator of a case."""
    return case.make().fit(case.X, case.y)


def fitted_in_two_parts(case: Case) -> Any:
    """Return the fitted estimator of a case that was interrupted between two checkpoints and resumed."""

    def interrupt(step: int, embedding: Any, loss: float) -> None:
        raise Interrupted

    with tempfile.TemporaryDirectory() as folder:
        model = case.make()
        every = {"checkpoint_dir": folder, "checkpoint_every": 4}
        first = case.make().set_params(**every, check_interval=6, callbacks=[interrupt])
        try:
            first.fit(case.X, case.y)
        except Interrupted:
            pass
        else:
            raise AssertionError("the fit was not interrupted")
        return model.set_params(**every, check_interval=10).fit(case.X, case.y)


def all_digests(names: list[str], fit: Callable[[Case], Any] = fitted) -> dict[str, dict[str, str]]:
    """Return the digests of some cases."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: digests(fit(CASES[name]), CASES[name]) for name in names}
