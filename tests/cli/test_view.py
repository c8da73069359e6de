import json
import urllib.request

import numpy
import pytest

from cartograd.viewer import PageServer


@pytest.fixture
def shown(monkeypatch):
    """What the server serves, and which addresses were opened."""
    seen = {"pages": [], "opened": []}

    def wait(server):
        with urllib.request.urlopen(server.url) as answer:
            seen["pages"].append(answer.read().decode())

    monkeypatch.setattr(PageServer, "wait", wait)
    monkeypatch.setattr("webbrowser.open", lambda url: seen["opened"].append(url) or True)
    return seen


def header(page):
    """The JSON header of a page."""
    _, _, rest = page.partition('<script type="application/json"')
    return json.loads(rest.partition(">")[2].partition("</script>")[0])


def test_a_page(run, made, here, shown):
    result = run("view", "out.html")
    assert shown["pages"] == [(here / "out.html").read_text()]
    assert len(shown["opened"]) == 1
    assert shown["opened"][0].startswith("file:///")  # which leads to the address
    assert result.stdout.startswith("http://127.0.0.1:")


def test_a_table(run, made, shown):
    run("view", "out.parquet", "--color", "b", "--no-browser", "--title", "mine")
    told = header(shown["pages"][0])
    assert told["count"] == 60
    assert told["title"] == "mine"
    names = [column["name"] for column in told["columns"]]
    assert names == ["input_x", "b", "c", "d", "kind", "note"]
    assert names[told["color"]] == "b"
    assert shown["opened"] == []


def test_a_model_and_an_array(run, made, here, shown):
    run("view", "out.cartograd")
    numpy.save(here / "z.npy", numpy.eye(3))
    run("view", "z.npy")
    assert [header(page)["count"] for page in shown["pages"]] == [60, 3]
    assert [header(page)["dimensions"] for page in shown["pages"]] == [2, 3]


def test_json(run_json, made, shown):
    told = run_json("view", "out.html", "--no-browser")
    assert told["url"].startswith(f"http://127.0.0.1:{told['port']}/")


def test_no_browser_to_open(run, made, shown, monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda url: False)
    assert "Note: no browser could be opened" in run("view", "out.html").stderr


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (["nosuch.html"], 1, "nosuch.html: there is no such file"),
        (["out.html", "--color", "b"], 2, "out.html is a page already"),
        (["out.parquet", "--color", "nosuch"], 2, "'nosuch' is not a column of data"),
        (["a.csv", "--port", "70000"], 2, "70000"),
    ],
)
def test_what_is_refused(run, made, shown, arguments, status, expected):
    assert expected in run("view", *arguments, status=status).stderr
    assert shown["pages"] == []
