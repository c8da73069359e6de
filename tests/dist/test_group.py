"""What is decided about a group before there is one."""

import socket

import pytest
import torch

from cartograd.distributed import find_ranks, group
from cartograd.errors import LostProcessError, OptionError


@pytest.mark.parametrize(
    ("gpus", "processes", "chosen"), [(0, 2, "gloo"), (1, 2, "gloo"), (2, 2, "cpu:gloo,cuda:nccl")]
)
def test_gpus_talk_by_nccl_where_each_process_has_one(monkeypatch, gpus, processes, chosen):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    assert group._backend() == chosen


@pytest.mark.parametrize("given", ["soon", "0", "-3", "1e9"])
def test_a_timeout_is_a_number_of_seconds(monkeypatch, given):
    monkeypatch.setenv(group.TIMEOUT_VARIABLE, given)
    with pytest.raises(OptionError, match="must be a number of seconds above 0, got"):
        group.timeout()


def test_a_process_alone():
    assert find_ranks("auto") is None
    assert find_ranks(False) is None
    with pytest.raises(OptionError, match="start with torchrun --nproc-per-node=N"):
        find_ranks(True)


VARIABLES = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("name", "given", "allowed"),
    [
        ("WORLD_SIZE", "x", "from 1 to 1000000"),
        ("WORLD_SIZE", "-1", "from 1 to 1000000"),
        ("WORLD_SIZE", "", "from 1 to 1000000"),
        ("WORLD_SIZE", "9" * 5000, "from 1 to 1000000"),
        ("RANK", "2", "from 0 to 1"),
        ("RANK", "first", "from 0 to 1"),
        ("LOCAL_RANK", "1.5", "from 0 to 1000000"),
        ("LOCAL_WORLD_SIZE", "0", "from 1 to 1000000"),
        ("MASTER_PORT", "99999999", "from 0 to 65535"),
        ("MASTER_PORT", "http", "from 0 to 65535"),
        ("TORCHELASTIC_RESTART_COUNT", "once", "from 0 to 1000000"),
    ],
)
def test_wrong_variables_are_named_before_anything_is_opened(monkeypatch, name, given, allowed):
    for variable, value in (VARIABLES | {name: given}).items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(torch.distributed, "rendezvous", None)
    with pytest.raises(OptionError) as caught:
        find_ranks("auto")
    assert f"the environment variable {name} must be a whole number {allowed}, got {given!r}" in str(caught.value)


def test_an_empty_address(monkeypatch):
    for variable, value in (VARIABLES | {"MASTER_ADDR": " "}).items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(OptionError, match="MASTER_ADDR is empty; it must be the address of process 0"):
        find_ranks("auto")


def test_an_address_where_there_is_no_other_process(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    for variable, value in (VARIABLES | {"MASTER_PORT": port, group.TIMEOUT_VARIABLE: "2"}).items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(LostProcessError) as caught:
        find_ranks("auto")
    said = f"process 1 of 2 met no other at MASTER_ADDR=localhost, MASTER_PORT={port} within 2 s"
    assert str(caught.value).startswith(said)
