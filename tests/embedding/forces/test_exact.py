import subprocess
import sys
import textwrap

import force_oracle as oracle
import numpy
import pytest
import torch

from cartograd.embedding.forces import exact, tiles
from cartograd.neighbors.workers import all_cores

CPU = torch.device("cpu")


@pytest.mark.parametrize("c", [1, 2, 3, 7])
@pytest.mark.parametrize("name", oracle.NAMES)
@pytest.mark.parametrize("method", ["tsne", "sne"])
def test_gradients_are_the_engines(method, name, c):
    Z = oracle.layouts(c)[name]
    expected, value = oracle.gradient(getattr(oracle, f"{method}_repulsion"), Z)
    found, total = getattr(exact, f"{method}_repulsion")(Z)
    total = torch.log(total) if method == "tsne" else total
    assert float(total) == pytest.approx(value, rel=1e-12, abs=1e-12)
    if name == "coincident":
        assert not expected.any()
        assert not found.any()
    else:
        assert oracle.relative(found, expected) < 1e-10


@pytest.mark.parametrize("c", [1, 2, 5])
@pytest.mark.parametrize("method", ["tsne", "sne"])
def test_queries_against_fixed_points(method, c):
    points, queries = oracle.layouts(c)["random"], oracle.layouts(c, 23, seed=1)["random"]
    queries[:4] = points[:4]
    queries[4] = 1e4

    def loss(X, Y):
        s = oracle.squared(X, Y)
        return torch.log((1 / (1 + s)).sum(1)).sum() if method == "tsne" else torch.logsumexp(-s, 1).sum()

    expected, value = oracle.gradient(loss, queries, points)
    found, sums = getattr(exact, f"{method}_repulsion_at")(queries, points)
    assert oracle.relative(found, expected) < 1e-10
    assert float((torch.log(sums) if method == "tsne" else sums).sum()) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("c", [2, 3])
@pytest.mark.parametrize("method", ["tsne", "sne"])
def test_float32(method, c):
    for name, Z in oracle.layouts(c, 300).items():
        if name in ("coincident", "all far"):
            continue
        narrow = Z.to(torch.float32)
        expected, value = getattr(exact, f"{method}_repulsion")(narrow.to(torch.float64))
        found, total = getattr(exact, f"{method}_repulsion")(narrow)
        assert found.dtype == torch.float32
        assert total.dtype == torch.float64
        assert oracle.relative(found, expected) < (2e-3 if name == "far" and method == "sne" else 2e-6), name
        assert float(total) == pytest.approx(float(value), rel=1e-6, abs=1e-6)


def test_sne_of_far_points_in_float32_is_finite():
    Z = oracle.layouts(2, 300)["all far"].to(torch.float32)
    gradient, loss = exact.sne_repulsion(Z)
    assert bool(torch.isfinite(gradient).all())
    wide = exact.sne_repulsion(Z.to(torch.float64))
    assert float(loss) == pytest.approx(float(wide[1]), rel=1e-6)


def test_the_sum_is_openTSNEs_without_approximation():
    _tsne = pytest.importorskip("openTSNE._tsne")
    from openTSNE.quad_tree import QuadTree

    Z = oracle.layouts(2, 500)["random"]
    theirs = numpy.zeros((500, 2))
    total = _tsne.estimate_negative_gradient_bh(QuadTree(Z.numpy()), Z.numpy(), theirs, theta=0.0, num_threads=1)
    found, ours = exact.tsne_repulsion(Z)
    assert float(ours) == pytest.approx(total, rel=1e-12)
    assert oracle.relative(found, 4 * torch.from_numpy(theirs)) < 1e-10


@pytest.mark.parametrize("n", [0, 1])
def test_too_few_for_a_pair(n):
    Z = torch.ones(n, 2)
    for repulsion in (exact.tsne_repulsion, exact.sne_repulsion):
        gradient, total = repulsion(Z)
        assert gradient.tolist() == [[0.0, 0.0]] * n
        assert float(total) == 0
    gradient, sums = exact.tsne_repulsion_at(Z[:0], torch.ones(3, 2))
    assert gradient.shape == (0, 2)
    assert sums.shape == (0,)


