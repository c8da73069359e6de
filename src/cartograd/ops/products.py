"""Products of matrices and vectors: matmul and its special cases, linear and bilinear maps."""

from __future__ import annotations

from typing import Any

import numpy
import torch
from torch import Tensor

from cartograd.engine.fastpath import binary, specialise
from cartograd.engine.primitive import composite, primitive
from cartograd.engine.tensor import Tensor as Recorded
from cartograd.ops.reduce import cast

_linear = torch._C._nn.linear


@primitive(torch.matmul, broadcasts=True)
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """input @ other, batches broadcast.   d/dinput = g @ other^T,  d/dother = input^T @ g

    A vector on the left is a row, on the right a column, and the axis it adds is dropped from the result.
    """
    return torch.matmul(input, other)


@matmul.vjp("input")
def _(g: Tensor, other: Tensor) -> Tensor:
    if other.dim() == 1:
        return g * other if g.dim() == 0 else g.unsqueeze(-1) * other
    if g.dim() == other.dim() - 1:  # the input was a vector
        return torch.matmul(other, g.unsqueeze(-1)).squeeze(-1)
    return torch.matmul(g, other.mT)


@matmul.vjp("other")
def _(g: Tensor, input: Tensor) -> Tensor:
    if input.dim() == 1:
        return g * input if g.dim() == 0 else input.unsqueeze(-1) * g.unsqueeze(-2)
    if g.dim() == input.dim() - 1:  # the other was a vector
        return torch.matmul(input.mT, g.unsqueeze(-1)).squeeze(-1)
    return torch.matmul(input.mT, g)


@matmul.example
def _(make: Any) -> Any:
    return make(2, 1, 2, 3), make(2, 3, 1)


@matmul.example
def _(make: Any) -> Any:
    return make(3), make(2, 3, 2)


@matmul.example
def _(make: Any) -> Any:
    return make(2, 2, 3), make(3)


@primitive(torch.matmul)
def matmul_rows(input: Tensor, other: Tensor) -> Tensor:
    """input @ other for a matrix `other`, which every row of `input`, of any rank, is multiplied with.

    d/dinput = g @ other^T,  d/dother = input^T @ g over all rows at once, not batch by batch and summed.
    """
    return torch.matmul(input, other)


@matmul_rows.vjp("input")
def _(g: Tensor, other: Tensor) -> Tensor:
    return torch.mm(g, other.t()) if g.dim() == 2 else torch.matmul(g, other.t())


@matmul_rows.vjp("other")
def _(g: Tensor, input: Tensor) -> Tensor:
    if input.dim() == 2:
        return torch.mm(input.t(), g)
    return torch.mm(input.flatten(0, -2).t(), g.flatten(0, -2))


@matmul_rows.example
def _(make: Any) -> Any:
    return make(2, 2, 3), make(3, 2)


@primitive(torch.matmul)
def matmul_columns(input: Tensor, other: Tensor) -> Tensor:
    """input @ other for a matrix `input` and a batch of matrices `other`.

    d/dother = input^T @ g,  d/dinput = g @ other^T over all columns at once.
    """
    return torch.matmul(input, other)


@matmul_columns.vjp("input")
def _(g: Tensor, other: Tensor) -> Tensor:
    return torch.mm(g.movedim(-2, 0).flatten(1), other.movedim(-2, 0).flatten(1).t())


@matmul_columns.vjp("other")
def _(g: Tensor, input: Tensor) -> Tensor:
    return torch.matmul(input.t(), g)


@matmul_columns.example
def _(make: Any) -> Any:
    return make(2, 3), make(2, 3, 2)


_by_rank = binary(matmul, torch.matmul, depth=2)
_by_rows = binary(matmul_rows, torch.matmul, depth=2)
_by_columns = binary(matmul_columns, torch.matmul, depth=2)


@composite("matmul", "__matmul__")
def any_matmul(input: Any, other: Any) -> Any:
    """input @ other for every rank: which gradient is cheap depends on the ranks."""
    if type(other) is Recorded:
        right = other.data.ndim
    elif isinstance(other, Tensor):
        right = other.ndim  # a Parameter's .data is a new tensor
    elif isinstance(other, numpy.ndarray):
        return any_matmul(input, torch.as_tensor(other))
    else:
        return NotImplemented
    if type(input) is not Recorded and not isinstance(input, Tensor):
        return NotImplemented
    left = input.data.ndim
    if left > 1 and right == 2:
        return _by_rows(input, other)
    if left == 2 and right > 2:
        return _by_columns(input, other)
    return _by_rank(input, other)


@composite("__rmatmul__")
def reflected_matmul(input: Any, other: Any) -> Any:
    """other @ input"""
    return any_matmul(torch.as_tensor(other) if isinstance(other, numpy.ndarray) else other, input)


@primitive("mm")
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """input @ mat2 for two matrices.   d/dinput = g @ mat2^T,  d/dmat2 = input^T @ g"""
    return torch.mm(input, mat2)


