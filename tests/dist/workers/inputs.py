"""Rows in all forms in which processes may have them, and what is done with a map that several made."""

import warnings

import numpy
import torch
from common import FOLDER, RANK, SIZE, alone, rows, run, same, shard
from scipy.sparse import csr_array

import cartograd
from cartograd import metrics
from cartograd.distributed import all_rows

X = rows(600)
LABELS = numpy.arange(600) % 4 - 1
STEPS = {"max_iter": 10, "random_state": 1, "check_interval": 5}
METHODS = {
    "UMAP": cartograd.UMAP(n_neighbors=8, **STEPS),
    "LargeVis": cartograd.LargeVis(perplexity=8, **STEPS),
    "PACMAP": cartograd.PACMAP(n_neighbors=6, iter_per_phase=4, **STEPS),
    "InfoTSNE": cartograd.InfoTSNE(perplexity=8, n_negatives=20, **STEPS),
    "TSNE": cartograd.TSNE(perplexity=8, method="exact", **STEPS),
    "TSNE, fft": cartograd.TSNE(perplexity=8, method="fft", **STEPS),
    "SNE": cartograd.SNE(perplexity=8, **STEPS),
}
BITWISE = ("UMAP", "LargeVis", "PACMAP") if SIZE in (2, 4) else ("UMAP", "PACMAP")


def umap(**options):
    return cartograd.UMAP(**{"n_neighbors": 8, **STEPS, **options})


def within(name):
    return 0.0 if name in BITWISE else 1e-4


def spread(model, whole, parts=None, y=None, tolerance=0.0):
    """Fit a process's own rows; compare with the map of all that a process makes alone."""
    own = shard(whole, parts)
    Z = model.fit_transform(own, None if y is None else shard(y, parts))
    assert len(Z) == own.shape[0]
    same(Z, shard(alone(model, whole, y), parts), tolerance)
    return model


def sharded_rows():
    for name, model in METHODS.items():
        spread(model, X, tolerance=within(name))


def shards_of_all_sizes():
    tiny = [600 - 3 * (SIZE - 1)] + [3] * (SIZE - 1)
    for parts in (tiny, tiny[::-1]):
        spread(umap(), X, parts)
        spread(cartograd.PACMAP(n_neighbors=6, iter_per_phase=4, **STEPS), X, parts)
        spread(METHODS["TSNE"], X, parts, tolerance=1e-4)


def fewer_rows_than_blocks():
    spread(umap(n_neighbors=4), X[:20])
    spread(umap(n_neighbors=2), X[: SIZE + 3], [4] + [1] * (SIZE - 1))


def replicated_small():
    same(umap(n_neighbors=4).fit_transform(X[:20]), alone(umap(n_neighbors=4), X[:20]))


def equal_rows():
    doubled = numpy.concatenate([X[:300], X[:150], X[1:151]])
    spread(umap(distributed="sharded"), doubled)
    same(umap().fit_transform(doubled), alone(umap(), doubled))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # all rows are equal
        spread(umap(distributed="sharded"), numpy.ones((8 * SIZE, 3), "float32") * numpy.arange(1, 4))


def shards_that_begin_alike():
    own = numpy.concatenate([X[:1], shard(X[1:])])
    Z = umap(distributed="sharded").fit_transform(own)
    assert Z.shape == (len(own), 2)
    same(Z[:1], all_rows(Z)[:1])


def float64_and_torch():
    wide = X.astype("float64")
    spread(umap(), wide)
    same(umap().fit_transform(wide), alone(umap(), wide))
    Z = umap().fit_transform(torch.from_numpy(shard(X)))
    assert isinstance(Z, torch.Tensor)
    same(Z, shard(alone(umap(), X)))
    Z = umap().fit_transform(torch.from_numpy(shard(wide)))
    assert Z.dtype == torch.float64
    half = X.astype("float16")
    spread(umap(), half)
    spread(umap(), (X * 10).astype("int32"))


def sparse_rows():
    thin = csr_array(numpy.where(X > 1, X, 0))
    same(umap().fit_transform(thin), alone(umap(), thin))
    start = 600 * RANK // SIZE
    own = thin[start : 600 * (RANK + 1) // SIZE]
    same(umap().fit_transform(own), shard(alone(umap(), thin)))


def a_file_of_rows():
    path = FOLDER / f"rows-{RANK}.npy"
    numpy.save(path, X)
    mapped = numpy.load(path, mmap_mode="r")
    same(umap().fit_transform(mapped), alone(umap(), X))
    same(umap().fit_transform(shard(mapped)), shard(alone(umap(), X)))


def batches_of_own_rows():
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.from_numpy(shard(X))), batch_size=50)
    same(umap().fit_transform(loader), shard(alone(umap(), X)))
    loader = torch.utils.data.DataLoader(torch.from_numpy(X), batch_size=64)
    same(umap().fit_transform(loader), alone(umap(), X))


def labels():
    spread(umap(), X, y=LABELS)
    same(umap().fit_transform(X, LABELS), alone(umap(), X, LABELS))
    words = numpy.array([f"class {one}" if one >= 0 else None for one in LABELS], dtype=object)
    same(umap().fit_transform(shard(X), shard(words)), shard(alone(umap(), X, LABELS)))
    mixed = shard(LABELS).astype("float64") if RANK == 0 else shard(LABELS)
    same(umap().fit_transform(shard(X), mixed), shard(alone(umap(), X, LABELS)))


