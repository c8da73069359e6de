"""Negatives are uniform over all rows that are allowed, and over those alone."""

import pytest
import torch
from scipy.stats import chisquare

from cartograd.affinity.counter import stream
from cartograd.embedding.sampling import Complement
from cartograd.errors import OptionError
from cartograd.neighbors import Graph

CPU = torch.device("cpu")


def uniform_over(draws, allowed, n):
    counts = torch.bincount(draws, minlength=n)
    assert set(torch.nonzero(counts)[:, 0].tolist()) == set(allowed)
    p = chisquare(counts[sorted(allowed)].numpy()).pvalue
    print("p value", p)
    assert p > 1e-3


@pytest.mark.parametrize("row", [0, 7, 19])
def test_all_but_the_row_itself(row):
    everyone = Complement.of_self(20, CPU)
    draws = torch.cat([everyone.draw_all(200, seed=1, step=step)[row] for step in range(50)])
    uniform_over(draws, set(range(20)) - {row}, 20)


@pytest.mark.parametrize("excluded", [[3, 4, 5, 6, 12], [0], [19], [0, 1, 2], []])
def test_all_but_the_neighbours_whose_number_differs_from_row_to_row(excluded):
    rows = torch.tensor([10] * len(excluded) + [2, 2])
    graph = Graph.from_edges(rows, torch.tensor(excluded + [7, 1]), torch.ones(len(rows)), 20)
    allowed = Complement.of_neighbours(graph)
    draws = torch.cat([allowed.draw_all(100, seed=2, step=step)[10] for step in range(100)])
    uniform_over(draws, set(range(20)) - {10, *excluded}, 20)
    draws = torch.cat([allowed.draw_all(100, seed=2, step=step)[2] for step in range(100)])
    uniform_over(draws, set(range(20)) - {1, 2, 7}, 20)


def test_single_draws_by_place_are_uniform_too():
    graph = Graph.from_edges([4, 4], [0, 9], torch.ones(2), 12)
    allowed = Complement.of_neighbours(graph)
    rows = torch.full((20_000,), 4)
    draws = allowed.draw(rows, torch.arange(20_000), stream(3, "negatives", 0))
    uniform_over(draws, set(range(12)) - {0, 4, 9}, 12)


def test_draws_do_not_depend_on_how_rows_are_cut():
    everyone = Complement.of_self(100, CPU)
    whole = everyone.draw_all(7, seed=5, step=3)
    parts = [everyone.draw_all(7, 5, 3, start, min(start + 13, 100)) for start in range(0, 100, 13)]
    assert torch.equal(whole, torch.cat(parts))


def test_too_few_rows_left():
    graph = Graph.from_edges([0, 0], [1, 2], torch.ones(2), 3)
    with pytest.raises(OptionError, match=r"only 0 of the 3 rows .* discard_NNs=False"):
        Complement.of_neighbours(graph).check(1)
