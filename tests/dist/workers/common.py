"""What the scripts of these tests share: rows, the folder, and how findings are written."""

import json
import os
import sys
import time
import traceback
from pathlib import Path

import numpy
import torch
from sklearn.base import clone

RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
FOLDER = Path(sys.argv[1])
torch.set_num_threads(1)
(FOLDER / f"{RANK}.pid").write_text(str(os.getpid()))


def rows(n, d=8, seed=0):
    """Rows in five clouds."""
    random = numpy.random.RandomState(seed)
    return (random.randn(n, d) + 5 * random.randn(5, d)[random.randint(0, 5, n)]).astype("float32")


def shard(X, parts=None):
    """This process's rows of X; of parts of these sizes, or of nearly equal ones."""
    counts = [len(X) * (i + 1) // SIZE - len(X) * i // SIZE for i in range(SIZE)] if parts is None else parts
    start = sum(counts[:RANK])
    return X[start : start + counts[RANK]]


def tell(**found):
    """Write what this process found."""
    (FOLDER / f"{RANK}.json").write_text(json.dumps(found))


def keep(**arrays):
    """Write arrays of this process."""
    numpy.savez(FOLDER / f"{RANK}.npz", **arrays)


def run(checks):
    """Call these functions one after the other, in every process; write which of them failed, and how."""
    found = {}
    for check in checks:
        began = time.monotonic()
        try:
            check()
            found[check.__name__] = "well"
        except BaseException:
            found[check.__name__] = traceback.format_exc()
        print(RANK, check.__name__, found[check.__name__][-800:], f"{time.monotonic() - began:.2f} s", flush=True)
    tell(**found)


def alone(model, X, y=None):
    """The map that a process makes by itself."""
    return clone(model).set_params(distributed=False).fit_transform(X, y)


def same(a, b, within=0.0):
    """Whether two arrays are equal, or as near as `within` in the scale of the second."""
    a, b = numpy.asarray(a), numpy.asarray(b)
    assert a.shape == b.shape, (a.shape, b.shape)
    apart = float(numpy.abs(a - b).max()) if a.size else 0.0
    assert apart <= within * float(b.std() if b.size else 1.0), f"{apart} apart, of {float(b.std())}"


def raised(work):
    """The error that `work` ends with."""
    try:
        work()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")
