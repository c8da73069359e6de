"""Einsum and its kin: equations of every kind, several operands, memory, errors."""

import pytest
import torch
from parity import agree, randn

import cartograd

ONE = ["ij->ji", "ij->", "ii->i", "ii", "iij->j", "...j->j...", "...i->...", "ij"]
TWO = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ba,ca", (2, 3), (4, 3)),
    ("ij,kl->ijkl", (2, 3), (2, 2)),
    ("i,i->", (3,), (3,)),
    ("ij,ij->j", (2, 3), (2, 3)),
    ("ij,kl->", (2, 3), (2, 2)),
    ("bij,bjk->bik", (2, 2, 3), (2, 3, 2)),
    ("...ij,...jk->...ik", (2, 2, 3), (3, 2)),
    ("...ij,...jk->...ik", (4, 1, 2, 3), (5, 3, 2)),
    ("...ij,...jk->ik", (4, 1, 2, 3), (5, 3, 2)),
    ("ij,jk->ik", (2, 1), (3, 4)),
    ("ij,jk->ik", (2, 3), (1, 4)),
    ("ij,ij->ij", (1, 3), (2, 1)),
    ("ij,ij->", (1, 3), (2, 1)),
    ("iij,jk->ik", (2, 2, 3), (3, 3)),
    ("ij,jj->i", (2, 3), (3, 3)),
    (" i j , j k -> i k ", (2, 3), (3, 4)),
    ("Ab,bC", (2, 3), (3, 4)),
    (",ij->ij", (), (2, 3)),
]


@pytest.mark.parametrize("equation", ONE)
def test_one_operand(equation):
    shape = (2, 2, 3) if equation == "iij->j" else (3, 3) if "ii" in equation else (2, 3)
    agree(lambda x: torch.einsum(equation, x), randn(*shape))


@pytest.mark.parametrize(("equation", "left", "right"), TWO)
def test_two_operands(equation, left, right):
    for needs in ([True, True], [True, False], [False, True]):
        agree(lambda a, b: torch.einsum(equation, a, b), randn(*left), randn(*right, seed=1), needs=needs)


@pytest.mark.parametrize("equation", ["ij,jk,kl->il", "ij,jk,kl", "ij,jk,kl->", "ij,jk,kl->jli", "ij,jk,kl->ijkl"])
def test_three_operands(equation):
    agree(lambda a, b, c: torch.einsum(equation, a, b, c), randn(2, 3), randn(3, 4, seed=1), randn(4, 2, seed=2))


def test_four_operands_and_a_list_of_them():
    values = randn(2, 3), randn(3, 2, seed=1), randn(2, 2, seed=2), randn(2, seed=3)
    agree(lambda *x: torch.einsum("ij,jk,kl,l->i", *x), *values)
    agree(lambda *x: torch.einsum("ij,jk,kl,l->i", list(x)), *values)


def test_second_derivative_of_an_exotic_equation():
    x, y = (cartograd.tensor(randn(*shape), requires_grad=True) for shape in ((2, 2, 3), (1, 3, 2)))
    assert cartograd.gradgradcheck(lambda a, b: torch.einsum("iij,...jk->...k", a, b), (x, y))


def test_sublists():
    agree(lambda a, b: torch.einsum(a, [0, 1], b, [1, 2], [2, 0]), randn(2, 3), randn(3, 4))
    agree(lambda a, b: torch.einsum(a, [..., 1], b, [1, 2]), randn(2, 3), randn(3, 4))


def test_an_operand_is_saved_only_for_the_others_gradient():
    x, y = cartograd.tensor(randn(2, 3), requires_grad=True), cartograd.tensor(randn(3, 2))
    saved = torch.einsum("ij,jk->ik", x, y).node.saved
    assert any(one is y.data for one in saved)
    assert not any(one is x.data for one in saved)


@pytest.mark.parametrize("equation", ["ij,jk->iq", "ij,jk->ii", "ijk,jk->i", "ij->i", "ij,j1->i", "ij,jk.->i"])
def test_wrong_equations_are_refused(equation):
    x = cartograd.tensor(randn(2, 3), requires_grad=True)
    with pytest.raises(RuntimeError, match="einsum"):
        torch.einsum(equation, x, cartograd.tensor(randn(3, 2)))


def test_a_repeated_letter_needs_equal_sizes():
    with pytest.raises(ValueError, match="sizes 2 and 3"):
        torch.einsum("ii->i", cartograd.tensor(randn(2, 3), requires_grad=True))


def test_tensordot():
    agree(lambda a, b: torch.tensordot(a, b), randn(2, 3, 4), randn(3, 4, 2))
    agree(lambda a, b: torch.tensordot(a, b, dims=0), randn(2, 3), randn(2))
    agree(lambda a, b: torch.tensordot(a, b, dims=([0, -1], [1, 0])), randn(2, 3, 4), randn(4, 2, 2))
    agree(lambda a, b: torch.tensordot(a, b, dims=torch.tensor([[1], [0]])), randn(2, 3), randn(3, 2))
    with pytest.raises(ValueError, match="dims=3"):
        torch.tensordot(cartograd.tensor(randn(2, 3), requires_grad=True), cartograd.tensor(randn(3)), dims=3)


def test_kron_of_different_ranks():
    agree(torch.kron, randn(2, 3), randn(2))
    agree(torch.kron, randn(2), randn(2, 1, 3))
    agree(torch.kron, randn(), randn(2, 3))


def test_multi_dot_takes_the_cheapest_order():
    shapes = [(1, 6), (6, 5), (5, 4), (4, 3)]
    agree(lambda *x: torch.linalg.multi_dot(x), *(randn(*shape) for shape in shapes))
    tensors = [cartograd.tensor(randn(*shape), requires_grad=True) for shape in shapes]
    sizes = sorted(tuple(node.shape) for node in cartograd.trace(torch.linalg.multi_dot(tensors)).nodes)
    assert sizes == [(1, 3), (1, 4), (1, 5)], "a row is multiplied on, not a product of large matrices made"


def test_multi_dot_of_vectors():
    agree(lambda *x: torch.linalg.multi_dot(x), randn(3), randn(3, 2), randn(2))
    agree(lambda *x: torch.linalg.multi_dot(x), randn(3), randn(3))
    with pytest.raises(RuntimeError, match="at least 2"):
        torch.linalg.multi_dot([cartograd.tensor(randn(2, 2), requires_grad=True)])
