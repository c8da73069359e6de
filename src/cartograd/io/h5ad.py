"""AnnData: .h5ad files, read by a process of their own, and objects in memory."""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import sys
import tempfile
from typing import Any

import numpy

from cartograd.errors import DataFileError, OptionError
from cartograd.io import hdf5_child
from cartograd.io.frames import column_from_pandas
from cartograd.io.limits import FREE_EXPANSION, LARGEST_EXPANSION, check_total
from cartograd.io.packages import required
from cartograd.io.raw import Given, Options, Raw
from cartograd.io.values import encodable

log = logging.getLogger("cartograd.io")

PATIENCE = 15.0
"""Seconds that reading may take, whatever the size of the file."""
SLOWEST = 2_000_000
"""Bytes a second that reading should reach on the slowest disk: a second more for each of them."""


def read_h5ad(given: Given, options: Options) -> Raw:
    """Read ``obs`` and one matrix: `key` names an entry of ``obsm`` or ``layers``, or is "X"."""
    required("h5py", "anndata", "reading .h5ad")
    with tempfile.TemporaryDirectory(prefix="cartograd-") as folder:
        request = {
            "path": os.path.abspath(given.path),
            "key": options.key,
            "folder": folder,
            "max_bytes": options.max_bytes,
            "ratio": LARGEST_EXPANSION,
            "free": FREE_EXPANSION,
            "limited": bool(sys.executable),
        }
        _run(request, PATIENCE + os.stat(given.path).st_size / SLOWEST)
        with open(os.path.join(folder, "answer.json")) as file:
            answer = json.load(file)
        if "refused" in answer:
            raise _refusal(answer["refused"], options.max_bytes)
        matrix = numpy.load(answer["matrix"], allow_pickle=False)
        columns = {encodable(name): _column(saved) for name, saved in answer["columns"].items()}
        ids = _column(answer["ids"])
        names = None if answer["names"] is None else [str(name) for name in _column(answer["names"])]
    log.info("%s: the features are %r", given.name, answer["place"])
    return _raw(matrix, names, answer["place"], columns, ids)


def _run(request: dict[str, Any], seconds: float) -> None:
    """Have the request answered by another process, which is ended where it takes too long."""
    if not sys.executable:  # Python within another program: there is nothing to start
        hdf5_child.main(request)
        return
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    command = [sys.executable, "-P", hdf5_child.__file__, json.dumps(request)]
    try:
        done = subprocess.run(command, env=environment, timeout=seconds, capture_output=True, check=False)
    except subprocess.TimeoutExpired as error:
        raise DataFileError(f"it is damaged: the HDF5 library was still busy with it after {seconds:.0f} s") from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise DataFileError(f"it is damaged: the HDF5 library ended with status {done.returncode} ({said})")


def _refusal(refused: dict[str, Any], max_bytes: int) -> Exception:
    if refused["kind"] == "size":
        check_total(refused["total"], max_bytes, refused["what"])
        return DataFileError(
            f"{refused['what']} would expand from {refused['packed']:,} to {refused['total']:,} bytes, more than "
            f"{refused['ratio']} times: refused as a decompression bomb"
        )
    return OptionError(refused["message"]) if refused["kind"] == "option" else DataFileError(refused["message"])


def _column(saved: Any) -> Any:
    """Return a column that the other process saved; equal texts are one object."""
    if isinstance(saved, str):
        return numpy.load(saved, allow_pickle=False)
    texts = numpy.empty(len(saved["texts"]), dtype=object)
    texts[:] = [None if text is None else encodable(text) for text in saved["texts"]]
    return texts[numpy.load(saved["places"], allow_pickle=False)]


def is_anndata(source: Any) -> bool:
    """Whether it is an AnnData object."""
    return all(hasattr(source, name) for name in ("obs", "var", "obsm", "layers"))


def raw_of_anndata(data: Any, key: str | None, max_bytes: int) -> Raw:
    """The same from an AnnData object in memory."""
    rooms = {"obsm": data.obsm, "layers": data.layers} | ({"X": data.X} if data.X is not None else {})
    place = _chosen_place(key, rooms)
    room, _, name = place.partition("/")
    matrix = rooms[room][name] if name else data.X
    if hasattr(matrix, "toarray"):
        size = math.prod(matrix.shape) * matrix.dtype.itemsize
        check_total(size, max_bytes, f"the matrix {place!r}, made dense,")
        matrix = matrix.toarray()
    columns = {str(one): column_from_pandas(data.obs[one]) for one in data.obs.columns}
    names = [str(one) for one in data.var_names] if place == "X" else None
    return _raw(numpy.asarray(matrix), names, place, columns, column_from_pandas(data.obs.index.to_series()))


def _chosen_place(key: str | None, rooms: dict[str, Any]) -> str:
    try:
        return hdf5_child.matrix_place(key, rooms)
    except hdf5_child.Refused as refused:
        raise OptionError(refused.args[0]["message"]) from None


def _raw(matrix: Any, names: list[str] | None, place: str, columns: dict[str, Any], ids: Any) -> Raw:
    name = place.rpartition("/")[2]
    parts = names or [f"{name}_{number}" for number in range(matrix.shape[1])]
    if len(parts) != matrix.shape[1]:
        raise DataFileError(f"the matrix {place!r} has {matrix.shape[1]} columns, and {len(parts)} names in var")
    return Raw({name: matrix} | columns, parts={name: parts}, features=[name], ids=ids)
