"""knn: every refusal, with its text."""

import pytest
import torch

import cartograd
from cartograd import errors

TABLE = torch.arange(12.0).reshape(6, 2)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"X": TABLE, "k": 6}, errors.OptionError, r"k=6 is too large for 6 rows \(a row is not its own.*use k <= 5"),
        ({"X": TABLE, "k": 7, "queries": TABLE}, errors.OptionError, "k=7 is too large for 6 rows: use k <= 6"),
        ({"X": TABLE[:1], "k": 1}, errors.OptionError, "give more rows"),
        ({"X": TABLE, "k": 0}, errors.OptionError, "k must be at least 1, got k=0"),
        ({"X": TABLE, "k": 2.0}, errors.UnsupportedError, "k must be a whole number, got 2.0 of type float"),
        ({"X": TABLE, "k": True}, errors.UnsupportedError, "k must be a whole number, got True"),
        ({"X": TABLE}, errors.UnsupportedError, "knn needs k"),
        ({"k": 2}, errors.UnsupportedError, r"knn needs points, knn\(X, k\), or a matrix of distances"),
        ({"X": TABLE, "distances": TABLE, "k": 1}, errors.UnsupportedError, "both X and distances were given"),
        ({"distances": TABLE, "queries": TABLE, "k": 1}, errors.UnsupportedError, "does not take queries"),
        ({"distances": TABLE, "k": 3}, errors.OptionError, "k=3 is too large for 2"),
        ({"distances": TABLE, "k": 1, "exclude_self": True}, errors.OptionError, "6 rows and 2 columns"),
        ({"distances": TABLE / 0, "k": 1}, errors.InputError, "distances contains NaN, first at row 0, column 0"),
        (
            {"X": TABLE[0], "k": 1},
            errors.InputError,
            r"X must have two dimensions.*got shape \(2,\); X.reshape\(-1, 1\)",
        ),
        ({"X": TABLE[None], "k": 1}, errors.InputError, r"two dimensions \(rows, columns\), got shape \(1, 6, 2\)"),
        ({"X": TABLE[:0], "k": 1}, errors.InputError, r"X is empty, its shape is \(0, 2\)"),
        ({"X": TABLE.long(), "k": 1}, errors.InputError, r"X must be float32 or float64, got torch.int64.*X.float\(\)"),
        ({"X": TABLE.half(), "k": 1}, errors.InputError, "must be float32 or float64, got torch.float16"),
        ({"X": TABLE.log(), "k": 1}, errors.InputError, "X contains infinity, first at row 0, column 0"),
        ({"X": (TABLE - 3).sqrt(), "k": 1}, errors.InputError, "X contains NaN, first at row 0, column 0"),
        ({"X": [[1.0], [2.0, 3.0]], "k": 1}, errors.UnsupportedError, "X cannot be read as a tensor"),
        ({"X": TABLE, "k": 1, "queries": TABLE[:, :1]}, errors.InputError, "queries have 1 columns, but X has 2"),
        ({"X": TABLE, "k": 1, "queries": TABLE.double()}, errors.InputError, "queries are torch.float64 on cpu, but X"),
        ({"X": TABLE[:3], "k": 1, "queries": TABLE, "exclude_self": True}, errors.OptionError, "6 queries and 3 rows"),
        ({"X": TABLE, "k": 1, "metric": "chess"}, errors.OptionError, "cosine, euclidean, manhattan, sqeuclidean"),
        ({"X": TABLE, "k": 1, "metric": None}, errors.OptionError, "unknown metric None: known are"),
        ({"X": TABLE, "k": 1, "tile": 0}, errors.OptionError, "tile must be at least 1, got tile=0"),
        ({"X": TABLE, "indices": TABLE}, errors.UnsupportedError, "indices must be whole numbers, got torch.float32"),
        ({"X": TABLE, "indices": TABLE[:2].long()}, errors.InputError, r"must have shape \(6, k\).*got \(2, 2\)"),
        ({"X": TABLE, "indices": TABLE.long()}, errors.InputError, "run from 0 to 11, but X has 6 rows: use 0 to 5"),
        ({"X": TABLE, "indices": -TABLE.long()}, errors.InputError, "run from -11 to 0, but X has 6 rows"),
        ({"X": TABLE, "k": 3, "indices": TABLE.long() // 3}, errors.OptionError, "k=3, but indices name 2 neighbours"),
    ],
)
def test_refusals(arguments, error, text):
    for function in (cartograd.knn, cartograd.knn.as_torch()):
        with pytest.raises(error, match=text):
            function(**arguments)
