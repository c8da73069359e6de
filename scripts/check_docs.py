"""Checks that what the docs say is what the code does: defaults in docstrings, commands, versions, links."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import cartograd

ROOT = Path(__file__).resolve().parents[1]
DEFAULT = re.compile(r"^    (?:    )?([\w, ]+) : .*default=(.+)$", re.MULTILINE)


def documented_objects() -> Iterator[tuple[str, object]]:
    """Every public function and class of the package, with its full name."""
    for module_info in pkgutil.walk_packages(cartograd.__path__, "cartograd."):
        if module_info.name.startswith("cartograd.kernels.gpu.") and importlib.util.find_spec("triton") is None:
            continue  # kernels can be read only where their compiler is
        module = importlib.import_module(module_info.name)
        for name, value in vars(module).items():
            if getattr(value, "__module__", None) != module.__name__ or name.startswith("_"):
                continue
            yield f"{module.__name__}.{name}", value
            if inspect.isclass(value):
                for method, function in vars(value).items():
                    if inspect.isfunction(function) and not method.startswith("_"):
                        yield f"{module.__name__}.{name}.{method}", function


def is_same(claimed: str, default: object) -> bool:
    """Whether the text says the value: as a literal, or as it prints."""
    try:
        return bool(ast.literal_eval(claimed) == default)
    except (ValueError, SyntaxError):
        return claimed.strip('"') == str(default)


def wrong_defaults(name: str, value: object) -> Iterator[str]:
    """Parameters whose documented default is not the signature's, or that do not exist."""
    try:
        parameters = inspect.signature(value).parameters  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return
    for names, text in DEFAULT.findall(getattr(value, "__doc__", None) or ""):
        parts = [part.strip() for part in names.split(",")]
        texts = text.strip().split(" and ") if len(parts) > 1 else [text.strip()]
        for position, parameter in enumerate(parts):
            claimed = texts[min(position, len(texts) - 1)].strip()
            if parameter not in parameters:
                yield f"{name} documents {parameter}, which it does not take"
            elif not is_same(claimed, parameters[parameter].default):
                yield f"{name}: {parameter} is documented as {claimed}, the default is {parameters[parameter].default}"


def wrong_commands() -> Iterator[str]:
    """`make` targets named in the docs that the Makefile does not have."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"`?make ([a-z]+)`", page.read_text()):
            if target not in targets:
                yield f"{page.name} speaks of `make {target}`, which the Makefile does not have"


def broken_links() -> Iterator[str]:
    """Relative links to files that are not there."""
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            if not (page.parent / target).exists():
                yield f"{page.relative_to(ROOT)} links to {target}, which does not exist"


def main() -> int:
    """Print every problem; return how many there are."""
    found = [problem for name, value in documented_objects() for problem in wrong_defaults(name, value)]
    found += [*wrong_commands(), *broken_links()]
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    if version is None or version.group(1).split(".dev")[0] not in (ROOT / "CHANGELOG.md").read_text():
        found.append("CHANGELOG.md does not speak of the version in pyproject.toml")
    print("\n".join(found) or "docs: defaults, commands and links are as the code has them")
    return len(found)


if __name__ == "__main__":
    sys.exit(bool(main()))
