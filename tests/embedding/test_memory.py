"""The memory a fit says it will need, against what it takes."""

import subprocess
import sys

import pytest

MEASURED = """
import sys, numpy, cartograd
from cartograd.kernels import cpu
def bytes_of(line):
    return int(open("/proc/self/status").read().split(line + ":")[1].split()[0]) * 1024
kind, n, d = getattr(cartograd, sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
X = numpy.random.RandomState(0).rand(n, d).astype("float32")
X[n // 2 :] += 3
for name in cpu.names():
    cpu.load(name)
kind(max_iter=2).fit(X[:300])  # imports, compilers and pools are no part of it
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
before = bytes_of("VmRSS")
model = kind(max_iter=4).fit(X)
print(bytes_of("VmHWM") - before, model.report_["memory_estimate"])
"""


@pytest.mark.cpu
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
@pytest.mark.parametrize(
    ("name", "n", "d"),
    [
        ("UMAP", 15_000, 60),
        pytest.param("UMAP", 60_000, 50, marks=pytest.mark.slow),
        pytest.param("UMAP", 20_000, 784, marks=pytest.mark.slow),
        pytest.param("LargeVis", 20_000, 50, marks=pytest.mark.slow),
        pytest.param("InfoTSNE", 20_000, 50, marks=pytest.mark.slow),
        ("TSNE", 10_000, 60),
        pytest.param("TSNE", 60_000, 50, marks=pytest.mark.slow),
        pytest.param("PACMAP", 20_000, 50, marks=pytest.mark.slow),
    ],
)
def test_estimate_is_within_30_percent_of_the_peak(name, n, d):
    run = subprocess.run(
        [sys.executable, "-c", MEASURED, name, str(n), str(d)], capture_output=True, text=True, check=True
    )
    peak, estimate = map(float, run.stdout.split())
    print(f"{name} {n} x {d}: peak {peak / 2**20:.0f} MiB, estimate {estimate / 2**20:.0f} MiB")
    assert 0.7 < estimate / peak < 1.3
