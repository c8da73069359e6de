"""Components of rows that are spread over processes."""

import numpy
import pytest
import torch
from sklearn.decomposition import PCA as Reference

from cartograd.embedding.exact_incremental_pca import ExactIncrementalPCA
from cartograd.embedding.moments import merged, moments
from cartograd.embedding.pca import PCA
from cartograd.neighbors.rows import TensorRows


def rows(scale=1.0):
    return numpy.random.default_rng(0).normal(size=(400, 12)) * numpy.linspace(4, 1, 12) * scale + 100 * scale


@pytest.mark.parametrize("cut", [1, 17, 399])
def test_moments_of_parts_are_those_of_the_whole(cut):
    X = torch.from_numpy(rows())
    both = merged(moments(TensorRows(X[:cut])), moments(TensorRows(X[cut:])))
    assert both.count == 400
    torch.testing.assert_close(both.mean, X.mean(0))
    torch.testing.assert_close(both.scatter, torch.cov(X.T) * 399)
    centre = torch.arange(12, dtype=torch.float64)
    torch.testing.assert_close(both.about(centre), (X - centre).T @ (X - centre))


def part_of_all(rank, folder, scale):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.set_num_threads(1)
    own = rows(scale)[:150] if rank == 0 else rows(scale)[150:]
    for name, model in (("pca", PCA(3)), ("exact", ExactIncrementalPCA(3)), ("alone", PCA(3, distributed=False))):
        Z = model.fit_transform(own)
        numpy.savez(f"{folder}/{name}{rank}.npz", Z=Z, V=model.components_, ratio=model.explained_variance_ratio_)
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.dist
@pytest.mark.parametrize("scale", [1.0, 1e-200])
def test_two_processes(tmp_path, scale):
    torch.multiprocessing.spawn(part_of_all, (str(tmp_path), scale), nprocs=2)
    reference = Reference(3, svd_solver="full").fit(rows())
    for name in ("pca", "exact"):
        first, second = (numpy.load(tmp_path / f"{name}{rank}.npz") for rank in (0, 1))
        assert numpy.array_equal(first["V"], second["V"])
        numpy.testing.assert_allclose(first["V"], reference.components_, atol=1e-9)
        numpy.testing.assert_allclose(first["ratio"], reference.explained_variance_ratio_, rtol=1e-9)
        Z = numpy.concatenate([first["Z"], second["Z"]])
        numpy.testing.assert_allclose(Z / scale, reference.transform(rows()), atol=1e-8)
    alone = numpy.load(tmp_path / "alone0.npz")
    numpy.testing.assert_allclose(alone["V"], Reference(3).fit(rows()[:150]).components_, atol=1e-9)
