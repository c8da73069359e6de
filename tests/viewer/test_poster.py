"""The poster: a small picture of the map, shown until the map is drawn, without script or canvas, and on paper."""

import io
import re

import numpy as np
import pytest
from reading import Elements

from cartograd.viewer import page_html, write_page
from cartograd.viewer.colors import MISSING, PALETTE, SCALE
from cartograd.viewer.poster import MOST_BYTES

pytest.importorskip("PIL", reason="reads screenshots with Pillow")
import shots
from chromium import NO_GL, Chromium, find_chromium
from PIL import Image

KINDS = "amber basalt copper diorite emerald flint garnet halite iolite jasper".split()


def clusters(n=1500, seed=0):
    """Ten clusters on a circle, and their names."""
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % 10
    angles = codes / 10 * 2 * np.pi
    Z = np.column_stack([np.cos(angles), np.sin(angles)]) * 10 + rng.normal(size=(n, 2))
    return Z, [KINDS[code] for code in codes]


def poster_of(page):
    """The poster's element as text."""
    return re.search(r'<div id="poster".*?>(<svg.*?</svg>)</div>', page, re.DOTALL).group(1)


def dots_of(svg):
    """The poster's dots: a color, and places (m, 2) on the map from (0, 0), left above, to its longer side, 1."""
    _, _, wide, high = map(float, re.search(r'viewBox="(.*?)"', svg).group(1).split())
    found = {}
    for color, path in re.findall(r'<path stroke="(.*?)" d="(.*?)"/>', svg):
        assert re.fullmatch(r"M\d+ \d+h0(m\d+[ -]\d+h0)*", path)
        steps = np.array(re.findall(r"[mM](\d+) ?(-?\d+)h0", path), dtype=int)
        found.setdefault(color, []).append((steps.cumsum(axis=0) + 0.5) / max(wide, high))
    return {color: np.concatenate(places) for color, places in found.items()}


def shot(browser):
    """What the window shows, (height, width, 3) uint8."""
    return np.asarray(Image.open(io.BytesIO(browser.screenshot())).convert("RGB"))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    Z, kinds = clusters()
    return write_page(tmp_path_factory.mktemp("poster") / "map.html", Z, data={"kind": kinds}, title="Stones")


MAPS = {
    "clusters": lambda rng: (clusters(5000)[0], clusters(5000)[1]),
    "noise": lambda rng: (rng.random((200_000, 2)), rng.integers(0, 21, 200_000).astype(str)),
    "numbers": lambda rng: (rng.normal(size=(300_000, 2)), rng.random(300_000)),
    "one dimension": lambda rng: (rng.normal(size=(50_000, 1)), None),
    "three dimensions": lambda rng: (rng.normal(size=(50_000, 3)), rng.integers(0, 3, 50_000)),
    "a line": lambda rng: (np.column_stack([np.arange(9000), np.zeros(9000)]), None),
    "two far apart": lambda rng: ([[0, 0], [1e300, 1e-300]], [np.inf, -np.inf]),
    "one point": lambda rng: ([[3, 4]], [None]),
    "equal points": lambda rng: ([[3, 4]] * 50, [np.nan] * 50),
}


@pytest.mark.parametrize("name", MAPS)
def test_it_is_small_and_has_the_maps_colors_alone(name):
    Z, colors = MAPS[name](np.random.default_rng(0))
    page = page_html(Z, color=colors)
    svg = poster_of(page)
    assert len(svg.encode()) <= MOST_BYTES <= 60_000
    found = set(dots_of(svg))
    if name == "numbers":
        assert len(found) > 20
        assert {SCALE[0], SCALE[-1]} <= found
    else:
        assert found <= {*PALETTE, MISSING} | ({*SCALE} if name == "two far apart" else set())
    assert page == page_html(Z, color=colors)
    tags = {tag for tag, _ in Elements(f"<!doctype html>{svg}").all}
    assert tags == {"svg", "g", "path"}


