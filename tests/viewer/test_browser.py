"""The page in a real browser: it is looked at, pointed at, searched, filtered, cut out and linked to."""

import csv
import io

import numpy as np
import pytest

from cartograd.viewer import write_page

WORDS = "amber basalt copper diorite emerald flint garnet halite".split()
N = 400


def example(n=N, seed=0):
    """Eight clusters on a circle, with columns of every kind."""
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % len(WORDS)
    angles = codes / len(WORDS) * 2 * np.pi
    Z = np.column_stack([np.cos(angles), np.sin(angles)]) * 10 + rng.normal(size=(n, 2))
    data = {
        "stone": [WORDS[code] for code in codes],
        "weight": rng.normal(size=n).round(4),
        "found": np.datetime64("2024-01-01") + np.arange(n),
        "note": [f"note {i}: =SUM(A{i})" if i % 7 else f'=cmd{i},"quoted"\nline' for i in range(n)],
    }
    return Z, data


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    Z, data = example()
    images = (np.arange(N)[:, None, None] % 251 * np.ones((N, 6, 6))).astype(np.uint8)
    place = tmp_path_factory.mktemp("browser") / "map.html"
    return write_page(place, Z, data=data, color="stone", text="note", images=images, title="Stones & <b>more</b>")


@pytest.fixture
def shown(browser, page):
    browser.resize(1200, 800)
    browser.open(page)
    yield browser
    assert browser.complaints() == []


def test_loads_without_complaints_or_requests(shown, page):
    assert shown.run("document.getElementById('title').textContent") == "Stones & <b>more</b>"
    assert shown.run("document.title") == "Stones & <b>more</b>"
    assert shown.run("document.getElementById('count').textContent") == "400 points"
    assert shown.run("cartograd.painter.renderer.constructor.name") == "GlRenderer"
    assert [address for address in shown.requests() if not address.startswith(("data:", "about:"))] == [page.as_uri()]
    assert shown.run("performance.getEntriesByType('resource').length") == 0


def test_hover_shows_the_nearest_row(shown):
    Z, data = example()
    screen = np.array(shown.run(f"[...Array({N}).keys()].map((row) => cartograd.screenOf(row))"))
    # the view is a similarity: the screen's places are those of the map, scaled, moved and mirrored
    scale = np.ptp(screen[:, 0]) / np.ptp(Z[:, 0])
    np.testing.assert_allclose(np.diff(screen, axis=0), np.diff(Z, axis=0) * [scale, -scale], atol=0.01)
    for row in np.random.default_rng(1).choice(N, 12, replace=False):
        x, y = screen[row]
        shown.hover(x, y)
        nearest = int(((screen - [x, y]) ** 2).sum(axis=1).argmin())
        assert shown.run("cartograd.card.row") == nearest
        assert shown.run("document.getElementById('card-text').textContent") == data["note"][nearest]
        columns = shown.run("document.getElementById('card-columns').innerText").split("\n")
        assert data["stone"][nearest] in columns
        assert str(data["found"][nearest]) in columns
        weight = columns[columns.index("weight") + 1]
        assert float(weight) == pytest.approx(data["weight"][nearest], abs=1e-5)
        grey = shown.run("[...document.getElementById('picture').getContext('2d').getImageData(3, 3, 1, 1).data]")
        assert grey == [nearest % 251] * 3 + [255]
    shown.hover(600, 430)  # the middle of the circle is empty
    assert shown.run("document.getElementById('card').hidden")


def test_click_pins_the_card_and_escape_closes_it(shown):
    x, y = shown.run("cartograd.screenOf(3)")
    shown.click(x, y)
    shown.hover(600, 430)
    assert not shown.run("document.getElementById('card').hidden")
    shown.key("Escape")
    assert shown.run("document.getElementById('card').hidden")


