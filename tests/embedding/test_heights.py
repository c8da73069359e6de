"""How far rows are from the middle of their data: any unit, any origin, rows or distances."""

import numpy
import pytest
import torch
from scipy import sparse

from cartograd.embedding.heights import HIGHEST, Heights
from cartograd.embedding.source import make_source
from cartograd.neighbors.intake import intake

ROWS = numpy.random.RandomState(0).randn(80, 6) @ numpy.diag([3, 2, 1, 1, 0.5, 0.1]) + 4


def heights(X, metric="euclidean"):
    source = make_source(intake(X, "X", None).rows, metric, False)
    return Heights.of(source)


def expected(X):
    squares = ((X - X.mean(0)) ** 2).sum(1)
    return squares / squares.mean()


def test_rows():
    scale, found = heights(ROWS)
    assert numpy.allclose(found.numpy(), expected(ROWS), rtol=1e-10)
    assert float(found.mean()) == pytest.approx(1.0)
    new = intake(ROWS[:7] + 1.5, "X", None).rows
    middle = ROWS.mean(0)
    unit = ((ROWS - middle) ** 2).sum(1).mean()
    assert numpy.allclose(scale.of_rows(new).numpy(), ((ROWS[:7] + 1.5 - middle) ** 2).sum(1) / unit)


@pytest.mark.parametrize("factor", [1e-200, 1e-6, 1e6, 1e150])
def test_the_unit_does_not_matter(factor):
    assert numpy.allclose(heights(ROWS * factor)[1].numpy(), expected(ROWS), rtol=1e-8)


def test_the_origin_does_not_matter():
    assert numpy.allclose(heights(ROWS + 1e6)[1].numpy(), expected(ROWS), rtol=1e-5)


def test_distances_alone_give_the_same():
    D = numpy.linalg.norm(ROWS[:, None] - ROWS[None], axis=2)
    scale, found = heights(D, "precomputed")
    assert numpy.allclose(found.numpy(), expected(ROWS), rtol=1e-9)
    new = ROWS[:5] * 1.1
    rows = intake(numpy.linalg.norm(new[:, None] - ROWS[None], axis=2), "X", None).rows
    assert torch.allclose(scale.of_rows(rows), heights(ROWS)[0].of_rows(intake(new, "X", None).rows), rtol=1e-9)


def test_sparse_rows_and_single_precision():
    X = numpy.where(numpy.random.RandomState(1).rand(40, 9) < 0.3, 2.0, 0.0)
    assert numpy.allclose(heights(sparse.csr_matrix(X))[1].numpy(), expected(X))
    assert numpy.allclose(heights(X.astype("float32"))[1].numpy(), expected(X), rtol=1e-6)


def test_a_row_far_out_is_cut_off_and_a_single_place_has_none():
    X = numpy.concatenate([ROWS, [[1e9] * 6]])
    found = heights(X)[1]
    assert float(found.max()) == pytest.approx(80.0)  # the others are all at one place, as it were
    many = numpy.concatenate([numpy.random.RandomState(2).randn(400, 2), [[1e9, 0.0]]])
    assert float(heights(many)[1].max()) == HIGHEST
    assert float(heights(numpy.ones((3, 2)))[1].abs().max()) == 0.0
