"""Scores of maps of Fashion-MNIST: against scikit-learn where it fits into memory, and in bounded memory where not."""

import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from sklearn.manifold import trustworthiness as reference
from sklearn.metrics import silhouette_score as reference_silhouette

from cartograd.metrics import knn_label_accuracy, silhouette_score, trustworthiness

DATA = Path(os.environ.get("CARTOGRAD_DATA", Path(__file__).parents[3] / "shared" / "data"))
FILE = DATA / "fashion_mnist.npz"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason=f"no {FILE}; set CARTOGRAD_DATA to the folder of the data")
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")

MEASURED = """
import sys, numpy
from cartograd.metrics import trustworthiness
count = int(sys.argv[2])
X = numpy.load(sys.argv[1])["X"][:count].astype("float32") / 255
Z = numpy.stack([X[:, :392].mean(1), X[:, 392:].mean(1)], axis=1)
score = trustworthiness(X, Z, k=15)
status = open("/proc/self/status").read()  # ru_maxrss would remember the parent's peak
print(repr(score), int(status.split("VmHWM:")[1].split()[0]) * 1024)
"""


def rows(count):
    file = numpy.load(FILE)
    X = file["X"][:count].astype(numpy.float32) / 255
    return X, numpy.stack([X[:, :392].mean(1), X[:, 392:].mean(1)], axis=1), file["y"][:count]


def score_and_peak(count):
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", MEASURED, str(FILE), str(count)],
        capture_output=True,
        text=True,
        check=True,
    )
    score, peak = result.stdout.split()
    return float(score), int(peak)


def test_equals_scikit_learn_on_3000():
    X, Z, y = rows(3000)
    wide = X.astype(numpy.float64), Z.astype(numpy.float64)
    assert abs(trustworthiness(X, Z) - reference(*wide, n_neighbors=15)) < 1e-10
    assert abs(silhouette_score(X, y) - reference_silhouette(wide[0], y)) < 1e-6


def test_one_neighbour_finds_the_class_as_often_as_the_data_set_says():
    X, _, y = rows(8000)
    assert 0.78 < knn_label_accuracy(X, y, k=1) < 0.85  # 0.850 among all 70,000


@pytest.mark.cpu
@linux
def test_trustworthiness_of_20000_in_a_third_of_a_matrix_of_all_pairs():
    score, peak = score_and_peak(20_000)
    assert 0.5 < score < 1
    assert peak < 1 << 30, f"{peak / 2**30:.2f} GiB"  # seen: 0.34 for torch and the data, 0.49 in all


@linux
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_trustworthiness_of_70000_in_under_3_gib():
    score, peak = score_and_peak(70_000)
    assert 0.5 < score < 1
    assert peak < 3 << 30, f"{peak / 2**30:.2f} GiB"
