"""The page as a file: it holds what was given, refers to nothing outside, and allows only its own script."""

import base64
import hashlib
import re
from importlib.resources import files

import numpy as np
import pytest
import torch
from reading import Data, Elements

import cartograd
from cartograd.errors import FileAbsentError, FileAccessError, InputError, OptionError, UnsupportedError
from cartograd.viewer import content, pack, page_html, write_page
from cartograd.viewer.page import SCRIPTS

WEB = files("cartograd.viewer").joinpath("web")


def random_map(n=50, d=2, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) * 7 + 100


def test_refers_to_nothing_outside():
    elements = Elements(page_html(random_map(), data={"a": ["x"] * 50}, images=np.zeros((50, 4, 4)), title="T"))
    for tag, attributes in elements.all:
        assert "src" not in attributes
        assert tag not in {"iframe", "object", "embed", "base", "frame"}
        assert attributes.get("href", "data:image/svg+xml,").startswith("data:image/svg+xml,")
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
    for _, style in elements.named("style"):
        assert "url(" not in style
        assert "@import" not in style


def test_policy_allows_exactly_the_pages_own_scripts_and_style():
    elements = Elements(page_html(random_map()))
    policy = next(a["content"] for a, _ in elements.named("meta") if a.get("http-equiv") == "Content-Security-Policy")
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    run = [text for attributes, text in elements.named("script") if "type" not in attributes]

    def hashes(texts):
        return {f"'sha256-{base64.b64encode(hashlib.sha256(t.encode()).digest()).decode()}'" for t in texts}

    assert directives["default-src"] == "'none'"
    assert set(directives["script-src"].split()) == hashes(run)
    assert set(directives["style-src"].split()) == hashes([text for _, text in elements.named("style")])
    assert directives["base-uri"] == directives["form-action"] == "'none'"
    assert len(run) == 2
    places = [tag for tag, _ in elements.all]
    assert places.index("meta") < places.index("script")
    assert places.index("meta") < places.index("style")


@pytest.mark.parametrize("name", [*SCRIPTS, "theme.js"])
def test_script_makes_no_markup_of_text_and_asks_nobody(name):
    text = WEB.joinpath(name).read_text()
    for forbidden in (
        "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "createContextualFragment",
        "eval(", "Function(", "fetch(", "XMLHttpRequest", "WebSocket", "EventSource", "sendBeacon", "import(",
        "localStorage", "cookie", "postMessage", "</script", "<!--",
    ):  # fmt: skip
        assert forbidden not in text, forbidden
    assert text.count("\n") <= 400


def test_every_script_is_in_the_page():
    present = {entry.name for entry in WEB.iterdir() if entry.name.endswith(".js")}
    assert present == {*SCRIPTS, "theme.js"}


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_coordinates_come_back(dimensions):
    Z = random_map(d=dimensions)
    data = Data(page_html(Z))
    assert data.header["count"] == 50
    assert data.header["dimensions"] == dimensions
    assert data.header["coordinates"]["type"] == "float32"
    np.testing.assert_allclose(data.coordinates()[:, :dimensions], Z, atol=2e-6 * np.ptp(Z))


def test_coordinates_of_very_many_points_take_half_the_space(monkeypatch):
    monkeypatch.setattr(content, "QUANTISED_FROM", 40)
    Z = random_map(d=2)
    data = Data(page_html(Z))
    assert data.header["coordinates"]["type"] == "uint16"
    step = np.ptp(Z, axis=0).max() / 65535
    assert np.abs(data.coordinates() - Z).max() <= step / 2 * 1.0001


@pytest.mark.parametrize(
    "Z",
    [[[3.0, 4.0]], [[1.0, 1.0]] * 3, [[0.0, 5.0], [1.0, 5.0]], [[-1e300, 0.0], [1e300, 1e300]], [[1e-320, 0], [0, 0]]],
)
def test_odd_maps(Z):
    np.testing.assert_allclose(Data(page_html(Z)).coordinates(), Z, rtol=1e-6, atol=1e-6 * max(1e-300, np.abs(Z).max()))


def test_columns_come_back():
    n = 300
    rng = np.random.default_rng(1)
    texts = [f"row {i} – ünï\u2028 </script><b>\0" for i in range(n)]
    columns = {
        "category": [["b", "a", None, "ü"][i % 4] for i in range(n)],
        "few": rng.integers(-1, 5, n),
        "flag": rng.random(n) > 0.5,
        "number": np.where(rng.random(n) > 0.9, np.nan, rng.normal(size=n)),
        "id": 2**31 + np.arange(n),
        "long": 2**60 + np.arange(n),
        "time": np.datetime64("2024-01-01T12:00") + np.arange(n),
        "text": texts,
    }
    data = Data(page_html(random_map(n), data=columns, color="few", text="text"))
    assert data.values("category") == columns["category"]
    assert data.values("few") == [str(value) for value in columns["few"]]
    assert data.values("flag") == [str(value) for value in columns["flag"]]
    np.testing.assert_allclose(data.values("number"), columns["number"], rtol=1e-6)
    assert data.column("number")["type"] == "float32"
    np.testing.assert_array_equal(data.values("id"), columns["id"])
    assert data.values("long") == [str(value) for value in columns["long"]]
    np.testing.assert_array_equal(
        data.values("time").astype("int64"), columns["time"].astype("datetime64[ms]").astype("int64")
    )
    assert data.values("text") == texts
    kinds = [info["kind"] for info in data.header["columns"]]
    assert kinds == ["category", "category", "category", "number", "number", "text", "time", "text"]
    assert data.header["color"] == 1
    assert data.header["text"] == 7
    assert data.column("few")["unlabelled"] == 0
    counts = data.block(data.column("few")["counts"], "uint32")
    assert counts[:6].tolist() == [int((columns["few"] == value).sum()) for value in range(-1, 5)]


