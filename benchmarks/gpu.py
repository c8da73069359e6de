"""Every claim about the GPU: seconds, quality, peak memory, and how near each kernel comes to the card's limits.

    python benchmarks/gpu.py [--data FOLDER] [--only umap,tsne,search,kernels,methods,large,torchdr,ssd] [--rows 70000]

The first lines measure the card: a large copy, a large product. Fits run twice on data already on the GPU, and the
second is timed; the first, which compiles what it needs, is in the last column. Trustworthiness and recall are of 2,000
rows among all. TorchDR runs in the same process where it can be imported. The rows of `benchmarks/gpu_large.py` and
`benchmarks/gpu_ssd.py` follow.
"""

import argparse
import importlib.util
import os
import platform
import time
from pathlib import Path

import numpy
import torch

import cartograd
from cartograd.affinity import UMAPAffinity
from cartograd.embedding.ring import ring_order
from cartograd.kernels import gpu
from cartograd.neighbors import fused, search
from cartograd.neighbors.rows import TensorRows

HERE = Path(__file__).parent
DATA = Path(os.environ.get("CARTOGRAD_DATA", HERE.parents[1] / "shared" / "data"))
CARD = torch.device("cuda")
MEASURED = {}
LINE = "{:<44}{:>12}  {:<38}{:>8}  {}"


def say(claim, value, quality="", memory=None, more=""):
    print(LINE.format(claim, value, quality, "" if memory is None else f"{memory:.2f}", more), flush=True)


def milliseconds(work, repeats=5):
    """The median time of a piece of work on the card."""
    work()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def seconds(work):
    """The result, the seconds until the card is done, and the most memory used, in GiB."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    result = work()
    torch.cuda.synchronize()
    return result, time.perf_counter() - start, torch.cuda.max_memory_allocated() / 2**30


def ceilings():
    source = torch.randint(0, 255, (1 << 31,), dtype=torch.uint8, device=CARD)
    target = torch.empty_like(source)
    MEASURED["copy"] = 2 * source.numel() / milliseconds(lambda: target.copy_(source)) / 1e9
    a, b = torch.randn(2, 8192, 8192, device=CARD, dtype=torch.bfloat16)
    MEASURED["product"] = 2 * 8192**3 / milliseconds(lambda: a @ b) / 1e9
    say("copy of 2 GiB, read and written", f"{MEASURED['copy']:.2f} TB/s")
    say("product of 8192 x 8192, bfloat16", f"{MEASURED['product']:.0f} TFLOP/s")


def nearest(X, rows, k):
    """The k nearest rows of some rows among all, by float64."""
    found = []
    wide = X.to(torch.float64)
    squares = wide.square().sum(1)
    for part in rows.split(100):
        apart = squares[None, :] - 2 * wide[part] @ wide.T
        apart[torch.arange(len(part), device=X.device), part] = torch.inf
        found.append(apart.topk(k, largest=False).indices)
    return torch.cat(found)


def agreement(found, true):
    return float((found[:, :, None] == true[:, None, :]).any(2).to(torch.float64).mean())


def quality(X, Z, labels=None, count=2000, k=15):
    """Trustworthiness and recall of `count` rows, and the accuracy of ten neighbours' votes on their labels."""
    n = len(X)
    rows = torch.linspace(0, n - 1, count, device=X.device).round().long()
    near = nearest(Z, rows, k)
    lost = 0.0
    for part, others in zip(rows.split(100), near.split(100), strict=True):
        apart = torch.cdist(X[part], X)
        apart[torch.arange(len(part), device=X.device), part] = -1.0
        own = apart.gather(1, others)
        rank = torch.stack([(apart < own[:, j : j + 1]).sum(1) for j in range(k)], 1)
        lost += float((rank - k).clamp(min=0).sum())
    trust = 1 - 2 * lost / (count * k * (2 * n - 3 * k - 1))
    said = f"trust {trust:.4f} recall {agreement(near, nearest(X, rows, k)):.3f}"
    if labels is None:
        return said
    votes = torch.mode(labels[near[:, :10]], 1).values
    return f"{said} label {float((votes == labels[rows]).double().mean()):.3f}"


