"""Every map method on Fashion-MNIST: seconds and quality, beside the peer that has it.

    python benchmarks/methods.py [--rows 10000] [--data FOLDER] [--only UMAP,TSNE] [--threads 1]

Each fit runs in a process of its own, after one of half the rows, which lets compilers finish. Seconds are CPU seconds
(user and system), so that a busy machine disturbs less, with the wall clock beside them.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

DATA = Path(os.environ.get("CARTOGRAD_DATA", Path(__file__).parents[2] / "shared" / "data"))
METHODS = {
    "UMAP": (
        "cartograd.UMAP(n_neighbors=15, max_iter=500, random_state=0)",
        "umap.UMAP(n_neighbors=15, random_state=0)",
    ),
    "TSNE": (
        "cartograd.TSNE(max_iter=750, random_state=0)",
        "openTSNE.sklearn.TSNE(random_state=0, n_jobs={threads})",
    ),
    "PACMAP": ("cartograd.PACMAP(random_state=0)", "pacmap.PaCMAP(random_state=0)"),
    "LargeVis": ("cartograd.LargeVis(random_state=0)", None),
    "InfoTSNE": ("cartograd.InfoTSNE(random_state=0)", None),
    "SNE": ("cartograd.SNE(max_iter=500, random_state=0)", None),
    "COSNE": ("cartograd.COSNE(max_iter=300, random_state=0)", None),
    "PCA": ("cartograd.PCA()", "sklearn.decomposition.PCA(2)"),
}
DENSE = {
    "TSNEkhorn": ("cartograd.TSNEkhorn(max_iter=300, random_state=0)", None),
    "KernelPCA": ("cartograd.KernelPCA()", "sklearn.decomposition.KernelPCA(2, kernel='rbf')"),
    "PHATE": ("cartograd.PHATE(random_state=0)", None),
}
DENSE_ROWS = 2000

WORKER = """
import importlib, json, os, sys, time, warnings
warnings.simplefilter("ignore")
import numpy, torch
torch.set_num_threads({threads})
for name in {modules!r}:
    importlib.import_module(name)
    globals()[name.split(".")[0]] = sys.modules[name.split(".")[0]]
file = numpy.load({path!r})
X, y = file["X"][:{rows}].astype("float32") / 255, file["y"][:{rows}].astype("int64")
make = lambda: {make}
make().fit_transform(X[:{warm}])
cpu, wall = sum(os.times()[:2]), time.perf_counter()
Z = numpy.asarray(make().fit_transform(X), dtype="float32")
cpu, wall = sum(os.times()[:2]) - cpu, time.perf_counter() - wall
from cartograd import metrics
print(json.dumps(dict(cpu=cpu, wall=wall, trust=float(metrics.trustworthiness(X, Z, k=15)),
    recall=float(metrics.neighborhood_preservation(X, Z, 15)), label=float(metrics.knn_label_accuracy(Z, y, k=10)))))
"""


def measured(make, rows, threads, folder):
    make = make.format(threads=threads)
    module = make.split("(")[0].rpartition(".")[0]
    code = WORKER.format(
        threads=threads,
        modules=[module],
        path=str(folder / "fashion_mnist.npz"),
        rows=rows,
        warm=rows // 2,
        make=make,
    )
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "NUMBA_NUM_THREADS": str(threads)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    if done.returncode:
        return done.stderr.strip().splitlines()[-1]
    return json.loads(done.stdout.strip().splitlines()[-1])


def line(name, rows, found):
    if isinstance(found, str):
        return f"| {name} | {rows} | {found} | | | | |"
    values = "{cpu:.1f} | {wall:.1f} | {trust:.4f} | {recall:.4f} | {label:.4f}".format(**found)
    return f"| {name} | {rows} | {values} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    chosen = set(given.only.split(",")) - {""}
    print(f"load {os.getloadavg()[0]:.1f}, {given.threads} thread(s)")
    print("| method | rows | CPU s | wall s | trustworthiness@15 | recall@15 | 10-NN labels |")
    print("|---|---|---|---|---|---|---|")
    for table, rows in ((METHODS, given.rows), (DENSE, min(DENSE_ROWS, given.rows))):
        for name, (ours, theirs) in table.items():
            if chosen and name not in chosen:
                continue
            found = measured(ours, rows, given.threads, given.data)
            print(line(f"{name}: `{ours}`", rows, found), flush=True)
            if theirs is None:
                continue
            peer = measured(theirs, rows, given.threads, given.data)
            print(line(f"{name}: `{theirs}`", rows, peer), flush=True)
            if not isinstance(found, str) and not isinstance(peer, str):
                print(f"| **{name}: ours / peer** | | {found['cpu'] / peer['cpu']:.2f} | | | | |", flush=True)


if __name__ == "__main__":
    main()
