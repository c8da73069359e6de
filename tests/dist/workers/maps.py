"""Maps of every method from all rows and from own rows; how long each took goes to the output."""

import time

import numpy
from common import RANK, keep, rows

import cartograd

SMALL, LARGE = rows(600), rows(4200)
SAMPLED = {"max_iter": 10, "random_state": 1, "check_interval": 5}
ALWAYS = {
    "UMAP": (cartograd.UMAP(n_neighbors=8, **SAMPLED), SMALL),
    "UMAP, spectral": (cartograd.UMAP(n_neighbors=8, init="spectral", **SAMPLED), SMALL),
    "UMAP, large": (cartograd.UMAP(n_neighbors=8, **SAMPLED), LARGE),
    "UMAP, 3 dimensions, cosine": (cartograd.UMAP(n_neighbors=8, n_components=3, metric="cosine", **SAMPLED), SMALL),
    "LargeVis": (cartograd.LargeVis(perplexity=8, **SAMPLED), SMALL),
    "LargeVis, large": (cartograd.LargeVis(perplexity=8, **SAMPLED), LARGE),
    "PACMAP": (cartograd.PACMAP(n_neighbors=6, iter_per_phase=4, **SAMPLED), SMALL),
    "PACMAP, large": (cartograd.PACMAP(n_neighbors=6, iter_per_phase=4, **SAMPLED), LARGE),
    "InfoTSNE": (cartograd.InfoTSNE(perplexity=8, n_negatives=20, early_exaggeration_iter=5, **SAMPLED), SMALL),
    "InfoTSNE, large": (cartograd.InfoTSNE(perplexity=8, n_negatives=20, **SAMPLED), LARGE),
    "TSNE, exact": (cartograd.TSNE(perplexity=8, method="exact", early_exaggeration_iter=5, **SAMPLED), SMALL),
    "TSNE, fft": (cartograd.TSNE(perplexity=8, method="fft", early_exaggeration_iter=5, **SAMPLED), SMALL),
    "TSNE, fft, large": (cartograd.TSNE(perplexity=8, method="fft", early_exaggeration_iter=5, **SAMPLED), LARGE),
    "TSNE, Adam": (cartograd.TSNE(perplexity=8, method="exact", optimizer="Adam", lr=0.5, **SAMPLED), SMALL),
    "SNE": (cartograd.SNE(perplexity=8, **SAMPLED), SMALL),
    "COSNE": (cartograd.COSNE(perplexity=8, **SAMPLED), SMALL[:200]),
    "TSNEkhorn": (cartograd.TSNEkhorn(perplexity=8, distributed="auto", **SAMPLED), SMALL[:200]),
    "PHATE": (cartograd.PHATE(max_iter=10, random_state=1), SMALL[:200]),
}


def main():
    found = {}
    for name, (model, X) in ALWAYS.items():
        began = time.monotonic()
        found[name] = model.fit_transform(X)
        found[f"{name}, loss"] = numpy.array(model.loss_)
        print(RANK, name, round(time.monotonic() - began, 2), flush=True)
    keep(**found)


if __name__ == "__main__":
    main()
