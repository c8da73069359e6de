"""`--processes`: a command run by several processes at once, started by torch's own launcher."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from cartograd.cli.failures import FAILED
from cartograd.cli.names import Count
from cartograd.errors import DistributedError, LostProcessError, OptionError

RESTARTS = 3
"""How often all are started again after one of them died, where there are checkpoints to go on from."""

STATUS_VARIABLE = "CARTOGRAD_STATUS"
"""Names the file in which the first process leaves its exit status for the launcher."""

MOST_PROCESSES = max(256, os.cpu_count() or 1)

PROCESSES = click.option(
    "--processes",
    type=Count(MOST_PROCESSES),
    default=1,
    show_default=True,
    metavar="N",
    help="Share the work among N processes on this machine.",
)


def is_one_of_many() -> bool:
    """Whether this process was started as one of several."""
    from cartograd.distributed.environment import MEETING, is_meeting_known, world_size

    count = world_size()
    if count > 1 and not is_meeting_known():
        lacking = next(name for name in MEETING if name not in os.environ)
        raise OptionError(
            f"the environment variable WORLD_SIZE is {count}, and {lacking} is not set; start with torchrun, which "
            "sets both, or unset WORLD_SIZE"
        )
    return count > 1


def check_environment() -> None:
    """Refuse environment variables of torchrun with which the processes cannot meet."""
    from cartograd.distributed.environment import check_meeting

    if is_one_of_many():
        check_meeting()


def have_met() -> bool:
    """Return whether the processes have found each other, so that the first one speaks for all."""
    import torch

    return torch.distributed.is_available() and torch.distributed.is_initialized()


def is_first() -> bool:
    """Whether this is the process that speaks and writes."""
    from cartograd.distributed.environment import read_number

    return not is_one_of_many() or read_number("RANK", 0) == 0


def was_restarted() -> bool:
    """Whether the launcher has started this process again after one of them died."""
    from cartograd.distributed.environment import read_number

    return read_number("TORCHELASTIC_RESTART_COUNT", 0) > 0


@contextlib.contextmanager
def one_of_many() -> Iterator[None]:
    """Work that all processes do: what goes wrong in one ends it in all, and the first one says it."""
    if not is_one_of_many():
        yield
        return
    from cartograd.distributed import find_ranks

    ranks = find_ranks("auto")
    assert ranks is not None
    with ranks.one_for_all("a command"):
        yield


def status_of(error: BaseException, status: int) -> int:
    """The exit status after an error that has been told.

    One of several processes leaves it for the launcher and ends well: what is wrong with a file or an option would be
    so again. Only for a process that was lost are all started again.
    """
    path = os.environ.get(STATUS_VARIABLE)
    if path is None or not is_one_of_many() or isinstance(error, LostProcessError):
        return status
    if is_first():
        Path(path).write_text(str(status))
    return 0


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
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # the processes say what went wrong
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
    with tempfile.TemporaryDirectory(prefix="cartograd-") as folder:
        told = Path(folder) / "status"
        os.environ[STATUS_VARIABLE] = os.fspath(told)
        return _launched(elastic_launch(config, sys.executable)) or (int(told.read_text()) if told.exists() else 0)


def _launched(start: Callable[..., Any]) -> int:
    """Start the processes and wait; the exit status of those that failed without a word, 0 where none did."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        start("-m", "cartograd", *sys.argv[1:])
    except ChildFailedError as error:
        return _status({rank: failure.exitcode for rank, failure in error.failures.items()})
    except SignalException as error:
        return 128 + int(error.sigval)
    return 0


def _status(failures: dict[int, int]) -> int:
    """The exit status for those of the processes that failed; one that was killed could not say so itself."""
    for rank, status in failures.items():
        if status < 0:
            raise DistributedError(
                f"process {rank} was ended by {signal.Signals(-status).name} (SIGKILL is often the system's, for want "
                "of memory); with --set checkpoint_dir=FOLDER all are started again and go on"
            )
    return max(failures.values(), default=FAILED)
