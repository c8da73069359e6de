"""Sums of products over named axes: einsum, and what is an einsum by another name."""

from __future__ import annotations

import itertools
import string
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cartograd.engine.apply import autocasts
from cartograd.engine.fallback import run_torch
from cartograd.engine.primitive import composite, primitive


@primitive(extra="constant")
def einsum_pair(input: Tensor, other: Tensor, equation: str) -> Any:
    """The einsum of two operands, none with a repeated letter.

    The gradient of one operand is the einsum of g and the other one, to the operand's own letters. A letter that
    only this operand has was summed over, one of size 1 was broadcast: the first is expanded again, the second summed.
    """
    return torch.einsum(equation, input, other), (input.shape, other.shape)


@einsum_pair.vjp("input")
def _(g: Tensor, other: Tensor, equation: str, extra: Any) -> Tensor:
    left, right, result = _letters(equation)
    return _to_letters([g, other], [result, right], left, extra[0])


@einsum_pair.vjp("other")
def _(g: Tensor, input: Tensor, equation: str, extra: Any) -> Tensor:
    left, right, result = _letters(equation)
    return _to_letters([g, input], [result, left], right, extra[1])


@einsum_pair.example
def _(make: Any) -> Any:
    return make(2, 2, 3), make(3, 1, 2), "aij,jbk->iak"


@primitive(extra="constant")
def einsum_one(input: Tensor, equation: str) -> Any:
    """The einsum of one operand without a repeated letter: axes are reordered and summed over."""
    return torch.einsum(equation, input), input.shape


@einsum_one.vjp("input")
def _(g: Tensor, equation: str, extra: Any) -> Tensor:
    letters, result = _letters(equation)
    return _to_letters([g], [result], letters, extra)


@einsum_one.example
def _(make: Any) -> Any:
    return make(2, 3, 2), "abc->ca"


def _letters(equation: str) -> list[str]:
    """The terms of an equation, the result's last."""
    return equation.replace("->", ",").split(",")


def _to_letters(factors: list[Tensor], terms: list[str], letters: str, shape: torch.Size) -> Tensor:
    """The einsum of `factors` to `letters` and `shape`; axes that no factor has are made by expanding."""
    known = set("".join(terms))
    kept = [letter for letter, size in zip(letters, shape, strict=True) if size != 1 and letter in known]
    made = torch.einsum(f"{','.join(terms)}->{''.join(kept)}", *factors)
    if len(kept) < len(letters):
        made = made.reshape([made.shape[kept.index(letter)] if letter in kept else 1 for letter in letters])
    return made if made.shape == shape else made.expand(shape)


@composite("einsum")
def einsum(*args: Any) -> Any:
    """The einsum of any number of operands: two at a time, from left to right, as torch does by default."""
    if isinstance(args[0], str):
        equation, operands = args[0].replace(" ", ""), list(args[1:])
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = list(operands[0])
    else:
        equation, operands = _equation_of_sublists(args)
    terms = _explicit_terms(equation, operands)
    if terms is None or autocasts() or any(operand.is_complex() for operand in operands):
        return run_torch(torch.einsum, (equation, *operands), {})
    *terms, result = terms
    for place, operand in enumerate(operands):
        operands[place], terms[place] = _diagonals(operand, terms[place])
    if len(operands) == 1:
        return einsum_one(operands[0], f"{terms[0]}->{result}")
    while len(operands) > 1:
        rest = {*"".join(terms[2:]), *result} if len(operands) > 2 else result
        first, second, *others = terms
        made = result if len(operands) == 2 else "".join(c for c in dict.fromkeys(first + second) if c in rest)
        operands[:2] = [einsum_pair(operands[0], operands[1], f"{first},{second}->{made}")]
        terms = [made, *others]
    return operands[0]


def _equation_of_sublists(args: Sequence[Any]) -> tuple[str, list[Any]]:
    """The same call with letters, of one like ``einsum(a, [0, 1], b, [1, 2], [0, 2])``."""
    terms = ["".join("..." if one is ... else string.ascii_letters[one] for one in term) for term in args[1::2]]
    if len(args) % 2:
        last = "".join("..." if one is ... else string.ascii_letters[one] for one in args[-1])
        return f"{','.join(terms)}->{last}", list(args[0:-1:2])
    return ",".join(terms), list(args[0::2])


def _explicit_terms(equation: str, operands: list[Any]) -> list[str] | None:
    """The terms with "..." spelled out and the result's added; `None` for what torch had better refuse."""
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands) or not set(equation) <= set(string.ascii_letters + ",.->"):
        return None
    extra = [operand.dim() - len(term.replace("...", "")) for term, operand in zip(terms, operands, strict=True)]
    wrong = any(count < 0 or (count and "..." not in term) for term, count in zip(terms, extra, strict=True))
    unused = [letter for letter in string.ascii_letters if letter not in equation]
    if wrong or max(extra) > len(unused) or equation.replace("...", "").count("."):
        return None
    dots = "".join(unused[: max(extra)])
    terms = [term.replace("...", dots[len(dots) - count :]) for term, count in zip(terms, extra, strict=True)]
    if not arrow:
        letters = left.replace("...", "").replace(",", "")
        result = "..." + "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    result = result.replace("...", dots)
    sound = len(set(result)) == len(result) and set(result) <= set("".join(terms))
    return [*terms, result] if sound else None


