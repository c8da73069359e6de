"""How many steps a fit takes: numbers, "auto", `n_epochs`, `timeout`, and what is refused."""

import time

import numpy
import pytest
from sklearn.datasets import load_digits

import cartograd
from cartograd.errors import OptionError

X = numpy.random.RandomState(0).rand(80, 4).astype("float32")
DIGITS = load_digits().data.astype("float32")


def test_umap_takes_as_many_steps_as_umap_learn():
    model = cartograd.UMAP(n_neighbors=5)
    assert model.max_iter == "auto"
    assert model.fit(X).n_iter_ == 500
    assert model.max_iter == "auto"
    many = numpy.random.RandomState(0).rand(10_001, 2).astype("float32")
    assert cartograd.UMAP(n_neighbors=3, init="normal").fit(many).n_iter_ == 200


SETTLING = numpy.random.RandomState(0).randn(400, 10).astype("float32")


def test_tsne_ends_where_its_loss_has_settled():
    model = cartograd.TSNE(perplexity=50, random_state=0).fit(SETTLING)
    assert 250 < model.n_iter_ < 750
    assert 0 <= model.loss_[-3] - model.loss_[-1] < 3e-4 * model.loss_[-1]
    longer = cartograd.TSNE(perplexity=50, random_state=0, max_iter=750).fit(SETTLING)
    assert model.n_iter_ < longer.n_iter_
    assert model.kl_divergence_ < 1.001 * longer.kl_divergence_


def test_tsne_of_digits_takes_all_steps():
    assert cartograd.TSNE(random_state=0).fit(DIGITS).n_iter_ == 750


def test_checks_at_every_step_do_not_end_it_much_earlier():
    often = cartograd.TSNE(perplexity=50, random_state=0, check_interval=1).fit(SETTLING)
    seldom = cartograd.TSNE(perplexity=50, random_state=0).fit(SETTLING)
    assert seldom.n_iter_ - 100 <= often.n_iter_ <= seldom.n_iter_


def test_n_epochs_is_max_iter_without_an_encoder():
    model = cartograd.UMAP(n_epochs=20, random_state=0).fit(X)
    assert model.n_iter_ == 20
    numpy.testing.assert_array_equal(model.embedding_, cartograd.UMAP(max_iter=20, random_state=0).fit(X).embedding_)
    assert cartograd.UMAP(n_epochs=20, max_iter=20).fit(X).n_iter_ == 20
    with pytest.raises(OptionError, match=r"n_epochs=20 is another name of max_iter=30 .*give one"):
        cartograd.UMAP(n_epochs=20, max_iter=30).fit(X)


@pytest.mark.parametrize("name", ["UMAP", "TSNE", "SNE", "PACMAP", "LargeVis", "TSNEkhorn", "COSNE", "PHATE"])
def test_a_timeout_ends_the_steps(name):
    few = {"perplexity": 5} if "perplexity" in getattr(cartograd, name)().get_params() else {}
    model = getattr(cartograd, name)(max_iter=10**6, min_grad_norm=0.0, timeout=0.3, random_state=0, **few)
    began = time.monotonic()
    model.fit(X)
    assert time.monotonic() - began < 10
    assert 0 < model.n_iter_ < 10**6
    assert numpy.isfinite(model.embedding_).all()
    assert model.report_["stopped"] == "timeout"
    assert not model.report_["interrupted"]


def test_a_timeout_ends_steps_that_a_kernel_takes_at_once():
    rows = numpy.random.RandomState(0).rand(5000, 3).astype("float32")
    model = cartograd.UMAP(n_neighbors=5, max_iter=10**9, check_interval=10**9, timeout=1.0).fit(rows)
    assert 1 < model.n_iter_ < 10**6
    again = cartograd.UMAP(n_neighbors=5, max_iter=50).fit(rows)
    slow = cartograd.UMAP(n_neighbors=5, max_iter=50, timeout=1e6).fit(rows)
    numpy.testing.assert_array_equal(again.embedding_, slow.embedding_)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"patience": 3}, "patience is for maps with an encoder"),
        ({"min_desired_loss": 0.1}, "min_desired_loss is for maps with an encoder"),
        ({"batch_size": 64}, "batch_size is for maps with an encoder or a decoder"),
        ({"hidden_sizes": (8,)}, "hidden_sizes is for maps with an encoder or a decoder"),
        ({"training": cartograd.EncoderTraining()}, "training is for maps with an encoder or a decoder"),
    ],
)
def test_parameters_without_effect_are_refused(options, words):
    with pytest.raises(OptionError, match=words):
        cartograd.UMAP(**options).fit(X)


def test_auto_means_nothing_elsewhere():
    with pytest.raises(OptionError, match='max_iter="auto" means nothing for SNE'):
        cartograd.SNE(5, max_iter="auto").fit(X)
