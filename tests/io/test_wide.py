"""Tables of very many columns cost what their cells cost: the limits of time are those of a hang."""

import numpy
import pytest

from cartograd.io import read

WIDTH = 100_000


def write(path, names, rows=5):
    row = ",".join(f"{place % 97}.5" for place in range(len(names)))
    path.write_text("\n".join([",".join(names)] + [row] * rows) + "\n")
    return path


@pytest.mark.timeout(60)
def test_a_hundred_thousand_columns(tmp_path):
    table = read(write(tmp_path / "a.csv", [f"c{place}" for place in range(WIDTH)]))
    assert table.X.shape == (5, WIDTH)
    assert table.X[4, 98] == 1.5


@pytest.mark.timeout(60)
def test_columns_of_one_name(tmp_path):
    table = read(write(tmp_path / "a.csv", ["c"] * WIDTH))
    assert len(set(table.feature_names)) == WIDTH


@pytest.mark.timeout(60)
@pytest.mark.parametrize("minus", ["", "-"])
def test_many_columns_that_are_named(tmp_path, minus):
    names = [f"c{place}" for place in range(WIDTH // 2)]
    table = read(write(tmp_path / "a.csv", names), columns=[minus + name for name in names[:-3]])
    assert len(table.feature_names) == (3 if minus else len(names) - 3)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("minus", ["", "-"])
def test_many_parts_of_a_matrix_that_are_named(minus):
    X = numpy.random.default_rng(0).normal(size=(3, WIDTH // 2))
    table = read(X, columns=[f"{minus}x{place}" for place in range(WIDTH // 2 - 3)])
    numpy.testing.assert_array_equal(table.X, X[:, -3:] if minus else X[:, :-3])