def test_points_farther_than_squares_reach():
    Z = torch.tensor([[0.0, 0.0], [1e30, 0.0]])
    gradient, total = exact.tsne_repulsion(Z)
    assert float(total) == 0
    assert not gradient.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("method", ["tsne", "sne"])
def test_a_query_does_not_see_the_others(method, dtype):
    points, queries = oracle.layouts(2, 1000)["random"].to(dtype), oracle.layouts(2, 301, seed=3)["random"].to(dtype)
    at = getattr(exact, f"{method}_repulsion_at")
    order = torch.randperm(301, generator=oracle.drawn(4))
    with all_cores(CPU):
        whole = at(queries, points)
        turned = at(queries[order], points)
        for part in (slice(0, 1), slice(300, 301), slice(7, 107)):
            for one, other in zip(whole, at(queries[part], points), strict=True):
                assert torch.equal(one[part], other)
    for one, other in zip(whole, turned, strict=True):
        assert torch.equal(one[order], other)


@pytest.mark.parametrize("repulsion", [exact.tsne_repulsion, exact.sne_repulsion])
def test_the_same_bits_at_any_thread_count(repulsion, threads):
    Z = oracle.layouts(2, 3001)["random"].to(torch.float32)
    runs = []
    for count in (1, 2, 4, 2):
        threads(count)
        with all_cores(CPU):
            runs.append(repulsion(Z))
    for run in runs[1:]:
        assert torch.equal(run[0], runs[0][0])
        assert torch.equal(run[1], runs[0][1])


def test_tiles_of_any_size_agree(monkeypatch):
    Z = oracle.layouts(3, 200)["random"]
    expected = exact.tsne_repulsion(Z)
    for elements in (1, 1000, 10_000):
        monkeypatch.setattr(tiles, "TILE", elements)
        found = exact.tsne_repulsion(Z)
        assert oracle.relative(found[0], expected[0]) < 1e-14


MEASURE = """
    import torch
    from cartograd.embedding.forces import exact
    from cartograd.neighbors.workers import all_cores
    def peak():  # in MiB; ru_maxrss would remember the parent's peak
        return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024
    torch.set_num_threads(2)
    Z = torch.randn({1}, 2)
    with all_cores(Z.device):
        exact.{0}(Z[:200])
        exact.{0}(Z[:4100])  # from 4,000 rows on a kernel is loaded
        start = peak()
        exact.{0}(Z)
    print(peak() - start)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
@pytest.mark.parametrize(("method", "n", "bound"), [("tsne_repulsion", 20_000, 100), ("sne_repulsion", 8_000, 60)])
def test_no_matrix_of_all_pairs_exists(method, n, bound):
    code = textwrap.dedent(MEASURE).format(method, n)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=200)
    assert float(run.stdout) < bound  # MiB; 20,000^2 float32 are 1,526, 8,000^2 are 244


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("method", ["tsne_repulsion", "sne_repulsion"])
def test_cuda_equals_cpu_and_itself(method):
    Z = oracle.layouts(2, 5000)["random"].to(torch.float32)
    expected = getattr(exact, method)(Z)
    runs = [getattr(exact, method)(Z.cuda()) for _ in range(3)]
    assert oracle.relative(runs[0][0].cpu(), expected[0]) < 1e-5
    assert float(runs[0][1]) == pytest.approx(float(expected[1]), rel=1e-6)
    assert all(torch.equal(run[0], runs[0][0]) for run in runs)


def test_where_memory_runs_out_tiles_become_smaller(monkeypatch):
    """Every row's sums are its own, so that they keep their bits."""
    Z = oracle.layouts(2, 500)["random"]
    expected, real, seen = exact.sne_repulsion(Z), tiles.Pairs.tile, []

    def tile(self, start, stop):
        seen.append(stop - start)
        if stop - start > 50:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, start, stop)

    monkeypatch.setattr(tiles.Pairs, "tile", tile)
    found = exact.sne_repulsion(Z)
    assert max(seen) > 50 >= min(seen) > 20
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])
