"""trace(): nodes, the table, who holds memory, the drawing."""

import re

import pytest
import torch
from torch import nn

import cartograd
from cartograd import errors


def leaf(*shape):
    return cartograd.tensor(torch.rand(*shape, dtype=torch.float64) + 0.5, requires_grad=True)


def test_nodes_are_newest_first_and_each_once():
    x = leaf(3)
    y = x * x
    z = y.exp() + y
    graph = cartograd.trace(z)
    assert [node.name for node in graph.nodes] == ["add", "exp", "mul"]
    numbers = [node.number for node in graph.nodes]
    assert numbers == sorted(numbers, reverse=True)


def test_leaves_are_tensors_and_parameters_each_once():
    x, w = leaf(3), nn.Parameter(torch.ones(3, dtype=torch.float64))
    graph = cartograd.trace((x * w + x * w).sum())
    assert len(graph.leaves) == 2
    assert any(one is w for one in graph.leaves)


def test_several_roots_share_what_they_share():
    x = leaf(3)
    y = x * x
    assert [node.name for node in cartograd.trace(y.exp(), y + 1).nodes] == ["add", "exp", "mul"]


def test_a_leaf_has_no_graph():
    with pytest.raises(errors.NoGradientError, match="trace"):
        cartograd.trace(leaf(3))
    with pytest.raises(errors.NoGradientError, match="trace"):
        cartograd.trace(cartograd.tensor(1.0))


def test_the_table_has_op_rule_shapes_bytes_and_place():
    x = leaf(4, 5)
    y = torch.special.i0(x.exp() + 1)
    rows = cartograd.trace(y).explain().splitlines()
    assert re.match(r"#\s+op\s+rule\s+result\s+inputs\s+saved\s+called at", rows[0])
    assert len(rows) == 4
    fallback, add, exp = (re.split(r"\s{2,}", row) for row in rows[1:])
    assert fallback[1:5] == ["special_i0", "torch", "(4,5)", "(4,5)"]
    assert add[1:3] == ["add", "own"]
    assert add[5] == "0 B"
    assert exp[1:3] == ["exp", "own"]
    assert exp[5] == "160 B"
    assert all(row[6].startswith(__file__ + ":") for row in (fallback, add, exp))
    assert fallback[5] != "0 B", "it holds at least its input"


def test_the_table_of_a_multi_output_op_shows_all_results():
    x = leaf(2, 3)
    row = cartograd.trace(torch.aminmax(x, dim=1)[0]).explain().splitlines()[1]
    assert row.count("(2)") >= 2
    assert "pick" not in row


def test_the_table_of_a_network():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    table = cartograd.trace(model(cartograd.tensor(torch.ones(2, 3)))).explain()
    assert "tanh" in table
    assert table.count("test_explain.py") >= 3


def test_saved_sizes_are_those_of_the_memory():
    x = leaf(10)
    graph = cartograd.trace(x.exp() * 2)
    (saved,) = graph.saved()
    assert saved.bytes == 80
    assert saved.shape == (10,)
    assert (saved.op, saved.name) == ("exp", "out")
    assert saved.where.startswith(__file__)


def test_a_value_saved_by_two_ops_is_counted_once():
    x = leaf(10)
    y = x.exp()
    graph = cartograd.trace(y * y)
    assert sum(saved.bytes for saved in graph.saved()) == 80


def test_views_are_counted_once_and_as_their_base():
    base = cartograd.tensor(torch.ones(10, 10, dtype=torch.float64))
    x = leaf(10)
    graph = cartograd.trace(x * base[0] + x * base[1] + x * base.t()[2])
    held = sorted(saved.bytes for saved in graph.saved())
    assert held == [800]


def test_largest_first():
    a, b = leaf(10), leaf(1000)
    sizes = [saved.bytes for saved in cartograd.trace(a.exp().sum() * b.exp().sum()).saved()]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 8000


def test_parameters_are_not_counted():
    w = nn.Parameter(torch.ones(1000))
    x = cartograd.tensor(torch.ones(1000), requires_grad=True)
    held = sum(saved.bytes for saved in cartograd.trace(x * w).saved())
    assert held == 4000, "x is, w stays anyway"


def test_fallback_nodes_hold_memory_too():
    x = leaf(100)
    y = torch.special.i0(x * 2)
    held = cartograd.trace(y).saved()
    assert sum(saved.bytes for saved in held) >= 800
    assert held[0].op == "special_i0"


def test_nothing_is_held_after_the_backward_pass():
    x = leaf(10)
    y = (x.exp() * x + torch.special.i0(x)).sum()
    graph = cartograd.trace(y)
    assert graph.saved()
    y.backward()
    assert graph.saved() == []
    assert "0 B" in graph.explain()


def test_repr_is_a_summary():
    x = leaf(10)
    assert repr(cartograd.trace(x.exp() * 2)) == "<Graph of 2 nodes, 1 leaves, 80 B saved>"


def test_dot_has_every_node_leaf_and_edge():
    x, w = leaf(3), nn.Parameter(torch.ones(3, dtype=torch.float64))
    values, _ = torch.sort(x * w)
    graph = cartograd.trace((values + x).sum())
    text = graph.to_dot()
    assert text.startswith("digraph")
    assert text.rstrip().endswith("}")
    assert text.count("{") == text.count("}") == 1
    assert text.count('"') % 2 == 0
    declared = set(re.findall(r"^\s*(n\d+) \[label=", text, re.MULTILINE))
    edges = re.findall(r"(n\d+) -> (n\d+);", text)
    assert len(declared) == len(graph.nodes) + len(graph.leaves)
    assert {end for edge in edges for end in edge} == declared
    assert len(edges) == 2 + 1 + 2 + 1
    assert "parameter" in text


def test_looking_changes_nothing():
    x = leaf(3)
    y = (x * x).sum()
    for _ in range(2):
        graph = cartograd.trace(y)
        graph.explain(), graph.saved(), graph.to_dot(), repr(graph)
    y.backward()
    torch.testing.assert_close(x.grad.data, 2 * x.data)