def test_every_dot_is_at_a_point_of_its_color_and_every_category_has_dots():
    Z, kinds = clusters()
    dots = dots_of(poster_of(page_html(Z, color=kinds)))
    extent = np.ptp(Z, axis=0).max()
    places = (Z - [Z[:, 0].min(), Z[:, 1].max()]) * [1, -1] / extent
    for code, kind in enumerate(KINDS):
        own = places[np.array(kinds) == kind]
        apart = np.abs(dots[PALETTE[code]][:, None] - own).max(axis=2)
        assert len(apart) > 100
        assert apart.min(axis=1).max() <= 0.51 / 1024


def test_a_dense_map_has_no_holes():
    Z = np.random.default_rng(0).random((300_000, 2))
    dots = dots_of(poster_of(page_html(Z)))[PALETTE[0]]
    assert 50**2 < len(np.unique(dots.round(6), axis=0)) == len(np.unique(dots[:, 0].round(6))) ** 2


def test_rows_without_a_value_and_of_no_cluster_are_gray():
    dots = dots_of(poster_of(page_html([[0, 0], [1, 0], [2, 0]], color=[-1, 0, 1])))
    assert {color: len(places) for color, places in dots.items()} == {MISSING: 1, PALETTE[0]: 1, PALETTE[1]: 1}
    dots = dots_of(poster_of(page_html([[0, 0], [1, 0], [2, 0]], color=["a", None, None])))
    assert {color: len(places) for color, places in dots.items()} == {MISSING: 2, PALETTE[0]: 1}


def test_it_lies_where_the_map_will(browser, page):
    """The dots and the points of the whole map are at the same places of the window, at every size."""
    for width, height in shots.SIZES:
        browser.resize(width, height)
        browser.open(page)
        browser.wait("document.body.classList.contains('presented')")
        browser.run("document.body.classList.remove('presented')")
        box = browser.run(
            "(() => { const box = document.querySelector('#poster g').getBBox();"
            "const matrix = document.querySelector('#poster g').getScreenCTM();"
            "const [a, b] = [[box.x, box.y], [box.x + box.width, box.y + box.height]]"
            ".map(([x, y]) => new DOMPoint(x, y).matrixTransform(matrix)); return [a.x, a.y, b.x, b.y]; })()"
        )
        places = np.array(browser.run("[...Array(1500).keys()].map((row) => cartograd.screenOf(row))"))
        np.testing.assert_allclose(box, [*places.min(axis=0), *places.max(axis=0)], atol=1.5)
    browser.resize(1200, 800)


NO_FRAMES = "window.requestAnimationFrame = () => 0;"
NO_CANVAS = "HTMLCanvasElement.prototype.getContext = () => null;"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("spoiler", [NO_FRAMES, NO_CANVAS])
def test_it_is_shown_where_nothing_was_drawn(browser, page, theme, spoiler):
    spoil = browser.call("Page.addScriptToEvaluateOnNewDocument", source=spoiler)["identifier"]
    try:
        browser.call("Page.navigate", url="about:blank")
        browser.call("Page.navigate", url=f"{page.as_uri()}#theme={theme}")
        browser.wait("document.readyState === 'complete' && !!(window.cartograd || notice.textContent)")
        image = shot(browser)
        ground = browser.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    finally:
        browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=spoil)
    assert shots.is_the_map(image)
    assert (np.abs(image.astype(int) - ground).max(axis=2) <= 2).mean() > 0.5
    assert (sum(ground) < 120) is (theme == "dark")


def test_it_is_shown_without_a_script(browser, page):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.call("Page.navigate", url="about:blank")
        browser.call("Page.navigate", url=page.as_uri())
        browser.wait("document.readyState === 'complete'")
        image = shot(browser)
        said = browser.run("document.body.innerText")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert shots.is_the_map(image)
    assert "This is a picture of the map." in said
    assert "Stones" in said
    assert "Unpacking" not in said


def is_poster_shown(browser):
    return browser.run("getComputedStyle(document.getElementById('poster')).display !== 'none'")