def test_search_finds_what_is_there(shown):
    _, data = example()
    shown.press("#search")
    shown.type("GARNET")
    shown.wait("document.getElementById('found').textContent !== ''")
    wanted = [stone == "garnet" for stone in data["stone"]]
    assert shown.run("document.getElementById('found').textContent") == f"{sum(wanted)} found"
    assert shown.run("[...cartograd.marks]") == [int(is_one) for is_one in wanted]
    shown.key("Enter")
    shown.wait("cartograd.camera.zoom > 2")
    shown.run("cartograd.search.set('note 12')")
    wanted = ["note 12" in note for note in data["note"]]
    assert shown.run("[...cartograd.marks]") == [int(is_one) for is_one in wanted]
    shown.run("cartograd.search.set('#17')")
    assert shown.run("cartograd.marks[17]") == 1
    shown.run("cartograd.search.set('nothing of the kind')")
    assert shown.run("document.getElementById('found').textContent") == "0 found"
    shown.run("cartograd.search.set('')")
    assert shown.run("cartograd.marks") is None


def test_search_agrees_with_python(browser, tmp_path):
    rng = np.random.default_rng(5)
    texts = ["".join(rng.choice(list("abABéÉß 日\0🙂"), rng.integers(0, 6))) for _ in range(500)]
    Z = rng.normal(size=(500, 2))
    browser.open(write_page(tmp_path / "map.html", Z, text=texts))
    for wanted in ["a", "ab", "ba b", "é", "É", "日", "bé", "🙂", "b", "abab", "zzz", "ß"]:
        browser.run(f"cartograd.search.set({wanted!r})")
        expected = [int(wanted.lower() in text.lower()) for text in texts]
        assert browser.run("[...cartograd.marks]") == expected, wanted


def test_legend_hides_and_shows(shown):
    _, data = example()
    names = shown.run("[...document.querySelectorAll('#categories span')].map((span) => span.textContent)")
    assert names == sorted(WORDS)
    assert shown.run("document.querySelector('#categories small').textContent") == str(data["stone"].count("amber"))
    x, y = shown.run("cartograd.screenOf(0)")
    assert data["stone"][0] == "amber"
    shown.press("#categories li:first-child button")
    assert shown.run("document.querySelector('#categories button').getAttribute('aria-pressed')") == "false"
    shown.hover(x, y)
    assert shown.run("cartograd.card.row < 0 || cartograd.data.columns[0].text(cartograd.card.row) !== 'amber'")
    amber = "[...Array(400).keys()].filter((row) => cartograd.isShown(row)).length"
    assert shown.run(amber) == N - data["stone"].count("amber")
    shown.press("#show-all")
    assert shown.run(amber) == N
    shown.run("document.querySelectorAll('#categories button')[2].dispatchEvent(new MouseEvent('dblclick'))")
    assert shown.run(amber) == data["stone"].count("copper")


def pixels(browser):
    """How many pixels of the canvas are not the ground, and their mean colour, read right after drawing."""
    return browser.run(
        """(() => {
          const { painter, canvas } = cartograd;
          painter.frame();
          const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
          copy.drawImage(canvas, 0, 0);
          const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
          const ground = [...data.subarray(0, 3)];
          let [count, sums] = [0, [0, 0, 0]];
          for (let p = 0; p < data.length; p += 4) {
            const apart = [0, 1, 2].reduce((sum, part) => sum + Math.abs(data[p + part] - ground[part]), 0);
            if (apart < 40) continue;
            count++;
            for (let part = 0; part < 3; part++) sums[part] += data[p + part];
          }
          return { count, mean: sums.map((sum) => sum / Math.max(1, count)), ground };
        })()"""
    )  # fmt: skip


def test_hidden_points_are_not_drawn_and_colours_are_the_legends(shown):
    everything = pixels(shown)
    shown.run("cartograd.legend.showAlone(6)")
    alone = pixels(shown)
    assert 0.05 < alone["count"] / everything["count"] < 0.25
    wanted = shown.run("cartograd.coloring.hex(6)")
    color = [int(wanted[at : at + 2], 16) for at in (1, 3, 5)]
    # discs have pale rims, so the mean is between the colour and the ground, nearer to the colour
    share = [
        (m - g) / (c - g) for m, c, g in zip(alone["mean"], color, alone["ground"], strict=True) if abs(c - g) > 60
    ]
    assert all(0.6 < part <= 1.01 for part in share), share


