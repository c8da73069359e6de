"""Forked children compute: after a fit in the parent, in a DataLoader, and while other threads fit, import or compile.

Each script runs in a process of its own, whose children have a generous limit; a child that waits forever reaches it.
"""

import os
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.cpu,
    pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="forks"),
]
PATIENCE = 60
BEGIN = f"""
import faulthandler, os, signal, sys, threading, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork of a process that has threads
import numpy, torch
import cartograd
from cartograd import metrics, neighbors
torch.set_num_threads(2)
X = numpy.random.default_rng(0).normal(size=(6000, 40)).astype("float32")
SMALL = X[:300, :8].copy()

def ends(work):
    child = os.fork()
    if child == 0:
        signal.alarm({PATIENCE})  # kills a child that waits forever
        faulthandler.dump_traceback_later({PATIENCE} - 10)  # and says where it waits
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]
"""


def run(script, **environment):
    environment = {**os.environ, "OMP_NUM_THREADS": "2", **environment}
    for name in ("MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        environment.pop(name, None)
    command = [sys.executable, "-c", BEGIN + script]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=10 * PATIENCE)
    print(done.stderr[-4000:])
    assert done.returncode == 0
    return done.stdout.split()


def test_a_child_computes_after_a_fit_of_the_parent():
    script = """
model = cartograd.UMAP(max_iter=3)
Z = model.fit_transform(X)
works = {
    "fit": lambda: cartograd.UMAP(max_iter=3).fit_transform(X),
    "threads": lambda: cartograd.UMAP(max_iter=3, n_jobs=2).fit_transform(X),
    "components": lambda: cartograd.PCA().fit_transform(X),
    "transform": lambda: model.transform(X[:500] + 0.01),
    "search": lambda: neighbors.search(X, 5),
    "score": lambda: metrics.trustworthiness(X, Z),
}
for name, work in works.items():
    print(name, ends(work))
"""
    works = ("fit", "threads", "components", "transform", "search", "score")
    assert run(script) == [word for name in works for word in (name, "0")]


def test_a_child_has_the_map_of_its_parent():
    script = """
expected = cartograd.UMAP(max_iter=3).fit_transform(X)

def same():
    assert (cartograd.UMAP(max_iter=3).fit_transform(X) == expected).all()

print(ends(same))
"""
    assert run(script) == ["0"]


def test_a_child_computes_with_scipy_and_scikit_learn_after_its_parent():
    script = """
def fit():
    cartograd.PHATE(n_landmarks=50, max_iter=3, t=3).fit_transform(X[:1000])

fit()
print(ends(fit))
"""
    assert run(script) == ["0"]


def test_workers_of_a_data_loader_fit():
    script = """
class Maps(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, seed):
        return torch.from_numpy(cartograd.UMAP(max_iter=3, random_state=seed).fit_transform(X))

cartograd.UMAP(max_iter=3).fit_transform(X)
loader = torch.utils.data.DataLoader(Maps(), num_workers=2, multiprocessing_context="fork", timeout=60)
print(sum(bool(torch.isfinite(Z).all()) for Z in loader))
"""
    assert run(script) == ["4"]


def test_a_fork_while_other_threads_fit():
    script = """
over = False

def fits():
    while not over:
        cartograd.UMAP(max_iter=3).fit_transform(SMALL)
        cartograd.TSNE(max_iter=5).fit_transform(SMALL)

threads = [threading.Thread(target=fits) for _ in range(2)]
for thread in threads:
    thread.start()
statuses = []
for _ in range(15):
    time.sleep(0.02)  # from the first imports on to the middle of a fit
    statuses.append(ends(lambda: cartograd.UMAP(max_iter=5).fit_transform(SMALL)))
over = True
for thread in threads:
    thread.join()
print(*statuses)
"""
    assert run(script) == ["0"] * 15


def test_a_fork_while_another_thread_compiles(tmp_path):
    script = """
from cartograd.kernels import cpu

thread = cpu.prepare("power", "counting")
statuses = []
while thread.is_alive() or not statuses:
    statuses.append(ends(lambda: cpu.load("power")))
    time.sleep(0.1)
print(*statuses)
"""
    assert set(run(script, NUMBA_CACHE_DIR=str(tmp_path))) == {"0"}


def test_a_fork_while_another_thread_imports(tmp_path):
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(2)\n")
    script = """
from cartograd.kernels import cpu

thread = threading.Thread(target=lambda: __import__("slow_to_import"))
thread.start()
time.sleep(0.5)
print(ends(lambda: __import__("slow_to_import")))
"""
    assert run(script, PYTHONPATH=os.pathsep.join([str(tmp_path), *filter(None, sys.path)])) == ["0"]