@pytest.mark.parametrize("graphics", ["webgl", "canvas"])
def test_it_is_taken_away_once_a_frame_is_on_the_screen(browser, page, graphics):
    if graphics == "webgl":
        browser.open(page)
        browser.wait("document.body.classList.contains('presented')")
        assert not is_poster_shown(browser)
        assert shots.is_the_map(shot(browser))
        return
    with Chromium(graphics=NO_GL) as plain:
        plain.open(page)
        plain.wait("document.body.classList.contains('presented')")
        assert not is_poster_shown(plain)
        assert shots.is_the_map(shot(plain))


def test_it_comes_back_while_the_graphics_card_is_lost(browser, page):
    browser.open(page)
    browser.wait("document.body.classList.contains('presented')")
    browser.run("(window.card = cartograd.painter.renderer.gl.getExtension('WEBGL_lose_context')).loseContext()")
    browser.wait("!document.body.classList.contains('presented')")
    assert is_poster_shown(browser)
    assert shots.is_the_map(shot(browser))
    browser.run("card.restoreContext()")
    browser.wait("document.body.classList.contains('presented')")
    assert shots.is_the_map(shot(browser))


PIXELS = """(() => {
  const copy = new OffscreenCanvas(cartograd.canvas.width, cartograd.canvas.height).getContext("2d");
  copy.drawImage(cartograd.canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, cartograd.canvas.width, cartograd.canvas.height);
  let painted = 0; // pixels that are neither black nor transparent
  for (let at = 0; at < data.length; at += 4) painted += data[at] + data[at + 1] > 0 && data[at + 3] === 255;
  return { painted: painted / (data.length / 4), width: cartograd.canvas.width };
})()"""


def test_the_canvas_is_cleared_by_new_sizes_alone_and_painted_at_once(browser, page):
    browser.resize(1200, 800)
    browser.open(page)
    browser.wait("document.body.classList.contains('presented')")
    assert browser.run(f"cartograd.painter.frame(), cartograd.resize(), {PIXELS}") == {"painted": 1, "width": 1200}
    stage = "document.getElementById('stage')"
    found = browser.run(f"cartograd.painter.frame(), {stage}.style.width = '700px', cartograd.resize(), {PIXELS}")
    assert found == {"painted": 1, "width": 700}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_paper_has_the_poster_the_title_and_the_legend(browser, page, theme):
    browser.resize(1200, 800)
    browser.open(f"{page.as_uri()}#theme={theme}")
    browser.wait("document.body.classList.contains('presented')")
    browser.call("Emulation.setEmulatedMedia", media="print")
    try:
        image = shot(browser)
        said = browser.run("document.body.innerText")
        browser.run("cartograd.colorBy(-1)")
        other = browser.run("document.body.innerText")
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")
    assert shots.black_share(image) < 0.05
    assert shots.shown_share(image[:600], PALETTE[:10]) >= 0.5
    assert (image.min(axis=2) > 250).mean() > 0.5
    assert "Stones" in said
    assert "garnet" in said
    assert "garnet" not in other  # the poster's colors are still those of the first column


@pytest.fixture(scope="module")
def shell():
    if find_chromium() is None:
        pytest.skip("no Chromium: install one, or name its program in the variable CHROMIUM")


@pytest.mark.usefixtures("shell")
def test_ten_pictures_in_a_row_show_the_map(page):
    taken = [shots.is_the_map(shots.take(page, *shots.SIZES[at % 4])) for at in range(10)]
    assert taken == [True] * 10


@pytest.mark.slow
@pytest.mark.usefixtures("shell")
@pytest.mark.parametrize("flags", [(), ("--disable-gpu",), NO_GL])
@pytest.mark.parametrize(("width", "height"), shots.SIZES)
def test_ten_pictures_of_each_size_show_the_map(page, width, height, flags):
    taken = [shots.is_the_map(shots.take(page, width, height, *flags)) for _ in range(10)]
    assert taken == [True] * 10


@pytest.mark.usefixtures("shell")
def test_the_print_shows_the_map_in_lines_without_images(page):
    colors, images = shots.strokes(shots.print_page(page))
    assert len(colors & set(PALETTE[:10])) == 10
    assert images == 0
