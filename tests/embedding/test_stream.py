"""Batches: what counts as such, and how they are cut anew."""

import numpy
import pytest
import torch

from cartograd.embedding.stream import batches, is_stream, opened, regrouped
from cartograd.errors import InputError

X = numpy.arange(24.0).reshape(12, 2)


def test_what_is_a_stream():
    loader = torch.utils.data.DataLoader(torch.from_numpy(X))
    for data in (loader, iter([X]), (X, X), [torch.from_numpy(X)]):
        assert is_stream(data)
    for data in (X, X.tolist(), torch.from_numpy(X), [X[0], X[1]], []):
        assert not is_stream(data)


@pytest.mark.parametrize(
    ("pieces", "size", "least", "expected"),
    [
        ([12], 5, 0, [5, 5, 2]),
        ([12], 5, 2, [5, 5, 2]),
        ([12], 5, 3, [5, 7]),
        ([1] * 12, 5, 3, [5, 7]),
        ([7, 5], 6, 1, [6, 6]),
        ([3], 5, 4, [3]),
        ([12], 12, 1, [12]),
        ([4, 4, 4], 4, 4, [4, 4, 4]),
    ],
)
def test_regrouped(pieces, size, least, expected):
    rows = torch.from_numpy(X)[: sum(pieces)]
    groups = list(regrouped(rows.split(pieces), size, least))
    assert [len(group) for group in groups] == expected
    assert torch.equal(torch.cat(groups), rows)


def test_the_first_part_of_a_batch_is_its_rows():
    labels = numpy.zeros(12)
    for batch in (X, (X, labels), [X, labels], {"rows": X, "labels": labels}, X.tolist()):
        (given,) = batches([batch], None)
        assert torch.equal(given.rows.block(0, 12), torch.from_numpy(X))
    incoming, kind = opened([(torch.from_numpy(X), labels)])
    assert kind == "torch"
    assert torch.equal(next(incoming), torch.from_numpy(X))


def test_refusals():
    with pytest.raises(InputError, match="batch 1 of X has 1 columns where earlier ones had 2"):
        list(batches([X, X[:, :1]], None))
    with pytest.raises(InputError, match="it gave no batch"):
        list(batches([], None))
    with pytest.raises(InputError, match="it gave no batch"):
        opened([])
