"""Which reader a file is for: by its name, and for other names by how it begins."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import IO

from cartograd.errors import DataFileError
from cartograd.io import arrays, arrow_files, delimited, h5ad, jsonl
from cartograd.io.archives import OLE, SPREADSHEET, is_zip, member_names, text_suffix
from cartograd.io.raw import Given, Options, Raw
from cartograd.io.textfile import GZIP, beginning

Reader = Callable[[Given, Options], Raw]

BY_SUFFIX: dict[str, Reader] = {
    ".csv": partial(delimited.read_delimited, preferred=None),
    ".tsv": partial(delimited.read_delimited, preferred="\t"),
    ".tab": partial(delimited.read_delimited, preferred="\t"),
    ".jsonl": jsonl.read_jsonl,
    ".ndjson": jsonl.read_jsonl,
    ".json": jsonl.read_json,
    ".parquet": arrow_files.read_parquet,
    ".arrow": arrow_files.read_arrow,
    ".feather": arrow_files.read_arrow,
    ".npy": arrays.read_npy,
    ".npz": arrays.read_npz,
    ".h5ad": h5ad.read_h5ad,
}
BY_BEGINNING: dict[bytes, Reader] = {
    b"PAR1": arrow_files.read_parquet,
    b"ARROW1": arrow_files.read_arrow,
    b"\x93NUMPY": arrays.read_npy,
    b"\x89HDF\r\n\x1a\n": h5ad.read_h5ad,
}
PICKLES = frozenset([".pkl", ".pickle", ".joblib", ".pt", ".pth"])


def reader_for(given: Given, options: Options) -> Reader:
    """The function that reads this file."""
    suffixes = [suffix.lower() for suffix in given.path.suffixes]
    if suffixes and suffixes[-1] in PICKLES:
        raise DataFileError("pickles can run code when they are opened, and are never read; save as .npy or .parquet")
    if suffixes and suffixes[-1] in (".gz", ".zip"):
        suffixes.pop()
    if suffixes and suffixes[-1] in BY_SUFFIX:
        return BY_SUFFIX[suffixes[-1]]
    with open(given.path, "rb") as file:
        first = file.read(8)
        if is_zip(first):
            return _zip_reader(file)
    if first == OLE:
        raise DataFileError(SPREADSHEET)
    for magic, reader in BY_BEGINNING.items():
        if first.startswith(magic):
            return reader
    return _text_reader(given, options, packed=first.startswith(GZIP))


def _zip_reader(file: IO[bytes]) -> Reader:
    names = member_names(file)
    if names and all(name.endswith(".npy") for name in names):
        return arrays.read_npz
    return BY_SUFFIX.get(text_suffix(names), BY_SUFFIX[".csv"])


def _text_reader(given: Given, options: Options, packed: bool) -> Reader:
    sample = beginning(given.path, options)
    if b"\0" in sample and not sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        known = ", ".join(BY_SUFFIX)
        raise DataFileError(
            f"its kind is unknown{' (unpacked)' if packed else ''}: it is neither text nor any of {known}"
        )
    stripped = sample.lstrip(b"\xef\xbb\xbf \t\r\n")
    return jsonl.read_json if stripped.startswith((b"{", b"[")) else BY_SUFFIX[".csv"]
