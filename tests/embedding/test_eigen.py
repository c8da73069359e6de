"""Eigenvectors by iteration, on matrices whose spectrum is known."""

import pytest
import torch

from cartograd.embedding.eigen import is_few, iterate, largest_eigenpairs, orthonormal


def matrix(values, seed=0):
    print("seed", seed)
    draw = torch.Generator().manual_seed(seed)
    Q = torch.linalg.qr(torch.randn(len(values), len(values), generator=draw, dtype=torch.float64)).Q
    return Q * values @ Q.T, Q


def start(n, b=9):
    return torch.randn(n, b, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


SPECTRA = {
    "falling": torch.logspace(0, -8, 400, dtype=torch.float64),
    "flat": torch.linspace(1, 0.5, 400, dtype=torch.float64),
    "two alike": torch.cat([torch.tensor([2.0, 2.0, 1.5]), torch.linspace(1, 0, 397)]).to(torch.float64),
    "of rank 3": torch.cat([torch.tensor([3.0, 2.0, 1.0]), torch.zeros(397)]).to(torch.float64),
    "with negative ones": torch.linspace(1, -0.8, 400, dtype=torch.float64),
}


@pytest.mark.parametrize("name", SPECTRA)
def test_leading_pairs(name):
    values = SPECTRA[name]
    A, Q = matrix(values)
    assert is_few(3, 400)
    found = largest_eigenpairs(A, 3, start(400), 1e-10)
    torch.testing.assert_close(found.values, values[:3], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.vectors.T @ found.vectors, torch.eye(3, dtype=torch.float64))
    inside = (Q[:, :3].T @ found.vectors).square().sum(0)  # in the space of the three, whichever they are
    torch.testing.assert_close(inside, torch.ones(3, dtype=torch.float64), rtol=1e-9, atol=1e-9)
    assert found.least >= float(values[-1]) - 1e-10
    if name == "with negative ones":
        assert found.least < -0.7


def test_all_of_a_small_matrix():
    values = torch.linspace(5, 1, 20, dtype=torch.float64)
    A, _ = matrix(values)
    found = largest_eigenpairs(A, 4, start(20), 1e-10)
    torch.testing.assert_close(found.values, values[:4])
    assert found.least == pytest.approx(1.0)


def test_a_space_that_is_all_there_is():
    A = torch.eye(5, dtype=torch.float64) * 2
    found = iterate(lambda V: A @ V, start(5, 5), 2, 1e-12)
    assert found.values.tolist() == pytest.approx([2.0, 2.0])
    zero = iterate(lambda V: 0 * V, start(7, 4), 2, 1e-12)
    assert zero.values.tolist() == [0.0, 0.0]


def test_only_what_is_new():
    basis = torch.eye(6, 2, dtype=torch.float64)
    block = torch.zeros(6, 3, dtype=torch.float64)
    block[0, 0], block[3, 1], block[1, 2] = 1.0, 1e-3, 7.0
    new = orthonormal(block, basis)
    assert new.shape == (6, 1)
    assert abs(float(new[3, 0])) == pytest.approx(1.0)
    assert orthonormal(basis * 5, basis).shape == (6, 0)
