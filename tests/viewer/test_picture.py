"""The matplotlib picture shows every point in the colour of its label."""

import builtins
import sys
from xml.etree import ElementTree

import numpy as np
import pandas
import pytest

from cartograd.errors import InputError, MissingExtraError, OptionError
from cartograd.viewer.colors import MISSING, PALETTE
from cartograd.viewer.picture import plot

matplotlib = pytest.importorskip("matplotlib", reason="the picture needs the extra [plot]")
matplotlib.use("agg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.colors import to_hex  # noqa: E402


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


def drawn(axes):
    """(place, colour) of every point."""
    found = {}
    for collection in axes.collections:
        offsets, colors = np.asarray(collection.get_offsets()), collection.get_facecolors()
        for at, place in enumerate(offsets):
            found[tuple(np.round(place, 6))] = to_hex(colors[at % len(colors)])
    return found


def places(n, d=2, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)).round(3)


def test_categories():
    Z = places(60)
    labels = ["abc"[i % 3] for i in range(60)]
    axes = plot(Z, labels, title="T")
    colors = drawn(axes)
    assert len(colors) == 60
    assert all(colors[tuple(Z[i])] == PALETTE["abc".index(labels[i])] for i in range(60))
    legend = axes.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "c"]
    assert axes.get_title(loc="left") == "T"


@pytest.mark.parametrize("labels", [[0, 1, -1, 0], [0, 1, None, 0], [0.0, 1.0, np.nan, 0.0], ["a", "b", None, "a"]])
def test_unlabelled_are_grey_and_take_no_colour(labels):
    Z = places(4)
    axes = plot(Z, labels)
    colors = drawn(axes)
    assert [colors[tuple(z)] for z in Z] == [PALETTE[0], PALETTE[1], MISSING, PALETTE[0]]
    assert axes.get_legend().get_texts()[-1].get_text() == "unlabelled"


def test_numbers_get_a_scale():
    Z = places(50)
    values = np.linspace(-2.5, 7, 50)
    values[3] = np.nan
    axes = plot(Z, values)
    scaled = axes.collections[-1]
    np.testing.assert_allclose(scaled.get_array(), np.delete(values, 3))
    assert len(axes.figure.axes) == 2
    assert plot(Z, values, legend=False).figure.axes[1:] == []


def test_no_labels_and_one_and_three_dimensions():
    assert len(drawn(plot(places(10)))) == 10
    line = plot(places(10, 1))
    assert sorted(x for x, _ in drawn(line)) == sorted(places(10, 1)[:, 0])
    deep = plot(places(10, 3), list("ab") * 5)
    assert deep.name == "3d"
    x, y, z = deep.collections[-1]._offsets3d
    assert {tuple(p) for p in np.column_stack([x, y, z]).round(3)} == {tuple(p) for p in places(10, 3)}


def test_palettes():
    Z = places(2)
    assert drawn(plot(Z, ["a", "b"], palette=["red", "#00ff00"]))[tuple(Z[1])] == "#00ff00"
    assert drawn(plot(Z, ["a", "b"], palette={"b": "black", "a": "red"}))[tuple(Z[1])] == "#000000"
    assert drawn(plot(Z, ["a", "b"], palette="tab10"))[tuple(Z[0])] == "#1f77b4"
    with pytest.raises(OptionError, match="no colour for 'b'"):
        plot(Z, ["a", "b"], palette={"a": "red"})
    with pytest.raises(OptionError, match="not a colour map"):
        plot(Z, ["a", "b"], palette="no such map")


def test_draws_on_given_axes_and_refuses_the_wrong_kind():
    _, axes = pyplot.subplots()
    assert plot(places(5), ax=axes) is axes
    with pytest.raises(InputError, match="projection='3d'"):
        plot(places(5, 3), ax=axes)


def test_many_categories_are_named_on_the_map():
    axes = plot(places(400), [f"c{i % 40}" for i in range(400)])
    assert axes.get_legend() is None
    assert 1 <= len(axes.texts) <= 30


def test_names_are_text_not_formulas_nor_hidden():
    axes = plot(places(3), ["$\\frac$", "_hidden", "x" * 500])
    axes.figure.canvas.draw()
    assert len(axes.get_legend().get_texts()) == 3


HOSTILE = [
    "$x^$",
    "a $b$ $c^$",
    r"\$x^$",
    r"$\$",
    "$$",
    "a\0b\x1b[31m",
    "\ud800",
    "_$x^$",
    "two\nlines",
    "<&>",
    "\udcff.csv",
    "😀",
]


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
@pytest.mark.parametrize("dimensions", [2, 3])
def test_what_is_in_the_data_is_never_parsed(tmp_path, ending, dimensions):
    for text in HOSTILE:
        labels = [f"{text}{i}" for i in range(40)]
        plot(places(40, dimensions), labels[:3] * 13 + labels[:1], title=text, save=tmp_path / f"legend.{ending}")
        plot(places(40, dimensions), labels, title=text, save=tmp_path / f"names.{ending}")
        scale = pandas.Series(np.arange(40.0) + 0.5, name=text)
        plot(places(40, dimensions), scale, save=tmp_path / f"scale.{ending}")
        pyplot.close("all")
    if ending == "svg":
        for name in ("legend", "names", "scale"):
            ElementTree.parse(tmp_path / f"{name}.svg")


def test_dollars_are_shown_as_dollars():
    axes = plot(places(3), ["$x^$", r"\$y", "z"], title="$t^$")
    axes.figure.canvas.draw()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["$x^$", r"\$y", "z"]
    assert axes.get_title(loc="left") == "$t^$"


def test_save(tmp_path):
    plot(places(30), save=tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    plot(places(30), save=tmp_path / "map.svg")
    assert b"<svg" in (tmp_path / "map.svg").read_bytes()
    with pytest.raises(OptionError, match="the ending must be one of"):
        plot(places(3), save=tmp_path / "map.xyz")


def test_without_matplotlib_it_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.split(".")[0] == "matplotlib":
            raise ImportError("No module named 'matplotlib'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    monkeypatch.setattr("importlib.import_module", lambda name: refuse(name))
    with pytest.raises(MissingExtraError, match=r"cartograd\[plot\]"):
        plot(places(3))


def test_bad_size():
    with pytest.raises(OptionError, match="size must be above 0"):
        plot(places(3), size=-1)
