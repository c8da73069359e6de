"""The SSD scan of Mamba-3 on a GPU: our kernels against the same scan in torch, and against the card's limits.

    python benchmarks/gpu_ssd.py

Shape: batch 8, 2,048 steps, 32 heads of 64 channels, 128 channels of the state; Q R = 64. "double" is the trapezoidal
rule, as two scans summed or in one pass. Times are medians with a cold L2 cache. The share of the card: the fewest
bytes (every input read once, every output written once) over the time, as a part of a large copy's rate; and the
products' operations over the time, as a part of a large bfloat16 product's rate. The last column is the aim.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
import triton
from triton.testing import do_bench

from cartograd.nn import Mamba3
from cartograd.ops import ssd_recompute, ssd_trapezoid, ssd_turned
from cartograd.ops.rotary import turned_keys

BATCH, STEPS, HEADS, P, R = 8, 2048, 32, 64, 128
TARGETS = {"forward": 200.0, "backward": 500.0}


def microseconds(run: Callable[[], Any]) -> float:
    return 1e3 * do_bench(run, warmup=20, rep=100, return_mode="median")


def ceilings() -> tuple[float, float]:
    """Bytes and operations a second of a large copy and a large bfloat16 product."""
    source, target = (torch.empty(1 << 29, dtype=torch.int32, device="cuda") for _ in range(2))
    copied = 2 * source.nbytes / microseconds(lambda: target.copy_(source)) * 1e6
    matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    return copied, 2 * 8192**3 / microseconds(lambda: matrix @ matrix) * 1e6


def inputs(dtype: torch.dtype, ranks: int, groups: int) -> list[torch.Tensor]:
    generator = torch.Generator("cuda").manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda", generator=generator)

    rows = (BATCH, STEPS * ranks // 64, 64 // ranks)
    return [
        normal(*rows, ranks, HEADS, P).to(dtype),
        -0.1 * normal(*rows, HEADS).abs(),
        (normal(*rows, ranks, groups, R) / R**0.5).to(dtype),
        normal(*rows, ranks, groups, R).to(dtype),
        normal(BATCH, HEADS, P, R),
    ]


def passes(given: list[torch.Tensor], calls: int) -> dict[str, Callable[[], Any]]:
    """The op's forward and its gradient rule, `calls` times, summed as the double formulation sums them.

    0 calls are the double formulation in one pass.
    """
    seeds = torch.randn_like(given[0]), torch.randn_like(given[4])
    if calls == 0:
        op, weights = ssd_trapezoid.trapezoid_ssd, torch.rand_like(given[1])
        given = [*given[:4], weights, weights, given[4]]
    else:
        op = ssd_recompute.ssd

    def summed(found: list[Any]) -> Any:
        return found[0] if len(found) == 1 else [one + other for one, other in zip(*found, strict=True)]

    return {
        "forward": lambda: summed([op.forward(*given) for _ in range(max(1, calls))]),
        "backward": lambda: summed([op.rules[0].function(seeds, *given) for _ in range(max(1, calls))]),
    }


def work(given: list[torch.Tensor], ranks: int, calls: int) -> dict[str, tuple[float, float]]:
    """Bytes and operations."""
    v, da, B, C, state = (one.nbytes for one in given)
    calls = max(1, calls)
    rows = calls * BATCH * STEPS * HEADS * ranks
    return {
        "forward": (calls * (2 * v + da + B + C + 2 * state), rows * 57_344),
        "backward": (calls * (3 * v + 2 * (da + B + C) + 3 * state), rows * 147_456),
    }


def show(title: str, dtype: torch.dtype, ranks: int, groups: int, calls: int, limits: tuple[float, float]) -> None:
    given = inputs(dtype, ranks, groups)
    counted = work(given, ranks, calls)
    for direction, run in passes(given, calls).items():
        time = microseconds(run)
        without = [
            mock.patch.object(module, "gpu_kernels", return_value=None) for module in (ssd_recompute, ssd_trapezoid)
        ]
        with without[0], without[1]:
            plain = microseconds(run)
        shares = [amount / time * 1e6 / limit for amount, limit in zip(counted[direction], limits, strict=True)]
        wanted = f"{TARGETS[direction]:.0f}" if dtype is torch.bfloat16 and ranks == 1 else "-"
        print(
            f"| {title} | {direction} | {time:.0f} | {plain:.0f} | {plain / time:.1f} | {shares[0]:.2f} | "
            f"{shares[1]:.2f} | {wanted} |",
            flush=True,
        )


def turned(groups: int = 1) -> dict[str, Callable[[], Any]]:
    """The double formulation in one pass that spreads, biases and turns keys and queries, 32 angles of each head."""
    v, da, B, C, state = inputs(torch.bfloat16, 1, groups)
    weights, bias = torch.rand_like(da), torch.ones(HEADS, 1, R, device="cuda")
    theta = torch.randn(*da.shape, R // 4, device="cuda")
    given, seeds = (v, da, B, C, weights, weights, bias, bias, theta, state, "adjacent"), (torch.randn_like(v), state)
    return {
        "forward": lambda: ssd_turned.turned_ssd.forward(*given),
        "backward": lambda: ssd_turned.turned_ssd.rules[0].function(seeds, *given),
    }


def fused_rotation(limits: tuple[float, float]) -> None:
    """Turned inside the scan, against kernels that turn keys and queries before it and turn their gradients back."""
    moved = work([*inputs(torch.bfloat16, 1, 1)], 1, 1)
    for direction, run in turned().items():
        time = microseconds(run)
        with mock.patch.object(ssd_turned, "_kernels", return_value=None):
            apart = microseconds(run)
        angles = BATCH * STEPS * HEADS * (R // 4) * 4 * (1 if direction == "forward" else 2)
        share = (moved[direction][0] + angles) / time * 1e6 / limits[0]
        print(f"| double in one pass, keys turned inside (torch: beside) | {direction} | {time:.0f} | {apart:.0f} | "
              f"{apart / time:.1f} | {share:.2f} | - | - |", flush=True)  # fmt: skip


def rotation(limits: tuple[float, float]) -> None:
    """Keys of one group spread to all heads, biased and turned, 32 angles of each."""
    rows = torch.randn(BATCH, STEPS, 1, 1, R, device="cuda", dtype=torch.bfloat16)
    bias, theta = torch.ones(HEADS, 1, R, device="cuda"), torch.randn(BATCH, STEPS, HEADS, R // 4, device="cuda")
    out = turned_keys.forward(rows, bias, theta, "adjacent")
    moved = {"forward": out.nbytes + theta.nbytes, "backward": out.nbytes + 2 * theta.nbytes}
    runs = {
        "forward": lambda: turned_keys.forward(rows, bias, theta, "adjacent"),
        "backward": lambda: turned_keys.rules[0].function(out, rows, bias, theta, "adjacent"),
    }
    for direction, run in runs.items():
        time = microseconds(run)
        with mock.patch("cartograd.ops.rotary._kernels", return_value=None):
            plain = microseconds(run)
        share = moved[direction] / time * 1e6 / limits[0]
        print(f"| keys turned | {direction} | {time:.0f} | {plain:.0f} | {plain / time:.1f} | {share:.2f} | - | - |")


def block(dtype: torch.dtype) -> None:
    """A whole block of width 1,024, projections and all."""
    module = Mamba3(1024).cuda().to(dtype)
    u = torch.randn(BATCH, STEPS, 1024, device="cuda", dtype=dtype)
    print(f"a block in {dtype}: forward {microseconds(lambda: module(u)) / 1e3:.2f} ms, forward and backward "
          f"{microseconds(lambda: module(u).sum().backward()) / 1e3:.2f} ms", flush=True)  # fmt: skip


def main() -> None:
    limits = ceilings()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    print(f"copy {limits[0] / 1e12:.2f} TB/s, bfloat16 product {limits[1] / 1e12:.0f} TFLOP/s")
    print("| scan | pass | ours, us | torch, us | ratio | share of copy | share of product | wanted, us |")
    print("|---|---|---|---|---|---|---|---|")
    show("bfloat16, B and C of one group, one call", torch.bfloat16, 1, 1, 1, limits)
    show("the same, double as two calls", torch.bfloat16, 1, 1, 2, limits)
    show("the same, double in one pass", torch.bfloat16, 1, 1, 0, limits)
    show("bfloat16, B and C of every head, one call", torch.bfloat16, 1, HEADS, 1, limits)
    show("the same, double as two calls", torch.bfloat16, 1, HEADS, 2, limits)
    show("the same, double in one pass", torch.bfloat16, 1, HEADS, 0, limits)
    show("bfloat16, rank 4, one group, one call", torch.bfloat16, 4, 1, 1, limits)
    show("float32, one group, one call", torch.float32, 1, 1, 1, limits)
    show("float32, B and C of every head, one call", torch.float32, 1, HEADS, 1, limits)
    show("the same, double in one pass", torch.float32, 1, HEADS, 0, limits)
    fused_rotation(limits)
    rotation(limits)
    for dtype in (torch.bfloat16, torch.float32):
        block(dtype)


if __name__ == "__main__":
    main()
