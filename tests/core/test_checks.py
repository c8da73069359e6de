"""Constraints: what is refused, and how a value is shown."""

import numpy
import pytest
import torch

from cartograd.core.checks import (
    FLAG,
    OneOf,
    Real,
    Whole,
    check_path,
    choice,
    count,
    number,
    optional,
    shorten,
    show,
)  # fmt: skip
from cartograd.errors import OptionError, UnsupportedError


class Awkward:
    def __repr__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "None"),
        (0.5, "0.5"),
        (10**400, "a whole number of many digits"),
        ("a\nb", r"'a\nb'"),
        ("x" * 500, "'" + "x" * 76 + "..."),
        (numpy.zeros((2, 3)), "an array of shape (2, 3) (ndarray)"),
        (torch.zeros(4), "an array of shape (4,) (Tensor)"),
        ([1, 2], "a list of 2"),
        (dict, "the class dict"),
        (Awkward(), "a Awkward"),
    ],
)
def test_a_value_is_shown_in_one_short_line(value, shown):
    assert show(value) == shown


def test_shorten():
    assert shorten("two\n  lines") == "two lines"
    assert len(shorten("word " * 100)) == 80


@pytest.mark.parametrize("value", [3, 3.0, numpy.float32(3), numpy.int64(3)])
def test_numbers(value):
    assert number(value, "x", 0.0, high=4.0) == 3.0


@pytest.mark.parametrize("value", ["3", None, True, 1j, [3], Awkward()])
def test_what_is_no_number(value):
    with pytest.raises(UnsupportedError, match="x must be a number, got"):
        number(value, "x")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 5.0, 10**400])
def test_numbers_out_of_range(value):
    with pytest.raises(OptionError, match="x must be at least 0 and at most 4 and finite, got"):
        number(value, "x", 0.0, high=4.0)


def test_whole_numbers():
    assert [count(one, "k") for one in (1, numpy.int32(4), numpy.array(3), torch.tensor(2))] == [1, 4, 3, 2]
    for wrong in (1.0, "1", True, None):
        with pytest.raises(UnsupportedError, match="k must be a whole number"):
            count(wrong, "k")
    with pytest.raises(OptionError, match="k must be at least 2 and at most 5, got 9"):
        count(9, "k", 2, 5)


def test_choices_are_of_the_same_type():
    choice("a", "word", ("a", "b"))
    for wrong in ("c", 1, True, numpy.array(["a"])):
        with pytest.raises(OptionError, match="word must be one of 'a', 'b', got"):
            choice(wrong, "word", ("a", "b"))
    with pytest.raises(OptionError):
        FLAG.check(1, "flag")


def test_words_besides():
    either = optional(Whole(2))
    either.check(None, "k")
    either.check(2, "k")
    with pytest.raises(OptionError, match="k must be at least 2, got 1; also allowed: None"):
        either.check(1, "k")
    with pytest.raises(OptionError, match="must be one of"):
        OneOf("a").check("b", "word")
    with pytest.raises(OptionError, match="x must be above 0 and finite"):
        Real(0.0, strict=True).check(0.0, "x")


@pytest.mark.parametrize(
    ("path", "error"), [(b"x", UnsupportedError), (3, UnsupportedError), ("", OptionError), ("a\0", OptionError)]
)
def test_paths(path, error):
    with pytest.raises(error, match=r"folder must be (the path|a path)"):
        check_path(path, "folder")