def test_lasso_selects_and_exports_the_right_rows(shown):
    Path = pytest.importorskip("matplotlib.path", reason="checks the lasso against matplotlib's").Path
    Z, data = example()
    screen = np.array(shown.run(f"[...Array({N}).keys()].map((row) => cartograd.screenOf(row))"))
    centre = screen[np.array(data["stone"]) == "copper"].mean(axis=0)
    angles = np.linspace(0, 2 * np.pi, 20)
    line = centre + np.column_stack([np.cos(angles), np.sin(angles)]) * (60 + 25 * np.cos(3 * angles))[:, None]
    shown.drag(line.tolist(), modifiers=8)
    inside = np.flatnonzero(Path(line).contains_points(screen))
    assert 5 < len(inside) < N - 5
    assert shown.run("[...cartograd.selected]") == inside.tolist()
    assert shown.run("document.getElementById('selected').textContent") == f"{len(inside)} selected"
    name, content = shown.download(lambda: shown.press("#export"))
    assert name == "Stones-b-more-b--selection.csv"
    rows = list(csv.reader(io.StringIO(content.decode(), newline="")))
    assert rows[0] == ["row", "x", "y", "stone", "weight", "found", "note"]
    assert [int(row[0]) for row in rows[1:]] == inside.tolist()
    for row in rows[1:]:
        at = int(row[0])
        np.testing.assert_allclose([float(row[1]), float(row[2])], Z[at], rtol=1e-5, atol=1e-5)
        assert float(row[4]) == pytest.approx(data["weight"][at], rel=1e-6)
        note = data["note"][at]
        assert row[3:] == [data["stone"][at], row[4], str(data["found"][at]), f"'{note}" if note[0] == "=" else note]
    shown.press("#clear")
    assert shown.run("cartograd.selected") is None


CELLS = {
    "=1+1": '"\'=1+1"',
    "+cmd": '"\'+cmd"',
    "-x": '"\'-x"',
    "@a": '"\'@a"',
    "\tx": '"\'\tx"',
    "-1.5": "-1.5",
    "+1e3": "+1e3",
    "plain": "plain",
    'a"b': '"a""b"',
    "a,b": '"a,b"',
    "a\nb": '"a\nb"',
    "": "",
}


def test_cells_of_the_export(browser, tmp_path):
    Z = np.column_stack([np.arange(len(CELLS)), np.zeros(len(CELLS))])
    browser.open(write_page(tmp_path / "map.html", Z, text=list(CELLS)))
    browser.run(f"cartograd.select(Uint32Array.from(Array({len(CELLS)}).keys()))")
    _, content = browser.download(lambda: browser.press("#export"))
    lines = [f"{row},{row},0,{cell}\r\n" for row, cell in enumerate(CELLS.values())]
    assert content.decode() == "row,x,y,text\r\n" + "".join(lines)


def test_colour_by_another_column(shown):
    shown.run("cartograd.legend.select.value = 1; cartograd.legend.select.dispatchEvent(new Event('change'))")
    _, data = example()
    assert shown.run("document.getElementById('scale').hidden") is False
    assert shown.run("document.getElementById('categories').hidden") is True
    assert float(shown.run("document.getElementById('low').textContent")) == pytest.approx(
        min(data["weight"]), abs=1e-3
    )
    values = np.array(shown.run("[...cartograd.coloring.values]"))
    expected = (data["weight"] - data["weight"].min()) / np.ptp(data["weight"])
    np.testing.assert_allclose(values, expected, atol=1e-5)
    options = shown.run("[...document.getElementById('color').options].map((option) => option.textContent)")
    assert options == ["One colour", "stone", "weight", "found"]
    one = pixels(shown)
    assert one["count"] > 1000


