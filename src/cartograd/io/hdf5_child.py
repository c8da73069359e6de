"""Reads an AnnData file in a process of its own, for `cartograd.io.h5ad`.

The HDF5 library loops for ever on some damaged files, and no Python thread can stop it: a process of its own can be
ended. This file is run as a script and imports nothing of cartograd, so that the process is there in a tenth of a
second. It follows the on-disk format that AnnData documents, with the older ways to store categories.

It is given one argument, a request in JSON, and leaves ``answer.json`` and .npy files in the folder that it names.
"""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Any

Column = Any
Request = dict[str, Any]
DEFAULT = "X_pca"
"""What is mapped where it is there: principal components rather than raw counts, as scanpy does."""


class Refused(Exception):
    """A file that is not to be read: ``args[0]`` is what the parent is told."""


def refuse(reason: str, kind: str = "data") -> Refused:
    """An error with a message."""
    return Refused({"kind": kind, "message": reason})


def answer(request: Request) -> dict[str, Any]:
    """Read what is asked for; arrays go to files, everything else into the answer."""
    import h5py

    with h5py.File(request["path"], "r") as file:
        place = matrix_place(request["key"], file)
        wanted = ["obs", place] + (["var"] if place == "X" else [])
        check_elements(h5py, file, wanted, request)
        index, columns = frame(file["obs"], file)
        matrix = dense(file[place], request)
        names = frame(file["var"], file)[0] if place == "X" else None
    if matrix.shape[0] != len(index):
        raise refuse(f"the matrix {place!r} has {matrix.shape[0]} rows, and there are {len(index)} in obs")
    saved = {
        name: _saved(column, request["folder"], str(place)) for place, (name, column) in enumerate(columns.items())
    }
    return {
        "place": place,
        "matrix": _saved(matrix, request["folder"], "X"),
        "ids": index,
        "columns": saved,
        "names": names,
    }


def matrix_place(key: str | None, file: Any) -> str:
    """The path of the matrix in the file."""
    obsm, layers = (sorted(file[room]) if room in file else [] for room in ("obsm", "layers"))
    if key is None:
        key = DEFAULT if DEFAULT in obsm else "X"
    if key == "X" and "X" in file:
        return "X"
    for room, names in (("obsm", obsm), ("layers", layers)):
        if key in names:
            return f"{room}/{key}"
    there = [*(["X"] if "X" in file else []), *obsm, *layers]
    raise refuse(f"there is no matrix {key!r} in it; there are {', '.join(map(repr, there)) or 'none'}", "option")


def check_elements(h5py: Any, file: Any, wanted: list[str], request: Request) -> None:
    """Refuse, before reading, elements that lie in other files, or are too large, or expand absurdly together."""
    total = packed = 0
    pending = list(wanted)
    while pending:
        name = pending.pop()
        if isinstance(file.get(name, getlink=True), h5py.ExternalLink):
            raise refuse(f"its element {name!r} is a link to another file")
        element = file[name]
        if isinstance(element, h5py.Group):
            pending += [f"{name}/{child}" for child in element]
            continue
        if element.external or element.is_virtual:
            raise refuse(f"the data of its element {name!r} lie in another file")
        total += math.prod(element.shape or ()) * element.dtype.itemsize
        packed += element.id.get_storage_size()
    absurd = total > request["free"] and total > request["ratio"] * max(packed, 1)
    if absurd or total > request["max_bytes"]:
        raise Refused({"kind": "size", "what": "what is to be read", "packed": packed, "total": total})


def frame(element: Any, file: Any) -> tuple[list[Any], dict[str, Column]]:
    """The index and the columns of a data frame."""
    if hasattr(element, "dtype"):  # one table of records, before AnnData 0.7
        rows = element[()]
        columns = {name: _plain(rows[name]) for name in rows.dtype.names or ()}
        uns = file.get("uns", {})
        for name in [name for name in columns if f"{name}_categories" in uns]:
            columns[name] = _categories(columns[name], column(uns[f"{name}_categories"], file))
        return [str(one) for one in columns.pop("index", range(len(rows)))], columns
    index = element.attrs.get("_index", "_index")
    order = [str(name) for name in element.attrs.get("column-order", ())]
    columns = {name: column(element[name], file) for name in order if name in element}
    return [str(one) for one in column(element[index], file)], columns


