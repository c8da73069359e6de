"""What goes wrong in one process, and what all of them say; after each the processes work together again."""

import os
import re
import signal
import time
import warnings

import numpy
import torch
from common import FOLDER, RANK, SIZE, alone, raised, rows, run, same, shard
from scipy.sparse import csr_array

import cartograd
from cartograd.distributed import all_rows, find_ranks
from cartograd.errors import (
    DistributedError,
    DivergedError,
    InputError,
    MemoryBudgetError,
    OptionError,
    UnsupportedError,
)

X = rows(300)
STEPS = {"max_iter": 10, "random_state": 1, "check_interval": 5, "n_neighbors": 8}
LAST = SIZE - 1


def umap(**options):
    return cartograd.UMAP(**{**STEPS, **options})


def fails(work, here, said, elsewhere=DistributedError, guilty=LAST):
    """`work` raises `here` in one process and its message in all others, soon; then a map is made as if nothing was."""
    began = time.monotonic()
    found = raised(work)
    assert time.monotonic() - began < 20
    assert isinstance(found, here if guilty == RANK else elsewhere), repr(found)
    assert re.search(said, str(found)), str(found)
    if guilty != RANK and guilty < SIZE and elsewhere is DistributedError:
        assert f"process {guilty} of {SIZE} failed" in str(found), str(found)
    if RANK == 0:
        assert find_ranks("auto")._depth == 0
    same(umap(max_iter=2).fit_transform(X), alone(umap(max_iter=2), X))


def a_bad_value():
    bad = X.copy()
    if RANK == LAST:
        bad[7, 3] = numpy.nan
    fails(lambda: umap().fit(bad), InputError, "NaN.*row 7, column 3")
    fails(lambda: umap().fit(shard(bad) if RANK < LAST else bad), InputError, "NaN.*row 7, column 3")
    fails(lambda: cartograd.PCA().fit(bad), InputError, "NaN.*row 7, column 3")
    fails(lambda: cartograd.TSNE().fit(bad), InputError, "NaN.*row 7, column 3")


def another_number_of_rows():
    fails(lambda: umap().fit(X[: 300 - RANK]), InputError, "begin with the same row", InputError)


def another_number_of_columns():
    own = shard(X)
    fails(lambda: umap().fit(own if RANK < LAST else own[:, :5]), InputError, "5 columns", InputError)


def another_precision():
    own = shard(X)
    fails(lambda: umap().fit(own if RANK < LAST else own.astype("float64")), InputError, "float64", InputError)


def no_rows():
    fails(lambda: umap().fit(shard(X) if RANK < LAST else X[:0]), InputError, "X is empty")


def no_array():
    fails(lambda: umap().fit(X if RANK < LAST else None), UnsupportedError, "None")


