"""The fused search: candidates against all distances, measures against float64, and the search built on both."""

import pytest
import torch

from cartograd.kernels import gpu
from cartograd.neighbors import fused, search
from cartograd.neighbors.distances import METRICS
from cartograd.neighbors.exact import search_fast
from cartograd.neighbors.rows import TensorRows

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]


def recall(found, true):
    return float((found[:, :, None] == true[:, None, :]).any(2).to(torch.float64).mean())


@pytest.mark.parametrize(("d", "length"), [(40, 16), (200, 16), (128, 32)])
def test_candidates_are_those_of_all_distances(kernel_device, d, length):
    kernels = gpu.load("nearest")
    generator = torch.Generator().manual_seed(d)
    X = torch.randn(4000, d, generator=generator).to(kernel_device)
    Q = torch.randn(150, d, generator=generator).to(kernel_device)
    order = torch.randperm(len(X), generator=generator).to(kernel_device)
    # Triton's interpreter multiplies no bfloat16
    for dtype in (torch.float32, torch.bfloat16) if kernel_device.type == "cuda" else (torch.float32,):
        data = kernels.prepared(X, X.mean(0), order, dtype)
        asked = kernels.prepared(Q, X.mean(0), None, dtype)
        values, ids = kernels.candidates(asked, data, length)
        true_values, true_ids = kernels.candidates_in_torch(asked, data, length)
        assert recall(ids, true_ids) > 0.999  # a tile gives at most four
        common = (values.sort(1).values - true_values.sort(1).values).abs()[:, : length // 2]
        assert float(common.max() / true_values.max()) < 2**-12


def test_prepared_rows_say_how_far_they_are_off(kernel_device):
    kernels = gpu.load("nearest")
    X = torch.randn(300, 20, generator=torch.Generator().manual_seed(0)).to(kernel_device)
    for dtype, bits in ((torch.bfloat16, 8), (torch.float32, 11)):
        found = kernels.prepared(X, torch.zeros(20, device=kernel_device), None, dtype)
        off = torch.linalg.vector_norm(found.values[:300, :20].float() - X, dim=1)
        torch.testing.assert_close(found.errors, off)
        assert 0 < float(off.max()) < 2.0**-bits * float(torch.linalg.vector_norm(X, dim=1).max())
    whole = kernels.prepared(
        torch.randint(0, 256, (50, 30), device=kernel_device).float(), torch.full((30,), 7.0).to(X)
    )
    assert float(whole.errors.max()) == 0.0


@pytest.mark.parametrize("d", [5, 200])
def test_measures_are_those_of_float64(kernel_device, d):
    kernels = gpu.load("ranking")
    generator = torch.Generator().manual_seed(d)
    X, Q = torch.randn(300, d, generator=generator), torch.randn(40, d, generator=generator) + 100
    ids = torch.randint(-1, 300, (40, 16), generator=generator, dtype=torch.int32)
    own = ids[:, 3].to(torch.int64)
    X, Q, ids, own = (part.to(kernel_device) for part in (X, Q, ids, own))
    found, true = kernels.measured(Q, X, ids, own), kernels.measured_in_torch(Q, X, ids, own)
    torch.testing.assert_close(found, true, rtol=1e-13, atol=0)
    assert bool(torch.isinf(found[:, 3]).all())


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("k", [15, 90])
def test_search_is_exact(cuda_device, metric, k):
    X = torch.randn(20_000, 60, generator=torch.Generator().manual_seed(k)).to(cuda_device)
    ids, distances = search(X, k, metric=metric, backend="exact")
    some = torch.arange(0, 20_000, 40, device=cuda_device)
    wide = X.to(torch.float64)
    wide = wide / torch.linalg.vector_norm(wide, dim=1, keepdim=True) if metric == "cosine" else wide
    apart = torch.cdist(wide[some], wide, compute_mode="donot_use_mm_for_euclid_dist")
    apart[torch.arange(len(some)), some] = torch.inf
    true = apart.topk(k, dim=1, largest=False)
    assert recall(ids[some], true.indices) > 0.9999
    true_distances = true.values if metric == "euclidean" else true.values.square() / 2
    torch.testing.assert_close(distances[some].to(torch.float64), true_distances, rtol=1e-5, atol=1e-7)


def test_near_duplicates_far_from_the_middle_are_told_apart(cuda_device):
    generator = torch.Generator().manual_seed(3)
    centres = 100 * torch.randn(20, 30, generator=generator)
    X = (centres.repeat_interleave(600, 0) + 1e-2 * torch.randn(12_000, 30, generator=generator)).to(cuda_device)
    own = torch.arange(len(X), device=cuda_device)
    _, _, doubtful = fused.search_fused(TensorRows(X), 15, None, own)
    assert len(doubtful) > 0  # bfloat16 sees all of a cluster in one place
    found, _ = search(X, 15, backend="exact")
    apart = torch.cdist(X[:600].double(), X[:600].double(), compute_mode="donot_use_mm_for_euclid_dist")
    true = apart.fill_diagonal_(torch.inf).topk(15, dim=1, largest=False).indices
    assert recall(found[:600], true) > 0.999


def test_equal_rows_are_ordered_by_id_and_the_order_of_rows_does_not_matter(cuda_device):
    X = torch.randint(0, 3, (10_000, 8), generator=torch.Generator().manual_seed(5)).float().to(cuda_device)
    own = torch.arange(len(X), device=cuda_device)
    ids, distances = search(X, 10, backend="exact")
    _, raw, doubtful = search_fast(TensorRows(X), 10, METRICS["euclidean"], None, own, False)
    sure = torch.ones(len(X), dtype=torch.bool, device=cuda_device)
    sure[doubtful] = False
    torch.testing.assert_close(distances.double().square()[sure], raw[sure], rtol=1e-6, atol=1e-6)
    level = distances[:, 1:] == distances[:, :-1]
    assert bool((ids[:, 1:] > ids[:, :-1])[level].all())
