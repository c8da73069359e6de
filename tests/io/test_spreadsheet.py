"""No text that we write begins a formula in a spreadsheet, whatever the spreadsheet takes for delimiter and quote."""

import csv
import io
import itertools
import re

import numpy
import pytest

from cartograd.io import read, write_table
from cartograd.io.cells import is_number
from cartograd.io.spreadsheet import harmless

SIGNS = ["=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20"]
BEFORE = ["", " ", "a;", "a; ", "a,", "a\t", "a|", "a\n", "a\r\n"]
BEFORE += ["\u00a0", "\ufeff", '"', 'a";', "\0", "a\u2028"]
LINES = re.compile("[\r\n\x0b\x0c\x85\u2028\u2029]+")


def formulas(text, delimiter):
    """The cells of a text that a spreadsheet would compute, if it parts them so."""
    cells = [cell for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) for cell in row]
    cells += [cell for line in LINES.split(text) for cell in line.split(delimiter)]  # one that knows no quotes
    starts = [line.lstrip(' \t"\0\u00a0\ufeff') for cell in cells for line in LINES.split(cell)]
    return [start for start in starts if start.startswith(tuple(SIGNS)) and not is_number(start)]


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_no_cell_and_no_name_is_a_formula(tmp_path, suffix):
    texts = [f"{before}{sign}1+cmd|'x'!A1" for before, sign in itertools.product(BEFORE, SIGNS)]
    path = tmp_path / f"a.{suffix}"
    write_table(path, {"x": numpy.arange(len(texts)), "t": texts} | dict.fromkeys(texts, texts))
    text = path.read_bytes().decode()
    for delimiter in ",;\t|":
        assert formulas(text, delimiter) == []


def test_a_cell_that_begins_with_a_break_has_one_apostrophe_before_it():
    for text in ("\t=1", "\r=1", "\n =1", "\t", "\t-1.5", "\ra=b"):
        assert harmless(text) == f"'{text}"
    assert harmless("\t=1;=2") == "'\t=1;'=2"


def test_numbers_and_plain_text_stay():
    for text in ["-1.5", "+3", "1e-5", "1;-2.5", "a-b", "a = b", "x@y.z", "3 + 4", "", "-inf", "1,5"]:
        assert harmless(text) == text


def test_tables_that_are_written_are_read_again(tmp_path):
    texts = ["a;=1", "=1;2", "\t=x", "a\n@b"]
    for suffix in ("csv", "tsv"):
        write_table(tmp_path / f"a.{suffix}", {"x": numpy.arange(4.0), "t": texts})
        table = read(tmp_path / f"a.{suffix}")
        assert table.columns["t"].tolist() == [harmless(text) for text in texts]
