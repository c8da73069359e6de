"""Keeping track of a state over long sequences: what the rotation in a Mamba-3 block is for.

The parity of a string of bits is a state of two values, flipped by every 1. A real, decaying state cannot follow it for
long; a state that can be turned by half a circle can. This script shows it twice:

1. ``--counters``: blocks with weights set by hand, nothing trained, count parity and sums modulo 5 over 4,096 tokens.
2. The default: one block is trained on short strings and asked about strings of length 256, with and without rotation,
   over a small sweep of learning rates and seeds. Printed is the scaled accuracy at length 256: 2 * accuracy - 1.

    python examples/state_tracking.py --counters
    python examples/state_tracking.py --jobs 6          # the sweep, six models at a time, on a GPU if there is one
    python examples/state_tracking.py --rates 2e-3 --seeds 0    # one model of each kind: minutes on one CPU core

Training runs on torch's autograd, through ``double_ssd.as_torch()``; with ``--engine cartograd`` it runs on ours.
"""

import argparse
import copy
import math
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

import cartograd
from cartograd.nn import Mamba3, Mamba3Layer

GATE = 64.0  # silu(64) = 64 exactly


def by_hand(d_model: int, heads: int, rows: dict[str, torch.Tensor]) -> Mamba3:
    """A block whose state neither decays nor forgets: dt = 1, A = 0, lambda = 1, no skip, keys (1, 0) in every head.

    `rows` are the rows of the input projection by the names of its parts, as linear functions of the token.
    """
    block = Mamba3(d_model, d_state=2, headdim=1, expand=heads / d_model, rope_fraction=1.0, angle_bound=2.0)
    block.a_floor = 0.0
    parts = ["z", "x", "B", "C", "dt", "A", "lam", "angle"]
    with torch.no_grad():
        for name, rows_of_part in zip(parts, block.in_proj.weight.split(block.split), strict=True):
            rows_of_part.copy_(rows.get(name, torch.zeros(d_model)).expand_as(rows_of_part))
        block.dt_bias.fill_(math.log(math.e - 1))
        block.D.zero_()
        for norm, bias in ((block.B_norm, block.B_bias), (block.C_norm, block.C_bias)):
            norm.weight.zero_()
            bias.copy_(torch.tensor([1.0, 0.0]).expand_as(bias))
        block.out_proj.weight.copy_(torch.eye(d_model, heads) / GATE)
    return block


def parity_counter() -> Mamba3:
    """Reads (bit, 1). A 1 writes 1 and turns the state by half a circle, so y_t = 1 - 1 + 1 ... = the parity so far."""
    bit, one = torch.eye(2)
    half_turn = math.atanh(0.5) * bit  # 2 pi tanh(.) = pi
    return by_hand(2, 1, {"z": GATE * one, "x": bit, "A": -200 * one, "lam": 200 * one, "angle": half_turn})


def sum_counter() -> Mamba3:
    """Reads a digit from 0 to 4, one-hot, and a mark at the start. The mark is written, digits turn it by fifths."""
    digits, mark = torch.eye(6)[:5], torch.eye(6)[5]
    one = digits.sum(0)
    turns = sum(math.atanh(d / 5) * digits[d] for d in range(5))
    block = by_hand(6, 2, {"z": GATE * one, "x": mark, "A": -200 * one, "lam": 200 * one, "angle": turns})
    with torch.no_grad():
        block.C_bias[1] = torch.tensor([0.0, 1.0])  # the second head reads the other coordinate
    return block


def counted_parity(bits: torch.Tensor) -> torch.Tensor:
    """What the counter says after every one of the bits, (b, t); exact parities are 0 and 1."""
    return parity_counter()(torch.stack([bits, torch.ones_like(bits)], -1))[..., 0]


def counted_sums(digits: torch.Tensor) -> torch.Tensor:
    """The sums modulo 5 so far of digits, (b, t) int64, read off the angle, before rounding; the first must be 0."""
    tokens = F.pad(F.one_hot(digits, 5).float(), (0, 1))
    tokens[:, 0, 5] = 1
    y = sum_counter()(tokens)
    return torch.atan2(-y[..., 1], y[..., 0]) * 5 / (2 * math.pi)


def show_counters(length: int = 4096) -> None:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        bits = torch.randint(0, 2, (4, length), generator=generator).float()
        error = (counted_parity(bits) - bits.cumsum(1) % 2).abs().max().item()
        print(f"parity of {length} bits: largest error at any of {bits.numel()} places {error:.1e}")
        digits = torch.randint(0, 5, (4, length), generator=generator)
        digits[:, 0] = 0
        wrong = (counted_sums(digits).round().long() - digits.cumsum(1)) % 5 != 0
        print(f"sums modulo 5 of {length} digits: {int(wrong.sum())} of {digits.numel()} places wrong")


