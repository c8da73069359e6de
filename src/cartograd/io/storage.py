"""Tensors and arrays as the plain contiguous tensors that a file holds, and back: same values, same layout."""

from __future__ import annotations

from typing import Any

import numpy
import torch

from cartograd.errors import ModelFileError

DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "U16": torch.uint16,
    "I16": torch.int16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
"""What the safetensors format calls each kind of number we store."""

NAMES = {dtype: name for name, dtype in DTYPES.items()}


def stored_tensor(tensor: torch.Tensor, where: str) -> tuple[torch.Tensor, list[int]]:
    """A dense CPU tensor and the order in which its axes are laid out.

    Products and sums may round differently for another layout of the same matrix, so the layout is kept: axes are
    permuted to the order in which they lie in memory, and `restored` permutes them back.
    """
    if tensor.layout != torch.strided or tensor.device.type == "meta" or tensor.dtype not in NAMES:
        raise ModelFileError(
            f"{where} is a tensor of layout {tensor.layout}, {tensor.dtype} on {tensor.device}, which a model file "
            "cannot hold; store a dense tensor of real numbers"
        )
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda axis: -strides[axis])
    return tensor.detach().cpu().permute(order).contiguous(), order


def stored_array(array: Any, where: str) -> tuple[torch.Tensor, list[int]]:
    """The same for a NumPy array of numbers."""
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise ModelFileError(f"{where} is an array of {array.dtype}, which a model file cannot hold")
    array = array.astype(array.dtype.newbyteorder("="), order="K", copy=False)
    order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    dense = numpy.ascontiguousarray(array.transpose(order)).reshape([array.shape[axis] for axis in order])
    return torch.from_numpy(dense if dense.flags.writeable else dense.copy()), order


def restored(tensor: torch.Tensor, order: Any) -> torch.Tensor:
    """`tensor` with its axes back in their places."""
    if order is None:
        return tensor
    if not isinstance(order, list) or sorted(order) != list(range(tensor.dim())):
        raise ModelFileError(f"axes in the order {order!r} do not fit a tensor of {tensor.dim()} axes")
    return tensor.permute([order.index(axis) for axis in range(tensor.dim())])


def reachable(name: Any) -> torch.device:
    """The device of that name if this machine has it, otherwise the CPU."""
    device = torch.device(name)
    module = getattr(torch, device.type, None)
    there = device.type == "cpu" or (module is not None and module.is_available())
    if there and device.type == "cuda" and device.index is not None:
        there = device.index < torch.cuda.device_count()
    return device if there and device.type != "cpu" else torch.device("cpu")


def stored_strings(array: Any, where: str) -> tuple[torch.Tensor, torch.Tensor]:
    """An array of strings and None as the bytes of all, and the length of each in bytes (-1 for None)."""
    pieces: list[bytes] = []
    lengths: list[int] = []
    for value in array.ravel().tolist():
        if value is not None and not isinstance(value, str):
            raise ModelFileError(
                f"{where} is an array of objects, one of them a {type(value).__name__}: only text fits"
            )
        pieces.append(b"" if value is None else value.encode("utf-8", "surrogatepass"))
        lengths.append(-1 if value is None else len(pieces[-1]))
    text = bytearray(b"".join(pieces))
    data = torch.frombuffer(text, dtype=torch.uint8) if text else torch.empty(0, dtype=torch.uint8)
    return data, torch.tensor(lengths, dtype=torch.int64)


def restored_strings(data: torch.Tensor, lengths: torch.Tensor, shape: list[int], fixed: bool) -> Any:
    """The array again; `fixed` for NumPy's own strings instead of objects."""
    text = data.numpy().tobytes()
    ends = lengths.clamp(min=0).cumsum(0).tolist()
    if (ends[-1] if ends else 0) != len(text):
        raise ModelFileError(f"strings of {ends[-1] if ends else 0} bytes in {len(text)} bytes of text")
    starts = [0, *ends[:-1]]
    values = [
        None if length < 0 else text[start:end].decode("utf-8", "surrogatepass")
        for start, end, length in zip(starts, ends, lengths.tolist(), strict=True)
    ]
    width = 4 * len(values) * max((len(value or "") for value in values), default=0)
    if fixed and width <= 8 * len(text) + 2**20:  # one long string among many short ones would need far more memory
        return numpy.array(values, dtype=numpy.str_).reshape(shape)
    return numpy.array(values, dtype=object).reshape(shape)