def other_metrics():
    for metric in ("cosine", "manhattan", "sqeuclidean"):
        spread(umap(metric=metric), X)
    spread(umap(metric=lambda a, b: (a - b).abs().amax(-1)), X)
    D = numpy.sqrt(((X[:, None] - X) ** 2).sum(2))
    same(umap(metric="precomputed").fit_transform(D), alone(umap(metric="precomputed"), D))
    spread(umap(metric="precomputed"), D)


def given_neighbours():
    knn = cartograd.neighbors.search(X, 8)
    same(umap(precomputed_knn=knn).fit_transform(X), alone(umap(precomputed_knn=knn), X))


def starts():
    first = rows(600, 2, seed=3)
    for init in ("normal", "spectral", first):
        same(umap(init=init).fit_transform(X), alone(umap(init=init), X))
        spread(umap(init=init), X)


def generators_that_stand_elsewhere():
    """The first process's seed is taken by all."""
    Z = umap(random_state=numpy.random.RandomState(RANK)).fit_transform(X)
    same(Z, alone(umap(random_state=numpy.random.RandomState(0)), X))


def a_loss_of_ones_own():
    """Each process makes the whole map."""

    class Own(cartograd.UMAP):
        def _compute_attractive_loss(self):
            return 2 * super()._compute_attractive_loss()

    model = Own(n_neighbors=8, **STEPS)
    same(model.fit_transform(X[:200]), alone(model, X[:200]))
    spread(model, X[:200])


def duplicates_that_are_kept():
    doubled = numpy.concatenate([X[:300], X[1:301]])
    spread(umap(process_duplicates=False), doubled)


def transforms():
    new = rows(90, seed=5)
    for name in ("UMAP", "TSNE", "PACMAP", "LargeVis"):
        expected = METHODS[name].set_params(distributed=False).fit(X).transform(new)
        METHODS[name].set_params(distributed="auto")
        known = METHODS[name].fit(X)
        same(known.transform(new), expected, within(name))
        same(known.transform(X), known.embedding_)
        if RANK == 0:  # all rows are here: nobody else is asked
            same(known.transform(new), expected, within(name))
        known = METHODS[name].fit(shard(X))
        same(known.transform(shard(new)), shard(expected), within(name))
        same(known.transform(shard(X)), known.embedding_)
        same(known.transform(new if RANK == 0 else new[:1]), expected if RANK == 0 else expected[:1], within(name))


def saved_and_loaded():
    path = FOLDER / f"model-{RANK}.cartograd"
    new = rows(90, seed=5)
    model = umap().fit(X)
    model.save(path)
    same(cartograd.load(path).transform(new), model.transform(new))
    model = umap().fit(shard(X))
    model.save(path)
    again = cartograd.load(path)
    same(again.embedding_, model.embedding_)
    same(again.transform(shard(new)), model.transform(shard(new)))


def components_by_sums():
    expected = cartograd.PCA(n_components=3, distributed=False).fit(X)
    for kind in (cartograd.PCA, cartograd.ExactIncrementalPCA):
        found = kind(n_components=3).fit(shard(X))
        same(found.components_, expected.components_, 1e-5)
        same(found.mean_, expected.mean_, 1e-6)
        same(found.transform(shard(X)), shard(expected.transform(X)), 1e-5)
        same(kind(n_components=3).fit(X).components_, expected.components_, 1e-5)
    uneven = cartograd.PCA(n_components=3).fit(shard(X, [600 - 2 * (SIZE - 1)] + [2] * (SIZE - 1)))
    same(uneven.components_, expected.components_, 1e-5)


def scores():
    Z = umap().fit_transform(shard(X))
    whole, data, named = all_rows(Z), all_rows(shard(X)), all_rows(shard(LABELS))
    assert numpy.array_equal(data, X)
    assert numpy.array_equal(named, LABELS)
    found = metrics.trustworthiness(data, whole, n_neighbors=10)
    assert found == metrics.trustworthiness(X, alone(umap(), X), n_neighbors=10)
    assert isinstance(all_rows(torch.from_numpy(Z)), torch.Tensor)


def everything_again():
    """A second fit of the same model, other sizes, and a fit alone in between."""
    model = umap()
    first = model.fit_transform(X)
    alone(umap(), X[:100])
    model.fit_transform(X[:400])
    same(model.fit_transform(X), first)
    same(model.fit_transform(shard(X)), shard(first))


def a_slow_process():
    import time

    def wait(*told):
        time.sleep(0.1 * RANK)

    same(umap(callbacks=[wait]).fit_transform(X), alone(umap(), X))


def a_callback_that_ends_it():
    stop = [lambda step, Z, loss: step == 5 and RANK == SIZE - 1]
    model = umap(callbacks=stop).fit(X)
    assert model.n_iter_ == 5
    same(model.embedding_, alone(umap(callbacks=[lambda step, Z, loss: step == 5]), X))


def callbacks_see_own_rows():
    seen = []
    model = umap(callbacks=[lambda step, Z, loss: seen.append(Z)]).fit(shard(X))
    assert [len(Z) for Z in seen] == [len(shard(X))] * 2
    same(seen[-1], model.embedding_)


CHECKS = [
    sharded_rows,
    shards_of_all_sizes,
    fewer_rows_than_blocks,
    replicated_small,
    equal_rows,
    shards_that_begin_alike,
    float64_and_torch,
    sparse_rows,
    a_file_of_rows,
    batches_of_own_rows,
    labels,
    other_metrics,
    given_neighbours,
    starts,
    generators_that_stand_elsewhere,
    a_loss_of_ones_own,
    duplicates_that_are_kept,
    transforms,
    saved_and_loaded,
    components_by_sums,
    scores,
    everything_again,
    a_slow_process,
    a_callback_that_ends_it,
    callbacks_see_own_rows,
]

if __name__ == "__main__":
    run(CHECKS)
