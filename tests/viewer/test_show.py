"""`view`: served outside a notebook, displayed inside one."""

import html
import sys
import types
import urllib.request
import webbrowser
from pathlib import Path

import numpy as np
import pytest
from reading import Elements

from cartograd.errors import OptionError
from cartograd.viewer import page_html, view

Z = np.random.default_rng(0).normal(size=(20, 2))


def leads_to(url):
    """The address that the file leads to which the browser was started with."""
    assert url.startswith("file:///")
    (attributes,) = (
        found
        for found, _ in Elements(Path(urllib.request.url2pathname(url[7:])).read_text()).named("meta")
        if found.get("http-equiv") == "refresh"
    )
    return attributes["content"].removeprefix("0; url=")


@pytest.fixture
def opened(monkeypatch):
    seen = []
    monkeypatch.setattr(webbrowser, "open", lambda url: seen.append(leads_to(url)) or True)
    return seen


@pytest.fixture
def notebook(monkeypatch):
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))


def test_outside_a_notebook_it_is_served_and_opened(opened):
    shown = view(Z, {"a": list("ab") * 10}, "a", title="T")
    try:
        assert opened == [shown.url]
        served = urllib.request.urlopen(shown.url, timeout=10).read().decode()
        assert served == page_html(Z, data={"a": list("ab") * 10}, color="a", title="T")
        assert repr(shown) == f"<map at {shown.url}>"
    finally:
        shown.close()
    assert shown.url is None


def test_in_a_notebook_nothing_is_served(opened, notebook):
    shown = view(Z, height=400)
    assert opened == []
    assert shown.url is None
    (attributes, _) = Elements(shown._repr_html_()).named("iframe")[0]
    assert attributes["srcdoc"] == page_html(Z)
    assert attributes["sandbox"] == "allow-scripts allow-downloads"
    assert attributes["height"] == "400"


def test_in_a_terminals_ipython_it_is_served(opened, monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace()))
    shown = view(Z)
    assert opened == [shown.url]
    shown.close()


def test_without_a_browser_it_says_where_the_page_is(monkeypatch, capsys):
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    shown = view(Z)
    assert shown.url in capsys.readouterr().err
    shown.close()


def test_save_writes_the_same_page(tmp_path):
    shown = view(Z, open_browser=False)
    shown.close()
    assert shown.save(tmp_path / "map.html").read_text() == page_html(Z)
    assert html.unescape(shown._repr_html_()).count("<!doctype html>") == 1


def test_bad_height():
    with pytest.raises(OptionError, match="height must be from 50"):
        view(Z, height=0)
