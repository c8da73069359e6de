"""Our engine against torch's eager autograd: one process, one thread, the same kernels.

    python benchmarks/engine.py [--repeats 40]

Prints one line a claim: what is measured, ours, torch's, their ratio, and the most the ratio may be. Times are thread
CPU seconds, the least of many interleaved repeats, so that a busy machine changes them little.
"""

from __future__ import annotations

import argparse
import gc
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import cartograd

CHAIN = 1_000


def least(ours: Callable[[], None], theirs: Callable[[], None], repeats: int) -> tuple[float, float]:
    """The least CPU time of each, run in turns."""
    best = [float("inf"), float("inf")]
    for _ in range(repeats):
        for which, function in enumerate((ours, theirs)):
            gc.collect(0)
            start = time.thread_time()
            function()
            best[which] = min(best[which], time.thread_time() - start)
    return best[0], best[1]


def chain(make: Callable[..., Any], step: Callable[[Any, Any, Any], Any]) -> Callable[[], None]:
    """Forward and backward of `CHAIN` steps on one element, from a leaf."""
    leaf, constant = make([1.0]), make([1.0])
    leaf.requires_grad_()

    def run() -> None:
        leaf.grad = None
        y = leaf
        for _ in range(CHAIN):
            y = step(y, constant, leaf)
        y.backward()

    return run


def mlp(make: Callable[..., Any], width: int, batch: int) -> Callable[[], None]:
    """Forward and backward of a four-layer network with a mean squared error, written with operators."""
    torch.manual_seed(0)
    weights = [nn.Parameter(torch.randn(width, width) / width**0.5) for _ in range(4)]
    biases = [nn.Parameter(torch.zeros(width)) for _ in range(4)]
    inputs, target = make(torch.randn(batch, width)), make(torch.randn(batch, width))

    def run() -> None:
        for parameter in (*weights, *biases):
            parameter.grad = None
        h = inputs
        for weight, bias in zip(weights[:3], biases[:3], strict=True):
            h = (h @ weight + bias).relu()
        difference = h @ weights[3] + biases[3] - target
        (difference * difference).mean().backward()

    return run


def modules(make: Callable[..., Any], width: int, batch: int) -> Callable[[], None]:
    """The same network made of torch.nn modules, whose every call reaches us through torch's function protocol."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(3):
        layers += [nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(width, width))
    parameters = list(model.parameters())
    inputs, target = make(torch.randn(batch, width)), make(torch.randn(batch, width))

    def run() -> None:
        for parameter in parameters:
            parameter.grad = None
        nn.functional.mse_loss(model(inputs), target).backward()

    return run


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
        made.append((claim, ours * 1e6 / CHAIN, theirs * 1e6 / CHAIN, "us an op", most))
    for width, batch, most in ((8, 1, 0.8), (128, 128, 0.95), (512, 1024, 1.02)):
        slow = 1 if width < 512 else 4
        ours, theirs = least(
            mlp(cartograd.tensor, width, batch),
            mlp(torch.as_tensor, width, batch),
            repeats * 5 // slow,
        )
        made.append((f"MLP step, width {width}, batch {batch}", ours * 1e6, theirs * 1e6, "us", most))
    for width, batch in ((8, 1), (128, 128)):
        ours, theirs = least(
            modules(cartograd.tensor, width, batch), modules(torch.as_tensor, width, batch), repeats * 5
        )
        made.append((f"the same of torch.nn modules, width {width}", ours * 1e6, theirs * 1e6, "us", None))
    ours, theirs = clean_bytes("cartograd"), clean_bytes("torch")
    made.append(("memory of a recorded add", ours, theirs, "bytes", 0.6))
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
    print(f"{'claim':40} {'ours':>10} {'torch':>10}  {'unit':8} {'ratio':>6}  at most")
    missed = 0
    for claim, ours, theirs, unit, most in rows(repeats):
        bound = "" if most is None else f"{most:.2f}" + ("  MISSED" if ours / theirs > most else "")
        missed += bound.endswith("MISSED")
        print(f"{claim:40} {ours:10.2f} {theirs:10.2f}  {unit:8} {ours / theirs:6.2f}  {bound}")
    return missed


if __name__ == "__main__":
    sys.exit(main())
