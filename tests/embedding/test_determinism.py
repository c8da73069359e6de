"""The same seed gives the same bits: at any number of threads, twice in a row, whatever else is drawn."""

import numpy
import pytest
import torch

from cartograd import SNE, TSNE, UMAP, InfoTSNE, LargeVis
from cartograd.embedding import edge_clock, sampled_forces
from cartograd.embedding.forces import edges

ROWS = numpy.random.RandomState(0).rand(1500, 6).astype("float32")
METHODS = [
    UMAP(n_neighbors=10, max_iter=12, random_state=3),
    UMAP(n_neighbors=10, max_iter=5, random_state=3, init="spectral", discard_NNs=True),
    LargeVis(perplexity=6, max_iter=8, random_state=3),
    InfoTSNE(perplexity=6, max_iter=6, n_negatives=20, random_state=3),
    TSNE(perplexity=6, max_iter=6, method="exact", random_state=3),
    TSNE(perplexity=6, max_iter=6, method="fft", random_state=3),
    SNE(perplexity=6, max_iter=4, random_state=3),
]


@pytest.fixture
def many_pieces(monkeypatch):
    """Small pieces, so that there is something to share among threads."""
    monkeypatch.setattr(edge_clock, "PIECE_EDGES", 1 << 11)
    monkeypatch.setattr(sampled_forces, "PIECE_PAIRS", 1 << 10)
    monkeypatch.setattr(edges, "BLOCK", 1 << 11)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("estimator", METHODS, ids=lambda one: type(one).__name__)
def test_same_bits_at_any_number_of_threads(estimator, many_pieces, threads):
    maps = []
    for count in (1, 2, 4):
        threads(count)
        numpy.random.rand(count), torch.rand(count)
        maps.append(estimator.fit_transform(ROWS))
        maps.append(estimator.transform(ROWS[:5] + 0.01))
        assert torch.get_num_threads() == count
    for later in (2, 4):
        assert numpy.array_equal(maps[0], maps[later])
        assert numpy.array_equal(maps[1], maps[later + 1])


def test_no_global_generator_is_touched():
    numpy.random.seed(7)
    torch.manual_seed(7)
    expected = numpy.random.rand(), float(torch.rand(()))
    numpy.random.seed(7)
    torch.manual_seed(7)
    UMAP(n_neighbors=5, max_iter=3, random_state=0).fit(ROWS[:100])
    assert (numpy.random.rand(), float(torch.rand(()))) == expected


def test_another_seed_gives_another_map_and_none_is_a_fixed_one():
    maps = [UMAP(n_neighbors=5, max_iter=5, random_state=seed).fit_transform(ROWS[:200]) for seed in (0, 1, None, 0)]
    assert not numpy.array_equal(maps[0], maps[1])
    assert numpy.array_equal(maps[0], maps[2])
    assert numpy.array_equal(maps[0], maps[3])
    again = UMAP(n_neighbors=5, max_iter=5, random_state=numpy.int64(0)).fit_transform(ROWS[:200])
    assert numpy.array_equal(maps[0], again)


def test_a_generator_goes_on_from_fit_to_fit():
    source = numpy.random.RandomState(5)
    estimator = UMAP(n_neighbors=5, max_iter=5, random_state=source)
    assert not numpy.array_equal(estimator.fit_transform(ROWS[:200]), estimator.fit_transform(ROWS[:200]))
