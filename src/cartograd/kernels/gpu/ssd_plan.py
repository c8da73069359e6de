"""How the SSD kernels cut their work: chunks, tiles, kinds of products, and how each kernel is compiled.

The op's own chunks do not matter to its values: the kernels cut the sequence into chunks whose steps and ranks fill a
tile of 64 rows.

States and decays are float32. Products take bfloat16 operands where values, keys and queries all are bfloat16; of
float32 they are three tf32 products, as exact as float32 to six digits; float16 goes through tf32, which has its digits
and a range that states cannot leave.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor

ROWS = 64
PROGRAMS = 256
"""Heads of a group are shared among several programs until there are this many, about two a multiprocessor."""
STRETCH = 8
"""Chunks after which the gradient of a decay is tied to the states again."""


class Launch(NamedTuple):
    """How a kernel is compiled: warps, stages of its pipeline of loads, and the most registers of a thread."""

    num_warps: int
    num_stages: int
    maxnreg: int | None = None


class Plan(NamedTuple):
    """Sizes of one call.

    Parameters
    ----------
    length : int
        Steps of a chunk.
    rows_i, rows_j : int
        Rows of tiles of queries and of keys.
    block_p, block_r : int
        Channels of values and of the state that are in one tile.
    one_block : bool
        Whether such a tile has all channels.
    alone : bool
        Whether every head has keys and queries of its own.
    operand : torch.dtype
        What products take, and states are kept in.
    precision : str
        How Triton makes products of float32.
    """

    length: int
    rows_i: int
    rows_j: int
    block_p: int
    block_r: int
    one_block: bool
    alone: bool
    operand: torch.dtype
    precision: str

    def chunks(self, steps: int) -> int:
        """How many chunks a sequence has."""
        return -(-steps // self.length)

    @property
    def narrow(self) -> bool:
        """Whether products are of bfloat16."""
        return self.operand is torch.bfloat16


def planned(v: Tensor, B: Tensor, C: Tensor, turned: bool) -> Plan:
    """Sizes for these inputs."""
    kinds = {v.dtype, B.dtype, C.dtype}
    narrow = kinds == {torch.bfloat16}
    ranks, queries, p, r = v.shape[3], C.shape[3], v.shape[5], B.shape[5]
    length = ROWS // max(ranks, queries)
    block_p, block_r = min(tile(p), 64), min(tile(r), 128 if narrow else 64)
    if turned and narrow:  # Triton 3.6 makes wrong products of turned rows with tiles of 32 channels
        block_p, block_r = 64, 64
    return Plan(
        length=length,
        rows_i=tile(length * queries),
        rows_j=tile(length * ranks),
        block_p=block_p,
        block_r=block_r,
        one_block=p <= block_p and r <= block_r,
        alone=v.shape[4] == B.shape[4],
        operand=torch.bfloat16 if narrow else torch.float32,
        precision="ieee" if narrow else "tf32x3" if torch.float32 in kinds else "tf32",
    )


def tile(size: int) -> int:
    """The power of two that holds so many rows or channels; products need 16."""
    return max(16, triton.next_power_of_2(size))


def gradient_blocks(plan: Plan, each: bool) -> tuple[int, int]:
    """Channels of a value and of the state that a program of the backward works on at once; of heads by themselves few.

    Such a program has the gradients of both keys and queries in its registers.
    """
    return plan.block_p if plan.narrow else min(plan.block_p, 32), min(plan.block_r, 64) if each else plan.block_r


def state_launch(plan: Plan) -> Launch:
    """The best of those measured."""
    return Launch(4, 3 if plan.narrow else 2)


def output_launch(plan: Plan, turned: bool) -> Launch:
    """The best of those measured; only heads that share keys are a loop that can load ahead."""
    if plan.narrow and turned:
        return Launch(4, 1, 168)
    return Launch(4, 3 if plan.narrow and plan.one_block and not plan.alone else 1)


def gradient_launch(plan: Plan, turned: bool) -> Launch:
    """The best of those measured; 168 registers let three programs share a multiprocessor."""
    if not plan.narrow or turned:
        return Launch(4, 1)
    if plan.alone:
        return Launch(4, 1, 168)
    return Launch(4, 2, 168) if plan.one_block else Launch(4, 1)


def split_heads(programs: int, heads: int, wanted: int = PROGRAMS) -> int:
    """Into how many programs the heads of a group are split: a divisor of their number."""
    splits = 1
    while programs * splits < wanted and splits < heads:
        splits = next(count for count in range(splits + 1, heads + 1) if heads % count == 0)
    return splits