class Tracker(nn.Module):
    """Embedding, one Mamba-3 layer, a linear answer at every token."""

    def __init__(self, options: argparse.Namespace, rotation: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(2, options.d_model)
        self.layer = Mamba3Layer(
            options.d_model,
            mlp_width=0,
            d_state=options.d_state,
            headdim=options.headdim,
            rope_fraction=1.0 if rotation else 0.0,
            angle_bound=2.0,
            chunk_size=options.chunk_size,
            formulation=options.formulation,
        )
        self.norm = nn.RMSNorm(options.d_model)
        self.answer = nn.Linear(options.d_model, 2)

    def forward(self, bits):
        return self.answer(self.norm(self.layer(self.embedding(bits))))


def scaled_accuracy(model: Tracker, length: int, device: str, seed: int, count: int) -> float:
    """(accuracy - 1/2) / (1/2) of the answer after the last of `length` bits, over `count` strings."""
    generator = torch.Generator().manual_seed(seed)
    right = 0
    with torch.no_grad():
        for _ in range(0, count, 256):
            bits = torch.randint(0, 2, (256, length), generator=generator).to(device)
            right += (model(bits)[:, -1].argmax(-1) == bits.sum(1) % 2).sum().item()
    return 2 * right / count - 1


def learn(model: Tracker, optimizer: torch.optim.Optimizer, bits: torch.Tensor, engine: str) -> torch.Tensor:
    """One step of training; returns the share of right answers.

    The answer is asked for after every bit: each beginning of a string is a string of its own.
    """
    parities = bits.cumsum(1) % 2
    logits = model(cartograd.tensor(bits) if engine == "cartograd" else bits)
    loss = F.cross_entropy(logits.flatten(0, 1), parities.flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    guesses = (logits.data if engine == "cartograd" else logits).argmax(-1)
    return (guesses == parities).float().mean()


def train(options: argparse.Namespace, rotation: bool, rate: float, seed: int) -> tuple[float, int]:
    """Train one model; returns its scaled accuracy at the test length, and the steps it took.

    Strings grow from the first to the second of `--lengths`, by an eighth whenever 99 % of a batch's answers are right.
    The weights tested in the end are those that did best on validation strings of the test length on the way.
    """
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = Tracker(options, rotation).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    warm = max(1, options.steps // 50)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / warm) * (0.1 + 0.9 * max(0, 1 - step / options.steps))
    )
    length, longest = options.lengths
    best, best_weights, step = -2.0, model.state_dict(), 0
    for step in range(1, options.steps + 1):
        bits = torch.randint(0, 2, (options.batch, length), generator=generator).to(options.device)
        share = learn(model, optimizer, bits, options.engine)
        schedule.step()
        if step % 25:
            continue
        right = share.item()
        if length == longest or step + 25 > options.steps:
            score = scaled_accuracy(model, options.test_length, options.device, seed=2, count=512)
            if score > best:
                best, best_weights = score, copy.deepcopy(model.state_dict())
            if best == 1:
                break
        if options.verbose:
            print(f"    step {step:5} length {length:3} right {right:.3f} best {best:.3f}", flush=True)
        if right > 0.99:
            length = min(longest, length + max(1, length // 8))
    model.load_state_dict(best_weights)
    return scaled_accuracy(model, options.test_length, options.device, seed=1, count=4096), step


def timed(options: argparse.Namespace, rotation: bool, rate: float, seed: int) -> tuple[float, int, float]:
    """Score, steps and seconds of one model."""
    if options.jobs > 1:
        torch.set_num_threads(1)
    start = time.perf_counter()
    return *train(options, rotation, rate, seed), time.perf_counter() - start


def sweep(options: argparse.Namespace) -> dict[str, float]:
    """Every variant, learning rate and seed; prints a table and returns the best of each variant at the test length."""
    print(f"{'model':14} {'rate':>7} {'seed':>4} {f'at {options.test_length}':>8} {'steps':>6} {'s':>6}")
    names = {True: "rotation", False: "no rotation"}
    models = [(kind, rate, seed) for kind in names for rate in options.rates for seed in options.seeds]
    best: dict[str, float] = {}
    # a fork would share the CUDA context
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        results = (pool.map if options.jobs > 1 else map)(partial(timed, options), *zip(*models, strict=True))
        for (kind, rate, seed), (test, steps, took) in zip(models, results, strict=True):
            print(f"{names[kind]:14} {rate:7.0e} {seed:4} {test:8.3f} {steps:6} {took:6.1f}", flush=True)
            best[names[kind]] = max(best.get(names[kind], -1.0), test)
    for name, score in best.items():
        print(f"best with {name}: {score:.4f}")
    return best


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counters", action="store_true", help="only show the counters that need no training")
    parser.add_argument("--steps", type=int, default=4000, help="at most so many for each model")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lengths", type=int, nargs=2, default=[16, 160], help="of strings: the first, the longest")
    parser.add_argument("--test-length", type=int, default=256)
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-3, 2e-3])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--d-model", type=int, default=32)
    parser.add_argument("--d-state", type=int, default=16)
    parser.add_argument("--headdim", type=int, default=16)
    parser.add_argument("--chunk-size", type=int, default=64)
    parser.add_argument("--formulation", default="single", choices=["double", "single", "stacked"])
    parser.add_argument("--engine", default="torch", choices=["torch", "cartograd"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--jobs", type=int, default=1, help="models trained at a time, each in a process of its own")
    parser.add_argument("--verbose", action="store_true", help="print the loss on the way")
    return parser.parse_args(given)


if __name__ == "__main__":
    chosen = arguments()
    show_counters()
    if not chosen.counters:
        sweep(chosen)
