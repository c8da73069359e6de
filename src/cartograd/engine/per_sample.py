"""The gradient of each sample of a batch on its own, from one pass over the whole batch.

The pass goes as always until it comes to an op that has one of the parameters as an input: there the op's *per-sample
rule* gives one gradient for each sample, where its gradient rule would have summed over them. Ops without such a rule,
and functions in which samples have to do with one another, are run sample by sample instead: that is what the result
means, and what the pass over the batch is compared with for one or two samples before it is trusted.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from cartograd.engine.accumulate import fit
from cartograd.engine.apply import PICK
from cartograd.engine.backward import Pass, edge_of, seed
from cartograd.engine.functional import grad
from cartograd.engine.graph import Node, walk
from cartograd.engine.modes import recording
from cartograd.engine.plan import ListPlan, Rule
from cartograd.engine.surroundings import RandomState
from cartograd.engine.tensor import Tensor, from_raw
from cartograd.errors import InputError, UnsupportedError


def per_sample_grad(fn: Callable[..., Any], params: Any, batch: Any) -> Any:
    """The gradients of ``fn`` on each sample of a batch alone.

    Entry i of the result is the gradient of ``fn(batch[i : i + 1])``, summed if that is not one number.

    Parameters
    ----------
    fn : callable
        Takes the batch (the members of it, if it is a tuple or a list) and returns the loss: one for each sample, or
        one number, their mean or their sum.
    params : sequence or mapping of Parameters and leaf Tensors, or nn.Module
        What to differentiate by.
    batch : Tensor, or tuple, list or dict of them
        Samples along the first axis. Tensors of torch are given to `fn` as Tensors.

    Returns
    -------
    tuple of Tensor, or dict
        One for each parameter, of shape (samples, *parameter.shape); a dict for a mapping or a module.

    Examples
    --------
    >>> import cartograd
    >>> w = cartograd.tensor([1.0, 2.0], requires_grad=True)
    >>> x = cartograd.tensor([[1.0, 0.0], [3.0, 4.0]])
    >>> per_sample_grad(lambda x: ((x * w).sum(1) ** 2).mean(), [w], x)[0]
    Tensor([[ 2.,  0.],
            [66., 88.]])
    """
    request = Request(fn, params, batch)
    found = request.run(norms=False)
    return request.named([from_raw(one) for one in found])


def per_sample_norm(fn: Callable[..., Any], params: Any, batch: Any) -> Tensor:
    """The norm of each sample's gradient, over all parameters together, without keeping the gradients themselves.

    Parameters
    ----------
    fn, params, batch
        As for `per_sample_grad`.

    Returns
    -------
    Tensor of shape (samples,)

    Examples
    --------
    >>> import cartograd
    >>> w = cartograd.tensor([1.0, 2.0], requires_grad=True)
    >>> x = cartograd.tensor([[1.0, 0.0], [3.0, 4.0]])
    >>> per_sample_norm(lambda x: ((x * w).sum(1) ** 2).mean(), [w], x)
    Tensor([  2., 110.])
    """
    request = Request(fn, params, batch)
    squares = request.run(norms=True)
    return from_raw(torch.stack(squares).sum(0).sqrt())


class NoRule(Exception):
    """An op has no per-sample rule for what is asked."""


class Request:
    """What was asked for, its arguments checked."""

    def __init__(self, fn: Callable[..., Any], params: Any, batch: Any) -> None:
        self.fn = fn
        named = dict(params.named_parameters()) if isinstance(params, torch.nn.Module) else params
        self.names = list(named) if isinstance(named, Mapping) else None
        single = isinstance(named, (Tensor, torch.Tensor))
        self.params = [named] if single else list(named.values()) if isinstance(named, Mapping) else list(named)
        if not self.params:
            raise InputError("per-sample gradients need at least one parameter to differentiate by, got none")
        self.edges = [edge_of(one) for one in self.params]
        self.spread = isinstance(batch, (tuple, list))
        flat, self.structure = tree_flatten(batch)
        self.flat = [from_raw(one) if isinstance(one, torch.Tensor) else one for one in flat]
        tensors = [one for one in self.flat if isinstance(one, Tensor)]
        sizes = {one.data.shape[0] if one.data.dim() else None for one in tensors}
        if len(sizes) != 1 or None in sizes or 0 in sizes:
            shapes = ", ".join(str(tuple(one.data.shape)) for one in tensors) or "no tensors"
            raise InputError(f"a batch has its samples along the first axis of each of its tensors; got {shapes}")
        self.samples = int(sizes.pop() or 0)

    def named(self, values: list[Any]) -> Any:
        """The results as the parameters were given."""
        return tuple(values) if self.names is None else dict(zip(self.names, values, strict=True))

    def call(self, rows: slice) -> Tensor:
        """The function on some samples."""
        flat = [from_raw(one.data[rows]) if isinstance(one, Tensor) else one for one in self.flat]
        arguments = tree_unflatten(flat, self.structure)
        with torch.enable_grad(), recording():
            out = self.fn(*arguments) if self.spread else self.fn(arguments)
        if not isinstance(out, Tensor):
            raise UnsupportedError(f"the function must return a Tensor, got {type(out).__name__}")
        if not out.requires_grad:
            raise UnsupportedError("what the function returned does not depend on the parameters")
        for edge in (edge for node in walk([out._edge]) for edge in node.parents):
            if isinstance(edge, torch.Tensor) and edge.grad_fn is not None:
                raise UnsupportedError(
                    f"a tensor of shape {tuple(edge.shape)} is part of a graph of torch's own, which per-sample "
                    "gradients cannot follow: compute it from Tensors inside the function"
                )
        return out

    def run(self, norms: bool) -> list[torch.Tensor]:
        """The gradients, or the squares of their norms: by rules where there are any and they hold, else in a loop."""
        try:
            found = self.by_rules(norms)
        except NoRule:
            found = None
        return self.in_a_loop(norms) if found is None else found

    def in_a_loop(self, norms: bool) -> list[torch.Tensor]:
        """Sample by sample."""
        rows = [self.alone(number, norms) for number in range(self.samples)]
        return [torch.stack(one) for one in zip(*rows, strict=True)]

    def alone(self, number: int, norms: bool) -> list[torch.Tensor]:
        """The gradients of one sample."""
        out = self.call(slice(number, number + 1))
        found = grad(out.sum(), self.params, allow_unused=True)
        gradients = [
            torch.zeros_like(edge_data(param)) if one is None else one.data
            for one, param in zip(found, self.params, strict=True)
        ]
        return [one.square().sum() for one in gradients] if norms else gradients

    def by_rules(self, norms: bool) -> list[torch.Tensor] | None:
        """From one pass over the batch; `None` if that is not what single samples give."""
        random = RandomState()
        out = self.call(slice(None))
        drawn = random.drawn_from() is not None
        each = out.data.shape[:1] == (self.samples,) and out.data.numel() == self.samples
        if not each and out.data.numel() != 1:
            raise UnsupportedError(
                f"the function must return one loss for each of the {self.samples} samples, or one number; "
                f"got shape {tuple(out.data.shape)}"
            )
        if drawn and not each:
            return None  # whether it is a mean or a sum cannot be seen: every call draws other numbers
        root = out.sum() if each else out
        found = SamplePass(self.edges, self.samples, norms, exact=drawn).run(root)
        gradients = [
            torch.zeros(self._shape(param, norms), dtype=edge_data(param).dtype, device=edge_data(param).device)
            if one is None
            else one
            for one, param in zip(found, self.params, strict=True)
        ]
        if drawn or self.samples == 1:
            return gradients
        return self.trusted(gradients, each, norms)

    def _shape(self, param: Any, norms: bool) -> tuple[int, ...]:
        return (self.samples,) if norms else (self.samples, *param.shape)

    def trusted(self, gradients: list[torch.Tensor], each: bool, norms: bool) -> list[torch.Tensor] | None:
        """The gradients, times the number of samples if the loss is their mean; `None` if single samples differ."""
        last = self.alone(self.samples - 1, norms)
        for factor in (1.0,) if each else (float(self.samples), 1.0):
            scale = factor**2 if norms else factor
            if not _close([one[-1] * scale for one in gradients], last):
                continue
            if not each:
                first = self.alone(0, norms)
                if not _close([one[0] * scale for one in gradients], first):
                    continue
            return gradients if scale == 1 else [one * scale for one in gradients]
        return None


def edge_data(param: Any) -> torch.Tensor:
    """The value of a parameter."""
    return param.data if isinstance(param, Tensor) else param


def _close(found: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    """Whether two lists of arrays are the same but for rounding, as one long vector."""
    difference = sum(float((a.double() - b.double()).square().sum()) for a, b in zip(found, expected, strict=True))
    size = sum(float(one.double().square().sum()) for one in expected)
    epsilon = max(torch.finfo(one.dtype).eps for one in expected)
    return difference <= 16 * epsilon * size


class SamplePass:
    """A backward pass that stops at the parameters, with one gradient for each sample."""

    def __init__(self, edges: list[Any], samples: int, norms: bool, exact: bool) -> None:
        self.places = {id(edge): position for position, edge in enumerate(edges)}
        self.edges = edges
        self.samples = samples
        self.norms = norms
        self.exact = exact  # whether only the first axis is taken for the samples
        self.found: list[Any] = [None] * len(edges)
        self.squares: dict[int, torch.Tensor | None] = {}  # of parameters that are used once, where norms are asked for
        self.uses: dict[int, int] = {}

    def run(self, root: Tensor) -> list[Any]:
        """Walk from the root; what was found for each parameter."""
        task = Pass(None, retain_graph=False, create_graph=False, store=False)
        edge, one = seed(root, None, False)
        for parent in (parent for node in walk([edge]) for parent in node.parents):
            self.uses[id(parent)] = self.uses.get(id(parent), 0) + 1
        with torch.no_grad():
            task.deliver(edge, one)
            while task.heap:
                node = heapq.heappop(task.heap)[1]
                total = task.totals.pop(node)
                if node.plan is PICK or not any(id(parent) in self.places for parent in node.parents):
                    task.visit(node, total)
                    continue
                if node.watchers is not None:
                    total = task.watched(node, total)
                self.at_parameters(task, node, total)
        if self.norms:
            return [self.squares.get(place, squared(one)) for place, one in enumerate(self.found)]
        return self.found

    def at_parameters(self, task: Pass, node: Node, total: Any) -> None:
        """One node with parameters among its inputs."""
        saved = node.saved if type(node.saved) is tuple else node.saved.fetch(node)
        names = input_names(node)
        values = dict(zip(node.plan.saves, saved, strict=True))
        for position, edge in enumerate(node.parents):
            if id(edge) in self.places:
                self.at_parameter(node, names[position], edge, total, values)
        rest = [position for position, edge in enumerate(node.parents) if id(edge) not in self.places]
        for position, gradient in ordinary(node, names, rest, total, values).items():
            if gradient is not None:
                task.deliver(node.parents[position], fit(gradient, node.parents[position], node))

    def at_parameter(self, node: Node, name: str, edge: Any, total: Any, values: dict[str, Any]) -> None:
        """One parameter; it may be used more than once, and the norm of a sum is not a sum of norms."""
        if isinstance(total, list) or total.dim() == 0 or total.shape[0] % self.samples:
            raise NoRule
        if self.exact and total.shape[0] != self.samples:
            raise NoRule
        place, rule = self.places[id(edge)], node.plan.op.sample_norms.get(name)
        once = self.norms and self.uses[id(edge)] == 1
        if once and rule is not None and all(one in values or one == "samples" for one in rule.saves):
            self.squares[place] = _called(rule, total, values, self.samples)
            return
        gradient = self.one_for_each(node, name, edge, total, values)
        if once:
            self.squares[place] = squared(gradient)
        else:
            before = self.found[place]
            self.found[place] = gradient if before is None else before + gradient

    def one_for_each(self, node: Node, name: str, edge: Any, total: Any, values: dict[str, Any]) -> torch.Tensor:
        """The gradients by samples of the input `name` of a node."""
        op = node.plan.op
        rule = op.sample_rules.get(name)
        if rule is not None and all(one in values or one == "samples" for one in rule.saves):
            gradient = _called(rule, total, values, self.samples)
        elif op.elementwise:
            gradient = self.unbroadcast(ordinary(node, [name], [0], total, values)[0], edge)
        else:
            raise NoRule
        if gradient.shape != (self.samples, *edge.shape):
            raise NoRule
        return gradient.to(edge.dtype)

    def unbroadcast(self, gradient: torch.Tensor, edge: Any) -> torch.Tensor:
        """Sum over the axes along which the parameter was repeated, but not over the samples."""
        parted = gradient.reshape(self.samples, -1, *gradient.shape[1:])
        ones = parted.dim() - 1 - len(edge.shape)
        if ones < 0:
            raise NoRule
        try:
            return parted.sum_to_size(self.samples, *[1] * ones, *edge.shape).reshape(self.samples, *edge.shape)
        except RuntimeError:
            raise NoRule from None


def squared(gradient: torch.Tensor | None) -> torch.Tensor | None:
    """The squares of the norms of gradients by samples."""
    if gradient is None:
        return None
    return gradient.flatten(1).square().sum(1) if gradient.dim() > 1 else gradient.square()


def _called(rule: Rule, total: Any, values: dict[str, Any], samples: int) -> Any:
    return rule.function(total, *(samples if name == "samples" else values[name] for name in rule.saves))


def input_names(node: Node) -> list[str]:
    """The names of the inputs that a node has edges for."""
    if isinstance(node.plan, ListPlan) or not node.plan.need:
        raise NoRule
    op = node.plan.op
    return [name for name, needed in zip(op.inputs, node.plan.need, strict=True) if needed]


def ordinary(node: Node, names: list[str], wanted: list[int], total: Any, values: dict[str, Any]) -> dict[int, Any]:
    """The usual gradients of some of a node's inputs; rules that none of them needs are not run."""
    found: dict[int, Any] = {}
    asked = {names[position]: position for position in wanted}
    for rule, _ in node.plan.calls:
        mine = [name for name in rule.inputs if name in asked]
        if not mine:
            continue
        arguments = [values[name] for name in rule.saves]
        if rule.wants_need:
            result = rule.function(total, *arguments, need=tuple(name in asked for name in rule.inputs))
        else:
            result = rule.function(total, *arguments)
        results = (result,) if len(rule.inputs) == 1 else result
        found |= {asked[name]: one for name, one in zip(rule.inputs, results, strict=True) if name in asked}
    return found
