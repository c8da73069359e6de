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


MOST_ELEMENTS, DEEPEST = 200_000, 16
"""Elements that are read at most, and groups that one may lie within."""
SPARE, EACH_BYTE = 2**29, 8
"""Bytes that reading takes beside the data, and for each byte of them: texts become objects of Python."""
FREE_DENSE, LARGEST_DENSE = 2**28, 1000
"""Bytes that a sparse matrix may take when it is made dense, however few are stored; and how many times those."""


class Refused(Exception):
    """A file that is not to be read: ``args[0]`` is what the parent is told."""


def refuse(reason: str, kind: str = "data") -> Refused:
    """An error with a message."""
    return Refused({"kind": kind, "message": reason})


def answer(request: Request) -> dict[str, Any]:
    """Read what is asked for; arrays go to files, everything else into the answer."""
    import h5py

    with h5py.File(request["path"], "r") as file:
        check_links(h5py, file)
        place = matrix_place(request["key"], file)
        wanted = ["obs", place] + (["var"] if place == "X" else []) + old_categories(file)
        total = check_elements(h5py, file, wanted, request)
        if request["limited"]:
            limit_memory(SPARE + EACH_BYTE * (total + os.stat(request["path"]).st_size))
        index, columns = frame(file["obs"], file)
        matrix = dense(file[place], request)
        names = frame(file["var"], file)[0] if place == "X" else None
    if matrix.shape[0] != len(index):
        raise refuse(f"the matrix {place!r} has {matrix.shape[0]} rows, and there are {len(index)} in obs")
    folder = request["folder"]
    return {
        "place": place,
        "matrix": _saved(matrix, folder, "X"),
        "ids": _saved(index, folder, "ids"),
        "columns": {name: _saved(column, folder, str(at)) for at, (name, column) in enumerate(columns.items())},
        "names": None if names is None else _saved(names, folder, "names"),
    }


def check_links(h5py: Any, file: Any) -> None:
    """Refuse a file that leads to other files, wherever in it: by a link, a virtual dataset or external storage.

    Soft links then lead to elements of this file alone.
    """

    def look(name: bytes, info: Any) -> str | None:
        shown = name.decode("utf-8", "replace")
        if info.type == h5py.h5l.TYPE_SOFT:
            return None
        if info.type != h5py.h5l.TYPE_HARD:
            return f"its element {shown!r} is a link to another file"
        element = h5py.h5o.open(file.id, name)
        return _foreign_data(h5py, element, shown) if isinstance(element, h5py.h5d.DatasetID) else None

    found = file.id.links.visit(look, info=True)
    if found is not None:
        raise refuse(found)


def _foreign_data(h5py: Any, dataset: Any, name: str) -> str | None:
    """Return what is wrong with the place of a dataset's values, or None."""
    plan = dataset.get_create_plist()
    if plan.get_layout() == h5py.h5d.VIRTUAL or plan.get_external_count():
        return f"the data of its element {name!r} lie in another file"
    return None


def old_categories(file: Any) -> list[str]:
    """Return where AnnData before 0.7 has the categories of columns: beside the table of records."""
    names = getattr(getattr(file.get("obs"), "dtype", None), "names", None) or ()
    there = file.get("uns", {})
    return [f"uns/{name}_categories" for name in names if f"{name}_categories" in there]


def limit_memory(more: int) -> None:
    """End this process with an error where it takes so many bytes more: equal texts may be named again and again."""
    try:
        import resource

        with open("/proc/self/statm") as file:
            taken = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        most = resource.getrlimit(resource.RLIMIT_AS)[1]
        wanted = taken + more
        soft = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_AS, (soft, most))
    except (ImportError, OSError, ValueError):  # not on this system
        return


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


def check_elements(h5py: Any, file: Any, wanted: list[str], request: Request) -> int:
    """Refuse, before reading, elements that are too large, or expand absurdly together; return their bytes."""
    total = packed = count = 0
    pending = list(wanted)
    while pending:
        name = pending.pop()
        count += 1
        if count > MOST_ELEMENTS or name.count("/") > DEEPEST:
            raise refuse(f"it has more than {MOST_ELEMENTS:,} elements, or one within {DEEPEST} others, at {name!r}")
        element = file[name]
        if isinstance(element, h5py.Group):
            pending += [f"{name}/{child}" for child in element]
            continue
        total += math.prod(element.shape or ()) * element.dtype.itemsize
        packed += element.id.get_storage_size()
    _check_size("what is to be read", total, packed, request, request["free"], request["ratio"])
    return total


