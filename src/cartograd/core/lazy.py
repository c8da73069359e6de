"""Attributes computed when they are first read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

Owner = TypeVar("Owner")
Value = TypeVar("Value")


class lazy_attribute(Generic[Owner, Value]):
    """An attribute that a method computes when it is first read, and that the object's dictionary keeps.

    `functools.cached_property` of Python 3.11 has a lock, which stays locked in the child of a fork for ever if another
    thread held it. Here two threads may compute the value twice.

    Parameters
    ----------
    function : function
        The method.

    Examples
    --------
    >>> class Square:
    ...     side = 3
    ...     @lazy_attribute
    ...     def area(self):
    ...         return self.side**2
    >>> square = Square()
    >>> square.area, vars(square)
    (9, {'area': 9})
    """

    def __init__(self, function: Callable[[Owner], Value]) -> None:
        self.function, self.name = function, function.__name__
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, owner: None, kind: Any = None) -> lazy_attribute[Owner, Value]: ...
    @overload
    def __get__(self, owner: Owner, kind: Any = None) -> Value: ...
    def __get__(self, owner: Owner | None, kind: Any = None) -> lazy_attribute[Owner, Value] | Value:
        """Return the value, after computing and keeping it."""
        if owner is None:
            return self
        value: Value = self.function(owner)
        owner.__dict__[self.name] = value
        return value
