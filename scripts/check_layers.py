"""Checks who imports whom: calls go downward only, and the engine imports nothing of ours but the errors."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "cartograd"

# room -> the rooms it may import from (every room may import itself, `core` and `errors`)
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "core": set(),
    "kernels": set(),
    "engine": set(),
    "ops": {"engine", "kernels"},
    "nn": {"engine", "ops", "kernels"},
    "neighbors": {"engine", "ops", "kernels"},
    "affinity": {"engine", "ops", "kernels", "neighbors"},
    "metrics": {"engine", "ops", "kernels", "neighbors"},
    "distributed": {"engine", "ops", "kernels", "neighbors", "affinity"},
    "embedding": {"engine", "ops", "kernels", "neighbors", "affinity", "metrics", "nn", "distributed"},
}
ALLOWED["io"] = ALLOWED["embedding"] | {"embedding"}
ALLOWED["tl"] = ALLOWED["io"] | {"io"}
ALLOWED["viewer"] = ALLOWED["io"] | {"io"}
ALLOWED["cli"] = ALLOWED["viewer"] | {"viewer"}
ALLOWED["__main__"] = {"cli"}


def room(path: Path) -> str:
    """The top-level part of the package a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> list[tuple[int, str]]:
    """(line, room) of every import of our own package, also inside functions."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            found.append((node.lineno, "a relative import"))
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "cartograd":
                names = [f"cartograd.{alias.name}" for alias in node.names]
        for name in names:
            if name.split(".")[0] == "cartograd":
                found.append((node.lineno, name.split(".")[1] if "." in name else "the whole package"))
    return found


def problems() -> list[str]:
    """One line for each import that points upward."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        here = room(path)
        if here == "__init__":
            continue
        for line, target in imported_rooms(path):
            if target not in {here, "core", "errors"} | ALLOWED.get(here, set()):
                found.append(f"{path.relative_to(SOURCE.parent)}:{line}: {here} must not import {target}")
    return found


if __name__ == "__main__":
    wrong = problems()
    print("\n".join(wrong) or "layers: every import points downward")
    sys.exit(bool(wrong))
