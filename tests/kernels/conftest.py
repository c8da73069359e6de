"""Where kernels for the GPU are tested: on a GPU, or slowly on the CPU where Triton was asked to interpret them."""

import os

import numpy
import pytest
import torch


@pytest.fixture
def kernel_device():
    """A device that kernels for the GPU run on; without one the test is skipped."""
    triton = pytest.importorskip("triton", reason="kernels for the GPU need triton")
    if torch.cuda.is_available():
        return torch.device("cuda")
    if os.environ.get("TRITON_INTERPRET") == "1":
        old = tuple(int(part) for part in triton.__version__.split(".")[:2]) < (3, 9)
        if old and tuple(int(part) for part in numpy.__version__.split(".")[:2]) >= (2, 4):
            pytest.skip(f"the interpreter of Triton {triton.__version__} does not work with NumPy {numpy.__version__}")
        return torch.device("cpu")
    pytest.skip("needs a CUDA device, or TRITON_INTERPRET=1 to interpret the kernels")


@pytest.fixture
def cuda_device():
    """A GPU with Triton; without one the test is skipped."""
    pytest.importorskip("triton", reason="kernels for the GPU need triton")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return torch.device("cuda")
