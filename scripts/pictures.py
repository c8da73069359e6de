"""Makes the pictures in docs/pictures: built-in data, fixed seeds, colours of the viewer.

``python scripts/pictures.py`` makes all of them, ``python scripts/pictures.py min_dist labels`` the two named.
The figures on the panels are shares of each row's 15 nearest neighbours that are among its 15 nearest in the map.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
from matplotlib.collections import LineCollection
from picture_panels import (
    FOLDER,
    GROUND,
    INK,
    LINE,
    PANEL,
    QUIET,
    Panel,
    digits,
    framed,
    headed,
    kept,
    on_digits,
    panels,
    pyplot,
    save,
    sheet,
    tree,
)

import cartograd
from cartograd.affinity import GaussianAffinity
from cartograd.embedding.umap_curve import fit_curve
from cartograd.embedding.umap_forces import attraction, repulsion
from cartograd.viewer.colors import PALETTE

# parameters


def n_neighbors() -> Any:
    """UMAP of the digits with few and many neighbours."""
    return panels(
        [on_digits(f"n_neighbors={k}", cartograd.UMAP(n_neighbors=k, max_iter=300)) for k in (3, 10, 30, 200)]
    )


def min_dist() -> Any:
    """UMAP with points that may lie close or not."""
    chosen = (0.0, 0.1, 0.5, 0.99)
    return panels([on_digits(f"min_dist={d}", cartograd.UMAP(15, min_dist=d, max_iter=300)) for d in chosen])


def perplexity() -> Any:
    """t-SNE with small and large perplexity."""
    return panels([on_digits(f"perplexity={p}", cartograd.TSNE(perplexity=p, max_iter=500)) for p in (3, 10, 30, 200)])


def exaggeration() -> Any:
    """t-SNE without, with early and with lasting exaggeration."""
    lot = {"init": "normal", "max_iter": 500}
    return panels(
        [
            on_digits(
                "none, start by lot", cartograd.TSNE(early_exaggeration_coeff=1, early_exaggeration_iter=0, **lot)
            ),
            on_digits("early, start by lot", cartograd.TSNE(**lot)),
            on_digits("early, PCA start", cartograd.TSNE(max_iter=500)),
            on_digits(
                "4 in all steps",
                cartograd.TSNE(early_exaggeration_coeff=4, early_exaggeration_iter=500, max_iter=500),
            ),
        ]
    )


def repulsion_strength() -> Any:
    """UMAP with weak and strong repulsion."""
    chosen = (0.1, 0.5, 1.0, 4.0)
    models = [cartograd.UMAP(15, repulsion_strength=r, max_iter=300) for r in chosen]
    return panels([on_digits(f"repulsion_strength={r:g}", model) for r, model in zip(chosen, models, strict=True)])


def init() -> Any:
    """UMAP from four starts."""
    chosen = (("pca", 0), ("spectral", 0), ("normal", 0), ("normal", 1))
    models = [cartograd.UMAP(15, init=start, random_state=seed, max_iter=300) for start, seed in chosen]
    titles = ['init="pca"', 'init="spectral"', 'init="normal", seed 0', 'init="normal", seed 1']
    return panels([on_digits(title, model) for title, model in zip(titles, models, strict=True)])


def metric() -> Any:
    """UMAP by four ways to compare rows; neighbours are counted in each one's own metric."""
    found = []
    for name in ("euclidean", "manhattan", "cosine", "hamming"):
        panel = on_digits(f'metric="{name}"', cartograd.UMAP(15, metric=name, max_iter=300))
        found.append(panel._replace(quiet=kept(digits()[0], panel.places, name)))
    return panels(found)


def labels() -> Any:
    """UMAP with no labels, all, a tenth of them, and labels that mean nothing."""
    _, y = digits()
    rng = numpy.random.default_rng(0)
    few = numpy.where(rng.random(len(y)) < 0.1, y, -1)
    lot = rng.permutation(y)
    options = {"n_neighbors": 15, "max_iter": 300}
    by_lot = on_digits("labels by lot, weight 0.99", cartograd.UMAP(target_weight=0.99, **options), lot)
    return panels(
        [
            on_digits("no labels", cartograd.UMAP(**options)),
            on_digits("all labels", cartograd.UMAP(**options), y),
            on_digits("labels of 1 row in 10", cartograd.UMAP(**options), few),
            by_lot._replace(labels=lot, names=False),
        ]
    )


def seeds() -> Any:
    """UMAP with four seeds."""
    return panels([on_digits(f"random_state={s}", cartograd.UMAP(15, random_state=s, max_iter=300)) for s in range(4)])


# how it works


def toy() -> tuple[Any, Any]:
    """A dense arc beside a sparse cloud, (80, 2)."""
    rng = numpy.random.default_rng(7)
    angle = numpy.sort(rng.uniform(0.5, 3.3, 45))
    arc = numpy.column_stack([numpy.cos(angle), numpy.sin(angle)]) * 1.5 + rng.normal(scale=0.1, size=(45, 2))
    cloud = numpy.array([1.9, -0.7]) + rng.uniform(-1, 1, size=(35, 2)) * [0.9, 0.9]
    return numpy.concatenate([arc, cloud]), numpy.repeat([0, 1], [45, 35])


