"""How an op is declared: a pure forward, and a gradient rule for each input, side by side.

    @primitive("mul", broadcasts=True)
    def mul(input: Tensor, other: Tensor) -> Tensor:
        '''input * other.   d/dinput = g * other,  d/dother = g * input'''
        return torch.mul(input, other)

    @mul.vjp("input")
    def _(g, other):
        return g * other

    @mul.vjp("other")
    def _(g, input):
        return g * input

**The parameters of a rule say what is saved.** A name of the forward's parameters means that argument, `out` the
forward's result (a tuple for a multi-output op), `extra` what the forward returned beside its result (see `extra=`),
`need` the tuple of booleans that tells a rule for several inputs which of them are wanted. Nothing else is kept, and
only what the rules of the inputs that require grad ask for.

Rules are written with torch functions and operators: on plain tensors in an ordinary pass, and on `Tensor`s, so
recorded themselves, with ``create_graph=True``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, overload

import torch
import torch.nn.functional

from cartograd.engine.plan import ListPlan, Plan, Rule
from cartograd.engine.tensor import ALIASES, KEYWORDS, RULES, Tensor
from cartograd.errors import UnsupportedError

_NAMESPACES = (
    torch,
    torch.Tensor,
    torch.nn.functional,
    torch._C._nn,
    torch.special,
    torch.linalg,
)


class Primitive:
    """A differentiable op. Call it on `Tensor`s, torch tensors and numbers alike.

    Made by the decorator `primitive`, never directly.
    """

    def __init__(
        self,
        forward: Callable[..., Any],
        *,
        broadcasts: bool = False,
        extra: bool | str = False,
        multiple: bool = False,
        takes_list: str | None = None,
        once: str | None = None,
    ) -> None:
        self.forward = forward
        self.name = forward.__name__
        self.__name__ = forward.__name__
        self.__doc__ = forward.__doc__
        self.broadcasts = broadcasts
        self.extra = extra
        self.multiple = multiple
        self.takes_list = takes_list
        self.once = once
        self.torch_functions: list[Any] = []
        self.rules: list[Rule] = []
        self.inputs: tuple[str, ...] = ()
        self.plans: dict[Any, Plan] = {}
        self.fast: Callable[..., Any] | None = None
        self.elementwise = False  # its rules give values of the result's own shape, dtype and device
        self.restated: Callable[..., Any] | None = None
        self.sample_rules: dict[str, Rule] = {}
        self.sample_norms: dict[str, Rule] = {}
        self.examples: list[Callable[..., Any]] = []
        self.through: dict[Callable[..., Any], Callable[[Any], Any]] = {}
        self._read_signature()

    def _read_signature(self) -> None:
        parameters = list(inspect.signature(self.forward).parameters.values())
        self.variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        self.positional = sum(p.kind is not p.KEYWORD_ONLY for p in parameters)
        self.params = tuple(p.name for p in parameters)
        self.required = max([i + 1 for i, p in enumerate(parameters) if p.default is p.empty], default=0)
        self.defaults = tuple(p.default for p in parameters)
        annotated = any(p.annotation is not p.empty for p in parameters)
        self.tensor_slots = tuple(
            i
            for i, p in enumerate(parameters)
            if ("Tensor" in str(p.annotation) if annotated else p.kind is p.POSITIONAL_OR_KEYWORD)
        )
        self.option_slots = tuple(i for i in range(len(parameters)) if i not in self.tensor_slots)
        self.places = {name: i for i, name in enumerate(self.params)}
        self.places |= {"out": len(self.params), "extra": len(self.params) + 1}
        self.inplace_slot = self.places.get("inplace")

    @overload
    def vjp(self, *inputs: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...

    @overload
    def vjp(self, rule: Callable[..., Any], /) -> Callable[..., Any]: ...

    def vjp(self, *inputs: Any) -> Any:
        """Declare the gradient rule for the named inputs; see the module's text for what its parameters mean.

        Without names, ``@op.vjp``, the rule is for all tensor inputs.
        """
        if len(inputs) == 1 and callable(inputs[0]):
            return self.vjp(*(self.params[slot] for slot in self.tensor_slots))(inputs[0])
        unknown = [name for name in inputs if name not in self.params]
        if unknown:
            raise UnsupportedError(f"{self.name} has no input {unknown}; its parameters are {list(self.params)}")

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            self.rules.append(Rule(inputs, function))
            given = {name for rule in self.rules for name in rule.inputs}
            self.inputs = tuple(name for name in self.params if name in given)
            self.input_slots = {self.places[name]: i for i, name in enumerate(self.inputs)}
            self.plans.clear()
            self.fast = None
            return function

        return declare

    def per_sample(self, *inputs: str, norm: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Declare, for each of the inputs, its gradient by samples: of shape (samples, *input.shape).

        The rule takes what a gradient rule takes and `samples`, their number; they come first in every array, or one
        after the other in its rows. With `norm` it gives the squares of the gradients' norms instead, (samples,).
        """

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            (self.sample_norms if norm else self.sample_rules).update(
                {name: Rule((name,), function) for name in inputs}
            )
            return function

        return declare

    def restate(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the same function composed of differentiable ops, which ``create_graph=True`` differentiates."""
        self.restated = function
        self.plans.clear()
        self.fast = None
        return function

    def example(self, function: Callable[..., Any], through: Callable[[Any], Any] | None = None) -> Callable[..., Any]:
        """Declare arguments to check the gradients with: ``function(make)`` returns a tuple of them.

        `through` is applied to the inputs first, where the op is only defined for what it makes of them.

        ``make(*shape, low=-1.0, high=1.0)`` gives random float64 numbers in between.
        """
        self.examples.append(function)
        self.through[function] = through or (lambda value: value)
        return function

    def plan(self, need: tuple[bool, ...]) -> Plan:
        """The plan for this pattern of wanted inputs."""
        made = self.plans.get(need)
        if made is None:
            made = self.plans[need] = ListPlan(self, need) if self.takes_list else Plan(self, need)
        return made

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """Arguments in the order of the parameters, or `None` if they are not of this op's form."""
        if self.variadic:
            fixed = len(self.params) - 1
            rest = args[fixed:]
            if len(rest) == 1 and isinstance(rest[0], (tuple, list)):
                rest = tuple(rest[0])
            args = (*args[:fixed], tuple(rest)) if rest or not kwargs else args[:fixed]
        count = len(args)
        if not kwargs and self.required <= count <= len(self.params):
            return [*args, *self.defaults[count:]]
        if count > len(self.params):
            return None
        values = [*args, *self.defaults[count:]]
        for key, value in kwargs.items():
            slot = self.places.get(ALIASES.get(key, key) if key not in self.params else key)
            if slot is None or slot >= len(values) or slot < count:
                return None
            values[slot] = value
        return None if any(value is inspect.Parameter.empty for value in values[count:]) else values

    def run(self, values: list[Any]) -> Any:
        """The forward on plain values, in the order of the parameters."""
        if self.variadic:
            return self.forward(*values[:-1], *values[-1])
        if self.positional == len(values):
            return self.forward(*values)
        options = dict(zip(self.params[self.positional :], values[self.positional :], strict=True))
        return self.forward(*values[: self.positional], **options)

    def forward_only(self) -> Callable[..., Any]:
        """The forward alone, as a function of plain tensors that torch's autograd can follow."""

        def forward(*args: Any, **kwargs: Any) -> Any:
            result = self.run(self.bind(args, kwargs) or [])
            return result[0] if self.extra else result

        forward.__name__ = self.name
        return forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the op, and record it where a gradient may be wanted."""
        fast = self.fast
        if fast is not None and not kwargs and self.required <= len(args) <= len(self.params):
            return fast(*args)
        return self.general(args, kwargs)

    def general(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the op on arguments of any kind; makes the fast way for the next call."""
        from cartograd.engine.apply import apply
        from cartograd.engine.fastpath import can_specialise, specialise

        if self.fast is None and can_specialise(self):
            self.fast = specialise(self)
        return apply(self, args, kwargs)

    def as_torch(self) -> Callable[..., Any]:
        """The op as a function of torch tensors that torch's own autograd can differentiate."""
        from cartograd.engine.bridge import torch_function

        return torch_function(self)

    def __repr__(self) -> str:
        return f"<primitive {self.name}({', '.join(self.params)})>"


def spellings(name: str) -> list[Any]:
    """Every torch function and method of that name."""
    found = [getattr(space, name) for space in _NAMESPACES if hasattr(space, name)]
    return [function for function in dict.fromkeys(found) if callable(function)]


def as_method(op: Primitive) -> Callable[..., Any]:
    """`op` as a plain function, which a class turns into a method."""

    def method(*args: Any, **kwargs: Any) -> Any:
        fast = op.fast
        if fast is not None and not kwargs and op.required <= len(args) <= len(op.params):
            return fast(*args)
        return op.general(args, kwargs)

    method.__doc__ = op.__doc__
    return method


def bind_to_torch(target: Primitive | Callable[..., Any], functions: tuple[Any, ...]) -> list[Any]:
    """Make the torch functions (or all that have a given name) reach `target` when called on a `Tensor`.

    The methods of `Tensor` itself are replaced by it: a shorter way there.
    """
    bound: list[tuple[str, Any]] = []
    for function in functions:
        name = function if isinstance(function, str) else getattr(function, "__name__", "")
        bound.extend((name, one) for one in (spellings(function) if isinstance(function, str) else [function]))
    for name, function in bound:
        RULES[function] = target
        if getattr(torch.Tensor, name, None) is function:
            setattr(Tensor, name, as_method(target) if isinstance(target, Primitive) else target)
    return [function for _, function in bound]


def primitive(
    *functions: Any,
    broadcasts: bool = False,
    extra: bool | str = False,
    multiple: bool = False,
    takes_list: str | None = None,
    once: str | None = None,
) -> Callable[[Callable[..., Any]], Primitive]:
    """Declare an op from its forward function; add gradients with ``@op.vjp("input")``.

    Parameters
    ----------
    *functions : torch functions, or names
        What the op stands for; a name means every torch function and method of that name. May be empty.
    broadcasts : bool, default=False
        The engine sums a gradient over broadcast axes, and casts it to the input's dtype.
    extra : bool or "constant", default=False
        The forward returns ``(result, extra)``; rules may ask for `extra`, users never see it. With
        ``create_graph=True`` floating-point values in it are refused, unless "constant" says that the rule's own
        derivative is right with them held fixed (a random mask; statistics that a kernel's derivative accounts for).
    multiple : bool, default=False
        The result is a tuple; `g` is then a tuple of gradients, zeros for outputs nothing was computed from.
    takes_list : str, default=None
        The name of the one parameter that is a list of tensors.
    once : str, default=None
        Why the rules cannot be differentiated again; ``create_graph=True`` then raises and says so.

    Examples
    --------
    >>> @primitive()
    ... def cube(x: torch.Tensor):
    ...     return x * x * x
    >>> @cube.vjp("x")
    ... def _(g, x):
    ...     return g * 3 * x * x
    >>> x = Tensor([2.0], requires_grad=True)
    >>> cube(x).backward()
    >>> x.grad
    Tensor([12.])
    """

    def declare(forward: Callable[..., Any]) -> Primitive:
        op = Primitive(forward, broadcasts=broadcasts, extra=extra, multiple=multiple, takes_list=takes_list, once=once)
        op.torch_functions = bind_to_torch(op, functions)
        return op

    return declare


def composite(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare what torch functions mean on `Tensor`s in terms of other ops; no node of its own is recorded."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        bind_to_torch(function, functions)
        parameters = inspect.signature(function).parameters.values()
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            KEYWORDS[function] = frozenset(p.name for p in parameters)
        return function

    return declare