def _check_size(what: str, total: int, packed: int, request: Request, free: int, ratio: int) -> None:
    if total > request["max_bytes"] or (total > free and total > ratio * max(packed, 1)):
        raise Refused({"kind": "size", "what": what, "packed": packed, "total": total, "ratio": ratio})


def frame(element: Any, file: Any) -> tuple[list[Any], dict[str, Column]]:
    """The index and the columns of a data frame."""
    if hasattr(element, "dtype"):  # one table of records, before AnnData 0.7
        rows = element[()]
        columns = {name: _plain(rows[name]) for name in rows.dtype.names or ()}
        uns = file.get("uns", {})
        for name in [name for name in columns if f"{name}_categories" in uns]:
            columns[name] = _categories(columns[name], column(uns[f"{name}_categories"], file))
        return [str(one) for one in columns.pop("index", range(len(rows)))], columns
    index = _below(element, str(element.attrs.get("_index", "_index")))
    order = [_below(element, str(name)) for name in element.attrs.get("column-order", ())]
    columns = {name: column(element[name], file) for name in dict.fromkeys(order) if name in element}
    return [str(one) for one in column(element[index], file)], columns


def _below(element: Any, name: str) -> str:
    """Refuse a name that leads out of a group."""
    if name.startswith("/"):
        raise refuse(f"its element {element.name!r} names a column {name!r}, which is not in it")
    return name


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
        return _categories(element[()], column(_referenced(element, file), file))
    values = element.asstr(errors="replace")[()] if element.dtype.kind == "O" else element[()]
    return _plain(values)


def _referenced(element: Any, file: Any) -> Any:
    """Return the dataset that a column names as its categories, which lies in the same group, and was checked there."""
    import h5py

    target = element.attrs["categories"]
    found = file[target] if type(target) is h5py.Reference and target else None
    name = getattr(found, "name", None)
    if name is None or not hasattr(found, "dtype") or not name.startswith(f"{element.parent.name}/"):
        raise refuse(f"the categories of its column {element.name!r} are not where they should be")
    return file[name]


def dense(element: Any, request: Request) -> Any:
    """A matrix; a sparse one is made dense if that fits into `max_bytes`."""
    import numpy

    kind = str(element.attrs.get("encoding-type", element.attrs.get("h5sparse_format", "array")))
    if hasattr(element, "dtype"):
        matrix = element[()]
    elif kind[:3] in ("csr", "csc"):
        shape = [int(one) for one in element.attrs.get("shape", element.attrs.get("h5sparse_shape"))]
        size = math.prod(shape) * element["data"].dtype.itemsize
        packed = sum(element[name].id.get_storage_size() for name in ("indptr", "indices", "data"))
        _check_size("its matrix, made dense,", size, packed, request, FREE_DENSE, LARGEST_DENSE)
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
    """Return the name of the file that holds an array; or different texts, and the file with the place of each."""
    import numpy

    path = os.path.join(folder, f"{name}.npy")
    if not isinstance(values, list):
        numpy.save(path, numpy.ascontiguousarray(values), allow_pickle=False)
        return path
    places: dict[Any, int] = {}
    numpy.save(path, numpy.array([places.setdefault(value, len(places)) for value in values], dtype=numpy.int64))
    return {"texts": list(places), "places": path}


def main(request: Request) -> None:
    """Leave an answer, whatever happens."""
    try:
        found = answer(request)
    except Refused as refused:
        found = {"refused": refused.args[0]}
    except MemoryError:
        reason = "it names the same texts again and again, and takes far more memory than its size tells"
        found = {"refused": {"kind": "data", "message": f"{reason}: refused as a bomb"}}
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        found = {"refused": {"kind": "data", "message": f"it cannot be read as an AnnData file: {reason}"}}
    with open(os.path.join(request["folder"], "answer.json"), "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
