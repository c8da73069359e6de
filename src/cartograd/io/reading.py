"""`read`: a table from a file, a folder, standard input, a built-in set or memory."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import torch

from cartograd.core.filenames import show_name
from cartograd.engine import Tensor
from cartograd.errors import CartogradError, FileAbsentError, FileAccessError, UnsupportedError
from cartograd.io import arguments, builtin, choosing, frames, h5ad
from cartograd.io.features import build
from cartograd.io.formats import reader_for
from cartograd.io.images import read_images
from cartograd.io.learned import Learned
from cartograd.io.limits import MAX_BYTES, check_total
from cartograd.io.matrices import raw_of_array
from cartograd.io.plainfile import check_plain, checked_path
from cartograd.io.raw import Given, Options, Raw
from cartograd.io.table import Table

log = logging.getLogger("cartograd.io")

STANDARD_INPUT = "-"
HALF_SHOWN = 400
"""Characters of the beginning, and of the end, of a long message."""


def read(
    source: Any,
    *,
    columns: Sequence[str] | str | None = None,
    label: str | None = None,
    color: str | None = None,
    text: str | None = None,
    missing: str = "error",
    one_hot: Sequence[str] | str | None = None,
    key: str | None = None,
    max_bytes: int = MAX_BYTES,
    header: bool | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    verbose: bool = False,
    learned: Learned | None = None,
) -> Table:
    """Read rows to be mapped.

    Columns of numbers become features; the others are kept beside them. Whole numbers that look like ids or labels by
    their name are kept beside them too. What was decided is logged, to the logger ``cartograd.io`` at INFO.

    Parameters
    ----------
    source : str, path, frame or array
        A file (.csv, .tsv, .jsonl, .json, also gzipped or alone in a zip archive; .parquet, .arrow, .feather; .npy,
        .npz; .h5ad), a folder of images,
        "-" for standard input, or "digits", "iris", "wine". Also a pandas or polars frame, an Arrow table, an AnnData
        object, an array or a tensor.
    columns : sequence of str, default=None
        The features, by name; names with a minus before them are left out. None for all columns of numbers.
    label : str, default=None
        The column with the classes. It is no feature unless it is in `columns`.
    color : str, default=None
        The column to colour the map by.
    text : str, default=None
        The column with the text to show for each row.
    missing : {"error", "mean", "median", "zero", "drop"}, default="error"
        What to do with missing values of features: refuse, fill with a figure of the column, or leave the row out.
    one_hot : sequence of str, default=None
        Columns of categories to turn into one feature for each value.
    key : str, default=None
        The array of an .npz file; the entry of ``obsm`` or ``layers`` of an .h5ad file, or "X". None: "X", or the only
        matrix; "X_pca" where an .h5ad file has it.
    max_bytes : int, default=8589934592
        Tables that would take more memory are refused before they are read.
    header : bool, default=None
        Whether the first line of a text table names the columns; None to find out.
    delimiter : str, default=None
        The delimiter of a text table; None to find out.
    encoding : str, default=None
        The encoding of a text file; None to find out.
    verbose : bool, default=False
        Whether to show a progress bar.
    learned : Learned, default=None
        What the rows of a map taught, from `cartograd.io.learned.learn`: gaps are filled with their figures, and
        categories become their features. None for the figures and categories of the rows that are read.

    Returns
    -------
    Table

    Raises
    ------
    DataFileError
        If the file cannot be read; with the line where there is one.
    InputError
        If a value cannot be used; with its row and column.

    Examples
    --------
    >>> read("iris")
    Table(150 rows, 4 features, 1 other columns, label='species')
    >>> read(numpy.eye(3)).X.shape
    (3, 3)
    """
    options = Options(key, max_bytes, header, delimiter, encoding, verbose)
    wanted, hot = arguments.names_of(columns, "columns"), arguments.names_of(one_hot, "one_hot")
    chosen = choosing.Choice(wanted, label, color, text, missing, hot or (), learned)
    name = _name_of(source)
    with _named(name):
        arguments.check(options, chosen)
        return build(_raw(source, name, options), chosen, name)


def _name_of(source: Any) -> str:
    if isinstance(source, (str, os.PathLike)):
        return "standard input" if source == STANDARD_INPUT else checked_path(source)
    return type(source).__name__


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Put the name of the source before what went wrong with it, in one line."""
    shown = show_name(name)
    try:
        yield
    except CartogradError as error:
        raise type(error)(f"{shown}: {_one_line(str(error))}") from error.__cause__
    except OSError as error:
        raise FileAccessError(f"{shown}: it cannot be read: {error.strerror or error}") from error


def _one_line(text: str) -> str:
    """Return a message as one line; of a long one, with cells of many characters, the beginning and the end."""
    line = " ".join(text.split())
    return line if len(line) <= 2 * HALF_SHOWN else f"{line[:HALF_SHOWN]}...{line[-HALF_SHOWN:]}"


def _raw(source: Any, name: str, options: Options) -> Raw:
    if isinstance(source, (str, os.PathLike)):
        return _raw_of_path(source, name, options)
    if isinstance(source, Tensor):
        source = source.data
    if isinstance(source, torch.Tensor):
        source = (source.float() if source.dtype == torch.bfloat16 else source).detach().cpu().numpy()
    if isinstance(source, numpy.ndarray):
        return raw_of_array(source)
    if h5ad.is_anndata(source):
        return h5ad.raw_of_anndata(source, options.key, options.max_bytes)
    if frames.is_frame(source):
        return frames.raw_of_frame(source, name, options.max_bytes)
    raise UnsupportedError("it is no table: give a path, a frame or an array")


def _raw_of_path(source: str | os.PathLike[str], name: str, options: Options) -> Raw:
    if source == STANDARD_INPUT:
        return _raw_of_standard_input(options)
    if isinstance(source, str) and source in builtin.SETS:
        if os.path.exists(source):
            log.info("%r is the built-in set; for the file or folder of that name write './%s'", source, source)
        return builtin.SETS[source]()
    path = Path(source)
    if not path.exists():
        near = f", nor a built-in set ({', '.join(builtin.SETS)})" if path.name == os.fspath(source) else ""
        raise FileAbsentError(f"there is no such file or folder{near}")
    given = Given(path, name)
    if path.is_dir():
        return read_images(given, options)
    check_plain(path)
    return reader_for(given, options)(given, options)


def _raw_of_standard_input(options: Options) -> Raw:
    """Standard input is put into a temporary file: some formats are read twice, or from their end."""
    with tempfile.TemporaryDirectory(prefix="cartograd-") as folder:
        given = Given(Path(folder, "input"), "standard input")
        with open(given.path, "wb") as file:
            _copy(sys.stdin.buffer, file, options.max_bytes)
        return reader_for(given, options)(given, options)


def _copy(stream: Any, file: Any, max_bytes: int) -> None:
    count = 0
    while piece := stream.read(shutil.COPY_BUFSIZE):  # type: ignore[attr-defined]
        count += len(piece)
        check_total(count, max_bytes, "the input")
        file.write(piece)
