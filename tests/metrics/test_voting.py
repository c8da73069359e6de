import numpy
import pytest
import torch
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import KNeighborsClassifier

from cartograd.metrics import knn_label_accuracy
from cartograd.metrics.voting import elected

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def leave_one_out(Z, labels, k):
    """The share of right votes among scikit-learn's k neighbours other than the point; binary and odd: no ties."""
    near = KNeighborsClassifier(n_neighbors=k).fit(Z, labels).kneighbors(return_distance=False)
    return numpy.mean((labels[near].mean(axis=1) > 0.5) == labels)


@pytest.mark.parametrize("k", [1, 5, 11])
def test_equals_scikit_learn_where_votes_do_not_tie(table, k):
    _, Z, labels = table
    binary = labels % 2
    assert abs(knn_label_accuracy(Z, binary, k) - leave_one_out(Z, binary, k)) < 1e-12


def test_ties_go_to_the_nearest_voter(table):
    _, Z, labels = table
    near = KNeighborsClassifier(n_neighbors=10).fit(Z, labels).kneighbors(return_distance=False)
    right = 0
    for i, votes in enumerate(labels[near].tolist()):
        most = max(votes.count(c) for c in votes)
        right += next(c for c in votes if votes.count(c) == most) == labels[i]
    assert abs(knn_label_accuracy(Z, labels) - right / len(Z)) < 1e-12


def test_elected():
    votes = torch.tensor([[2, 1, 1, 2], [0, 1, 1, 2], [3, 2, 1, 0], [5, 5, 5, 5], [1, 0, 0, 1]])
    assert elected(votes).tolist() == [2, 1, 3, 5, 1]


def test_rows_of_unknown_class_are_left_out(table):
    _, Z, labels = table
    masked = numpy.where(numpy.arange(2000) % 4 == 0, -1, labels)
    known = masked >= 0
    expected = knn_label_accuracy(Z[known], masked[known])
    assert knn_label_accuracy(Z, masked) == expected
    assert knn_label_accuracy(pairwise_distances(Z), masked, metric="precomputed") == expected
    each = knn_label_accuracy(Z, masked, per_sample=True)
    assert numpy.isnan(each[~known]).all()
    assert each[known].mean() == pytest.approx(expected)


def test_kinds(table):
    _, Z, labels = table
    expected = knn_label_accuracy(Z, labels)
    names = numpy.array(list("abcdef"))[labels]
    assert knn_label_accuracy(torch.from_numpy(Z), torch.from_numpy(labels)) == expected
    assert knn_label_accuracy(Z.tolist(), names) == expected
    assert isinstance(expected, float)
    assert isinstance(knn_label_accuracy(torch.from_numpy(Z), labels, per_sample=True), torch.Tensor)
    assert knn_label_accuracy(Z, numpy.zeros(2000)) == 1.0


@pytest.mark.gpu
@gpu
def test_cuda_equals_cpu(table):
    _, Z, labels = table
    assert knn_label_accuracy(torch.from_numpy(Z).cuda(), torch.from_numpy(labels).cuda()) == knn_label_accuracy(
        Z, labels
    )


@pytest.mark.parametrize(
    ("labels", "k", "message"),
    [
        ([0, 1], 1, "labels has 2 entries and the data have 3 rows"),
        ([-1, -1, -1], 1, "labels are all -1, which means unknown"),
        ([0, 1, -1], 2, "k=2 is too large for 2 rows"),
        ([0, 1, 1], 0, "k must be at least 1"),
    ],
)
def test_refusals(labels, k, message):
    with pytest.raises(ValueError, match=message):
        knn_label_accuracy([[0.0], [1.0], [2.0]], labels, k)


def test_nan():
    with pytest.raises(ValueError, match="Input Z contains NaN: first at row 1, column 0"):
        knn_label_accuracy([[0.0], [numpy.nan], [2.0]], [0, 0, 1], 1)
