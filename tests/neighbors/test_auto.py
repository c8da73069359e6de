"""What `auto` picks, and that it says so."""

import logging

import numpy as np
import pytest
from scipy import sparse

from cartograd.neighbors import search, searching


def said(caplog, *args, **kwargs):
    with caplog.at_level(logging.INFO, "cartograd.neighbors"):
        search(*args, **kwargs)
    return caplog.text


def rows(n=400, d=5):
    return np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)


def test_small_data_are_searched_exactly(caplog):
    assert "searching exactly" in said(caplog, rows(), 5)


@pytest.mark.cpu
def test_large_data_by_cells(caplog, monkeypatch):
    monkeypatch.setattr(searching, "EXACT_UP_TO", 100)
    text = said(caplog, rows(), 5)
    assert "auto: 400 rows, 400 queries, metric euclidean: cells" in text


def test_few_queries_are_searched_exactly(caplog, monkeypatch):
    monkeypatch.setattr(searching, "EXACT_UP_TO", 100)
    assert "searching exactly" in said(caplog, rows(), 5, queries=rows(20))


@pytest.mark.cpu
@pytest.mark.parametrize("make", [rows, lambda: sparse.csr_array(np.maximum(rows(), 0))])
def test_other_metrics_and_sparse_data_without_the_extra(make, caplog, monkeypatch):
    monkeypatch.setattr(searching, "EXACT_UP_TO", 100)
    monkeypatch.setattr(searching, "available", lambda package: False)
    text = said(caplog, make(), 5, metric="manhattan")
    assert "searching exactly" in text
    assert 'pip install "cartograd[ann]"' in text


@pytest.mark.cpu
def test_metrics_without_an_approximate_backend(caplog, monkeypatch):
    monkeypatch.setattr(searching, "EXACT_UP_TO", 100)
    assert "no approximate backend serves this metric" in said(caplog, rows() / 100, 5, metric="sqhyperbolic")


def test_silent_unless_asked(capfd):
    search(rows(), 5, backend="cells")
    search(rows(), 5)
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""
    search(rows(), 5, verbose=True)
    assert "neighbours, exact" in capfd.readouterr().err