def test_images_come_back():
    images = np.random.default_rng(0).integers(0, 256, (50, 5, 7, 3), dtype=np.uint8)
    data = Data(page_html(random_map(), images=images))
    info = data.header["images"]
    stored = data.block(info["block"], "uint8").reshape(50, info["height"], info["width"], info["channels"])
    np.testing.assert_array_equal(stored, images)


def test_a_map_may_be_a_tensor_or_a_frame():
    Z = random_map().astype(np.float32)

    class Frame:
        columns = ("x", "y")

        def to_numpy(self):
            return Z

    pages = {page_html(kind) for kind in (Z, torch.tensor(Z), cartograd.tensor(Z, requires_grad=True), Frame())}
    assert len(pages) == 1


def test_same_input_same_page():
    given = {"data": {"a": list("abcab") * 10, "b": np.arange(50.0)}, "title": "x"}
    assert page_html(random_map(), **given) == page_html(random_map(), **given)


@pytest.mark.parametrize(
    "hostile", ["</script><script>alert(1)</script>", "<!--<script>", "]]>", "&lt;\u2028\u2029", "{{script}}"]
)
def test_title_and_names_cannot_leave_their_place(hostile):
    page = page_html(random_map(), data={hostile: [hostile] * 50}, title=hostile)
    elements = Elements(page)
    assert [tag for tag, _ in elements.all] == [
        tag for tag, _ in Elements(page_html(random_map(), data={"a": ["b"] * 50})).all
    ]
    data = Data(page)
    assert data.header["title"] == hostile
    assert data.header["columns"][0]["name"] == hostile
    assert elements.named("title")[0][1] == hostile
    header = re.search(r'id="header">(.*?)</script>', page, re.DOTALL).group(1)
    assert not set(header) & set("<>&\u2028\u2029")


def test_lone_surrogates_and_huge_texts_are_kept_as_well_as_utf8_can():
    data = Data(page_html(random_map(2), text=["a\ud800b", "x" * 2**20]))
    assert data.values("text") == ["a?b", "x" * 2**20]


def test_written_whole_or_not_at_all(tmp_path):
    place = tmp_path / "map.html"
    assert write_page(place, random_map()) == place
    before = place.read_bytes()
    assert before.decode() == page_html(random_map())
    with pytest.raises(InputError):
        write_page(place, np.full((3, 2), np.nan))
    assert place.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["map.html"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"embedding": np.zeros((4, 5))}, InputError, r"1, 2 or 3 columns, got shape \(4, 5\).*embedding\[:, :3\]"),
        ({"embedding": np.zeros((0, 2))}, InputError, "no rows"),
        ({"embedding": [[0, 1], [2, np.inf]]}, InputError, "NaN or infinity in 1 rows, the first is row 1"),
        ({"embedding": "points"}, InputError, "array of numbers, got str"),
        ({"embedding": [[0, 1]], "data": {"a": [1, 2]}}, InputError, "'a' must have one value for each of the map's 1"),
        ({"embedding": [[0, 1]], "data": [1]}, UnsupportedError, "mapping of column names.*, got list"),
        ({"embedding": [[0, 1]], "data": {"a": [1]}, "color": "b"}, OptionError, "color='b' is not a column.*are 'a'"),
        ({"embedding": [[0, 1]], "color": "b"}, OptionError, "data was not given"),
        ({"embedding": [[0, 1]], "data": {"a": "x"}}, UnsupportedError, "'a' must be a sequence"),
        ({"embedding": [[0, 1]], "images": np.zeros((2, 3, 3))}, InputError, r"one picture for each.*\(2, 3, 3\)"),
        ({"embedding": [[0, 1]], "point_size": 0}, OptionError, "point_size must be above 0"),
        ({"embedding": [[0, 1]], "data": {1: [0], "1": [0]}}, InputError, "several columns called '1'"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_the_reason(arguments, error, message):
    with pytest.raises(error, match=message):
        page_html(**arguments)


def test_what_no_browser_could_hold_is_refused(monkeypatch):
    monkeypatch.setattr(pack, "LARGEST_BLOCK", 1000)
    noise = np.random.default_rng(0).integers(0, 2**16, 800).tolist()
    with pytest.raises(InputError, match="leave it out, shorten its texts"):
        page_html(random_map(800), text=[str(value) for value in noise])


def test_bad_places_are_refused(tmp_path):
    with pytest.raises(FileAbsentError, match="does not exist"):
        write_page(tmp_path / "nowhere" / "map.html", random_map())
    with pytest.raises(FileAccessError, match="is a folder"):
        write_page(tmp_path, random_map())
