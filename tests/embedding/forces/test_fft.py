import math
import subprocess
import sys
import textwrap

import force_oracle as oracle
import pytest
import torch

from cartograd.embedding.forces import exact, fft, grid, kernel, splines
from cartograd.embedding.forces.choice import choose
from cartograd.embedding.forces.fft import FFTRepulsion, spacing_for
from cartograd.neighbors.workers import all_cores

CPU = torch.device("cpu")


def maps(c, n, seed=0):
    """Layouts of many extents, float64."""
    draw = oracle.drawn(seed)
    normal = torch.randn(n, c, generator=draw, dtype=torch.float64)
    centres = torch.randn(20, c, generator=draw, dtype=torch.float64).repeat_interleave(-(-n // 20), 0)[:n]
    wide = {1: 200.0, 2: 15.0, 3: 3.0}[c]
    outliers = normal / 3
    outliers[:3] += 8 * wide / 3
    return {
        "of 1e-4": 1e-4 * normal,
        "of 0.3": 0.05 * normal,
        "of 10": 10 * torch.rand(n, c, generator=draw, dtype=torch.float64),
        "wide": wide * normal,
        "even": 7 * wide * torch.rand(n, c, generator=draw, dtype=torch.float64),
        "clusters": wide * centres + normal,
        "tight clusters": wide * centres + 0.1 * normal,
        "outliers": outliers,
        "far from the origin": normal + 1000,
        "a line": torch.cat([wide * normal[:, :1], torch.zeros(n, c - 1, dtype=torch.float64)], 1),
    }


def check(found, expected, bound=1e-3):
    assert oracle.relative(found[0], expected[0]) < bound
    assert abs(float(found[1] / expected[1]) - 1) < bound


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("c", [1, 2, 3])
@pytest.mark.parametrize("name", tuple(maps(2, 20)))
def test_close_to_exact(name, c, dtype):
    Z = maps(c, 400 if c == 3 else 1000)[name].to(dtype)
    assert spacing_for((Z.amax(0) - Z.amin(0)).tolist(), len(Z)) is not None
    check(FFTRepulsion()(Z), exact.tsne_repulsion(Z.to(torch.float64)))


@pytest.mark.parametrize("name", ["wide", "clusters", "outliers", "of 10"])
def test_close_to_exact_with_many_points(name):
    """Single precision, and what a point adds to its own potential rounded to 1 where points are dense."""
    Z = maps(2, 6000)[name].to(torch.float32)
    check(FFTRepulsion()(Z), exact.tsne_repulsion(Z), 5e-4)


def test_sparse_points_on_the_coarser_grid():
    Z = 600 * torch.rand(6000, 2, generator=oracle.drawn(1), dtype=torch.float32)
    assert spacing_for([600.0, 600.0], 6000) == 0.25
    check(FFTRepulsion()(Z), exact.tsne_repulsion(Z))


@pytest.mark.parametrize("c", [1, 2])
@pytest.mark.parametrize("apart", [1e-6, 0.01, 0.7, 3.3, 61.7, 300.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_two_points(c, apart, dtype):
    Z = torch.tensor([[0.3] * c, [0.3 + apart] * c], dtype=dtype)
    check(FFTRepulsion()(Z), exact.tsne_repulsion(Z.to(torch.float64)))


@pytest.mark.parametrize("c", [1, 2, 3])
def test_all_in_one_place(c):
    gradient, total = FFTRepulsion()(torch.full((50, c), 3.0))
    assert float(total) == pytest.approx(50 * 49, rel=1e-12)
    assert gradient.abs().max() < 1e-12
    gradient, total = FFTRepulsion()(torch.full((1, c), 3.0))
    assert abs(float(total)) < 1e-12
    assert gradient.abs().max() < 1e-12


def test_better_than_interpolation_in_boxes():
    """openTSNE's error on the same points, with its own defaults, is above 1e-2."""
    _tsne = pytest.importorskip("openTSNE._tsne")
    Z = maps(2, 1500)["wide"]
    theirs = torch.zeros(1500, 2, dtype=torch.float64)
    _tsne.estimate_negative_gradient_fft_2d(Z.numpy(), theirs.numpy(), min_num_intervals=50, ints_in_interval=1)
    expected = exact.tsne_repulsion(Z)[0]
    ours = oracle.relative(FFTRepulsion()(Z)[0], expected)
    assert ours < 0.03 * oracle.relative(4 * theirs, expected)


def test_a_map_too_wide_is_exact_and_the_log_says_so(caplog):
    Z = maps(2, 100)["wide"]
    Z[0] = 1e7
    repulsion = FFTRepulsion()
    for _ in range(2):
        found, expected = repulsion(Z), exact.tsne_repulsion(Z)
        assert torch.equal(found[0], expected[0])
    assert [record.getMessage() for record in caplog.records] == [
        "a map of extent 1e+07, 1e+07 is too wide for the Fourier transform; repulsion is exact"
    ]
    field = repulsion.field(Z)
    assert torch.equal(field.repulsion_at(Z[:5])[0], exact.tsne_repulsion_at(Z[:5], Z)[0])


def test_no_grid_is_larger_than_its_limit():
    for c, largest in fft.LARGEST.items():
        for extent in (0.0, 1e-9, 1.0, 9.9, 10.0, 77.7, 500.0, 1e4, 1e9, 1e300):
            for n in (10, 1_000_000):
                extents = [extent] * c
                spacing = spacing_for(extents, n)
                if spacing is None:
                    assert extent > 30
                    continue
                laid = grid.Grid.over(torch.zeros(c), extents, spacing)
                assert math.prod(kernel.padded(count) for count in laid.nodes) <= largest
                assert all(count * spacing > extent for count in laid.nodes)
    assert spacing_for([650.0, 650.0], 10) == 0.25
    assert spacing_for([1200.0, 1200.0], 10) is None
    assert spacing_for([1200.0, 1200.0], 1_000_000) == 0.5
    assert spacing_for([1e4, 1.0], 10) == 0.2


def test_a_map_that_is_not_finite_gives_no_numbers():
    for bad in (torch.nan, torch.inf):
        Z = torch.ones(5, 2)
        Z[3, 1] = bad
        gradient, total = FFTRepulsion()(Z)
        assert bool(gradient.isnan().all())
        assert math.isnan(float(total))


@pytest.mark.parametrize("n", [999, 6000])
def test_the_same_bits_at_any_thread_count(n, threads):
    Z = maps(2, n)["clusters"].to(torch.float32)
    runs = []
    for count in (1, 2, 4, 1):
        threads(count)
        with all_cores(CPU):
            repulsion = FFTRepulsion()
            runs += [repulsion(Z), repulsion(Z)]  # with a new kernel, and with the one that was kept
    for run in runs[1:]:
        assert torch.equal(run[0], runs[0][0])
        assert torch.equal(run[1], runs[0][1])


def test_what_came_before_does_not_matter():
    steps = [maps(2, 300)[name] for name in ("of 1e-4", "of 10", "wide", "clusters")]
    repulsion = FFTRepulsion()
    for Z in [*steps, *steps[::-1]]:
        assert torch.equal(repulsion(Z)[0], FFTRepulsion()(Z)[0])


class TestField:
    @pytest.mark.parametrize("c", [1, 2, 3])
    @pytest.mark.parametrize("name", ["of 1e-4", "of 10", "wide", "clusters"])
    def test_close_to_exact(self, name, c):
        points = maps(c, 700)[name]
        queries = points[:50] + 0.05 * torch.randn(50, c, generator=oracle.drawn(2), dtype=torch.float64)
        found = FFTRepulsion().field(points).repulsion_at(queries)
        expected = exact.tsne_repulsion_at(queries, points)
        assert oracle.relative(found[0], expected[0]) < 1e-3
        assert oracle.relative(found[1], expected[1]) < 1e-4

    def test_queries_outside_are_exact(self):
        points = maps(2, 300)["of 10"]
        queries = torch.tensor([[5.0, 5.0], [1e3, 5.0], [5.0, -40.0], [torch.nan, 1.0]], dtype=torch.float64)
        found, sums = FFTRepulsion().field(points).repulsion_at(queries)
        expected, theirs = exact.tsne_repulsion_at(queries, points)
        assert torch.equal(found[1:3], expected[1:3])
        assert torch.equal(sums[1:3], theirs[1:3])
        assert oracle.relative(found[0], expected[0]) < 1e-3
        assert bool(found[3].isnan().all())

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("c", [1, 2, 3])
    def test_a_query_does_not_see_the_others(self, c, dtype):
        points = maps(c, 700)["of 10"].to(dtype)
        queries = 14 * torch.rand(301, c, generator=oracle.drawn(3), dtype=dtype) - 2  # some are outside
        order = torch.randperm(301, generator=oracle.drawn(4))
        with all_cores(CPU):
            field = FFTRepulsion().field(points)
            whole, turned = field.repulsion_at(queries), field.repulsion_at(queries[order])
            for part in (slice(0, 1), slice(300, 301), slice(7, 107), slice(0, 0)):
                for one, other in zip(whole, field.repulsion_at(queries[part]), strict=True):
                    assert torch.equal(one[part], other)
        for one, other in zip(whole, turned, strict=True):
            assert torch.equal(one[order], other)


class TestSplines:
    def test_weights_are_scipys(self):
        from scipy.interpolate import BSpline

        t = torch.linspace(0, 0.999, 50, dtype=torch.float64)
        values, slopes = splines.weights(t)
        basis = BSpline.basis_element(range(splines.ORDER + 1), extrapolate=False)
        for node in range(splines.ORDER):
            u = t.numpy() + splines.ORDER - 1 - node
            assert abs(values[node].numpy() - basis(u)).max() < 1e-14
            assert abs(slopes[node].numpy() - basis.derivative()(u)).max() < 1e-13

    def test_between_nodes_the_grid_gives_the_kernel_itself(self):
        """Points on nodes: no interpolation, so nothing but rounding is left of the error."""
        spots = torch.tensor([[0, 0], [1, 0], [3, 7], [40, 11], [41, 52]], dtype=torch.float64) * 0.25
        laid = grid.Grid(torch.zeros(2, dtype=torch.float64), (64, 64), 0.25)
        laid_kernel = kernel.Kernel(laid.nodes, laid.spacing, CPU)
        potential = laid_kernel.convolve(laid.charges(spots))
        found = laid.read(potential, spots, laid_kernel.near)
        assert oracle.relative(found[0], exact.student_sums(spots, spots, own=True)[0]) < 1e-9


MEASURE = """
    import torch
    from cartograd.embedding.forces.fft import FFTRepulsion
    from cartograd.neighbors.workers import all_cores
    def peak():  # in MiB; ru_maxrss would remember the parent's peak
        return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024
    torch.set_num_threads(2)
    Z = torch.rand(1000, {0})
    with all_cores(Z.device):
        FFTRepulsion()(Z)
        start = peak()
        FFTRepulsion()(Z * {1})
    print(peak() - start)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
@pytest.mark.parametrize(("c", "extent"), [(1, 450_000), (2, 660), (3, 40)])
def test_the_largest_grid_stays_in_memory(c, extent):
    assert spacing_for([float(extent)] * c, 1000) == 0.25
    code = textwrap.dedent(MEASURE).format(c, extent)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=280)
    assert float(run.stdout) < 1000  # MiB


@pytest.mark.parametrize("needed", [1, 31, 32, 33, 100, 1000, 1779, 12345])
def test_lengths_are_good_for_the_transform(needed):
    length = rest = kernel.good_length(needed)
    assert needed <= length <= max(1.13 * needed, 32)
    assert length % 2 == 0
    for prime in (2, 3, 5, 7):
        while rest % prime == 0:
            rest //= prime
    assert rest == 1


def test_the_faster_way_is_chosen():
    assert [choose(n, 2) for n in (1, 500, 2000, 10_000, 10**6)] == ["exact"] * 3 + ["fft"] * 2
    assert choose(10**6, 1) == choose(10**6, 3) == "fft"
    assert choose(10**6, 4) == choose(10**6, 50) == "exact"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("c", [1, 2, 3])
def test_cuda_equals_cpu_and_itself(c):
    Z = maps(c, 6000)["clusters"].to(torch.float32)
    expected = FFTRepulsion()(Z)
    runs = [FFTRepulsion()(Z.cuda()) for _ in range(3)]
    check((runs[0][0].cpu(), runs[0][1].cpu()), expected, 1e-4)
    assert all(torch.equal(run[0], runs[0][0]) and torch.equal(run[1], runs[0][1]) for run in runs)