def test_wheel_keys_and_drag_move_the_view(shown):
    before = shown.run("({ ...cartograd.camera })")
    anchor = shown.run("cartograd.camera.toPlane(700, 300)")
    shown.mouse("mouseWheel", 700, 300, deltaX=0, deltaY=-240)
    shown.settle()
    assert shown.run("cartograd.camera.zoom") > before["zoom"] * 1.2
    np.testing.assert_allclose(shown.run("cartograd.camera.toPlane(700, 300)"), anchor, atol=1e-9)
    held = shown.run("cartograd.camera.toPlane(600, 420)")
    shown.drag([(600, 420), (620, 430), (650, 470)])
    np.testing.assert_allclose(shown.run("cartograd.camera.toPlane(650, 470)"), held, atol=1e-9)
    x = shown.run("cartograd.camera.x")
    shown.run("cartograd.canvas.focus()")
    shown.key("ArrowRight")
    assert shown.run("cartograd.camera.x") > x
    zoom = shown.run("cartograd.camera.zoom")
    shown.key("+", "+")
    assert shown.run("cartograd.camera.zoom") == pytest.approx(zoom * 1.4)
    shown.key("0", "0")
    shown.wait("cartograd.atFit")
    after = shown.run("({ ...cartograd.camera })")
    assert [after[key] for key in ("x", "y", "zoom")] == pytest.approx([before[key] for key in ("x", "y", "zoom")])


def test_keyboard_reaches_rows_and_says_them(shown):
    shown.run("cartograd.canvas.focus()")
    shown.key("n", "n")
    assert shown.run("cartograd.card.row") == 0
    shown.key("n", "n")
    assert shown.run("document.getElementById('status').textContent").startswith("Row 1. stone: basalt")
    shown.key("/", "/")
    assert shown.run("document.activeElement.id") == "search"
    shown.key("Escape")
    assert shown.run("document.activeElement.id") == "map"
    shown.key("t", "t")
    assert shown.run("document.documentElement.dataset.theme") == "dark"
    assert sum(pixels(shown)["ground"]) < 120


def test_every_control_has_a_name_and_can_be_reached(shown):
    nameless = shown.run(
        """[...document.querySelectorAll("button, input, select, canvas, [tabindex]")].filter((element) => {
          const own = element.getAttribute("aria-label") || element.textContent.trim();
          const label = own || element.labels?.[0]?.textContent;
          return !label || (element.tabIndex < 0 && element.tagName !== "CANVAS");
        }).map((element) => element.outerHTML)"""
    )
    assert nameless == []


def test_link_keeps_the_view(browser, page):
    browser.open(f"{page.as_uri()}#x=0.25&y=-0.5&zoom=3&color=weight&theme=dark&find=flint")
    assert browser.run("[cartograd.camera.x, cartograd.camera.y, cartograd.camera.zoom]") == [0.25, -0.5, 3]
    assert browser.run("cartograd.coloring.column.name") == "weight"
    assert browser.run("document.documentElement.dataset.theme") == "dark"
    browser.wait("document.getElementById('found').textContent === '50 found'")
    browser.run("cartograd.panBy(-100, 0)")
    browser.wait("location.hash.includes('zoom=3.0000') && !location.hash.includes('x=0.25000')")
    link, view = browser.run("[location.href, { ...cartograd.camera }]")
    browser.open(link)
    again = browser.run("({ ...cartograd.camera })")
    assert [again[key] for key in ("x", "y", "zoom")] == pytest.approx(
        [view[key] for key in ("x", "y", "zoom")], abs=1e-4
    )
    assert browser.run("cartograd.coloring.column.name") == "weight"
    browser.run("location.hash = '#x=0&y=0&zoom=1&color=stone'")
    browser.wait("cartograd.coloring.column.name === 'stone'")
    assert browser.complaints() == []


