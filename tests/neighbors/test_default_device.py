"""The device of whoever does not name one."""

import numpy
import pytest
import torch

import cartograd
from cartograd.errors import OptionError
from cartograd.metrics import trustworthiness
from cartograd.neighbors import search
from cartograd.neighbors.default_device import VARIABLE, device_or_default

X = numpy.random.default_rng(0).normal(size=(60, 3))
CALLS = [
    lambda **given: search(X, 3, **given),
    lambda **given: trustworthiness(X, X[:, :2], 3, **given),
    lambda **given: cartograd.PCA(2, **given).fit(X),
    lambda **given: cartograd.UMAP(n_neighbors=5, max_iter=2, **given).fit(X),
]


def test_the_variable_answers_only_where_no_device_is_given(monkeypatch):
    monkeypatch.setenv(VARIABLE, "cpu")
    assert device_or_default(None) == device_or_default("auto") == torch.device("cpu")
    assert device_or_default("cuda:1") == "cuda:1"
    monkeypatch.setenv(VARIABLE, "")
    assert device_or_default("auto") is None
    monkeypatch.delenv(VARIABLE)
    assert device_or_default(None) is None


@pytest.mark.parametrize("call", CALLS, ids=["search", "metric", "PCA", "UMAP"])
def test_all_read_it_and_say_where_a_wrong_name_came_from(monkeypatch, call):
    monkeypatch.setenv(VARIABLE, "nowhere")
    with pytest.raises(OptionError, match=r"CARTOGRAD_DEVICE: device 'nowhere' cannot be used here"):
        call()
    call(device="cpu")


def test_auto_does_not_leave_the_device_that_was_named(monkeypatch):
    from cartograd.embedding import device_choice

    monkeypatch.setenv(VARIABLE, "cpu")
    monkeypatch.setattr(device_choice, "ROWS", 10)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    model = cartograd.UMAP(n_neighbors=5, max_iter=2).fit(X)
    assert model._placement.places.device.type == "cpu"


def test_what_was_asked_for_is_where_tests_compute(device):
    model = cartograd.UMAP(n_neighbors=5, max_iter=2).fit(X)
    assert model._placement.places.device.type == device.type
    assert isinstance(model.embedding_, numpy.ndarray)
