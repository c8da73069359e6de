"""The processes that work together: who is there, how they talk, and how an error of one reaches all.

Before anything is exchanged the processes tell each other what they are about to do and whether all is well with them
(`Ranks.agree`, a few bytes). One that has failed says so there instead, so that the others stop with its message where
they would have waited for it; one that is about to do something else is found out. What is sent is counted.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from typing import Any, TypeVar

import torch

from cartograd.distributed.environment import check_meeting, is_meeting_known, read_number, unmet, world_size
from cartograd.distributed.signals import Asked
from cartograd.errors import DistributedError, LostProcessError, OptionError

log = logging.getLogger("cartograd.distributed")
Answer = TypeVar("Answer")

TIMEOUT_VARIABLE = "CARTOGRAD_DIST_TIMEOUT"
USUAL_TIMEOUT = 60.0
"""Seconds that a process waits for the others where it opens the group itself."""
HOW_LONG = f"{TIMEOUT_VARIABLE} is how many seconds to wait"
LONGEST_MESSAGE = 1000
HEADER = 6
"""Numbers of an agreement: state, what is about to be done, and four for whoever asks."""
FINE, FAILED = 0, 1

_known: list[tuple[Any, Ranks]] = []
"""The group that was met last, and its processes."""
_opened: list[Any] = []
"""The group that was opened here, if any."""


def find_ranks(distributed: bool | str) -> Ranks | None:
    """The processes to work with; None where this one works alone.

    Parameters
    ----------
    distributed : bool or str
        False: alone. "auto": with the others of the process group, or those that ``torchrun`` started, if any. True or
        "sharded": the same, but it is an error where there are none.
    """
    if distributed is False or not torch.distributed.is_available():
        return None
    if not torch.distributed.is_initialized():
        if world_size() < 2 or not is_meeting_known():
            if distributed == "auto":
                return None
            raise OptionError(
                f"distributed={distributed!r} needs a process group of several: start with torchrun "
                "--nproc-per-node=N, or use distributed='auto'"
            )
        _open_group()
    if torch.distributed.get_world_size() < 2:
        return None
    world = torch.distributed.group.WORLD
    if not _known or _known[0][0] is not world:
        _known.clear()
        ranks = Ranks(torch.distributed.get_rank(), torch.distributed.get_world_size(), _control_group(world))
        _known.append((world, ranks))
    return _known[0][1]


def timeout() -> timedelta:
    """How long to wait for the others, from the environment or the usual."""
    given = os.environ.get(TIMEOUT_VARIABLE, "")
    try:
        seconds = float(given) if given else USUAL_TIMEOUT
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e7:
        raise OptionError(f"{TIMEOUT_VARIABLE} must be a number of seconds above 0, got {given!r}")
    return timedelta(seconds=seconds)


def _open_group() -> None:
    check_meeting()
    if torch.cuda.is_available():
        torch.cuda.set_device(read_number("LOCAL_RANK", 0) % torch.cuda.device_count())
    dist: Any = torch.distributed
    try:
        store, rank, size = next(iter(dist.rendezvous("env://", timeout=timeout())))
    except RuntimeError as error:
        raise LostProcessError(f"{unmet(timeout().total_seconds(), _first_line(error))} {HOW_LONG}") from error
    # torchrun keeps its store when it starts all again, with the addresses of processes that are no more
    fresh = dist.PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    try:
        torch.distributed.init_process_group(_backend(), store=fresh, rank=rank, world_size=size, timeout=timeout())
    except RuntimeError as error:
        raise _unreached(rank, size, error) from error
    _opened[:] = [torch.distributed.group.WORLD]
    atexit.register(_close_group)


def _backend() -> str:
    """What carries tensors: NCCL those of GPUs, where every process of a machine has one of its own; gloo all others.

    NCCL refuses two processes on one GPU; their tensors go through memory of the CPU then.
    """
    here = read_number("LOCAL_WORLD_SIZE", 1, least=1)
    own = torch.cuda.is_available() and torch.cuda.device_count() >= here
    return "cpu:gloo,cuda:nccl" if own and torch.distributed.is_nccl_available() else "gloo"


def _unreached(rank: int, size: int, error: RuntimeError) -> LostProcessError:
    return LostProcessError(
        f"process {rank} could not reach the other {size - 1} within {timeout().total_seconds():g} s "
        f"({_first_line(error)}); all must call fit. {HOW_LONG}"
    )


def _close_group() -> None:
    """Close the group that was opened here, before the interpreter goes.

    gloo's threads let go of tensors after the exchange that they were for; one that does so when the interpreter is
    half gone takes the process down with it. A group that nobody holds waits for its threads; where an error still
    holds it, they are given the moment that they need.
    """
    _known.clear()
    _opened.clear()
    gc.collect()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
        gc.collect()
        time.sleep(0.05)


def _control_group(world: Any) -> Any:
    """A group that carries tensors of the CPU: None where the present one was opened here.

    Beside one that a script has opened, which may not know gloo or may wait half an hour for a process that stands
    still, there is a new one.
    """
    if _opened and _opened[0] is world:
        return None
    atexit.register(_known.clear)
    try:
        return torch.distributed.new_group(backend="gloo", timeout=timeout())
    except RuntimeError as error:
        raise _unreached(torch.distributed.get_rank(), torch.distributed.get_world_size(), error) from error


@dataclass(eq=False)
class Ranks:
    """The processes of a fit, of which this is one.

    Parameters
    ----------
    rank : int
        The number of this one.
    size : int
        How many there are.
    group : object or None
        The group of ``torch.distributed`` that carries tensors of the CPU; None for the one that all are in.
    """

    rank: int
    size: int
    group: Any
    sent_bytes: int = 0
    messages: int = 0
    asked: Asked = field(default_factory=Asked, repr=False)
    heard: int = 0
    _depth: int = field(default=0, repr=False)
    _broken: bool = field(default=False, repr=False)

    # agreement

    @contextlib.contextmanager
    def one_for_all(self, what: str) -> Iterator[None]:
        """A piece of work that all do: if it fails in one it fails in all, at the next thing they do together."""
        self._depth += 1
        try:
            yield
            if self._depth == 1:
                self.agree(f"end of {what}")
        except BaseException as error:
            if self._depth == 1 and not isinstance(error, DistributedError):
                self._tell(error)
            raise
        finally:
            self._depth -= 1

    def together(self, work: Callable[[], Answer], what: str = "work") -> Answer:
        """What `work` gives here, once it has ended well in all processes."""
        with self.one_for_all(what):
            return work()

    def agree(self, what: str, *numbers: int) -> list[list[int]]:
        """Tell all what is done next, and up to four numbers; give those of every process, in order of their ranks."""
        header = torch.zeros(HEADER, dtype=torch.int64)
        header[1] = zlib.crc32(what.encode())
        header[2 : 2 + len(numbers)] = torch.tensor(numbers, dtype=torch.int64)
        found = self._gather_equal(header)
        if bool((found[:, 0] == FAILED).any()):
            raise self._heard(found[:, 0], b"")
        other = torch.nonzero(found[:, 1] != header[1])[:, 0].tolist()
        if other:
            raise DistributedError(
                f"process {self.rank} is at {what!r} and process {other[0]} is not: all must be given the same "
                "parameters and run the same script, in the same order"
            )
        return found[:, 2 : 2 + len(numbers)].tolist()

    def _tell(self, error: BaseException) -> None:
        """Let the others know that this process has failed; where they cannot be reached, they know already."""
        if self._broken:
            return
        header = torch.zeros(HEADER, dtype=torch.int64)
        header[0] = FAILED
        try:
            states = self._gather_equal(header)[:, 0]
            self._heard(states, f"{type(error).__name__}: {error}".encode(errors="replace"))
        except DistributedError:
            log.warning("process %d failed, and the others could not be told: %s", self.rank, error)

    def _heard(self, states: torch.Tensor, own: bytes) -> DistributedError:
        """Exchange messages; the error that says whose failed."""
        room = torch.zeros(LONGEST_MESSAGE, dtype=torch.uint8)
        text = own[:LONGEST_MESSAGE]
        room[: len(text)] = torch.tensor(list(text), dtype=torch.uint8)
        texts = self._gather_equal(room)
        lines = []
        for rank in torch.nonzero(states == FAILED)[:, 0].tolist():
            message = bytes(texts[rank].tolist()).rstrip(b"\0").decode(errors="replace")
            lines.append(f"process {rank} of {self.size} failed with {message}")
        return DistributedError("; ".join(lines))

    # exchanges; every one begins with an agreement

    def gathered(self, own: torch.Tensor, what: str) -> torch.Tensor:
        """The rows of all processes, in the order of their ranks; each may have another number of them."""
        counts = [count for (count,) in self.agree(f"rows of {what}", len(own))]
        most = max(counts)
        padded = own.new_zeros((most, *own.shape[1:]))
        padded[: len(own)] = own
        every = self._gather_equal(padded)
        return torch.cat([part[:count] for part, count in zip(every, counts, strict=True)])

    def share_rows(self, whole: torch.Tensor, bounds: Sequence[int]) -> None:
        """Fill `whole` (n, ...) with every process's rows bounds[r] to bounds[r + 1].

        Signals that ask a process to stop are told on the way: `heard` is the largest of them.
        """
        most = max(b - a for a, b in pairwise(bounds))
        own = whole[bounds[self.rank] : bounds[self.rank + 1]]
        padded = whole.new_zeros((most, *whole.shape[1:]))
        padded[: len(own)] = own
        self.hear(f"rows of a map of {len(whole)}")
        every = self._gather_equal(padded)
        for rank in range(self.size):
            if rank != self.rank:
                whole[bounds[rank] : bounds[rank + 1]] = every[rank, : bounds[rank + 1] - bounds[rank]]

    def hear(self, what: str) -> int:
        """Which signal has asked any process to stop, 0 for none; all hear of it at the same time."""
        self.heard = max(one for (one,) in self.agree(what, self.asked.number))
        return self.heard

    def exchanged(self, parts: Sequence[torch.Tensor], what: str) -> list[torch.Tensor]:
        """Give process r ``parts[r]`` (rows of one shape, any number), and get what each has for this one."""
        counts = torch.tensor([len(part) for part in parts], dtype=torch.int64)
        self.agree(f"exchange of {what}")
        numbers = self._gather_equal(counts)[:, self.rank].tolist()
        device, joined = parts[0].device, self._carried(torch.cat(list(parts)))
        arrived = joined.new_empty((sum(numbers), *joined.shape[1:]))
        self._run(
            lambda: torch.distributed.all_to_all_single(
                arrived, joined, numbers, counts.tolist(), group=self._group(joined)
            )
        )
        self._count(joined, joined.shape[0] - int(counts[self.rank]), self.size - 1)
        return list(arrived.to(device).split(numbers))

    def passed_on(self, own: torch.Tensor, what: str) -> torch.Tensor:
        """Give the next process of the ring `own`, and get what the one before has (any number of rows)."""
        counts = [count for (count,) in self.agree(f"ring of {what}", len(own))]
        before, after = (self.rank - 1) % self.size, (self.rank + 1) % self.size
        carried = self._carried(own)
        arrived = carried.new_empty((counts[before], *carried.shape[1:]))
        group = self._group(carried)
        operations = [
            torch.distributed.P2POp(torch.distributed.isend, carried, after, group),
            torch.distributed.P2POp(torch.distributed.irecv, arrived, before, group),
        ]

        def ring() -> None:
            for work in torch.distributed.batch_isend_irecv(operations):
                work.wait()

        self._run(ring)
        self._count(carried, len(carried), 1)
        return arrived.to(own.device)

    def from_first(self, values: torch.Tensor, what: str) -> torch.Tensor:
        """The values of process 0, which are of the same shape and kind in all."""
        self.agree(f"values of {what}", values.numel())
        carried = self._carried(values).clone()
        self._run(lambda: torch.distributed.broadcast(carried, 0, group=self._group(carried)))
        return carried.to(values.device)

    def total(self, own: torch.Tensor, what: str) -> torch.Tensor:
        """The sum over all processes, added in the order of their ranks: the same bits in each."""
        self.agree(f"sum of {what}", own.numel())
        every = self._gather_equal(own)
        sum_ = every[0].clone()
        for part in every[1:]:
            sum_ += part
        return sum_

    def add_up(self, values: torch.Tensor, what: str) -> None:
        """Add up the values of all processes in place; the same bits in each."""
        self.agree(f"sum of {what}", values.numel())
        carried = self._carried(values)
        self._run(lambda: torch.distributed.all_reduce(carried, group=self._group(carried)))
        self._count_sum(carried)
        if carried is not values:
            values.copy_(carried)

    def begin_sum(self, values: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Begin to add up the values of all processes, and go on meanwhile: the sums, once `finish` has seen the rest.

        There is no agreement of its own: several of these stand for one that was made before.
        """
        carried = self._carried(values)
        begun: list[Any] = []
        self._run(
            lambda: begun.append(torch.distributed.all_reduce(carried, group=self._group(carried), async_op=True))
        )
        self._count_sum(carried)
        return carried, begun[0]

    def finish(self, work: Any) -> None:
        """Wait for what was begun."""
        self._run(work.wait)

    def _count_sum(self, values: torch.Tensor) -> None:
        self.sent_bytes += 2 * (self.size - 1) * values.numel() * values.element_size() // self.size
        self.messages += 2 * (self.size - 1)

    def _gather_equal(self, own: torch.Tensor) -> torch.Tensor:
        """(size, ...) the tensors of all processes, which are of one shape."""
        carried = self._carried(own)
        every = carried.new_empty((self.size, *carried.shape))
        if carried.numel() == 0:
            return every.to(own.device)
        self._run(lambda: torch.distributed.all_gather(list(every.unbind(0)), carried, group=self._group(carried)))
        self._count(carried, max(1, carried.shape[0] if carried.dim() else 1) * (self.size - 1), self.size - 1)
        return every.to(own.device)

    def _carried(self, values: torch.Tensor) -> torch.Tensor:
        """The values where the group can take them."""
        if values.device.type == "cpu":
            return values.contiguous()
        nccl = "nccl" in str(torch.distributed.get_backend_config())
        return (values if nccl else values.cpu()).contiguous()

    def _group(self, values: torch.Tensor) -> Any:
        return torch.distributed.group.WORLD if self.group is None or values.device.type == "cuda" else self.group

    def _run(self, operation: Callable[[], Any]) -> None:
        if self._broken:
            raise LostProcessError(
                "another process stopped answering in an earlier fit: start all of them again, "
                "with torchrun --max-restarts=1 and resume=True to go on from the last checkpoint"
            )
        try:
            operation()
        except RuntimeError as error:  # what torch raises for a closed connection, and for one that is silent
            self._broken = True
            raise LostProcessError(
                f"process {self.rank}: another process has ended or did not answer in time ({_first_line(error)}); see "
                f"its own message. {TIMEOUT_VARIABLE} is how many seconds to wait"
            ) from error

    def _count(self, values: torch.Tensor, rows: int, messages: int) -> None:
        each = values.element_size() * (values[0].numel() if values.dim() and len(values) else 1)
        self.sent_bytes += rows * each
        self.messages += messages


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0].strip()[:200]