def search_row(name, X, k):
    own = torch.arange(len(X), device=CARD)
    _, first, _ = seconds(lambda: search(X, k, backend="exact"))
    (ids, _), taken, memory = seconds(lambda: search(X, k, backend="exact"))
    rows = torch.arange(0, len(X), len(X) // 500, device=CARD)
    recall = agreement(ids[rows], nearest(X, rows, k))
    (_, _, doubtful), kernel, _ = seconds(lambda: fused.search_fused(TensorRows(X), k, None, own))
    rate = 2 * len(X) ** 2 * X.shape[1] / kernel / 1e12
    share = rate / MEASURED["product"]
    say(f"exact search, {name}, k = {k}", f"{taken:.3f} s", f"recall {recall:.5f}, doubtful {len(doubtful)}", memory,
        f"{rate:.0f} TFLOP/s, {share:.0%} of the product; first {first:.2f} s")  # fmt: skip


def fit_row(name, make, X, labels=None):
    _, first, _ = seconds(lambda: make().fit_transform(X))
    model = make()
    Z, taken, memory = seconds(lambda: model.fit_transform(X))
    phases = " ".join(f"{phase} {value * 1e3:.0f}" for phase, value in model.report_["seconds"].items())
    say(name, f"{taken:.3f} s", quality(X, Z, labels), memory, f"ms: {phases}; first {first:.2f} s")


def kernel_rows(X):
    """Single kernels at the sizes of a fit of these rows."""
    n = len(X)
    indices, distances = search(X, 14, backend="exact")
    graph = UMAPAffinity(15)(None, knn=(indices, distances))
    umap, edges, repulsion, negatives = (gpu.load(name) for name in ("umap", "edges", "repulsion", "negatives"))
    Z, new = 20 * torch.rand(n, 2, device=CARD), torch.empty(n, 2, device=CARD)
    acting, curve = umap.edges_of(graph.indptr, graph.indices, graph.weights, 200), umap.Curve(1.577, 0.895, 5)
    keys = torch.randint(-(1 << 62), 1 << 62, (50,), device=CARD)
    course = umap.Course(torch.zeros(1, dtype=torch.int64, device=CARD), torch.full((50,), 0.1, device=CARD), keys)

    def steps():
        for ahead in range(50):
            umap.step(Z, new, acting, curve, course, ahead)

    steps()
    replayed = gpu.load("replay").recorded(steps, CARD)
    taken = milliseconds(replayed.replay) / 50
    updates = 6 * float(acting.rates.double().sum()) / umap.PERIOD
    say(f"UMAP step, {n} rows, {graph.n_edges} edges", f"{taken * 1e3:.1f} us", "", None,
        f"{updates / taken / 1e6:.0f} G updates/s")  # fmt: skip
    listed = edges.edges_of(graph.indptr, graph.indices, graph.weights)

    def pulls():
        for _ in range(50):
            edges.pulls(Z, listed, 1.0, 1.0, 1, out=new)

    pulls()
    taken = milliseconds(gpu.load("replay").recorded(pulls, CARD).replay) / 50
    moved = 8 * graph.n_edges + 8 * graph.n_edges + 24 * n
    say(f"pulls along {graph.n_edges} edges", f"{taken * 1e3:.1f} us", "", None,
        f"{moved / taken / 1e9:.2f} TB/s, {moved / taken / 1e9 / MEASURED['copy']:.0%} of the copy")  # fmt: skip
    taken = milliseconds(lambda: repulsion.student_sums(Z[:40_000], Z[:40_000], True))
    say("t-SNE repulsion, all pairs of 40000", f"{taken:.2f} ms", "", None, f"{1.6e9 / taken / 1e6:.0f} G pairs/s")
    order, out = ring_order(n, 0, CARD), torch.zeros_like(Z)
    around, rows = Z[order], order.to(torch.int32)
    for count, contrast in ((5, False), (300, True)):
        shift = negatives.shifts(keys, count, n)[0]
        taken = milliseconds(lambda s=shift, w=contrast: negatives.pushes(around, rows, s, w, 1.0, out))
        say(f"{count} random pushes a row, both ends", f"{taken * 1e3:.0f} us", "", None,
            f"{n * count / taken / 1e6:.0f} G pairs/s")  # fmt: skip


def clusters(n, d, seed=0):
    """Rows around 200 random centres of 20 dimensions each."""
    generator = torch.Generator(CARD).manual_seed(seed)
    centres = 4 * torch.randn(200, d, device=CARD, generator=generator)
    spans = torch.randn(200, 20, d, device=CARD, generator=generator)
    label = torch.randint(0, 200, (n,), device=CARD, generator=generator)
    inside = torch.randn(n, 20, device=CARD, generator=generator)
    rows = torch.empty(n, d, device=CARD)
    for one in range(200):
        rows[label == one] = centres[one] + inside[label == one] @ spans[one] / 4
    return rows + 0.1 * torch.randn(n, d, device=CARD, generator=generator), label


def beside(name):
    """Another benchmark of this folder."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def peer_rows(X, y):
    """TorchDR's UMAP and t-SNE, from plain torch, at the settings of ours above."""
    try:
        import torchdr
    except ImportError as error:
        say("TorchDR", "not run", str(error))
        return
    options = {"device": "cuda", "backend": None, "random_state": 0}

    def peer(name, make, ours, rows):
        Z, taken, memory = seconds(lambda: make().fit_transform(X[:rows]))
        ours().fit_transform(X[:rows])  # compiles
        _, mine, least = seconds(lambda: ours().fit_transform(X[:rows]))
        say(name, f"{taken:.3f} s", quality(X[:rows], Z, y), memory,
            f"ours {mine:.3f} s, {taken / mine:.0f} times as fast, {least:.2f} GiB")  # fmt: skip

    peer(f"TorchDR {torchdr.__version__} UMAP 40000 x 784, 500 steps",
         lambda: torchdr.UMAP(n_neighbors=15, max_iter=500, **options),
         lambda: cartograd.UMAP(15, max_iter=500), 40_000)  # fmt: skip
    peer(f"TorchDR {torchdr.__version__} TSNE 10000 x 784, 1000 steps",
         lambda: torchdr.TSNE(max_iter=1000, **options),
         lambda: cartograd.TSNE(method="exact", max_iter=1000), 10_000)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--only", default="search,kernels,umap,tsne,methods,torchdr,large,ssd")
    parser.add_argument("--rows", type=int, default=70_000)
    options = parser.parse_args()
    wanted = options.only.split(",")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {platform.python_version()}, "
          f"cartograd {cartograd.__version__}, {time.strftime('%Y-%m-%d')}")  # fmt: skip
    print(LINE.format("claim", "time", "quality", "GiB", "more"))
    ceilings()
    file = numpy.load(options.data / "fashion_mnist.npz")
    X = torch.from_numpy(file["X"][: options.rows]).to(CARD).float() / 255
    y = torch.from_numpy(file["y"][: options.rows]).to(CARD).long()
    n = len(X)
    if "search" in wanted:
        search_row(f"{n} x 784", X, 15)
        search_row(f"{n} x 784", X, 90)
        search_row("1000000 x 128, normal", torch.randn(1_000_000, 128, device=CARD), 15)
    if "kernels" in wanted:
        kernel_rows(X)
    if "umap" in wanted:
        fit_row("UMAP 40000 x 784, 15 neighbours, 500 steps", lambda: cartograd.UMAP(15, max_iter=500), X[:40_000], y)
        fit_row(f"UMAP {n} x 784, 15 neighbours, 500 steps", lambda: cartograd.UMAP(15, max_iter=500), X, y)
        fit_row(f"UMAP {n} x 784, defaults", cartograd.UMAP, X, y)
        rows, label = clusters(1_000_000, 128)
        fit_row("UMAP 1000000 x 128, 15 neighbours, 200 steps", lambda: cartograd.UMAP(15, max_iter=200), rows, label)
        del rows, label
    if "tsne" in wanted:
        fit_row(f"TSNE {n} x 784, 750 steps", lambda: cartograd.TSNE(max_iter=750), X, y)
        fit_row(f"TSNE {n} x 784, defaults", cartograd.TSNE, X, y)
        fit_row("TSNE 40000 x 784, exact, 1000 steps", lambda: cartograd.TSNE(method="exact", max_iter=1000),
                X[:40_000], y)  # fmt: skip
    if "methods" in wanted:
        for method in (cartograd.PACMAP, cartograd.LargeVis, cartograd.InfoTSNE):
            fit_row(f"{method.__name__} {n} x 784, defaults", method, X, y)
    if "torchdr" in wanted:
        peer_rows(X, y)
    del X, y
    if "large" in wanted:
        beside("gpu_large").main(["--rows", "3000000"])
    if "ssd" in wanted:
        beside("gpu_ssd").main()


if __name__ == "__main__":
    main()
