"""What is painted: where the points are, also 200,000 of them, and without WebGL2."""

import base64
import io

import numpy as np
import pytest
from chromium import NO_GL, Chromium, find_chromium

from cartograd.viewer import write_page

pytest.importorskip("matplotlib", reason="reads screenshots with matplotlib")
from matplotlib.image import imread

CELL = 8


def clusters(n, seed=0):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 9, n)
    return np.column_stack([codes % 3, codes // 3]) * 8.0 + rng.normal(size=(n, 2)), codes


def canvas_image(browser):
    """The canvas alone, as floats (height, width, 3), after a frame with every point in it."""
    browser.run(
        "document.querySelectorAll('#labels, #top, #tools, #panel').forEach((e) => (e.style.visibility = 'hidden'))"
    )
    browser.run("cartograd.painter.lastMove = -1e9; cartograd.changed()")
    browser.settle()
    return imread(io.BytesIO(browser.screenshot()), format="png")[..., :3]


def painted_cells(image, ground):
    """Which squares of CELL pixels hold a pixel that is not the ground."""
    apart = np.abs(image - np.array(ground)).sum(axis=2) > 0.06
    height, width = apart.shape[0] // CELL, apart.shape[1] // CELL
    return apart[: height * CELL, : width * CELL].reshape(height, CELL, width, CELL).any(axis=(1, 3))


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    Z, codes = clusters(200_000)
    place = tmp_path_factory.mktemp("drawing") / "map.html"
    return write_page(place, Z, color=codes, title="many")


@pytest.fixture(scope="module")
def some(tmp_path_factory):
    Z, codes = clusters(30_000)
    return write_page(tmp_path_factory.mktemp("drawing") / "map.html", Z, color=codes)


def screen_of_all(browser):
    packed = browser.run(
        """(() => {
          const { data, camera } = cartograd;
          const places = new Float32Array(data.count * 2);
          for (let row = 0; row < data.count; row++) places.set(cartograd.screenOf(row), row * 2);
          let text = "";
          const bytes = new Uint8Array(places.buffer);
          for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
          return btoa(text);
        })()"""
    )
    return np.frombuffer(base64.b64decode(packed), dtype="<f4").reshape(-1, 2)


def compare_with_points(browser):
    image = canvas_image(browser)
    ground = browser.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map((part) => part / 255)")
    painted = painted_cells(image, ground)
    places = screen_of_all(browser)
    inside = (
        (places >= 0).all(axis=1) & (places[:, 0] < painted.shape[1] * CELL) & (places[:, 1] < painted.shape[0] * CELL)
    )
    cells = (places[inside] // CELL).astype(int)
    holds = np.zeros_like(painted)
    holds[cells[:, 1], cells[:, 0]] = True
    padded = np.pad(holds, 1)
    shape = holds.shape
    near = np.any([padded[r : r + shape[0], c : c + shape[1]] for r in range(3) for c in range(3)], axis=0)
    assert holds.sum() > 50
    assert (painted | ~holds).mean() == 1.0, f"{(holds & ~painted).sum()} squares with points are empty"
    assert not (painted & ~near).any(), f"{(painted & ~near).sum()} squares far from points are painted"
    return image, places


def test_200k_points_are_drawn_where_they_are_and_darkest_where_they_are_thickest(browser, many):
    browser.resize(1200, 800)
    browser.open(many)
    assert browser.run("cartograd.data.count") == 200_000
    assert browser.run("cartograd.painter.frameState(Infinity).crisp") < 1  # so dense that shading takes over
    image, places = compare_with_points(browser)
    assert browser.complaints() == []
    ground = np.array(browser.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map((c) => c / 255)"))
    _, codes = clusters(200_000)
    one = places[codes == 0]
    centre, spread = one.mean(axis=0), one.std(axis=0).mean()
    strength = []
    for distance in (0.0, 1.5, 2.5):
        x, y = (centre + [distance * spread, 0]).astype(int)
        strength.append(np.abs(image[y - 4 : y + 5, x - 4 : x + 5] - ground).sum(axis=2).mean())
    assert strength[0] > 1.15 * strength[1] > 1.15 * 1.15 * strength[2]


def test_zoomed_in_points_are_discs_of_their_own_colour(browser, some):
    browser.open(some)
    row = 17
    x, y = browser.run(f"cartograd.screenOf({row})")
    browser.run(f"cartograd.zoomBy(400, {x}, {y})")
    image = canvas_image(browser)
    assert browser.run("cartograd.painter.frameState(Infinity).crisp") == 1
    x, y = browser.run(f"cartograd.screenOf({row})")
    wanted = browser.run(f"cartograd.coloring.pointHex({row})")
    color = np.array([int(wanted[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    assert np.abs(image[round(y), round(x)] - color).max() < 0.12


def test_nothing_is_walked_over_while_the_view_moves(browser, some):
    """No buffer is uploaded by frames: they only set uniforms and draw."""
    browser.open(some)
    uploads = browser.run(
        """(async () => {
          const { gl } = cartograd.painter.renderer;
          let uploads = 0;
          for (const name of ["bufferData", "bufferSubData"]) {
            const real = gl[name].bind(gl);
            gl[name] = (...given) => { uploads++; return real(...given); };
          }
          for (let step = 0; step < 10; step++) {
            cartograd.panBy(5, 3);
            cartograd.zoomBy(1.1, 300, 300);
            await new Promise(requestAnimationFrame);
          }
          const moving = uploads;
          cartograd.legend.toggle(1);
          cartograd.focusOn(2);
          await new Promise(requestAnimationFrame);
          const filtering = uploads;
          cartograd.search.set("3");
          await new Promise((done) => setTimeout(done, 300));
          return [moving, filtering, uploads > filtering];
        })()"""
    )
    assert uploads == [0, 0, True]


def test_slow_machines_draw_fewer_points_while_moving_and_all_at_rest(browser, some):
    browser.open(some)
    drawn = browser.run(
        """(async () => {
          const { painter } = cartograd;
          const budgets = [];
          painter.renderer.draw = (frame) => budgets.push(frame.budget);
          for (let step = 0; step < 20; step++) painter.learnBudget(100);
          const slow = painter.budget;
          cartograd.panBy(1, 1);
          painter.frame(100);
          await new Promise((done) => setTimeout(done, 600));
          for (let step = 0; step < 40; step++) painter.learnBudget(10);
          return [slow, budgets[0], budgets.at(-1) === Infinity, painter.budget];
        })()"""
    )
    assert drawn == [20_000, 20_000, True, 30_000]


def test_lost_graphics_card_is_survived(browser, tmp_path):
    Z, codes = clusters(2000)
    browser.open(write_page(tmp_path / "map.html", Z, color=codes))
    browser.run(
        """(async () => {
          const { gl } = cartograd.painter.renderer;
          const card = gl.getExtension("WEBGL_lose_context");
          const back = new Promise((done) => cartograd.canvas.addEventListener("webglcontextrestored", done));
          card.loseContext();
          await new Promise((done) => setTimeout(done, 50));
          card.restoreContext();
          await back;
        })()"""
    )
    browser.settle()
    compare_with_points(browser)


@pytest.mark.parametrize("dimensions", [1, 3])
def test_other_dimensions(browser, tmp_path, dimensions):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(1500, dimensions)) * [3.0, 2.0, 1.0][:dimensions]
    browser.open(write_page(tmp_path / "map.html", Z, color=rng.integers(0, 4, 1500)))
    compare_with_points(browser)
    before = browser.run("cartograd.screenOf(5)")
    browser.drag([(500, 400), (560, 420), (620, 460)])
    assert browser.run("cartograd.screenOf(5)") != before
    _, places = compare_with_points(browser)
    if dimensions == 3:
        turn = np.array(browser.run("cartograd.camera.turn")).reshape(3, 3)
        np.testing.assert_allclose(turn @ turn.T, np.eye(3), atol=1e-9)
        assert np.linalg.det(turn) == pytest.approx(1)
        seen = (Z - (Z.min(axis=0) + Z.max(axis=0)) / 2) @ turn.T
        scale = np.ptp(places[:, 0]) / np.ptp(seen[:, 0])
        np.testing.assert_allclose(np.diff(places, axis=0), np.diff(seen[:, :2], axis=0) * [scale, -scale], atol=0.05)
        row = int(((places - [600, 430]) ** 2).sum(axis=1).argmin())
        browser.hover(*map(float, places[row]))
        nearest = int(((places - places[row]) ** 2).sum(axis=1).argmin())
        assert browser.run("cartograd.card.row") == nearest
    assert browser.complaints() == []


def test_without_webgl_a_plain_canvas_draws(tmp_path):
    if find_chromium() is None:
        pytest.skip("no Chromium: install one, or name its program in the variable CHROMIUM")
    Z, codes = clusters(3000)
    page = write_page(tmp_path / "map.html", Z, color=codes)
    with Chromium(graphics=NO_GL) as plain:
        plain.open(page)
        assert plain.run("cartograd.painter.renderer.constructor.name") == "CanvasRenderer"
        compare_with_points(plain)
        plain.run("cartograd.legend.showAlone(4)")
        alone = painted_cells(canvas_image(plain), [251 / 255, 250 / 255, 247 / 255]).sum()
        plain.run("cartograd.legend.showAll()")
        everything = painted_cells(canvas_image(plain), [251 / 255, 250 / 255, 247 / 255]).sum()
        assert 0.03 < alone / everything < 0.3
        x, y = plain.run("cartograd.screenOf(9)")
        plain.hover(x, y)
        assert not plain.run("document.getElementById('card').hidden")
        assert plain.complaints() == []
