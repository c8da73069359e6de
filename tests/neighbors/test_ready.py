"""Rows made ready for a metric: mixed precisions, scales at the end of the range, sparse ones too."""

import numpy
import pytest
from scipy import sparse

from cartograd.errors import UnsupportedError
from cartograd.neighbors import pairwise_distances, search
from cartograd.neighbors.callables import metric_of
from cartograd.neighbors.distances import METRICS

draw = numpy.random.RandomState(0)
ROWS, QUERIES = draw.randn(60, 5), draw.randn(20, 5)
METRICS_OF_SCALE = ("euclidean", "sqeuclidean", "manhattan", "cosine")


@pytest.mark.parametrize("metric", [*METRICS_OF_SCALE, "hamming"])
@pytest.mark.parametrize("narrow", [0, 1])
def test_rows_and_queries_of_two_precisions(metric, narrow):
    """As if both had been float64 from the start."""
    both = [ROWS, QUERIES]
    both[narrow] = both[narrow].astype("float32")
    wide = [part.astype("float64") for part in both]
    ids, distances = search(both[0], 7, metric=metric, queries=both[1])
    expected = search(wide[0], 7, metric=metric, queries=wide[1])
    assert numpy.array_equal(ids, expected[0])
    assert distances.dtype == numpy.float64
    assert numpy.array_equal(distances, expected[1])
    sparse_ids, _ = search(sparse.csr_matrix(both[0]), 7, metric=metric, queries=sparse.csr_matrix(both[1]))
    assert numpy.array_equal(sparse_ids, expected[0])


@pytest.mark.parametrize("metric", METRICS_OF_SCALE)
@pytest.mark.parametrize(
    ("scale", "dtype"),
    [(2.0**-130, "float32"), (2.0**-100, "float32"), (2.0**115, "float32")]
    + [(2.0**-1040, "float64"), (2.0**-900, "float64"), (2.0**1015, "float64")],
)
def test_scales_at_the_end_of_the_range(metric, scale, dtype):
    """Whole numbers times a power of two: the neighbours are those of the numbers themselves, dense or sparse."""
    whole = (ROWS * 8).round()
    rows = (whole * scale).astype(dtype)
    assert numpy.array_equal(rows.astype("float64") / scale, whole)
    expected = search(whole, 9, metric=metric)[0]
    assert numpy.array_equal(search(rows, 9, metric=metric)[0], expected)
    assert numpy.array_equal(search(sparse.csr_matrix(rows), 9, metric=metric)[0], expected)


def test_pairs_of_a_function_broadcast():
    import torch

    a, b = torch.tensor(ROWS[:6]).reshape(2, 3, 5), torch.tensor(QUERIES[:2])[:, None]
    metric = metric_of(lambda x, y: ((x - y) ** 2).sum(-1), torch.tensor(ROWS[:3]))
    assert torch.allclose(metric.pairs(a.clone(), b), ((a - b) ** 2).sum(-1))
    assert torch.allclose(METRICS["hamming"].pairs(a.clone(), a.roll(1, 1)), torch.ones(2, 3, dtype=a.dtype))


def test_sparse_distances_of_queries_are_not_filled_up():
    """What is not stored is no neighbour, and what is stored as zero is one."""
    square = pairwise_distances(ROWS)
    aside = pairwise_distances(QUERIES, ROWS)
    nearest = numpy.argsort(aside, axis=1)[:, :4]
    rows = numpy.repeat(numpy.arange(20), 4)
    stored = sparse.csr_matrix((numpy.take_along_axis(aside, nearest, 1).ravel(), (rows, nearest.ravel())), (20, 60))
    assert numpy.array_equal(search(square, 3, metric="precomputed", queries=stored)[0], nearest[:, :3])
    aside[4, 9] = 0
    ids, distances = search(sparse.csr_matrix(square), 1, metric="precomputed", queries=aside)
    assert (ids[4, 0], distances[4, 0]) == (9, 0)


def test_tensors_that_hold_no_plain_numbers_are_refused():
    import torch

    rows = torch.tensor(ROWS)
    for data, words in (
        (rows.to_sparse(), r"layout torch.sparse_coo; use X.to_dense\(\)"),
        (rows.to("meta"), "meta device and holds no values"),
    ):
        with pytest.raises(UnsupportedError, match=words):
            search(data, 3)