def _diagonals(operand: Any, term: str) -> tuple[Any, str]:
    """The operand without repeated letters: a repeated one stands for the diagonal."""
    for letter in dict.fromkeys(term):
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            if operand.shape[first] != operand.shape[second]:
                raise ValueError(
                    f"einsum: {letter!r} stands for axes of sizes {operand.shape[first]} and {operand.shape[second]}"
                )
            operand = torch.diagonal(operand, dim1=first, dim2=second)
            term = term[:first] + term[first + 1 : second] + term[second + 1 :] + letter
    return operand, term


@composite("tensordot")
def tensordot(a: Any, b: Any, dims: Any = 2, out: Any = None) -> Any:
    """The product summed over pairs of axes: the last `dims` of `a` with the first of `b`, or those listed."""
    if out is not None or a.is_complex():
        return run_torch(torch.tensordot, (a, b, dims), {"out": out})
    if hasattr(dims, "tolist"):
        dims = dims.tolist()
    if isinstance(dims, int):
        if not 0 <= dims <= min(a.dim(), b.dim()):
            raise ValueError(f"tensordot: dims={dims} axes of tensors that have {a.dim()} and {b.dim()}")
        dims = (range(a.dim() - dims, a.dim()), range(dims))
    summed = [(i % a.dim(), j % b.dim()) for i, j in zip(*dims, strict=True)]
    left = list(string.ascii_letters[: a.dim()])
    right = list(string.ascii_letters[a.dim() : a.dim() + b.dim()])
    for i, j in summed:
        right[j] = left[i]
    result = [c for i, c in enumerate(left) if i not in dict(summed)]
    result += [c for j, c in enumerate(right) if j not in dict(summed).values()]
    return einsum_pair(a, b, f"{''.join(left)},{''.join(right)}->{''.join(result)}")


@composite("kron")
def kron(input: Any, other: Any) -> Any:
    """Every element of `input` times the whole of `other`, laid out block by block."""
    rank = max(input.dim(), other.dim())
    rows = [1] * (rank - input.dim()) + list(input.shape)
    columns = [1] * (rank - other.dim()) + list(other.shape)
    product = input.reshape([size for row in rows for size in (row, 1)]) * other.reshape(
        [size for column in columns for size in (1, column)]
    )
    return product.reshape([row * column for row, column in zip(rows, columns, strict=True)])


@composite("chain_matmul")
def chain_matmul(*matrices: Any, out: Any = None) -> Any:
    """The product of the matrices, in the cheapest order."""
    if len(matrices) == 1 and isinstance(matrices[0], (list, tuple)):
        matrices = tuple(matrices[0])
    return matrices[0] if len(matrices) == 1 else multi_dot(matrices, out=out)


@composite("multi_dot")
def multi_dot(tensors: Any, *, out: Any = None) -> Any:
    """The product of two or more matrices, in the cheapest order; the first may be a row, the last a column vector."""
    ranks = [tensor.dim() for tensor in tensors]
    if out is not None or len(tensors) < 2 or any(rank != 2 for rank in ranks[1:-1]) or {ranks[0], ranks[-1]} - {1, 2}:
        return run_torch(torch.linalg.multi_dot, (tensors,), {} if out is None else {"out": out})
    matrices = list(tensors)
    if ranks[0] == 1:
        matrices[0] = matrices[0].unsqueeze(0)
    if ranks[-1] == 1:
        matrices[-1] = matrices[-1].unsqueeze(1)
    product = _in_cheapest_order(matrices)
    product = product.squeeze(-1) if ranks[-1] == 1 else product
    return product.squeeze(0) if ranks[0] == 1 else product


def _in_cheapest_order(matrices: list[Any]) -> Any:
    """The product with the fewest multiplications, by dynamic programming over spans of the chain."""
    count = len(matrices)
    sizes = [matrix.shape[0] for matrix in matrices] + [matrices[-1].shape[1]]
    best = {(i, i): (0, i) for i in range(count)}  # span -> (multiplications, where it is split)
    for length, i in itertools.product(range(1, count), range(count)):
        j = i + length
        if j < count:
            best[i, j] = min(
                (best[i, k][0] + best[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
            )

    def product(i: int, j: int) -> Any:
        split = best[i, j][1]
        return matrices[i] if i == j else torch.mm(product(i, split), product(split + 1, j))

    return product(0, count - 1)


@composite("vecdot")
def vecdot(input: Any, other: Any, *, dim: int = -1) -> Any:
    """Dot products along one axis, batches broadcast."""
    return ((input.conj() if input.is_complex() else input) * other).sum(dim)
