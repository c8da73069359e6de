"""Python values as a tree of JSON with the tensors taken out, and back.

What JSON has is written as it is. Everything else is an object with its kind under ``"$"``:
``{"$": "tensor", "name": "t0"}``, ``{"$": "tuple", "items": [...]}``, ``{"$": "object", "class": "Graph", ...}``. A
kind that `Decoder` does not know is refused.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy
import torch

from cartograd.core.checks import shorten, show
from cartograd.engine import Tensor
from cartograd.errors import CartogradError, ModelFileError
from cartograd.io import registry, storage

DEEPEST = 50
LARGEST_INTEGER = 2**1000
SPARSE = ("csr_array", "csr_matrix", "csc_array", "csc_matrix")
Json = Any
Restore = Callable[[str, dict[str, Any], dict[str, Any]], Any]


@dataclasses.dataclass
class Encoder:
    """Values to JSON; `tensors` collects what is taken out of them, by name.

    Parameters
    ----------
    parts : callable
        Gives the parameters and the state of an object of a known class, as two dictionaries.
    """

    parts: Callable[[Any, str], tuple[dict[str, Any], dict[str, Any]]]
    tensors: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)
    _seen: dict[tuple[str, int], tuple[Any, Json]] = dataclasses.field(default_factory=dict)

    def encode(self, value: Any, where: str, depth: int = 0) -> Json:
        """`value` as JSON. `where` is what it is called in errors."""
        if depth > DEEPEST:
            raise ModelFileError(f"{where} is nested more than {DEEPEST} deep")
        if value is None or type(value) in (bool, str):
            return value
        if type(value) is int and abs(value) < LARGEST_INTEGER:
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"$": "float", "value": repr(value)}
        if isinstance(value, (torch.Tensor, Tensor, numpy.ndarray, numpy.generic)):
            return self._once(value, where)
        if isinstance(value, (torch.dtype, torch.device)):
            return {"$": type(value).__name__, "value": str(value).removeprefix("torch.")}
        return self._composite(value, where, depth + 1)

    def _composite(self, value: Any, where: str, depth: int) -> Json:
        if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
            items = [self.encode(item, f"{where}[{place}]", depth) for place, item in enumerate(value)]
            return items if type(value) is list else {"$": "tuple", "items": items}
        if isinstance(value, dict):
            return self._dictionary(value, where, depth)
        if type(value).__name__ in SPARSE and type(value).__module__.startswith("scipy.sparse"):
            return self._sparse(value, where, depth)
        if not isinstance(value, type) and registry.is_known(type(value)):
            return self._object(value, where, depth)
        raise ModelFileError(
            f"{where} is a {type(value).__module__}.{type(value).__qualname__}, and a model file holds data only: "
            "numbers, text, arrays, tensors, and lists and dictionaries of them"
        )

    def _dictionary(self, value: dict[Any, Any], where: str, depth: int) -> Json:
        items = [
            [self.encode(key, f"a key of {where}", depth), self.encode(item, f"{where}[{key!r}]", depth)]
            for key, item in value.items()
        ]
        return {"$": "dict", "items": items}

    def _sparse(self, value: Any, where: str, depth: int) -> Json:
        arrays = {name: self.encode(getattr(value, name), where, depth) for name in ("data", "indices", "indptr")}
        return {"$": "sparse", "class": type(value).__name__, "shape": list(value.shape), **arrays}

    def _object(self, value: Any, where: str, depth: int) -> Json:
        parameters, state = self.parts(value, where)
        return {
            "$": "object",
            "class": type(value).__name__,
            "parameters": {name: self.encode(one, f"{where}.{name}", depth) for name, one in parameters.items()},
            "state": {name: self.encode(one, f"{where}.{name}", depth) for name, one in state.items()},
        }

    def _once(self, value: Any, where: str) -> Json:
        """A tensor that is met twice is stored once. `_seen` keeps it alive, so that its id stays its own."""
        key = (type(value).__name__, id(value))
        if key not in self._seen:
            self._seen[key] = (value, self._numbers(value, where))
        return self._seen[key][1]

    def _numbers(self, value: Any, where: str) -> Json:
        if isinstance(value, numpy.generic):
            if isinstance(value, numpy.str_):
                return str(value)
            return {"$": "scalar", "name": self._add(storage.stored_array(numpy.asarray(value), where)[0])}
        if isinstance(value, numpy.ndarray):
            return self._array(value, where)
        data = value.data if isinstance(value, Tensor) else value
        tensor, order = storage.stored_tensor(data, where)
        kind = "Tensor" if isinstance(value, Tensor) else "tensor"
        home = {} if data.device.type == "cpu" else {"device": str(data.device)}
        return {"$": kind, "name": self._add(tensor)} | home | _unless_plain(order)

    def _array(self, value: Any, where: str) -> Json:
        if isinstance(value, numpy.ma.MaskedArray):
            raise ModelFileError(f"{where} is a masked array; fill it before saving")
        if value.dtype.kind in "OU":
            text, lengths = storage.stored_strings(value, where)
            names = {"text": self._add(text), "lengths": self._add(lengths)}
            return {"$": "strings", **names, "shape": list(value.shape), "fixed": value.dtype.kind == "U"}
        tensor, order = storage.stored_array(value, where)
        return {"$": "array", "name": self._add(tensor)} | _unless_plain(order)

    def _add(self, tensor: torch.Tensor) -> str:
        """The name of a tensor that shares its memory with no other one: the format wants that."""
        name = f"t{len(self.tensors)}"
        pointers = {one.untyped_storage().data_ptr() for one in self.tensors.values()}
        shared = tensor.untyped_storage().data_ptr() in pointers and tensor.numel() > 0
        self.tensors[name] = tensor.clone() if shared else tensor
        return name


def _unless_plain(order: list[int]) -> dict[str, Json]:
    return {} if order == sorted(order) else {"order": order}


@dataclasses.dataclass
class Decoder:
    """JSON to values.

    Parameters
    ----------
    tensors : dict
        The tensors of the file, by name.
    restore : callable
        Makes an object of the name of its class, its parameters and its state.
    """

    tensors: dict[str, torch.Tensor]
    restore: Restore
    _made: dict[tuple[str, ...], Any] = dataclasses.field(default_factory=dict)

    def decode(self, tree: Json, depth: int = 0) -> Any:
        """The value that `Encoder.encode` made this of."""
        if depth > 2 * DEEPEST:
            raise ModelFileError(f"values nested more than {2 * DEEPEST} deep")
        if isinstance(tree, list):
            return [self.decode(item, depth + 1) for item in tree]
        if not isinstance(tree, dict):
            return tree
        try:
            return self._tagged(tree, depth + 1)
        except CartogradError:
            raise
        except (TypeError, ValueError, RuntimeError, AttributeError, LookupError, ArithmeticError) as error:
            kind = show(tree.get("$")) if "$" in tree else "without a kind"
            raise ModelFileError(f"an entry {kind} is malformed: {shorten(repr(error))}") from error

    def _tagged(self, tree: dict[str, Json], depth: int) -> Any:
        kind = tree["$"]
        if kind in ("tensor", "Tensor", "array", "scalar"):
            return self._numbers(kind, tree)
        if kind == "strings":
            parts = self.tensors[tree["text"]], self.tensors[tree["lengths"]]
            return storage.restored_strings(*parts, tree["shape"], tree["fixed"])
        if kind == "tuple":
            return tuple(self.decode(item, depth) for item in tree["items"])
        if kind == "dict":
            return {self.decode(key, depth): self.decode(item, depth) for key, item in tree["items"]}
        if kind == "object":
            return self.restore(tree["class"], *(self._named(tree[part], depth) for part in ("parameters", "state")))
        return self._rare(kind, tree, depth)

    def _named(self, tree: dict[str, Json], depth: int) -> dict[str, Any]:
        return {name: self.decode(one, depth) for name, one in tree.items()}

    def _rare(self, kind: str, tree: dict[str, Json], depth: int) -> Any:
        if kind == "float" and tree["value"] in ("nan", "inf", "-inf"):
            return float(tree["value"])
        if kind == "device":
            return storage.reachable(tree["value"])
        if kind == "dtype" and isinstance(getattr(torch, tree["value"], None), torch.dtype):
            return getattr(torch, tree["value"])
        if kind == "sparse" and tree["class"] in SPARSE:
            from scipy import sparse

            arrays = tuple(self.decode(tree[name], depth) for name in ("data", "indices", "indptr"))
            matrix = getattr(sparse, tree["class"])(arrays, shape=tuple(tree["shape"]))
            matrix.check_format(full_check=True)
            return matrix
        raise ModelFileError(f"an entry of the unknown kind {show(kind)}")

    def _numbers(self, kind: str, tree: dict[str, Json]) -> Any:
        name = tree["name"]
        key = kind, name, str(tree.get("order")), str(tree.get("device"))
        if key not in self._made:
            tensor = storage.restored(self.tensors[name], tree.get("order"))
            tensor = tensor.to(storage.reachable(tree["device"])) if "device" in tree else tensor
            made = Tensor(tensor) if kind == "Tensor" else tensor if kind == "tensor" else tensor.numpy()
            self._made[key] = made.reshape(())[()] if kind == "scalar" else made
        return self._made[key]
