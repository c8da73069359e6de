"""Every affinity on a GPU gives what it gives on the CPU."""

import pytest
import torch

import cartograd
from cartograd import affinity as A
from cartograd.neighbors import Graph, search

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

AFFINITIES = [
    A.EntropicAffinity(10.5),
    A.EntropicAffinity(10.5, sparsity=False),
    A.SymmetricEntropicAffinity(10),
    A.SinkhornAffinity(),
    A.DoublyStochasticQuadraticAffinity(),
    A.SelfTuningAffinity(),
    A.MAGICAffinity(),
    A.UMAPAffinity(15),
    A.PHATEAffinity(),
    A.PHATEAffinity(t="auto", n_landmarks=50),
    A.PACMAPAffinity(),
    A.GaussianAffinity(),
    A.StudentAffinity(),
    A.NormalizedGaussianAffinity(),
    A.NormalizedStudentAffinity(normalization_dim=1),
]


def points(n=150):
    return torch.randn(n, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("affinity", AFFINITIES, ids=repr)
def test_same_values(affinity):
    here, there = affinity(points()), affinity(points().cuda())
    if isinstance(here, Graph):
        assert there.device.type == "cuda"
        here, there = here.to_dense(), there.to_dense()
    assert there.device.type == "cuda"
    torch.testing.assert_close(there.cpu(), here, atol=1e-7, rtol=1e-6)


def test_draws_are_the_same_bits():
    neighbours = search(points(), 10)[0]
    assert torch.equal(A.far_pairs(neighbours.cuda(), 20, 3).cpu(), A.far_pairs(neighbours, 20, 3))
    assert torch.equal(A.mid_near_pairs(points().cuda(), 5, 3).cpu(), A.mid_near_pairs(points(), 5, 3))


def test_labels():
    labels = torch.arange(150) % 4 - 1
    here = A.categorical_intersection(A.UMAPAffinity(15)(points()), labels)
    there = A.categorical_intersection(A.UMAPAffinity(15)(points().cuda()), labels)
    torch.testing.assert_close(there.to_dense().cpu(), here.to_dense())


@pytest.mark.parametrize("affinity", [A.EntropicAffinity(5), A.SinkhornAffinity(with_grad=True)], ids=repr)
def test_gradients(affinity):
    gradients = []
    for X in (points(40), points(40).cuda()):
        x = cartograd.Tensor(X, requires_grad=True)
        (affinity(x) ** 2).sum().backward()
        gradients.append(x.grad.data.cpu())
    torch.testing.assert_close(gradients[1], gradients[0])
