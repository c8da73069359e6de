"""The source files, and what their sizes and folders say."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "cartograd"
TESTS = ROOT / "tests"
SMALL_FOLDER = 3
"""A folder with fewer files counts as part of its parent."""
OTHER_ISSUE = {"engine", "ops"}
"""Rooms whose private uses and cycles are printed, and not enforced."""


@lru_cache
def files() -> tuple[Path, ...]:
    """Return every source file, sorted."""
    return tuple(sorted(SOURCE.rglob("*.py")))


@lru_cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text())


def room(path: Path) -> str:
    """Return the top-level part of the package that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def lines(path: Path) -> int:
    """Return the number of lines of a file, blank ones and docstrings included."""
    return len(path.read_text().splitlines())


def folder_sizes() -> Counter[str]:
    """Return the number of files of each folder, `__init__.py` left out; small folders belong to their parents."""
    counts: Counter[Path] = Counter(path.parent for path in files() if path.name != "__init__.py")
    for folder in sorted(counts, key=lambda one: -len(one.parts)):
        if counts[folder] < SMALL_FOLDER and folder != SOURCE:
            counts[folder.parent] += counts.pop(folder)
    return Counter({str(folder.relative_to(SOURCE.parent)): count for folder, count in counts.items()})


def function_lengths() -> dict[str, int]:
    """Return the lines of each function, from `def` to its end."""
    return {
        f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path in files()
        for node in ast.walk(tree(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }


def without_own_test() -> tuple[list[str], int]:
    """Return the files `a/b.py` without a test in `tests/a/test_b.py`, and the number of files that need one."""
    needed = [path for path in files() if path.name not in ("__init__.py", "__main__.py") and room(path) != "kernels"]
    missing = [str(path.relative_to(SOURCE)) for path in needed if not _has_test(path)]
    return missing, len(needed)


def _has_test(path: Path) -> bool:
    inside = path.relative_to(SOURCE)
    test = TESTS / inside.parent / f"test_{inside.name}"
    return test.exists() and re.search(r"^\s*(async )?def test", test.read_text(), re.MULTILINE) is not None
