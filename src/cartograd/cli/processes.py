"""`--processes`: a command run by several processes at once, started by torch's own launcher."""

from __future__ import annotations

import os
import secrets
import sys
from typing import Any

import click

from cartograd.cli.failures import FAILED
from cartograd.errors import OptionError

RESTARTS = 3
"""How often all are started again after one of them died, where there are checkpoints to go on from."""

PROCESSES = click.option(
    "--processes",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Share the work among N processes on this machine.",
)


def is_one_of_many() -> bool:
    """Whether this process was started as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_first() -> bool:
    """Whether this is the process that speaks and writes."""
    return os.environ.get("RANK", "0") == "0" or not is_one_of_many()


def was_restarted() -> bool:
    """Whether the launcher has started this process again after one of them died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def handed_over(processes: int, source: str, checkpoints: Any) -> int | None:
    """Start the processes that run this same command, and wait; their exit status, or None where this is one of them.

    Parameters
    ----------
    processes : int
        How many.
    source : str
        What they are to read; standard input can be read by one process alone.
    checkpoints : object
        Where checkpoints go; None for none, and then nothing is started again.
    """
    if processes == 1 or is_one_of_many():
        return None
    if source == "-":
        raise OptionError("--processes: several processes cannot share standard input; give the name of a file")
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=secrets.token_hex(8),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0 if checkpoints is None else RESTARTS,
        monitor_interval=0.1,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "cartograd", *sys.argv[1:])
    except ChildFailedError as error:
        status = max(failure.exitcode for failure in error.failures.values())
        return status if status > 0 else FAILED
    except SignalException as error:
        return 128 + int(error.sigval)
    return 0
