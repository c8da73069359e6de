"""Writes docs/api.md from the docstrings of the public names: ``python scripts/make_api.py``.

``python scripts/make_api.py --check`` says whether the page is up to date, and writes nothing.
"""

from __future__ import annotations

import ast
import builtins
import doctest
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cartograd

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api.md"
SECTIONS = "Parameters Attributes Returns Raises Yields Notes References Examples".split()
TITLE = "# The public names\n\nMade from the docstrings by `python scripts/make_api.py`; the examples run in the tests."
MAPS = "UMAP TSNE InfoTSNE LargeVis PACMAP SNE TSNEkhorn COSNE PCA IncrementalPCA ExactIncrementalPCA KernelPCA PHATE"
BASES = "AffinityMatcher NeighborEmbedding NegativeSamplingNeighborEmbedding EncoderTraining"
PARTS = ("neighbors", "affinity", "viewer", "io", "nn", "embedding.estimator", "embedding.parametric")
"""Where a name that a docstring speaks of is looked for, before the package itself."""
NOT_ENGINE = "knn double_ssd CartogradError errors ops TYPE_CHECKING Any"

Entry = tuple[str, Any]
"""The full name of a public thing, and the thing."""


def chapters() -> Iterator[tuple[str, str, list[Entry]]]:
    """Headings, a line on each chapter, and what is in it."""
    yield "Maps", "Estimators; [methods](methods.md) compares them.", of(cartograd, MAPS.split())
    bases = module("embedding.estimator", "Estimator") + of(cartograd, BASES.split())
    yield (
        "To build upon",
        "Classes that maps of your own derive from.",
        bases + module("embedding.parametric", "Parametric"),
    )
    looks = of(cartograd, ["plot", "view"]) + module("viewer", "page_html write_page serve PageServer View")
    yield "Looking and scoring", "See [the viewer](viewer.md).", looks + module("metrics")
    files = [
        *of(cartograd, ["load"]),
        *module("io", "read Table write_table save_model register open_atomic replacing"),
    ]
    yield "Files", "See [files](files.md).", files
    yield "AnnData", "See [the start](start.md#with-anndata).", module("tl", "umap tsne pacmap")
    yield "Neighbours", "See [knn](knn.md).", [*of(cartograd, ["knn"]), *module("neighbors")]
    yield "Affinities", "Also as `cartograd.UMAPAffinity` and so on.", module("affinity")
    taken = {*MAPS.split(), *BASES.split(), *NOT_ENGINE.split(), "plot", "view", "load"}
    names = [name for name in dir(cartograd) if not name.startswith("_") and name not in taken]
    engine = [name for name in names if not isinstance(getattr(cartograd, name), ModuleType)]
    yield "The engine", "See [the engine](engine.md) and [memory](memory.md).", of(cartograd, engine)
    yield "Modules", "See [Mamba-3](mamba3.md).", [*of(cartograd, ["double_ssd"]), *module("nn")]
    yield "Errors", "All derive from `CartogradError` and from the built-in that a caller would catch.", errors()


def of(place: ModuleType, names: list[str]) -> list[Entry]:
    """These names of a module, those that are there."""
    return [(f"{place.__name__}.{name}", getattr(place, name)) for name in names if hasattr(place, name)]


def module(name: str, names: str = "") -> list[Entry]:
    """What a part of the package shows: the names given, or all that are in its ``__init__``."""
    part = importlib.import_module(f"cartograd.{name}")
    shown = names.split() or [one for one in vars(part) if not one.startswith("_") and is_ours(getattr(part, one))]
    return of(part, shown)


def errors() -> list[Entry]:
    """Every error class, the root first."""
    classes = {name: one for name, one in vars(cartograd.errors).items() if inspect.isclass(one)}
    return [(f"cartograd.errors.{name}", one) for name, one in classes.items()]


def is_ours(value: Any) -> bool:
    """Whether something is a class or function of cartograd's."""
    return callable(value) and str(getattr(value, "__module__", "")).startswith("cartograd")


def anchors(entries: list[str]) -> dict[str, str]:
    """The link to each full name, as GitHub makes it: without dots, in small letters, repeated ones numbered."""
    found: dict[str, str] = {}
    seen: dict[str, int] = {}
    for name in entries:
        plain = re.sub(r"[^\w-]", "", name).lower()
        found[name] = plain if plain not in seen else f"{plain}-{seen[plain]}"
        seen[plain] = seen.get(plain, 0) + 1
    return found