def graph() -> Any:
    """From rows to a weighted graph, on points of the plane."""
    X, names = toy()
    indices, distances = cartograd.neighbors.search(X, 5)
    rho, sigma = cartograd.affinity.smooth_distances(torch.from_numpy(distances), 1.0)
    weights = cartograd.UMAPAffinity(n_neighbors=6)(X)
    nearest = numpy.stack([numpy.repeat(numpy.arange(len(X)), 5), indices.ravel()], 1)
    figure, axes = sheet(4)
    heads = [
        ("1  rows", "80 points of two kinds"),
        ("2  neighbours", "the 5 nearest of each"),
        ("3  reach", "as far as the weight falls to 1/e"),
        ("4  affinities", "the union: one weight for each pair"),
    ]
    for ax, head in zip(axes, heads, strict=True):
        cartograd.plot(X, names, ax=ax, legend=False, size=4.2)
        framed(ax)
        headed(ax, *head)
    _edges(axes[1], X, nearest, numpy.full(len(nearest), 0.35))
    reach = zip(X[::6], (rho + sigma).numpy()[::6], names[::6], strict=True)
    for place, radius, name in reach:
        color = PALETTE[name]
        axes[2].add_patch(pyplot.Circle(place, radius, facecolor=color, alpha=0.16, edgecolor="none"))
        axes[2].add_patch(pyplot.Circle(place, radius, facecolor="none", edgecolor=color, linewidth=0.9))
    _edges(axes[3], X, numpy.stack([weights.rows().numpy(), weights.indices.numpy()], 1), weights.weights.numpy())
    return figure


def _edges(ax: Any, X: Any, pairs: Any, weights: Any) -> None:
    lines = LineCollection(X[pairs], colors=INK, alpha=numpy.clip(0.75 * weights, 0, 1), linewidths=0.7, zorder=0.5)
    ax.add_collection(lines)


def curve() -> Any:
    """How alike two points of the map are by their distance, and the forces that follow."""
    figure, axes = pyplot.subplots(1, 2, figsize=(4 * PANEL, 2.9), facecolor=GROUND)
    figure.subplots_adjust(0.055, 0.15, 0.985, 0.85, wspace=0.17)
    d = numpy.linspace(0.02, 4, 400)
    for place, closest in enumerate((0.0, 0.1, 0.5, 0.99)):
        a, b = fit_curve(closest, 1.0)
        axes[0].plot(d, 1 / (1 + a * d ** (2 * b)), color=PALETTE[place], label=f"UMAP, min_dist={closest}")
    axes[0].plot(d, 1 / (1 + d**2), color=INK, linestyle="--", linewidth=1.2, label="t-SNE, Student")
    axes[0].plot(d, numpy.exp(-(d**2)), color=QUIET, linestyle=":", linewidth=1.4, label="SNE, Gauss")
    a, b = fit_curve(0.1, 1.0)
    apart = torch.stack([torch.from_numpy(d), torch.zeros(len(d), dtype=torch.float64)], 1)
    axes[1].plot(d, attraction(apart, a, b)[:, 0], color=PALETTE[0], label="pull of an edge, UMAP")
    axes[1].plot(d, -repulsion(apart, a, b)[:, 0], color=PALETTE[1], label="push of a negative, UMAP")
    axes[1].plot(d, 2 * d / (1 + d**2), color=INK, linestyle="--", linewidth=1.2, label="pull of an edge, t-SNE")
    axes[1].set_ylim(0, 4.3)
    for ax, head in zip(axes, ("likeness q of two points", "force between two points"), strict=True):
        ax.set_facecolor("white")
        ax.spines[:].set(color=LINE)
        ax.tick_params(colors=QUIET, labelsize=7, length=2)
        ax.set_xlim(0, 4)
        ax.set_xlabel("distance in the map", color=QUIET, fontsize=8)
        ax.legend(frameon=False, fontsize=7.5, labelcolor=INK)
        ax.text(0, 1.04, head, transform=ax.transAxes, fontsize=9, fontweight="bold", color=INK)
    return figure


def steps() -> Any:
    """t-SNE of the digits on its way."""
    X, names = digits()
    seen = {}
    model = cartograd.TSNE(
        max_iter=500, check_interval=50, callbacks=[lambda at, Z, loss: seen.update({at: (Z, loss)})]
    )
    model.fit(X)
    found = [Panel("start", cartograd.PCA().fit_transform(X), names, "principal components")]
    for at, what in ((50, "12 x attraction"), (250, "12 x attraction"), (500, "1 x attraction")):
        Z, loss = seen[at]
        found.append(Panel(f"step {at}", Z, names, f"{what}, KL divergence {loss:.2f}"))
    return panels(found)


# questions


def start() -> Any:
    """The map of docs/start.md, with its legend."""
    X, y = digits()
    axes = cartograd.plot(cartograd.UMAP(random_state=0).fit_transform(X), y, title="Handwritten digits", size=3)
    axes.set_facecolor(GROUND)
    axes.figure.set_size_inches(6.0, 4.4)
    return axes.figure


