"""What a map of very many rows would cost: bytes, messages and seconds for each process, phase by phase.

    python scripts/scale_plan.py --rows 1000000000 --columns 128 --processes 64 256 1024

Formulas are those of docs/scale.md, which shows this table; rates are measured by benchmarks/distributed.py, or given.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

HEADER = 48
"""Bytes with which processes agree before an exchange."""
TILE_NUMBERS = 1 << 22
"""Numbers in a tile of rows that goes round the ring."""


@dataclass(frozen=True)
class Rates:
    """What a process can do.

    Parameters
    ----------
    pair : float
        Seconds for a pair of rows and a column in the exact search.
    cells : float
        Seconds for a row and a column in the approximate search.
    step : float
        Seconds for a row in a step of the layout.
    edge : float
        Seconds for an edge that is sorted into a graph.
    bandwidth : float
        Bytes a second between processes.
    latency : float
        Seconds for a message.
    """

    pair: float = 9.3e-11
    cells: float = 1.8e-7
    step: float = 2.1e-7
    edge: float = 1.1e-7
    bandwidth: float = 25e9
    latency: float = 2e-5


@dataclass(frozen=True)
class Phase:
    """What one process does and sends in a phase.

    Parameters
    ----------
    name : str
        Of the phase.
    sent : float
        Bytes.
    messages : float
        How many.
    work : float
        Seconds of computing, on all its cores.
    held : float
        Bytes in memory.
    """

    name: str
    sent: float
    messages: float
    work: float
    held: float

    def seconds(self, rates: Rates) -> float:
        """Computing and sending, one after the other."""
        return self.work + self.sent / rates.bandwidth + self.messages * rates.latency


def plan(n: float, d: int, k: int, steps: int, processes: int, cores: int, rates: Rates) -> list[Phase]:
    """The phases of a map of n rows of d columns (float32), k neighbours, in the plane."""
    own, others = n / processes, processes - 1
    tiles = max(1.0, own * d / TILE_NUMBERS)
    rows, keys = own * d * 4, 16.0 * n
    share = others / processes
    ring = Phase(
        "search, exact, ring",
        others * rows + tiles * others * 2 * HEADER * others,
        tiles * others * (1 + 2 * others),
        own * n * d * rates.pair / cores,
        rows + 4.0 * TILE_NUMBERS * 2 + own * k * 16,
    )
    return [
        Phase("keys of rows", others * own * 16, others, 0.0, keys + rows),
        ring,
        Phase("search, cells (planned)", share * rows * 3, others * 2, own * d * rates.cells / cores, rows * 4),
        Phase("edges back", share * own * k * 12, others * 2, own * k * 2 * rates.edge / cores, own * k * 2 * 40),
        Phase(
            "layout, a step",
            others * (own * 8 + HEADER),
            others * 2,
            own * rates.step / cores,
            n * 8 * 2 + n * 8 + own * k * 2 * 12,
        ),
        Phase(
            f"layout, {steps} steps",
            steps * others * (own * 8 + HEADER),
            steps * others * 2,
            steps * own * rates.step / cores,
            n * 8 * 2 + n * 8 + own * k * 2 * 12,
        ),
    ]


def told(value: float, units: tuple[str, ...], base: float) -> str:
    """A number with the unit that suits it."""
    for unit in units[:-1]:
        if value < base:
            return f"{value:.3g} {unit}"
        value /= base
    return f"{value:.3g} {units[-1]}"


def as_bytes(value: float) -> str:
    """Bytes in words."""
    return told(value, ("B", "kB", "MB", "GB", "TB", "PB"), 1000.0)


def as_time(seconds: float) -> str:
    """Seconds in words."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h" if seconds < 172800 else f"{seconds / 86400:.3g} days"


def table(given: argparse.Namespace, rates: Rates) -> str:
    """The plan as a table in Markdown, a block for each number of processes; the slowest phase of a map is named."""
    lines = ["| processes | phase | sent by each | messages | held by each | seconds |", "|--:|---|--:|--:|--:|--:|"]
    for processes in given.processes:
        phases = plan(given.rows, given.columns, given.neighbours, given.steps, processes, given.cores, rates)
        for phase in phases:
            lines.append(
                f"| {processes} | {phase.name} | {as_bytes(phase.sent)} | {phase.messages:.3g} | "
                f"{as_bytes(phase.held)} | {as_time(phase.seconds(rates))} |"
            )
        made_of = [phase for phase in phases if phase.name != "layout, a step"]
        with_ring = [phase for phase in made_of if "planned" not in phase.name]
        slowest = max(with_ring, key=lambda phase: phase.seconds(rates))
        rest = max((phase for phase in made_of if "exact" not in phase.name), key=lambda phase: phase.seconds(rates))
        lines.append(f"| {processes} | **slowest: {slowest.name}; without it {rest.name}** | | | | |")
    return "\n".join(lines)


def main() -> None:
    """Read the options and print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=float, default=1e9)
    options.add_argument("--columns", type=int, default=128)
    options.add_argument("--neighbours", type=int, default=15)
    options.add_argument("--steps", type=int, default=500)
    options.add_argument("--processes", type=int, nargs="+", default=[64, 256, 1024])
    options.add_argument("--cores", type=int, default=16, help="of each process")
    for name, value in vars(Rates()).items():
        options.add_argument(f"--{name}", type=float, default=value)
    given = options.parse_args()
    print(table(given, Rates(**{name: getattr(given, name) for name in vars(Rates())})))


if __name__ == "__main__":
    main()
