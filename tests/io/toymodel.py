"""An estimator with one fitted attribute of every kind that a model file can hold. Run to write the golden file."""

import sys
from dataclasses import dataclass

import numpy
import torch
from scipy import sparse
from sklearn.base import BaseEstimator

from cartograd import Tensor
from cartograd.io import register, save_model
from cartograd.neighbors import Graph


@register
@dataclass(frozen=True)
class ToyPart:
    size: int
    weights: torch.Tensor


@register
class ToyMap(BaseEstimator):
    def __init__(self, n_neighbors=15, metric="euclidean", init=None, schedule=None):
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.init = init
        self.schedule = schedule

    def transform(self, X):
        return X @ self.components_


@register
class ToyHooked(BaseEstimator):
    """Keeps what it needs under private names, and hands it over itself."""

    def __init__(self, width=3):
        self.width = width

    def _state_for_file(self):
        return {"weights": self._weights}

    def _restore_from_file(self, state):
        self._weights = state["weights"]


def fitted():
    """The same model every time, without any random numbers."""
    model = ToyMap(
        n_neighbors=7, metric="cosine", init=numpy.arange(6.0).reshape(3, 2) / 7, schedule=[(1, 0.5), (2, None)]
    )
    model.components_ = numpy.asfortranarray(numpy.sin(numpy.arange(12.0)).reshape(4, 3))
    model.embedding_ = torch.cos(torch.arange(40.0).reshape(20, 2))
    model.turned_ = torch.sqrt(torch.arange(24.0)).reshape(2, 3, 4).permute(2, 0, 1)
    model.tensor_ = Tensor(torch.arange(3.0))
    model.half_ = torch.linspace(-1, 1, 5).to(torch.bfloat16)
    model.graph_ = Graph.from_knn([[1, 2], [0, 2], [1, 0]], [[1.0, 0.5], [1.0, 0.25], [0.125, 2.0]])
    model.sparse_ = sparse.csr_array(numpy.diag([1.0, 0.0, 3.0]))
    model.classes_ = numpy.array(["ä", "", "long name"])
    model.names_ = numpy.array(["first", None, "dritte"], dtype=object)
    model.mask_ = numpy.array([True, False, True])
    model.empty_ = numpy.zeros((0, 4), dtype=numpy.int16)
    model.scale_ = numpy.float32(0.1)
    model.loss_ = [0.5, float("nan"), float("-inf"), -0.0]
    model.report_ = {"n": 20, "seconds": {"search": 0.25}, 3: (1, "two", None, True), "dtype": torch.float32}
    model.part_ = ToyPart(2, torch.tensor([1, -1], dtype=torch.int8))
    model.unsigned_ = numpy.array([0, 2**64 - 1], dtype=numpy.uint64)
    return model


def same(left, right):
    """Equal in type, value, bits and memory layout."""
    if type(left) is not type(right):
        return False
    if isinstance(left, Tensor):
        return same(left.data, right.data)
    if isinstance(left, torch.Tensor):
        raw = [one.contiguous().reshape(-1).view(torch.uint8) for one in (left, right)]
        return left.dtype == right.dtype and left.stride() == right.stride() and torch.equal(*raw)
    if isinstance(left, numpy.ndarray) and left.dtype != object:
        fits = left.dtype == right.dtype and left.shape == right.shape and left.strides == right.strides
        return fits and left.tobytes() == right.tobytes()
    if isinstance(left, (list, tuple, numpy.ndarray)):
        return len(left) == len(right) and all(same(one, other) for one, other in zip(left, right, strict=True))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, float):
        return left.hex() == right.hex()
    if sparse.issparse(left):
        return all(same(getattr(left, part), getattr(right, part)) for part in ("data", "indices", "indptr"))
    if hasattr(left, "__dict__") and not isinstance(left, numpy.generic):
        return same(vars(left), vars(right))
    return left == right


if __name__ == "__main__":
    save_model(fitted(), sys.argv[1])
