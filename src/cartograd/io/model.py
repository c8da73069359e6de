"""Models in files: parameters and fitted state, no code. One file, written wholly or not at all, every byte checked."""

from __future__ import annotations

import functools
import inspect
import os
from importlib import metadata
from typing import Any

from cartograd.core.checks import shorten, show
from cartograd.core.filenames import show_name
from cartograd.errors import CartogradError, FileAbsentError, FileAccessError, ModelFileError
from cartograd.io import registry, storage
from cartograd.io.container import read_container, write_container
from cartograd.io.fields import Sizes
from cartograd.io.plainfile import checked_path
from cartograd.io.schema import check_estimator, check_part, is_attribute
from cartograd.io.tree import Decoder, Encoder

FORMAT_VERSION = 1
"""Raised when a file of the new kind could not be read by the old code. Every older kind must still load."""
ACCELERATORS = ("cuda", "mps", "xpu", "hpu")
"""Devices that another machine may have."""


def save_model(model: Any, path: str | os.PathLike[str]) -> None:
    """Write an estimator to a file, to be read by `load_model`.

    The file has the model's parameters and all that it was given besides when it was fitted. A class may choose
    otherwise: the names in its ``_not_in_file`` are left out; ``_params_for_file()`` gives the parameters;
    ``_state_for_file()`` gives the state, which ``_restore_from_file(state)`` takes back.

    Parameters
    ----------
    model : estimator
        An estimator of cartograd, fitted or not.
    path : str or path
        The file. What is there before stays as it is until the new file is whole.

    Raises
    ------
    ModelFileError
        If a parameter or fitted value is no data (a function, a module, a generator); the message names it.
    """
    if not registry.is_known(type(model)):
        raise ModelFileError(
            f"a {type(model).__name__} cannot be saved as a model file: it is no estimator of cartograd. "
            "Your own classes can be pickled"
        )
    encoder = Encoder(parts_of)
    header = {
        "format_version": FORMAT_VERSION,
        "cartograd_version": _own_version(),
        "model": encoder.encode(model, type(model).__name__),
    }
    if hasattr(model, "check_parameters"):
        check_estimator(model, Sizes())  # what is written can be read
    write_container(path, header, encoder.tensors)


def load_model(path: str | os.PathLike[str]) -> Any:
    """Read an estimator that `save_model` wrote.

    Nothing in the file is executed. A file that is damaged, cut, of another kind or of a later version is refused with
    the reason. Tensors come back bit by bit as they were, on the device they were on, or on the CPU where this machine
    does not have it.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    estimator
        Of the class that was saved.

    Raises
    ------
    ModelFileError
        If the file is no whole model file that this version can read.
    """
    path = checked_path(path, "the name of a model file")
    try:
        header, tensors = read_container(path)
        _check_version(header)
        tree = header.get("model")
        if not isinstance(tree, dict) or tree.get("$") != "object":
            raise ModelFileError("its header names no model")
        return Decoder(tensors, functools.partial(restored, sizes=Sizes())).decode(tree)
    except (FileAbsentError, FileAccessError):
        raise
    except CartogradError as error:
        raise ModelFileError(f"cannot load {show_name(path)}: {error}") from error


def parts_of(value: Any, where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters of an estimator, and its fitted state; or what any other object of ours is constructed from."""
    if not hasattr(value, "get_params"):
        names = inspect.signature(type(value)).parameters
        if not all(hasattr(value, name) for name in names):
            raise ModelFileError(f"{where} is a {type(value).__name__}, which does not keep what it is made of")
        return {name: getattr(value, name) for name in names}, {}
    parameters = value._params_for_file() if hasattr(value, "_params_for_file") else value.get_params(deep=False)
    if hasattr(value, "_state_for_file"):
        return parameters, value._state_for_file()
    left_out = {*parameters, *getattr(value, "_not_in_file", ())}
    return parameters, {name: one for name, one in vars(value).items() if name not in left_out}


def restored(name: str, parameters: dict[str, Any], state: dict[str, Any], sizes: Sizes) -> Any:
    """Return an object of one of the classes a file may hold, checked by the schema."""
    cls = registry.find(name)
    if cls is None:
        raise ModelFileError(f"it holds a {show(name)}, which is none of this version's classes")
    known = inspect.signature(cls).parameters
    unknown = [parameter for parameter in parameters if parameter not in known]
    if unknown:
        raise ModelFileError(f"its {name} has the parameter {show(unknown[0])}, which this version does not know")
    if cls.__module__.startswith("cartograd."):
        check_part(name, parameters, sizes)
    made = cls(**_reachable(parameters))
    if hasattr(made, "_restore_from_file"):
        made._restore_from_file(state)
        return made
    is_estimator = hasattr(made, "check_parameters")
    for attribute, value in state.items():
        declared = is_attribute(cls, attribute) if is_estimator else hasattr(made, "get_params")
        if not declared or not _is_plain_name(attribute) or _is_descriptor(cls, attribute):
            raise ModelFileError(f"its {name} has a value for {show(attribute)}, which is no fitted attribute")
        setattr(made, attribute, value)
    if is_estimator:
        check_estimator(made, Sizes(extremes=sizes.extremes))
    return made


def _is_descriptor(cls: type, name: str) -> bool:
    return hasattr(inspect.getattr_static(cls, name, None), "__get__")


def _reachable(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters of an estimator with the CPU instead of a device that this machine does not have."""
    device = parameters.get("device")
    if isinstance(device, str) and device.partition(":")[0] in ACCELERATORS:
        return {**parameters, "device": device if storage.reachable(device).type != "cpu" else "cpu"}
    return parameters


def _is_plain_name(name: str) -> bool:
    return name.isidentifier() and not name.startswith("__")


def _check_version(header: dict[str, Any]) -> None:
    version = header.get("format_version")
    if type(version) is not int or version < 1:
        raise ModelFileError(f"its format version is {show(version)}")
    if version > FORMAT_VERSION:
        raise ModelFileError(
            f"it was written by cartograd {_other(header)} in format version {show(version)}, and cartograd "
            f"{_own_version()} reads versions up to {FORMAT_VERSION}; upgrade cartograd to load it"
        )


def _other(header: dict[str, Any]) -> str:
    return shorten(str(header.get("cartograd_version"))[:100])


def _own_version() -> str:
    try:
        return metadata.version("cartograd")
    except metadata.PackageNotFoundError:  # run from a folder that was never installed
        return "of an unknown version"