def no_file():
    path = FOLDER / ("there.npy" if RANK < LAST else "absent.npy")
    if RANK == 0:
        numpy.save(path, X)
    all_rows(torch.zeros(1))

    class Batches(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield from torch.from_numpy(numpy.load(path, mmap_mode="r").copy())

    loader = torch.utils.data.DataLoader(Batches(), batch_size=50)
    fails(lambda: umap().fit(loader), Exception, "absent.npy")


def other_parameters():
    fails(lambda: umap(n_neighbors=8 + (RANK == LAST)).fit(X), InputError, "n_neighbors is not the same", InputError)
    kind = cartograd.LargeVis if RANK == LAST else cartograd.UMAP
    fails(lambda: kind().fit(X), Exception, "same parameters", Exception)


def a_wrong_parameter():
    fails(lambda: umap(min_dist=-1 if RANK == LAST else 0.1).fit(X), OptionError, "min_dist")
    fails(lambda: umap(distributed="no").fit(X), OptionError, "distributed", OptionError)


def a_callback_that_raises():
    def raising(step, Z, loss):
        if RANK == LAST:
            raise ValueError("enough of it")

    fails(lambda: umap(callbacks=[raising]).fit(X), ValueError, "enough of it")
    fails(lambda: umap(callbacks=[raising]).fit(shard(X)), ValueError, "enough of it")
    fails(lambda: cartograd.COSNE(max_iter=10, check_interval=5, callbacks=[raising]).fit(X[:80]), ValueError, "enough")


def out_of_memory():
    class Tight(cartograd.UMAP):
        def on_affinity_computation_end(self):
            if RANK == LAST:
                torch.empty(1 << 60)

    fails(lambda: Tight(**STEPS).fit(X), (RuntimeError, MemoryError), "alloc|memory")

    class Tighter(cartograd.UMAP):
        def on_training_step_start(self):
            if RANK == 0 and self.n_iter_ == 3:
                raise MemoryError("nothing left")

    fails(lambda: Tighter(**STEPS).fit(shard(X)), MemoryError, "nothing left", guilty=0)


def out_of_memory_before_the_fit():
    import cartograd.embedding.memory as memory

    kept = memory.free_bytes
    if RANK == LAST:
        memory.free_bytes = lambda *told: 1000.0
    try:
        found = raised(lambda: umap().fit(X))
    finally:
        memory.free_bytes = kept
    assert "free" in str(found)
    assert isinstance(found, MemoryBudgetError if RANK == LAST else DistributedError), repr(found)


def a_full_disk():
    from cartograd.distributed import checkpoint

    def full(*told):
        raise OSError(28, "No space left on device")

    kept = checkpoint.os.fsync
    if RANK == 0:
        checkpoint.os.fsync = full
    try:
        found = raised(lambda: umap(checkpoint_dir=FOLDER / "full", checkpoint_every=3).fit(X))
    finally:
        checkpoint.os.fsync = kept
    assert "No space left" in str(found), str(found)
    same(umap().fit_transform(X), alone(umap(), X))


def folders_that_are_not_one():
    folder = FOLDER / f"own-{RANK}"
    options = {"checkpoint_dir": folder, "checkpoint_every": 3}
    if RANK == LAST:
        umap(distributed=False, **options).fit(X)
    fails(lambda: umap(resume=True, **options).fit(X), UnsupportedError, "one folder", UnsupportedError)


def in_the_middle_of_an_exchange():
    """One fails while the others wait in an exchange of another kind."""
    ranks = find_ranks("auto")

    def work():
        with ranks.one_for_all("a test"):
            ranks.total(torch.ones(3), "ones")
            if RANK == LAST:
                raise KeyError("between")
            ranks.exchanged([torch.ones(2)] * SIZE, "more")
            ranks.gathered(torch.ones(2), "and more")

    fails(work, KeyError, "between")


def all_at_once():
    bad = X.copy()
    bad[RANK, 0] = numpy.inf
    found = raised(lambda: umap().fit(bad))
    assert isinstance(found, InputError), repr(found)
    assert f"row {RANK}, column 0" in str(found)
    same(umap().fit_transform(X), alone(umap(), X))


def a_map_that_leaves_all_bounds():
    class Wild(cartograd.UMAP):
        def on_training_step_start(self):
            if RANK == LAST and self.n_iter_ == 4:
                self._layout.fill_(float("nan"))

    fails(lambda: Wild(**STEPS).fit(X), DivergedError, "smaller lr")


def places_of_bad_rows():
    model = umap().fit(shard(X))
    new = rows(20, seed=3)
    if RANK == LAST:
        new[2, 1] = numpy.nan
    fails(lambda: model.transform(new), InputError, "NaN.*row 2, column 1")
    same(model.transform(shard(X)), model.embedding_)


def other_labels():
    y = numpy.arange(300) % 3
    fails(lambda: umap().fit(X, y + (RANK == LAST)), InputError, "y is not the same", InputError)
    fails(
        lambda: umap().fit(shard(X), shard(y) if RANK < LAST else None), DistributedError, "same", DistributedError, 99
    )
    fails(lambda: umap().fit(shard(X), shard(y)[: 9 if RANK == LAST else None]), InputError, "one label", InputError)


def rows_of_another_kind():
    """Dense ones in one process and sparse ones in another."""
    own = shard(X) if RANK < LAST else csr_array(shard(X))
    fails(lambda: umap().fit(own), DistributedError, "same", DistributedError, 99)


def a_signal_to_one():
    """It comes while the others are on, and all end after the same step; with SIGTERM all leave."""
    kinds = {
        "each its rows": umap(max_iter=50),
        "each all": cartograd.COSNE(max_iter=50, perplexity=8, check_interval=5),
    }
    for number in (signal.SIGINT, signal.SIGTERM):
        for name, model in kinds.items():

            def ask(step, Z, loss, number=number):
                if RANK == LAST and step == 15:
                    os.kill(os.getpid(), number)

            folder = FOLDER / f"signal {number} {name}"
            model.set_params(callbacks=[ask], checkpoint_dir=folder, checkpoint_every=100, check_interval=5)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if number == signal.SIGTERM:
                    assert raised(lambda model=model: model.fit(X)).code == 143
                else:
                    model.fit(X)
            step = 16 if name == "each its rows" else 20
            assert [path.name for path in folder.iterdir()] == [f"step-{step:010d}.safetensors"]
            assert number == signal.SIGTERM or model.n_iter_ == step
    same(umap().fit_transform(X), alone(umap(), X))


CHECKS = [
    other_labels,
    rows_of_another_kind,
    a_signal_to_one,
    a_bad_value,
    another_number_of_rows,
    another_number_of_columns,
    another_precision,
    no_rows,
    no_array,
    no_file,
    other_parameters,
    a_wrong_parameter,
    a_callback_that_raises,
    out_of_memory,
    out_of_memory_before_the_fit,
    a_full_disk,
    folders_that_are_not_one,
    in_the_middle_of_an_exchange,
    all_at_once,
    a_map_that_leaves_all_bounds,
    places_of_bad_rows,
]

if __name__ == "__main__":
    run(CHECKS)