def signature(value: Any) -> str:
    """Parameters and their defaults, without types."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return ""
    parts, keyword_only = [], False
    for one in parameters:
        if one.kind is one.VAR_POSITIONAL:
            keyword_only = True
        elif one.kind is one.KEYWORD_ONLY and not keyword_only:
            parts.append("*")
            keyword_only = True
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        default = "" if one.default is one.empty else f"={shown_default(one.default)}"
        parts.append(f"{stars}{one.name}{default}")
    return f"({', '.join(parts)})"


def wrapped(line: str) -> str:
    """A signature over several lines where it is long."""
    return "\n".join(textwrap.wrap(line, 112, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False))


def shown_default(value: Any) -> str:
    """A default as it would be written; objects without a short form as dots."""
    return repr(value) if isinstance(value, (str, int, float, bool, tuple, type(None))) else "..."


def split(text: str) -> dict[str, str]:
    """A numpydoc docstring by its sections; the text before them is under the empty name."""
    pattern = rf"^({'|'.join(SECTIONS)})\n-+\n"
    pieces = re.split(pattern, text, flags=re.MULTILINE)
    return {
        "": pieces[0].strip(),
        **{name: body.strip("\n") for name, body in zip(pieces[1::2], pieces[2::2], strict=True)},
    }


def markdown(text: str, links: dict[str, str]) -> str:
    """Prose of a docstring in Markdown: formulas, code and names that have an entry."""
    text = re.sub(r"^ *\.\. math:: *((?:.|\n)*?)(?=\n\s*\n|\Z)", formula, text, flags=re.MULTILINE)
    text = re.sub(r":math:`([^`]+)`", lambda found: f"$`{' '.join(found[1].split())}`$", text)
    parts = re.split(r"(```math\n.*?\n```|\$`[^`]*`\$|``[^`]+``)", text, flags=re.DOTALL)
    for place, part in enumerate(parts):
        if part.startswith("``") and not part.startswith("```"):
            parts[place] = part[1:-1]
        elif place % 2 == 0:
            parts[place] = re.sub(r"`([\w.]+)`", lambda found: linked(found[1], links), part)
    return "".join(parts)


def formula(found: re.Match[str]) -> str:
    """A displayed formula as GitHub shows one."""
    lines = "\n".join(line.strip() for line in found[1].strip().splitlines())
    return f"```math\n{lines}\n```"


def linked(name: str, links: dict[str, str]) -> str:
    """A name as code, with a link where it has an entry."""
    places = ("", *(f"cartograd.{part}." for part in PARTS), "cartograd.")
    found = next((links[place + name] for place in places if place + name in links), None)
    return f"`{name}`" if found is None else f"[`{name}`](#{found})"


def listed(body: str, links: dict[str, str]) -> str:
    """Parameters, attributes or results as a list."""
    entries: list[list[str]] = []
    for line in body.splitlines():
        if line and not line.startswith(" "):
            entries.append([line])
        elif line.strip() and entries:
            entries[-1].append(line.strip())
    lines = []
    for head, *rest in entries:
        names, colon, kind = head.partition(" : ")
        marked = ", ".join(f"`{name}`" for name in names.split(", "))
        said = markdown(" ".join(rest), links)
        lines.append(f"- {marked}{f' *({escaped(kind)})*' if colon else ''}{f': {said}' if said else ''}")
    return "\n".join(lines)


def escaped(kind: str) -> str:
    """The type of a parameter as plain text, in which stars and backquotes would be markup."""
    return kind.replace("``", "").replace("`", "").replace("*", r"\*")


def example(name: str, value: Any, body: str) -> str:
    """The example of a docstring, with the imports that its module has and a reader has not."""
    code = "\n".join(one.source for one in doctest.DocTestParser().get_examples(body))
    known = vars(importlib.import_module(value.__module__)) if hasattr(value, "__module__") else {}
    loaded, own = used_names(code)
    lines = [imported(one, name, known) for one in sorted(loaded - own) if one in known and not hasattr(builtins, one)]
    return (
        "```python\n"
        + "\n".join(f">>> {line}" for line in sorted(filter(None, lines)))
        + f"\n{inspect.cleandoc(body)}\n\n```"
    )


def used_names(code: str) -> tuple[set[str], set[str]]:
    """The names that a piece of code reads, and those that it makes itself."""
    loaded, own = set(), set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name):
            (loaded if isinstance(node.ctx, ast.Load) else own).add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            own |= {(one.asname or one.name).partition(".")[0] for one in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            own.add(node.name)
    return loaded, own


def imported(name: str, full: str, known: dict[str, Any]) -> str:
    """The line that imports a name of a module: from where it is public if it is what the entry is about."""
    value = known[name]
    if isinstance(value, ModuleType):
        return f"import {name}" if value.__name__ == name else f"import {value.__name__} as {name}"
    if full.rpartition(".")[2] == name:
        return f"from {full.rpartition('.')[0]} import {name}"
    return f"from {getattr(value, '__module__', full.rpartition('.')[0])} import {name}"


def methods(value: Any) -> list[tuple[str, Any]]:
    """Public methods that a class itself writes down, of those that say something."""
    if not inspect.isclass(value) or issubclass(value, BaseException):
        return []
    own = [(name, one) for name, one in vars(value).items() if not name.startswith("_") and inspect.isfunction(one)]
    return [(name, one) for name, one in own if one.__doc__ and one.__module__ == value.__module__]


def entry(name: str, value: Any, links: dict[str, str]) -> str:
    """One public thing: heading, signature, what it says of itself, its methods."""
    lines = [f"### {name}", ""]
    if not str(getattr(value, "__module__", "cartograd")).startswith("cartograd"):
        return "\n".join([*lines, f"The same object as `{value.__module__.partition('.')[0]}.{value.__name__}`."])
    called = "" if inspect.isclass(value) and issubclass(value, BaseException) else signature(value)
    if called:
        lines += ["```text", wrapped(f"{name.rpartition('.')[2]}{called}"), "```", ""]
    elif inspect.isclass(value):
        bases = [base.__name__ for base in value.__bases__ if base is not cartograd.CartogradError]
        lines += [f"*{', '.join(bases)}*", ""]
    if value.__module__.startswith("cartograd.engine"):
        links = {**links, "Graph": links["cartograd.Graph"]}  # elsewhere a Graph is one of neighbours
    lines += said(name, value, inspect.cleandoc(value.__doc__ or ""), links)
    for method, one in methods(value):
        first = " ".join((inspect.getdoc(one) or "").split("\n\n")[0].split())
        called = signature(one).replace("(self, ", "(").replace("(self)", "()")
        lines.append(f"- **`.{method}{called}`** {markdown(first, links)}")
    return "\n".join(lines).rstrip()


def said(name: str, value: Any, text: str, links: dict[str, str]) -> list[str]:
    """The sections of a docstring."""
    lines: list[str] = []
    for section, body in split(text).items():
        if section == "":
            lines += [markdown(body, links), ""]
        elif section == "Examples":
            lines += [example(name, value, body), ""]
        elif section in ("Notes", "References"):
            lines += [markdown(body, links), ""]
        else:
            lines += [f"**{section}**", "", listed(body, links), ""]
    return lines


def page() -> str:
    """The whole page."""
    found = list(chapters())
    links = anchors([name for _, _, entries in found for name, _ in entries])
    contents = []
    for title, _, entries in found:
        names = ", ".join(f"[{name.rpartition('.')[2]}](#{links[name]})" for name, _ in entries)
        contents.append(f"- [{title}](#{title.lower().replace(' ', '-')}): {names}")
    parts = [TITLE, "\n".join(contents)]
    for title, line, entries in found:
        parts += [f"## {title}", line, *(entry(name, value, links) for name, value in entries)]
    return "\n\n".join(parts) + "\n"


def main(arguments: list[str]) -> int:
    """Write the page, or compare it; 1 where it is out of date."""
    text = page()
    if "--check" not in arguments:
        PAGE.write_text(text, encoding="utf-8")
        print(f"docs/api.md: {text.count(chr(10))} lines, {text.count('### cartograd')} names")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    print("docs/api.md is out of date: run python scripts/make_api.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
