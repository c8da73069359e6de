"""Groups that a script opens itself, closes and opens again; the bytes of each exchange."""

import os
import time
from itertools import pairwise

import torch
from common import FOLDER, RANK, SIZE, alone, raised, rows, run, same, shard

import cartograd
from cartograd.distributed import find_ranks, row_bounds
from cartograd.distributed.rows import fetched
from cartograd.distributed.search import Wanted, search_ring
from cartograd.neighbors.rows import TensorRows

X = rows(600)
AGREED = 48 * (SIZE - 1)


def umap(**options):
    return cartograd.UMAP(**{"n_neighbors": 8, "max_iter": 10, "random_state": 1, **options})


def open_group(number):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{FOLDER}/store-{number}", rank=RANK, world_size=SIZE
    )


def a_group_of_the_script():
    """It is used, and stays open; one that is opened after it was closed is another one."""
    for number in range(2):
        open_group(number)
        same(umap().fit_transform(X), alone(umap(), X))
        same(umap().fit_transform(shard(X)), shard(alone(umap(), X)))
        assert torch.distributed.is_initialized()
        ones = torch.ones(1)
        torch.distributed.all_reduce(ones)
        assert float(ones) == SIZE
        torch.distributed.destroy_process_group()


def one_that_does_not_come():
    """Half an hour is gloo's own limit; ours holds in a group of the script, too."""
    open_group("silent")
    umap().fit(X)
    os.environ["CARTOGRAD_DIST_TIMEOUT"] = "6"
    torch.distributed.destroy_process_group()
    open_group("silent again")
    umap().fit(X)
    began = time.monotonic()
    if RANK == 0:
        assert "did not answer in time" in str(raised(lambda: umap().fit(X)))
        assert 5 < time.monotonic() - began < 20
        assert "start all of them again" in str(raised(lambda: umap().fit(X)))
    else:
        time.sleep(12)
    torch.distributed.destroy_process_group()
    os.environ["CARTOGRAD_DIST_TIMEOUT"] = "60"


def the_launchers_group():
    assert not torch.distributed.is_initialized()
    same(umap().fit_transform(X), alone(umap(), X))
    assert torch.distributed.is_initialized()


def bytes_of_a_step():
    """As docs/scale.md has them, for every method that moves its own rows."""
    ranks, bounds = find_ranks("auto"), row_bounds(600, SIZE)
    n, largest = 600, max(b - a for a, b in pairwise(bounds))
    layout = AGREED + (SIZE - 1) * largest * 2 * 4
    own = bounds[RANK + 1] - bounds[RANK]
    forces = AGREED + 8 * SIZE * (SIZE - 1) + 4 * 2 * (n - own)
    expected = {
        "UMAP": (umap(), layout),
        "PACMAP": (cartograd.PACMAP(n_neighbors=6, iter_per_phase=100, random_state=0), layout),
        "TSNE": (cartograd.TSNE(perplexity=8, method="exact"), layout + AGREED + 8 * (SIZE - 1)),
        "LargeVis": (cartograd.LargeVis(perplexity=8), layout + forces),
        "InfoTSNE": (cartograd.InfoTSNE(perplexity=8, n_negatives=20), layout + forces),
    }
    wrong = {}
    for name, (model, formula) in expected.items():
        sent = []
        for steps in (10, 30):
            before = ranks.sent_bytes
            model.set_params(max_iter=steps, check_interval=1000).fit(X)
            sent.append(ranks.sent_bytes - before)
        if sent[1] - sent[0] != 20 * formula:
            wrong[name] = ((sent[1] - sent[0]) / 20, formula)
    assert not wrong, wrong


def bytes_of_the_ring():
    ranks, bounds = find_ranks("auto"), row_bounds(600, SIZE)
    own = TensorRows(torch.from_numpy(X[bounds[RANK] : bounds[RANK + 1]]))
    before = ranks.sent_bytes
    search_ring(ranks, own, bounds, Wanted(8, "euclidean", "exact", 0))
    passed = sum(bounds[(RANK - hop) % SIZE + 1] - bounds[(RANK - hop) % SIZE] for hop in range(SIZE - 1))
    facts = AGREED + 16 * (SIZE - 1)
    assert ranks.sent_bytes - before == facts + (SIZE - 1) * 2 * AGREED + 4 * 8 * passed


def rows_by_number():
    ranks, bounds = find_ranks("auto"), row_bounds(600, SIZE)
    ids = torch.tensor([5, 599, 300, 5]) if RANK == 0 else torch.zeros(0, dtype=torch.int64)
    found = fetched(ranks, torch.from_numpy(X[bounds[RANK] : bounds[RANK + 1]]), bounds, ids, "rows")
    same(found, X[ids.numpy()])


CHECKS = [
    a_group_of_the_script,
    one_that_does_not_come,
    the_launchers_group,
    bytes_of_a_step,
    bytes_of_the_ring,
    rows_by_number,
]

if __name__ == "__main__":
    run(CHECKS)
