"""Checks that files and functions stay small, and prints a table of sizes by room."""

from __future__ import annotations

import ast
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE_CEILING, FUNCTION_CEILING = 400, 60
# The inner loop of the backward pass is one function: a call costs too much there.
LONG_ON_PURPOSE = {"run_down": 120}


def functions(tree: ast.AST) -> list[ast.FunctionDef]:
    """Every function and method of a module."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def length(function: ast.FunctionDef) -> int:
    """Lines of a function without its docstring."""
    first = function.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    start = function.body[1].lineno if documented and len(function.body) > 1 else first.lineno
    return (function.end_lineno or start) - start + 1


def main() -> int:
    """Print the table; return the number of files and functions over the ceiling."""
    wrong, rooms = [], {}
    for path in sorted([*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py"), *ROOT.glob("benchmarks/*.py")]):
        text = path.read_text()
        lines = text.count("\n")
        inside = path.relative_to(ROOT)
        name = inside.parts[0] if inside.parts[0] != "src" else "/".join(inside.parts[1:3]).removesuffix(".py")
        rooms.setdefault(name, []).append(lines)
        if lines > FILE_CEILING:
            wrong.append(f"{inside}: {lines} lines, at most {FILE_CEILING}")
        for function in functions(ast.parse(text)):
            if length(function) > LONG_ON_PURPOSE.get(function.name, FUNCTION_CEILING):
                wrong.append(f"{inside}:{function.lineno}: {function.name} has {length(function)} lines")
    print(f"{'room':28} files  lines  median  largest")
    for name, sizes in sorted(rooms.items()):
        print(f"{name:28} {len(sizes):5} {sum(sizes):6} {statistics.median(sizes):7.0f} {max(sizes):8}")
    print("\n".join(wrong))
    return len(wrong)


if __name__ == "__main__":
    sys.exit(bool(main()))
