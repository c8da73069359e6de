"""Data sets to try things on, which come with scikit-learn: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from cartograd.io.raw import Raw


def digits() -> Raw:
    """1,797 handwritten digits of 8 x 8 pixels, with pictures."""
    from sklearn.datasets import load_digits

    found = load_digits()
    pictures = numpy.round(found.images * (255 / 16)).astype(numpy.uint8)
    parts = {"pixels": list(found.feature_names)}
    columns = {"pixels": found.data.astype(numpy.float32), "digit": found.target.astype(numpy.int64)}
    return Raw(columns, parts=parts, features=["pixels"], label="digit", thumbnails=pictures)


def iris() -> Raw:
    """150 flowers of three species, four lengths each."""
    from sklearn.datasets import load_iris

    return _measured(load_iris(), "species")


def wine() -> Raw:
    """178 wines of three cultivars, thirteen measurements each."""
    from sklearn.datasets import load_wine

    return _measured(load_wine(), "cultivar")


def _measured(found: Any, label: str) -> Raw:
    columns = dict(zip(found.feature_names, found.data.T, strict=True))
    columns[label] = found.target_names.astype(object)[found.target]
    return Raw(columns, features=list(found.feature_names), label=label)


SETS: dict[str, Callable[[], Raw]] = {"digits": digits, "iris": iris, "wine": wine}
