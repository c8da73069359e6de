"""The environment variables that torchrun sets: read and checked before anything is opened."""

from __future__ import annotations

import os

from cartograd.errors import OptionError

MOST_PROCESSES = 10**6
LARGEST_PORT = 65_535
MEETING = ("RANK", "MASTER_ADDR", "MASTER_PORT")
"""Variables that a process of several needs beside WORLD_SIZE."""


def read_number(name: str, default: int, most: int = MOST_PROCESSES, least: int = 0) -> int:
    """Return the whole number in an environment variable.

    Parameters
    ----------
    name : str
        The variable.
    default : int
        The number where the variable is not set.
    most, least : int, default=1000000 and 0
        The bounds of what it may be.

    Raises
    ------
    OptionError
        If the variable holds anything else.
    """
    given = os.environ.get(name)
    if given is None:
        return default
    try:
        number = int(given)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise OptionError(
            f"the environment variable {name} must be a whole number from {least} to {most}, got {given!r}; torchrun "
            "sets it, and for one process it is to be unset"
        )
    return number


def world_size() -> int:
    """Return how many processes there are; 1 where none were started together."""
    return read_number("WORLD_SIZE", 1, least=1)


def is_meeting_known() -> bool:
    """Return whether the variables say where the processes of a group meet."""
    return set(MEETING) <= set(os.environ)


def check_meeting() -> None:
    """Refuse variables with which no group can be opened."""
    read_number("RANK", 0, most=world_size() - 1)
    read_number("LOCAL_RANK", 0)
    read_number("LOCAL_WORLD_SIZE", 1, least=1)
    read_number("TORCHELASTIC_RESTART_COUNT", 0)
    read_number("MASTER_PORT", 0, most=LARGEST_PORT)
    if not os.environ.get("MASTER_ADDR", "").strip():
        raise OptionError("the environment variable MASTER_ADDR is empty; it must be the address of process 0")


def unmet(seconds: float, reason: str) -> str:
    """Return what to say of a process that found no other where they were to meet."""
    address, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    return (
        f"process {os.environ['RANK']} of {world_size()} met no other at MASTER_ADDR={address}, MASTER_PORT={port} "
        f"within {seconds:g} s ({reason}); that must be the address of process 0, and all processes must be started."
    )
