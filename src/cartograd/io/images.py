"""A folder of images: pixels as features, small pictures to look at, the subfolder as label."""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path
from typing import Any

import numpy

from cartograd.core.filenames import special_kind
from cartograd.errors import DataFileError
from cartograd.io.foreign import foreign
from cartograd.io.limits import check_expansion, check_total
from cartograd.io.packages import required
from cartograd.io.raw import Given, Options, Raw

log = logging.getLogger("cartograd.io")

SUFFIXES = frozenset([".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm"])
SIDE = 32
"""Images of different sizes, or larger ones than LARGEST, are resized to SIDE x SIDE."""
LARGEST = 64
ORIENTATION, QUARTER_TURNS = 0x0112, (5, 6, 7, 8)
"""The tag in which a camera says how it was held, and the values by which width and height change places."""
MOST_PIXELS = 100_000_000
FREE_IMAGE, FREE_FOLDER = 2**26, 2**28
"""Bytes that one image, and all images of a folder, may have unpacked, however small the files are."""
STRIP = 2**22
"""Pixels of more than 8 bits that are made into 8 bits at a time."""
BITS = {"1": 1, "L": 8, "P": 8, "LA": 16, "I;16": 16, "RGB": 24}
"""Bits of a pixel by mode; 32 for every other mode."""
GREY = frozenset(["1", "L", "LA", "I", "I;16", "F"])


def read_images(given: Given, options: Options) -> Raw:
    """Read every image below a folder, in the order of their names. Grey if all are grey, otherwise in colour."""
    image = required("PIL.Image", "plot", "reading images")
    paths = _paths(given.path)
    if not paths:
        raise DataFileError(f"there are no images in it (files that end in {', '.join(sorted(SUFFIXES))})")
    heads = [_head(image, path, given.path) for path in paths]
    _check_expansion(heads, [path.stat().st_size for path in paths])
    mode = "L" if all(kind in GREY for _, kind in heads) else "RGB"
    size = heads[0][0] if len({one for one, _ in heads}) == 1 else (SIDE, SIDE)
    size = size if max(size) <= LARGEST else (SIDE, SIDE)
    channels = 1 if mode == "L" else 3
    check_total(4 * len(paths) * size[0] * size[1] * channels, options.max_bytes, "the pixels")
    log.info("%s: %d images, %d x %d pixels, %s", given.name, len(paths), *size, "grey" if mode == "L" else "in colour")
    pictures = numpy.empty((len(paths), size[1], size[0], *([3] if mode == "RGB" else [])), dtype=numpy.uint8)
    for place, path in enumerate(_watched(paths, options.verbose)):
        pictures[place] = _pixels(path, given.path, mode, size)
    return _raw(given.path, paths, pictures)


def _raw(folder: Path, paths: list[Path], pictures: Any) -> Raw:
    matrix = pictures.reshape(len(paths), -1)
    names = numpy.array([_shown(path.relative_to(folder)) for path in paths], dtype=object)
    columns: dict[str, Any] = {"pixels": matrix, "file": names}
    labels = numpy.array([_shown(path.parent.relative_to(folder)) for path in paths], dtype=object)
    labelled = bool((labels != ".").any())
    if labelled:
        columns["label"] = numpy.array([None if label == "." else label for label in labels], dtype=object)
    parts = {"pixels": [f"pixel_{place}" for place in range(matrix.shape[1])]}
    label = "label" if labelled else None
    return Raw(columns, parts=parts, features=["pixels"], ids=names, label=label, thumbnails=pictures)


def _paths(folder: Path) -> list[Path]:
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        found += [Path(place, one) for one in files if Path(one).suffix.lower() in SUFFIXES and one[0] != "."]
    return sorted(found)


def _shown(path: Path) -> str:
    """A name as text that can be written anywhere, whatever bytes it is made of."""
    return os.fsencode(path.as_posix()).decode("utf-8", "replace")


def _open(path: Path) -> Any:
    """Open an image without the warning of Pillow, whose limit is a little below MOST_PIXELS."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        return Image.open(path)


def _head(image: Any, path: Path, folder: Path) -> tuple[tuple[int, int], str]:
    """Size and mode, without reading the pixels."""
    shown = _shown(path.relative_to(folder))
    with foreign(f"images: {shown}"):
        kind = special_kind(path.stat().st_mode)
    if kind is not None:
        raise DataFileError(f"{shown}: it is {kind}, not a plain file; take it out of the folder")
    with foreign(f"images: {shown}"), _open(path) as opened:
        width, height = opened.size
        if width * height > MOST_PIXELS:
            raise DataFileError(f"{path.name} has {width} x {height} pixels, more than {MOST_PIXELS:,}")
        tags = image.Image.getexif(opened)  # that of a PNG file would unpack its pixels
        turned = tags.get(ORIENTATION) in QUARTER_TURNS
        return (height, width) if turned else (width, height), opened.mode


def _check_expansion(heads: list[tuple[tuple[int, int], str]], sizes: list[int]) -> None:
    """Refuse images whose pixels take far more than their files: each, and all together."""
    unpacked = [width * height * BITS.get(mode, 32) // 8 for (width, height), mode in heads]
    for one, size in zip(unpacked, sizes, strict=True):
        if one > FREE_IMAGE:
            check_expansion(one, size, "an image in it")
    if sum(unpacked) > FREE_FOLDER:
        check_expansion(sum(unpacked), sum(sizes), "its images")


def _pixels(path: Path, folder: Path, mode: str, size: tuple[int, int]) -> Any:
    from PIL import Image, ImageOps

    with foreign(f"images: {_shown(path.relative_to(folder))}"), _open(path) as opened:
        ImageOps.exif_transpose(opened, in_place=True)
        if opened.mode.startswith(("I", "F")):
            opened = _eight_bits(Image, opened)
        turned = opened if opened.mode == mode else opened.convert(mode)
        return numpy.asarray(turned if turned.size == size else turned.resize(size, Image.Resampling.BOX))


def _eight_bits(image: Any, opened: Any) -> Any:
    """Grey of more than 8 bits, its largest value white: converting it directly would cut everything above 255."""
    width, height = opened.size
    rows = max(1, STRIP // width)
    strips = [(0, top, width, min(top + rows, height)) for top in range(0, height, rows)]
    largest = max(float(_values(opened, strip).max()) for strip in strips)
    white = 255.0 if largest <= 255 else 65535.0 if largest <= 65535 else largest
    result = image.new("L", opened.size)
    for strip in strips:
        gray = (_values(opened, strip).clip(min=0) * (255.0 / white)).astype(numpy.uint8)
        result.paste(image.fromarray(gray), strip)
    return result


def _values(opened: Any, strip: tuple[int, int, int, int]) -> Any:
    """Return some rows as float64; values that are no numbers, or infinite, are 0."""
    values = numpy.asarray(opened.crop(strip), dtype=numpy.float64)
    return numpy.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


def _watched(paths: list[Path], verbose: bool) -> Any:
    if not verbose:
        return paths
    from tqdm.auto import tqdm

    return tqdm(paths, desc="read images", leave=False)
