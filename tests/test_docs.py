"""Every code block of the docs and every docstring example runs and prints what it says."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import cartograd

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md"])
MODULES = sorted(info.name for info in pkgutil.walk_packages(cartograd.__path__, "cartograd."))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page(page):
    result = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    if name.startswith("cartograd.kernels.gpu."):
        pytest.importorskip("triton", reason="kernels for the GPU need triton")
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0
