"""How files reach into one another: uses of private names, and rings of imports."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import torch

from house.source import SOURCE, files, tree

BY_NAME = {"getattr", "setattr", "hasattr", "delattr"}
NAMED_TUPLE = {"_replace", "_asdict", "_fields", "_make", "_field_defaults"}
OUTSIDE = {"torch", "numpy"}
"""Packages whose modules may be asked for private names."""


def is_private(name: str) -> bool:
    """Return whether a name begins with one underscore."""
    return name.startswith("_") and not name.startswith("__") and len(name) > 1


def defined_names(path: Path) -> set[str]:
    """Return the private names that a file defines: functions, classes, variables, attributes."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and is_private(node.value):
            found.add(node.value)  # `__slots__`, and names of buffers
    return {name for name in found if is_private(name)}


def private_uses() -> list[tuple[Path, str]]:
    """Return each use of another file's private name: the file, and a line that shows the use."""
    by_file = {path: defined_names(path) for path in files()}
    homes: dict[str, set[Path]] = defaultdict(set)
    for path, names in by_file.items():
        for name in names:
            homes[name].add(path)
    excused = NAMED_TUPLE | {name for name in dir(torch.Tensor) if is_private(name)}
    found = []
    for path in files():
        for line, name, text in _uses(tree(path)):
            if name in homes and path not in homes[name] and name not in excused:
                found.append((path, f"{path.relative_to(SOURCE)}:{line} {text}"))
    return found


def _uses(module: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield line, name and text of `x._name` and of `getattr(x, "_name")`, x not being the object itself."""
    outside = _outside_modules(module)
    inside_class = {id(node) for one in ast.walk(module) if isinstance(one, ast.ClassDef) for node in ast.walk(one)}
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute):
            target, name = node.value, node.attr
        elif isinstance(node, ast.Call) and _by_name(node):
            target, name = node.args[0], node.args[1].value  # type: ignore[attr-defined]
        else:
            continue
        own = isinstance(target, ast.Name) and target.id in ("self", "cls") and id(node) in inside_class
        if is_private(name) and not own and not _is_super(target) and _root(target) not in outside:
            yield node.lineno, name, ast.unparse(node)


def _by_name(node: ast.Call) -> bool:
    known = isinstance(node.func, ast.Name) and node.func.id in BY_NAME and len(node.args) > 1
    return known and isinstance(node.args[1], ast.Constant) and isinstance(node.args[1].value, str)


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _outside_modules(module: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found |= {
                (alias.asname or alias.name).partition(".")[0]
                for alias in node.names
                if alias.name.partition(".")[0] in OUTSIDE
            }
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in OUTSIDE:
            found |= {alias.asname or alias.name for alias in node.names}
    return found


def import_edges() -> dict[Path, set[Path]]:
    """Return which files each file imports, inside functions, too, but not for type checkers alone."""
    return {path: set(_targets(path)) - {path} for path in files()}


def _targets(path: Path) -> Iterator[Path]:
    for node in _run_time_nodes(tree(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(path, node)
            for alias in node.names:
                yield from _module(f"{base}.{alias.name}") or _module(base)
        elif isinstance(node, ast.Call) and _is_import_module(node):
            yield from _module(node.args[0].value)  # type: ignore[attr-defined]


def _run_time_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from (one for part in child.orelse for one in [part, *_run_time_nodes(part)])
            continue
        yield child
        yield from _run_time_nodes(child)


def _is_import_module(node: ast.Call) -> bool:
    called = ast.unparse(node.func).rpartition(".")[2] == "import_module" and bool(node.args)
    return called and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)


def _absolute(path: Path, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = path.relative_to(SOURCE.parent).parts[: -node.level]
    return ".".join([*package, *filter(None, [node.module])])


def _module(name: str) -> list[Path]:
    """Return the file of a module of ours, in a list; an empty list for any other name."""
    parts = name.split(".")
    if parts[0] != "cartograd":
        return []
    base = SOURCE.parent.joinpath(*parts)
    return [one for one in (base.with_suffix(".py"), base / "__init__.py") if one.exists()][:1]


def rings(edges: dict[Path, set[Path]]) -> list[set[Path]]:
    """Return the sets of files that import one another in a ring, the largest first (Tarjan, 1972)."""
    order: dict[Path, int] = {}
    low: dict[Path, int] = {}
    stack: list[Path] = []
    found: list[set[Path]] = []

    def visit(node: Path) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for target in sorted(edges.get(node, ())):
            if target not in order:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], order[target])
        if low[node] == order[node]:
            ring = set(stack[stack.index(node) :])
            del stack[stack.index(node) :]
            if len(ring) > 1:
                found.append(ring)

    for node in sorted(edges):
        if node not in order:
            visit(node)
    return sorted(found, key=len, reverse=True)