def test_broken_links_are_ignored(shown):
    links = [
        "x=NaN&y=1&zoom=2",
        "x=1e999&y=0&zoom=1",
        "zoom=",
        "color=nope",
        "color=note",
        "theme=<script>",
        "%%%",
        "turn=1,2",
    ]
    for link in links:
        shown.run(f"new Promise((done) => {{ onhashchange = () => done(1); location.hash = {'#' + link!r}; }})")
        assert shown.run("cartograd.atFit"), link
        assert shown.run("[cartograd.coloring.column.name, document.documentElement.dataset.theme]") == [
            "stone",
            "light",
        ]


ODD = {
    "one point": ([[3.0, 4.0]], {"data": {"a": [None]}}),
    "equal points": ([[1.0, 1.0]] * 9, {"color": [1.5] * 9}),
    "no category": ([[0.0, 0.0], [1.0, 0.0]], {"color": [None, None], "label": [None, None]}),
    "no number": ([[0.0, 0.0], [1.0, 0.0]], {"data": {"a": [np.nan] * 2}, "color": "a"}),
    "infinite numbers": ([[0.0, 0.0], [1.0, 0.0], [2.0, 1.0]], {"color": [np.inf, -np.inf, 0.5]}),
    "many categories": (np.arange(3000).reshape(-1, 2), {"label": [f"c{i}" for i in range(1500)]}),
    "a coloured text": (
        np.arange(60).reshape(-1, 2),
        {"data": {"t": [f"t{i}" for i in range(30)]}, "color": "t", "text": "t"},
    ),
    "huge numbers": ([[-1e300, 0.0], [1e300, 1e300]], {"color": [1e-300, 1e300]}),
    "times": ([[0.0, 0.0], [1.0, 1.0]], {"color": np.array(["1600-01-01", "NaT"], dtype="datetime64[ms]")}),
    "nothing but points": (np.arange(20).reshape(-1, 2), {}),
}


def test_odd_data_are_shown(browser, tmp_path):
    for name, (Z, given) in ODD.items():
        browser.open(write_page(tmp_path / "map.html", Z, **given))
        assert browser.run("document.getElementById('notice').textContent") == "", name
        browser.run(
            "cartograd.pin(cartograd.data.count - 1); cartograd.select(Uint32Array.of(0)); cartograd.showMarked()"
        )
        browser.run("cartograd.data.columns.forEach((column, index) => cartograd.colorBy(index))")
        browser.settle()
        inside = browser.run(
            "cartograd.screenOf(0).every((part, axis) => part > 0 && part < [innerWidth, innerHeight][axis])"
        )
        assert inside, name
        assert browser.complaints() == [], name


def test_touch_pans_pinches_and_taps(browser, page):
    browser.resize(390, 780, mobile=True, scale=2)
    browser.call("Emulation.setTouchEmulationEnabled", enabled=True)
    try:
        browser.open(page)
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        assert browser.run("document.getElementById('panel').hidden")
        zoom = browser.run("cartograd.camera.zoom")
        browser.touch("touchStart", (150, 400), (240, 400))
        browser.touch("touchMove", (105, 400), (285, 400))
        browser.touch("touchEnd")
        browser.settle()
        assert browser.run("cartograd.camera.zoom") == pytest.approx(zoom * 2, rel=0.02)
        held = browser.run("cartograd.camera.toPlane(200, 500)")
        browser.touch("touchStart", (200, 500))
        browser.touch("touchMove", (230, 520))
        browser.touch("touchMove", (260, 560))
        browser.touch("touchEnd")
        browser.settle()
        np.testing.assert_allclose(browser.run("cartograd.camera.toPlane(260, 560)"), held, atol=0.02)
        browser.run("cartograd.fit({ at: 'once' })")
        browser.settle()
        x, y = browser.run("cartograd.screenOf(5)")
        browser.touch("touchStart", (x, y))
        browser.touch("touchEnd")
        browser.settle()
        assert browser.run("cartograd.card.pinned")
        box = browser.run("document.getElementById('card').getBoundingClientRect().toJSON()")
        assert box["left"] >= 0
        assert box["right"] <= 390
        assert box["bottom"] <= 780
    finally:
        browser.call("Emulation.setTouchEmulationEnabled", enabled=False)
        browser.resize(1200, 800)
    assert browser.complaints() == []
