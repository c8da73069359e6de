"""docs/api.md is what scripts/make_api.py makes of the docstrings now, and leaves nothing out."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import cartograd

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def make_api():
    spec = importlib.util.spec_from_file_location("make_api", ROOT / "scripts" / "make_api.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def headings(text):
    """The links that GitHub makes of the headings, repeated ones numbered."""
    found, seen = set(), {}
    for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")
        found.add(plain if plain not in seen else f"{plain}-{seen[plain]}")
        seen[plain] = seen.get(plain, 0) + 1
    return found


def test_the_page_is_up_to_date(make_api):
    written, now = make_api.PAGE.read_text(encoding="utf-8"), make_api.page()
    different = [new for old, new in zip(written.splitlines(), now.splitlines()) if old != new]
    assert written == now, f"run python scripts/make_api.py; the first line that changed: {different[:1]}"


def test_every_public_name_has_an_entry(make_api):
    page = make_api.page()
    names = [name for name in dir(cartograd) if not name.startswith("_") and name not in ("Any", "TYPE_CHECKING")]
    things = [name for name in names if not isinstance(getattr(cartograd, name), ModuleType)]
    missing = [name for name in things if not re.search(rf"^### cartograd\.(errors\.)?{name}$", page, re.MULTILINE)]
    assert missing == []


def test_a_changed_docstring_makes_it_stale(make_api, monkeypatch):
    before = make_api.page()
    monkeypatch.setattr(cartograd.UMAP, "__doc__", "Something else.")
    assert make_api.page() != before


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_links_to_headings_lead_somewhere(page):
    for place, heading in re.findall(r"\]\(([\w.-]*)#([\w-]+)\)", page.read_text(encoding="utf-8")):
        target = page if place == "" else page.parent / place
        assert heading in headings(target.read_text(encoding="utf-8")), f"{page.name} links to {place}#{heading}"


def test_a_formula_and_a_name_become_markdown(make_api):
    said = make_api.markdown("With :math:`x^2` of `UMAP`, ``code``:\n\n.. math:: a\n    + b\n", {"cartograd.UMAP": "u"})
    assert said == "With $`x^2`$ of [`UMAP`](#u), `code`:\n\n```math\na\n+ b\n```"
