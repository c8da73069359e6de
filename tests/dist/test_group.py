"""What is decided about a group before there is one."""

import pytest
import torch

from cartograd.distributed import find_ranks, group
from cartograd.errors import OptionError


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
