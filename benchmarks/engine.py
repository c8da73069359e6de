"""Our engine against torch's eager autograd: one process, one thread, the same kernels.

    python benchmarks/engine.py [--repeats 40]

Prints one line a claim: what is measured, ours, torch's, their ratio, and the most the ratio may be. Times are thread
CPU seconds, the least of many interleaved repeats, so that a busy machine changes them little. "eager" is op by op,
with a graph; "replayed" is the same step after `cartograd.capture`. The last rows compare a backward pass on two
threads with one on one (wall time: both cores must be free), and per-sample gradients with torch's vmap.
"""

from __future__ import annotations

import argparse
import gc
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

import cartograd
from cartograd.engine.meter import PeakBytes

CHAIN = 1_000


def least(ours: Callable[[], Any], theirs: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """The least CPU time of each, run in turns."""
    best = [float("inf"), float("inf")]
    for _ in range(repeats):
        for which, function in enumerate((ours, theirs)):
            gc.collect(0)
            start = time.thread_time()
            function()
            best[which] = min(best[which], time.thread_time() - start)
    return best[0], best[1]


def chain(make: Callable[..., Any], step: Callable[[Any, Any, Any], Any]) -> Callable[[], Any]:
    """Forward and backward of `CHAIN` steps on one element, from a leaf."""
    leaf, constant = make([1.0]), make([1.0])
    leaf.requires_grad_()

    def run() -> Any:
        leaf.grad = None
        y = leaf
        for _ in range(CHAIN):
            y = step(y, constant, leaf)
        y.backward()
        return y

    return run


def mlp(make: Callable[..., Any], width: int, batch: int) -> Callable[[], Any]:
    """Forward and backward of a four-layer network with a mean squared error, written with operators."""
    torch.manual_seed(0)
    weights = [nn.Parameter(torch.randn(width, width) / width**0.5) for _ in range(4)]
    biases = [nn.Parameter(torch.zeros(width)) for _ in range(4)]
    inputs, target = make(torch.randn(batch, width)), make(torch.randn(batch, width))

    def run() -> Any:
        for parameter in (*weights, *biases):
            parameter.grad = None
        h = inputs
        for weight, bias in zip(weights[:3], biases[:3], strict=True):
            h = (h @ weight + bias).relu()
        difference = h @ weights[3] + biases[3] - target
        loss = (difference * difference).mean()
        loss.backward()
        return loss

    return run


def modules(make: Callable[..., Any], width: int, batch: int) -> Callable[[], Any]:
    """The same network made of torch.nn modules, whose every call reaches us through torch's function protocol."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(3):
        layers += [nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(width, width))
    parameters = list(model.parameters())
    inputs, target = make(torch.randn(batch, width)), make(torch.randn(batch, width))

    def run() -> Any:
        for parameter in parameters:
            parameter.grad = None
        loss = nn.functional.mse_loss(model(inputs), target)
        loss.backward()
        return loss

    return run


class Layer(nn.Module):
    """A transformer layer: attention and a network of two layers, both with a norm before and a way around."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.before, self.between = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        batch, time_steps, width = x.shape
        parts = self.qkv(self.before(x)).view(batch, time_steps, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, time_steps, width)
        x = x + self.out(mixed)
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


def transformer_under_budget(repeats: int) -> list[tuple[str, float, float, str, float | None]]:
    """Peak and time of a step of eight layers under a budget of 0.38 of torch's peak, against torch without one."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Layer(192, 6) for _ in range(8)))
    data = torch.randn(8, 128, 192)

    def theirs() -> None:
        model.zero_grad()
        (model(data) ** 2).mean().backward()

    with PeakBytes() as meter:
        theirs()
    peak = meter.peak
    limit = int(0.38 * peak)

    def ours() -> None:
        model.zero_grad()
        with cartograd.memory_budget(limit):
            (model(cartograd.tensor(data)) ** 2).mean().backward()

    model.zero_grad()
    with PeakBytes() as meter:
        ours()
    fast, slow = least(ours, theirs, max(2, repeats // 10))
    unit = 1 << 20
    return [
        ("transformer under a budget: peak", meter.peak / unit, peak / unit, "MiB", 0.4),
        ("transformer under a budget: time", fast * 1e3, slow * 1e3, "ms", 1.35),
    ]


def branches(workers: int) -> float:
    """Wall seconds of the backward pass through eight independent branches of elementwise work; no forward."""
    leaves = [cartograd.tensor(torch.rand(1 << 19), requires_grad=True) for _ in range(8)]
    parts = []
    for leaf in leaves:
        h = leaf
        for _ in range(6):
            h = (h.sin() * h).tanh()
        parts.append(h.sum())
    loss = sum(parts[1:], parts[0])
    start = time.perf_counter()
    loss.backward(workers=workers)
    return time.perf_counter() - start


@cartograd.primitive()
def waiting(x: torch.Tensor) -> torch.Tensor:
    """x; its gradient is in no hurry"""
    return x.clone()


@waiting.vjp("x")
def _(g: torch.Tensor) -> torch.Tensor:
    time.sleep(0.02)
    return g


def waits(workers: int) -> float:
    """Wall seconds of a backward pass through eight branches that wait: what the engine itself lets run at once."""
    leaf = cartograd.tensor([1.0], requires_grad=True)
    loss = sum(waiting(leaf * k).sum() for k in range(8))
    start = time.perf_counter()
    loss.backward(workers=workers)
    return time.perf_counter() - start


def bare(threads: int) -> float:
    """Wall seconds of the kernels of `branches` without any engine, shared among threads: what the machine gives."""
    values = [torch.rand(1 << 19) for _ in range(8)]

    def work(part: list[torch.Tensor]) -> None:
        for value in part:
            for _ in range(12):
                (value.cos() * value).mul_(value)

    pool = [threading.Thread(target=work, args=(values[k::threads],)) for k in range(threads)]
    start = time.perf_counter()
    for one in pool:
        one.start()
    for one in pool:
        one.join()
    return time.perf_counter() - start


def in_turns(function: Callable[[int], float], repeats: int) -> tuple[float, float]:
    """The least milliseconds with two threads and with one, measured in turns."""
    times = [(function(2), function(1)) for _ in range(max(5, repeats // 2))]
    return min(pair[0] for pair in times) * 1e3, min(pair[1] for pair in times) * 1e3


def against_itself(repeats: int) -> list[tuple[str, float, float, str, float | None]]:
    """Two workers against one, and per-sample gradients by rules against torch's vmap of grad."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    x, y = torch.randn(64, 64), torch.randint(0, 10, (64,))
    parameters = {name: value.detach() for name, value in model.named_parameters()}

    def single(values: Any, row: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(functional_call(model, values, (row[None],)), label[None])

    every = vmap(grad(single), in_dims=(None, 0, 0))

    def loss(x: Any, y: Any) -> Any:
        return nn.functional.cross_entropy(model(x), y, reduction="none")

    ours, theirs = least(
        lambda: cartograd.per_sample_grad(loss, model, (x, y)), lambda: every(parameters, x, y), repeats
    )
    return [
        ("eight branches, 2 workers against 1", *in_turns(branches, repeats), "ms wall", 1 / 1.5),
        ("  bare kernels, 2 threads against 1", *in_turns(bare, repeats), "ms wall", None),
        ("  branches that wait, 2 workers against 1", *in_turns(waits, repeats), "ms wall", None),
        ("per-sample gradients against vmap", ours * 1e6, theirs * 1e6, "us", None),
    ]


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def bytes_per_node(make: Callable[..., Any], count: int = 200_000) -> float:
    """Memory a recorded add takes, its value freed: growth of the process over a long chain."""
    leaf, constant = make([1.0]), make([1.0])
    leaf.requires_grad_()
    warm = leaf
    for _ in range(1_000):
        warm = warm + constant
    del warm
    gc.collect()
    before = resident_bytes()
    y = leaf
    for _ in range(count):
        y = y + constant
    grown = resident_bytes() - before
    del y
    return grown / count


def clean_bytes(engine: str) -> float:
    """`bytes_per_node` in a process of its own: what was freed before would be used again, unseen."""
    ran = subprocess.run([sys.executable, __file__, "--bytes", engine], capture_output=True, text=True, check=True)
    return float(ran.stdout)


def rows(repeats: int) -> list[tuple[str, float, float, str, float | None]]:
    """(claim, ours, torch's, unit, most allowed ratio)"""
    made: list[tuple[str, float, float, str, float | None]] = []
    chains: list[tuple[str, Callable[[Any, Any, Any], Any], float | None]] = [
        ("chain of 1,000 adds, y + c", lambda y, c, x: y + c, 0.85),
        ("chain of 1,000 muls, y * c", lambda y, c, x: y * c, 1.0),
        ("the same into a leaf, y + x", lambda y, c, x: y + x, None),
        ("the same into a leaf, y * x", lambda y, c, x: y * x, None),
    ]
    for claim, step, most in chains:
        ours, theirs = least(chain(cartograd.tensor, step), chain(torch.tensor, step), repeats)
        made.append((f"eager: {claim}", ours * 1e6 / CHAIN, theirs * 1e6 / CHAIN, "us an op", most))
    for claim, step, most in chains:
        replayed = cartograd.capture(chain(cartograd.tensor, step))
        ours, theirs = least(replayed, chain(torch.tensor, step), repeats)
        most = None if most is None else 0.45
        made.append((f"replayed: {claim}", ours * 1e6 / CHAIN, theirs * 1e6 / CHAIN, "us an op", most))
    for kind in ("eager", "replayed"):
        made += networks(kind, repeats)
    ours, theirs = clean_bytes("cartograd"), clean_bytes("torch")
    made.append(("memory of a recorded add", ours, theirs, "bytes", 0.6))
    return made + transformer_under_budget(repeats) + against_itself(repeats)


def networks(kind: str, repeats: int) -> list[tuple[str, float, float, str, float | None]]:
    """Steps of small and large networks, op by op or replayed."""
    made: list[tuple[str, float, float, str, float | None]] = []
    for width, batch, most in ((8, 1, 0.8), (128, 128, 0.95), (512, 1024, 1.02)):
        step = mlp(cartograd.tensor, width, batch)
        step = cartograd.capture(step) if kind == "replayed" else step
        slow = 1 if width < 512 else 4
        ours, theirs = least(step, mlp(torch.as_tensor, width, batch), repeats * 5 // slow)
        made.append((f"{kind}: MLP step, width {width}, batch {batch}", ours * 1e6, theirs * 1e6, "us", most))
    for width, batch in ((8, 1), (128, 128)):
        step = modules(cartograd.tensor, width, batch)
        step = cartograd.capture(step) if kind == "replayed" else step
        ours, theirs = least(step, modules(torch.as_tensor, width, batch), repeats * 5)
        made.append((f"{kind}: the same of torch.nn modules, width {width}", ours * 1e6, theirs * 1e6, "us", None))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--bytes", choices=["cartograd", "torch"], help="print the memory of one recorded add, only")
    arguments = parser.parse_args()
    repeats = arguments.repeats
    if arguments.bytes:
        print(bytes_per_node(cartograd.tensor if arguments.bytes == "cartograd" else torch.tensor))
        return 0
    torch.set_num_threads(1)
    print(f"Python {platform.python_version()}, torch {torch.__version__}, one thread")
    print(f"{'claim':50} {'ours':>10} {'torch':>10}  {'unit':8} {'ratio':>6}  at most")
    missed = 0
    for claim, ours, theirs, unit, most in rows(repeats):
        bound = "" if most is None else f"{most:.2f}" + ("  MISSED" if ours / theirs > most else "")
        missed += bound.endswith("MISSED")
        print(f"{claim:50} {ours:10.2f} {theirs:10.2f}  {unit:8} {ours / theirs:6.2f}  {bound}")
    return missed


if __name__ == "__main__":
    sys.exit(main())