@mm.vjp("input")
def _(g: Tensor, mat2: Tensor) -> Tensor:
    return torch.mm(g, mat2.t())


@mm.vjp("mat2")
def _(g: Tensor, input: Tensor) -> Tensor:
    return torch.mm(input.t(), g)


@mm.example
def _(make: Any) -> Any:
    return make(2, 3), make(3, 2)


@primitive("bmm")
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """input[b] @ mat2[b] for each b.   d/dinput = g @ mat2^T,  d/dmat2 = input^T @ g"""
    return torch.bmm(input, mat2)


@bmm.vjp("input")
def _(g: Tensor, mat2: Tensor) -> Tensor:
    return torch.bmm(g, mat2.mT)


@bmm.vjp("mat2")
def _(g: Tensor, input: Tensor) -> Tensor:
    return torch.bmm(input.mT, g)


@bmm.example
def _(make: Any) -> Any:
    return make(2, 2, 3), make(2, 3, 1)


@primitive("mv")
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """input @ vec for a matrix and a vector.   d/dinput = g vec^T,  d/dvec = input^T @ g"""
    return torch.mv(input, vec)


@mv.vjp("input")
def _(g: Tensor, vec: Tensor) -> Tensor:
    return torch.outer(g, vec)


@mv.vjp("vec")
def _(g: Tensor, input: Tensor) -> Tensor:
    return torch.mv(input.t(), g)


@mv.example
def _(make: Any) -> Any:
    return make(2, 3), make(3)


@primitive("dot")
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """Sum of input * tensor for two vectors.   d/dinput = g * tensor,  d/dtensor = g * input"""
    return torch.dot(input, tensor)


@dot.vjp("input")
def _(g: Tensor, tensor: Tensor) -> Tensor:
    return g * tensor


@dot.vjp("tensor")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g * input


@dot.example
def _(make: Any) -> Any:
    return make(3), make(3)


@composite("vdot")
def vdot(input: Any, other: Any) -> Any:
    """Sum of conj(input) * other for two vectors; `dot` for real numbers."""
    return torch.dot(input.conj() if input.is_complex() else input, other)


@primitive("outer", "ger", broadcasts=True)
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """input[i] * vec2[j].   d/dinput = g @ vec2,  d/dvec2 = g^T @ input

    The two may have different dtypes: the engine casts each gradient to its input's.
    """
    return torch.outer(input, vec2)


@outer.vjp("input")
def _(g: Tensor, vec2: Tensor) -> Tensor:
    return torch.mv(g, cast(vec2, g.dtype))


@outer.vjp("vec2")
def _(g: Tensor, input: Tensor) -> Tensor:
    return torch.mv(g.t(), cast(input, g.dtype))


@outer.example
def _(make: Any) -> Any:
    return make(2), make(3)


@composite("inner")
def inner(input: Any, other: Any) -> Any:
    """Dot products of all last-axis vectors of `input` with all of `other`; a product where one is a number."""
    if input.dim() == 0 or other.dim() == 0:
        return input * other
    if other.dim() <= 2:
        return any_matmul(input, other if other.dim() == 1 else other.t())
    return torch.tensordot(input, other, dims=([-1], [-1]))


@primitive("linear", broadcasts=True)
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight^T + bias.   d/dinput = g @ weight,  d/dweight = g^T @ input,  d/dbias = g over all rows

    A vector as weight, of one output, gives a result without that axis.
    """
    return _linear(input, weight, bias)


@linear.vjp("input")
def _(g: Tensor, weight: Tensor) -> Tensor:
    if weight.dim() == 1:
        return g.unsqueeze(-1) * weight
    return torch.mm(g, weight) if g.dim() == 2 else torch.matmul(g, weight)


@linear.vjp("weight")
def _(g: Tensor, input: Tensor) -> Tensor:
    if g.dim() < input.dim():  # the weight was a vector
        return torch.mv(input.reshape(g.numel(), input.shape[-1]).t(), g.reshape(-1))
    if g.dim() == 2:
        return torch.mm(g.t(), input)
    return torch.outer(g, input) if g.dim() == 1 else torch.mm(g.flatten(0, -2).t(), input.flatten(0, -2))


@linear.vjp("bias")
def _(g: Tensor) -> Tensor:
    return g  # the engine sums over the rows, as for any broadcast input


@linear.example
def _(make: Any) -> Any:
    return make(2, 3), make(2, 3), make(2)


@linear.example
def _(make: Any) -> Any:
    return make(2, 1, 3), make(2, 3), make(1)


@linear.example
def _(make: Any) -> Any:
    return make(2, 2, 3), make(3)


fast_linear = composite("linear")(specialise(linear, _linear))  # every step of every dense network comes through here


@composite("bilinear")
def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    """out[..., k] = sum over i, j of input1[..., i] * weight[k, i, j] * input2[..., j], plus bias[k]"""
    out = torch.einsum("...i,kij,...j->...k", input1, weight, input2)
    return out if bias is None else out + bias