def distances() -> Any:
    """Three clusters whose widths and distances differ, and what maps make of that."""
    rng = numpy.random.default_rng(0)
    middle, width = numpy.array([[0.0, 0.0], [5.0, 2.0], [34.0, 0.0]]), numpy.array([0.5, 0.5, 4.0])
    kind = numpy.repeat(numpy.arange(3), 150)
    X = (middle[kind] + width[kind, None] * rng.normal(size=(450, 2))).astype("float32")
    found = [("the data", X, "in the plane: no map needed")]
    for model in (cartograd.TSNE(max_iter=500), cartograd.UMAP(15, max_iter=300), cartograd.PACMAP()):
        Z = model.fit_transform(X)
        found.append((type(model).__name__, Z, kept(X, Z)))
    letters = numpy.array(["a", "b", "c"])[kind]
    return panels([Panel(title, Z, letters, quiet) for title, Z, quiet in found], size=2.4)


def noise() -> Any:
    """Maps of rows that have no structure at all."""
    X = numpy.random.default_rng(0).normal(size=(600, 20)).astype("float32")
    chosen = {
        "TSNE, perplexity=3": cartograd.TSNE(perplexity=3, max_iter=500),
        "TSNE, perplexity=30": cartograd.TSNE(max_iter=500),
        "UMAP, n_neighbors=3": cartograd.UMAP(3, max_iter=300),
        "UMAP, n_neighbors=30": cartograd.UMAP(max_iter=300),
    }
    found = [(title, model.fit_transform(X)) for title, model in chosen.items()]
    return panels([Panel(title, Z, None, kept(X, Z)) for title, Z in found], size=2.2)


# methods


def of_both(name: str, options: dict[str, Any], on_tree: dict[str, Any] | None = None) -> list[Panel]:
    """The digits and the tree by one method."""
    found = []
    bent = "sqhyperbolic" if name == "COSNE" else "euclidean"
    for title, (X, names), given in (("digits", digits(), options), ("tree", tree(), on_tree or options)):
        Z = getattr(cartograd, name)(**given).fit_transform(X)
        found.append(Panel(title, Z, names, kept(X, Z, in_map=bent)))
    return found


def method(name: str, on_tree: dict[str, Any] | None = None, **options: Any) -> Callable[[], Any]:
    """The picture of a method: the digits, and the tree."""

    def drawn() -> Any:
        figure = panels(of_both(name, options, on_tree), columns=2, size=2.1)
        for ax in figure.axes if name == "COSNE" else ():
            ax.add_patch(pyplot.Circle((0, 0), 1, facecolor="none", edgecolor=QUIET, linewidth=0.8))
        return figure

    return drawn


def kernel(width: float) -> dict[str, Any]:
    """A Gaussian kernel of this width, for KernelPCA."""
    return {"affinity": GaussianAffinity(sigma=width, zero_diag=False)}


def pca_family() -> Any:
    """Three ways to the same principal components."""
    batches = cartograd.IncrementalPCA(n_components=2, batch_size=200)
    exact = cartograd.ExactIncrementalPCA()
    found = of_both("PCA", {})
    digit, branches = found[0]._replace(title="digits, PCA"), found[1]._replace(title="tree, PCA")
    return panels([digit, branches, on_digits("digits, IncrementalPCA", batches), on_digits("digits, exact", exact)])


METHODS = {
    "umap": method("UMAP", max_iter=500),
    "tsne": method("TSNE", max_iter=500),
    "infotsne": method("InfoTSNE", max_iter=500),
    "largevis": method("LargeVis", max_iter=500),
    "pacmap": method("PACMAP"),
    "sne": method("SNE", max_iter=500),
    "tsnekhorn": method("TSNEkhorn", max_iter=300),
    "cosne": method("COSNE", init="pca", early_exaggeration_coeff=12.0, early_exaggeration_iter=250, max_iter=500),
    "pca": pca_family,
    "kernelpca": method("KernelPCA", kernel(2.0), **kernel(1000.0)),
    "phate": method("PHATE", max_iter=300),
}
FIGURES: dict[str, Callable[[], Any]] = {
    one.__name__: one
    for one in (
        *(
            start,
            graph,
            curve,
            steps,
            n_neighbors,
            min_dist,
            perplexity,
            exaggeration,
            repulsion_strength,
            init,
            metric,
        ),
        *(labels, seeds, distances, noise),
    )
} | METHODS


def main(wanted: Sequence[str]) -> int:
    """Make the pictures named, or all; how many names are unknown."""
    unknown = [name for name in wanted if name not in FIGURES]
    if unknown:
        print(f"there is no picture {unknown[0]!r}; there are {', '.join(FIGURES)}", file=sys.stderr)
        return len(unknown)
    FOLDER.mkdir(exist_ok=True)
    total = 0
    for name in wanted or FIGURES:
        size = save(FIGURES[name](), name)
        total += size
        print(f"docs/pictures/{name}.png  {size / 1000:.0f} kB", flush=True)
    print(f"{total / 1000:.0f} kB in all")
    return 0


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
