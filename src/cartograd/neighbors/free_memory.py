"""How much memory can still be taken, and the refusal of dense pieces of sparse rows that would not fit."""

from __future__ import annotations

from pathlib import Path

import torch

from cartograd.errors import MemoryBudgetError

GIB = float(1 << 30)
ALWAYS = 1 << 25
"""Elements of a dense piece that is never refused: as many as a tile of a search has."""
BYTES_PER_ELEMENT = 48.0
"""What work on a dense piece takes for each element: the piece, and up to five copies in float64."""


def free_bytes(device: torch.device) -> float:
    """Return the memory that can still be taken on the device; infinity where it cannot be known."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # torch's, for the next tensor
        return float(torch.cuda.mem_get_info(device)[0] + kept)
    path = Path("/proc/meminfo")
    if not path.exists():
        return float("inf")
    for line in path.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return float(line.split()[1]) * 1024
    return float("inf")


def check_dense_piece(rows: int, width: int, device: torch.device) -> None:
    """Refuse to make sparse rows dense where that needs more memory than there is; usual tiles always pass."""
    needed = BYTES_PER_ELEMENT * rows * width
    if rows * width <= ALWAYS or needed <= (free := free_bytes(device)):
        return
    raise MemoryBudgetError(
        f"{rows:,} sparse rows of {width:,} columns, made dense, would need about {needed / GIB:.1f} GiB, and "
        f"{free / GIB:.1f} GiB are free; use fewer columns, by hashing or scikit-learn's TruncatedSVD"
    )
