"""The device of tests that do not care which: the CPU, or the one that CARTOGRAD_DEVICE names.

Estimators, searches and metrics read that variable themselves wherever no device is given. A test that makes tensors of
its own takes the fixture `device`; one that looks into what only a CPU does (threads, its kernels, the sizes of its
tiles) is marked `cpu` and skipped elsewhere.
"""

import os

import pytest
import torch

DEVICE = torch.device(os.environ.get("CARTOGRAD_DEVICE") or "cpu")


@pytest.fixture
def device():
    """Where to compute."""
    return DEVICE


def pytest_runtest_setup(item):
    """Skip tests of what only a CPU does where another device was asked for."""
    if item.get_closest_marker("cpu") and DEVICE.type != "cpu":
        pytest.skip(f"about the CPU, and CARTOGRAD_DEVICE is {DEVICE}")
