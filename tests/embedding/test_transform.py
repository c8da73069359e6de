"""New rows: training rows come back where they were fitted, every other row is placed alone, the model stays."""

import numpy
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from cartograd import SNE, TSNE, UMAP, AffinityMatcher, InfoTSNE, LargeVis, NegativeSamplingNeighborEmbedding
from cartograd.affinity import EntropicAffinity, StudentAffinity
from cartograd.errors import InputError, UnsupportedError

X, y = load_digits(return_X_y=True)
TRAIN, NEW = X[:900], X[900:1100]
METHODS = [
    UMAP(n_neighbors=15, max_iter=100),
    LargeVis(perplexity=15, max_iter=150),
    InfoTSNE(perplexity=15, max_iter=120, n_negatives=30, early_exaggeration_iter=40),
    TSNE(perplexity=15, max_iter=200, method="exact", early_exaggeration_iter=80),
    SNE(perplexity=15, max_iter=150),
]
by_name = pytest.mark.parametrize("model", METHODS, ids=lambda one: type(one).__name__)


@pytest.fixture(scope="module", autouse=True)
def fitted():
    for model in METHODS:
        model.set_params(random_state=0).fit(TRAIN)


@by_name
def test_training_rows_come_back_at_their_fitted_place(model):
    order = numpy.random.RandomState(0).permutation(len(TRAIN))
    assert numpy.array_equal(model.transform(TRAIN[order]), model.embedding_[order])


@by_name
def test_a_row_does_not_depend_on_the_others_given_with_it(model, device):
    def same(found, true):  # a GPU may sum a row in another order where there are fewer rows beside it
        return numpy.array_equal(found, true) if device.type == "cpu" else numpy.allclose(found, true, rtol=1e-9)

    whole = model.transform(NEW)
    order = numpy.random.RandomState(1).permutation(len(NEW))
    assert same(model.transform(NEW[order]), whole[order])
    assert same(model.transform(NEW[7:8]), whole[7:8])
    mixed = numpy.concatenate([TRAIN[:3], NEW[:5], TRAIN[50:53]])
    assert same(model.transform(mixed)[3:8], whole[:5])


@by_name
def test_new_rows_land_among_their_kind(model):
    votes = KNeighborsClassifier(10).fit(model.embedding_, y[:900])
    accuracy = votes.score(model.transform(NEW), y[900:1100])
    print(type(model).__name__, accuracy)
    assert accuracy > 0.88


@by_name
def test_the_model_stays_as_it_is(model):
    before = model.embedding_.copy(), model.get_params(), model.transform(NEW)
    model.transform(NEW[:10])
    assert numpy.array_equal(model.embedding_, before[0])
    assert model.get_params() == before[1]
    assert numpy.array_equal(model.transform(NEW), before[2])


@by_name
def test_other_kinds_of_input_and_wrong_width(model):
    as_torch = model.transform(torch.from_numpy(NEW[:4]))
    assert isinstance(as_torch, torch.Tensor)
    assert not as_torch.requires_grad
    assert numpy.array_equal(as_torch.numpy(), model.transform(NEW[:4]))
    assert model.transform(NEW[:4].tolist()).dtype == numpy.float64
    with pytest.raises(InputError, match=r"X has 63 features, but .* is expecting 64"):
        model.transform(NEW[:, :63])


def test_equal_rows_share_a_place():
    doubled = numpy.concatenate([TRAIN[:100], TRAIN[:50]])
    model = UMAP(n_neighbors=5, max_iter=10).fit(doubled)
    assert numpy.array_equal(model.embedding_[:50], model.embedding_[100:])
    assert numpy.array_equal(model.transform(doubled), model.embedding_)
    kept = UMAP(n_neighbors=5, max_iter=10, process_duplicates=False).fit(doubled)
    assert not numpy.array_equal(kept.embedding_[:50], kept.embedding_[100:])


def test_inverse_transform_of_umap():
    model = METHODS[0]
    assert numpy.allclose(model.inverse_transform(model.embedding_), TRAIN)
    near = model.inverse_transform(model.embedding_[:20] + 1e-6)
    assert numpy.abs(near - TRAIN[:20]).max() < 0.1
    between = model.inverse_transform(model.embedding_[:2].mean(0, keepdims=True))
    assert between.shape == (1, 64)
    assert TRAIN.min() <= between.min() <= between.max() <= TRAIN.max()
    with pytest.raises(InputError, match="Z has 3 columns, but the map has 2"):
        model.inverse_transform(numpy.zeros((2, 3)))


def test_maps_of_distances_place_rows_by_their_distances():
    from sklearn.metrics import pairwise_distances

    D = pairwise_distances(TRAIN[:300])
    model = UMAP(n_neighbors=10, max_iter=100, metric="precomputed", random_state=0).fit(D)
    votes = KNeighborsClassifier(10).fit(model.embedding_, y[:300])
    assert votes.score(model.transform(pairwise_distances(NEW, TRAIN[:300])), y[900:1100]) > 0.75
    assert numpy.array_equal(model.transform(D), model.embedding_)
    with pytest.raises(UnsupportedError, match="made of distances alone"):
        model.inverse_transform(model.embedding_)


def test_a_matcher_and_a_method_of_ones_own_place_new_rows_at_the_mean_of_the_nearest():
    class Pulled(NegativeSamplingNeighborEmbedding):
        def _compute_loss(self):
            return (self.embedding_**2).sum()

    for model in (
        AffinityMatcher(EntropicAffinity(10, sparsity=False), affinity_out=StudentAffinity(), max_iter=5),
        Pulled(affinity_in=EntropicAffinity(10), max_iter=5, lr=0.1),
    ):
        model.fit(TRAIN[:100])
        placed = model.transform(NEW[:5])
        assert numpy.isfinite(placed).all()
        assert model.embedding_.min() <= placed.min() <= placed.max() <= model.embedding_.max()


@pytest.mark.cpu
def test_among_many_rows_each_is_still_placed_alone():
    count = 17_000
    draws = numpy.random.RandomState(0)
    centres = draws.randn(30, 6) * 3
    rows = (centres[draws.randint(30, size=count + 900)] + draws.randn(count + 900, 6)).astype("float32")
    model = UMAP(n_neighbors=5, max_iter=2, init="normal", random_state=0).fit(rows[:count])
    assert model._placement.source._has_cells()
    whole = model.transform(rows[count:])
    order = numpy.random.RandomState(1).permutation(900)
    assert numpy.array_equal(model.transform(rows[count:][order]), whole[order])
    assert numpy.array_equal(model.transform(rows[count + 7 : count + 8]), whole[7:8])
    assert numpy.array_equal(model.transform(rows[:50]), model.embedding_[:50])