def column(element: Any, file: Any) -> Column:
    """One column: an array of numbers, or a list of text and None."""
    kind = str(element.attrs.get("encoding-type", ""))
    if kind == "categorical":
        return _categories(column(element["codes"], file), column(element["categories"], file))
    if kind.startswith("nullable"):
        return _masked(column(element["values"], file), element["mask"][()])
    if not hasattr(element, "dtype"):
        raise refuse(f"its element {element.name!r} is of the unknown kind {kind!r}")
    if "categories" in element.attrs:  # AnnData 0.7: a reference to where the categories are
        return _categories(element[()], column(file[element.attrs["categories"]], file))
    values = element.asstr(errors="replace")[()] if element.dtype.kind == "O" else element[()]
    return _plain(values)


def dense(element: Any, request: Request) -> Any:
    """A matrix; a sparse one is made dense if that fits into `max_bytes`."""
    import numpy

    kind = str(element.attrs.get("encoding-type", element.attrs.get("h5sparse_format", "array")))
    if hasattr(element, "dtype"):
        matrix = element[()]
    elif kind[:3] in ("csr", "csc"):
        shape = [int(one) for one in element.attrs.get("shape", element.attrs.get("h5sparse_shape"))]
        size = math.prod(shape) * element["data"].dtype.itemsize
        if size > request["max_bytes"]:
            raise Refused({"kind": "size", "what": "its matrix, made dense,", "packed": size, "total": size})
        indptr, indices, data = (element[name][()] for name in ("indptr", "indices", "data"))
        by_rows = kind[:3] == "csr"
        matrix = _from_compressed(indptr, indices, data, shape if by_rows else shape[::-1])
        matrix = matrix if by_rows else matrix.T
    else:
        raise refuse(f"its matrix is of the kind {kind!r}; choose another one with key=")
    matrix = numpy.asarray(matrix)
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise refuse(
            f"its matrix is an array of {matrix.dtype} of shape {matrix.shape}; features are real numbers, (n, d)"
        )
    return matrix


def _from_compressed(indptr: Any, indices: Any, data: Any, shape: list[int]) -> Any:
    import numpy

    counts = numpy.diff(indptr)
    if len(counts) != shape[0] or (counts < 0).any() or counts.sum() != len(indices) or len(indices) != len(data):
        raise refuse("its sparse matrix is damaged: the row pointers do not fit")
    if len(indices) and not 0 <= indices.min() <= indices.max() < shape[1]:
        raise refuse("its sparse matrix is damaged: an index is out of range")
    matrix = numpy.zeros(shape, dtype=data.dtype)
    numpy.add.at(matrix, (numpy.repeat(numpy.arange(shape[0]), counts), indices), data)
    return matrix


def _plain(values: Any) -> Column:
    """Numbers as they are; text, in whatever form, as a list of strings."""
    if values.dtype.kind == "S":
        return [one.decode("utf-8", "replace") for one in values.tolist()]
    if values.dtype.kind in "OU":
        return [one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one) for one in values.tolist()]
    return values


def _categories(codes: Any, categories: Column) -> Column:
    import numpy

    if len(codes) and not -1 <= codes.min() <= codes.max() < len(categories):
        raise refuse("a column of categories is damaged: a code is out of range")
    if isinstance(categories, list):
        return [categories[code] if code >= 0 else None for code in codes.tolist()]
    if len(codes) and codes.min() >= 0:
        return numpy.asarray(categories)[codes]
    return numpy.append(numpy.asarray(categories, dtype=float), numpy.nan)[codes]


def _masked(values: Column, mask: Any) -> Column:
    import numpy

    if not mask.any():
        return values
    if isinstance(values, list) or values.dtype.kind == "b":
        return [None if gone else str(one) for one, gone in zip(list(values), mask.tolist(), strict=True)]
    return numpy.where(mask, numpy.nan, values)


def _saved(values: Column, folder: str, name: str) -> Any:
    """Text for the answer; or the name of the file that holds an array."""
    import numpy

    if isinstance(values, list):
        return values
    path = os.path.join(folder, f"{name}.npy")
    numpy.save(path, numpy.ascontiguousarray(values), allow_pickle=False)
    return path


def main(request: Request) -> None:
    """Leave an answer, whatever happens."""
    try:
        found = answer(request)
    except Refused as refused:
        found = {"refused": refused.args[0]}
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        found = {"refused": {"kind": "data", "message": f"it cannot be read as an AnnData file: {reason}"}}
    with open(os.path.join(request["folder"], "answer.json"), "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
