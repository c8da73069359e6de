"""Two hundred hostile labels in a real browser: each is shown as text, none is executed."""

import numpy as np
import pytest

from cartograd.viewer import view, write_page

SHOTS = [
    "<script>hit(N)</script>",
    "</script><script>hit(N)</script>",
    "<img src=x onerror=hit(N)>",
    "<svg onload=hit(N)>",
    "<svg><script>hit(N)</script></svg>",
    "<iframe srcdoc='<script>parent.hit(N)</script>'>",
    "javascript:hit(N)",
    "<a href=javascript:hit(N)>x</a>",
    "<body onload=hit(N)>",
    "<details open ontoggle=hit(N)>",
    '"><script>hit(N)</script>',
    "' onmouseover='hit(N)",
    '" autofocus onfocus="hit(N)',
    "<input autofocus onfocus=hit(N)>",
    "<style>@import 'x'</style>",
    "<!--<script>hit(N)//-->",
    "<![CDATA[<script>hit(N)</script>]]>",
    "<math><mi xlink:href=javascript:hit(N)>",
    "${hit(N)}",
    "{{constructor.constructor('hit(N)')()}}",
    "`;hit(N);`",
    "\\u003cscript\\u003ehit(N)\\u003c/script\\u003e",
    "&lt;script&gt;hit(N)",
    "&#60;script&#62;hit(N)",
    "<object data=javascript:hit(N)>",
    "<embed src=javascript:hit(N)>",
    "<base href=//evil.example/>",
    "<link rel=stylesheet href=//evil.example/N>",
    "<meta http-equiv=refresh content=0;url=//evil.example/N>",
    "<form action=//evil.example>",
    "<template><script>hit(N)</script></template>",
    "<noscript><p title='</noscript><img src=x onerror=hit(N)>'>",
    "__proto__",
    "constructor",
    "toString",
    "\u202ehit(N)\u202c",
    "\u2066abc\u2069 \u05d0\u05d1\u05d2",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 <b>N</b>",
    "a\0b<script>hit(N)</script>",
    "\0",
    "\u2028hit(N)\u2029",
    "\ufeff<script>hit(N)</script>",
    "\x1b[31mred",
    "\r\nSet-Cookie: a=N",
    '=HYPERLINK("http://evil.example")',
    "+hit(N)",
    "-hit(N)",
    "@hit(N)",
    "z\u0300\u0301\u0302\u0303" * 40,
    "\U0001f600\u200d\U0001f525 N",
]
LABELS = [
    f"{shot.replace('N', str(100 * k + at))}{'' if k == 0 else f' {k}'}"
    for k in range(4)
    for at, shot in enumerate(SHOTS)
]
SPY = "window.hits = []; window.hit = (number) => window.hits.push(number); window.alert = window.hit;"


def texts_in_the_page(browser):
    """What the page shows of names: the legend's entries, in the order of codes, and each row's card."""
    legend = browser.run("[...document.querySelectorAll('#categories span')].map((span) => span.textContent)")
    cards = browser.run(
        """[...Array(cartograd.data.count).keys()].map((row) => {
          cartograd.pin(row);
          return ["#card-text", "#card-columns dd"].map((place) => document.querySelector(place).textContent);
        })"""
    )  # fmt: skip
    return legend, cards


def test_hostile_labels_are_text(browser, tmp_path):
    assert len(set(LABELS)) == 200
    texts = [*LABELS[:-1], "<b>" + "x" * 2**20]
    columns = {"<img src=x onerror=hit(1)>": LABELS, "</script><script>hit(2)</script>": list(range(200))}
    Z = np.column_stack([np.arange(200) % 20, np.arange(200) // 20]).astype(float)
    title = "</title><script>hit(3)</script><img src=x onerror=hit(4)>"
    place = write_page(tmp_path / "map.html", Z, data=columns, label=next(iter(columns)), text=texts, title=title)
    spy = browser.call("Page.addScriptToEvaluateOnNewDocument", source=SPY)["identifier"]
    try:
        browser.open(place)
        legend, cards = texts_in_the_page(browser)
        for x in range(60, 1140, 120):  # and the mouse, over legend, names and points
            browser.hover(x, 100 + x // 2)
        elements = browser.run("document.querySelectorAll('#categories *, #card *, #labels *, #top *').length")
        tags = browser.run("[...new Set([...document.body.querySelectorAll('*')].map((element) => element.localName))]")
        shown = browser.run("[...document.querySelectorAll('#labels span')].map((span) => span.textContent)")
        title_shown = browser.run("document.getElementById('title').textContent")
        hits = browser.run("window.hits")
        complaints, requests = browser.complaints(), browser.requests()
    finally:
        browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=spy)
    assert hits == []
    assert complaints == []
    assert [address for address in requests if not address.startswith(("file:", "about:", "data:"))] == []
    assert sorted(legend) == sorted(shortened(label, 200) for label in LABELS)
    assert [value for _, value in cards] == [shortened(label, 160) for label in LABELS]
    assert [text for text, _ in cards] == [shortened(text, 600) for text in texts]
    assert title_shown == title
    assert set(shown) <= {shortened(label, 40) for label in LABELS}
    assert len(shown) == 200
    assert {"img", "iframe", "object", "embed", "style", "math", "a", "base", "meta", "link"}.isdisjoint(tags)
    assert elements > 200


def shortened(text, most):
    """As the page does it, which counts in UTF-16 units."""
    units = text.encode("utf-16-le")
    return text if len(units) <= 2 * most else units[: 2 * (most - 1)].decode("utf-16-le", "replace") + "…"


def test_search_text_and_links_are_text_too(browser, tmp_path):
    place = write_page(tmp_path / "map.html", [[0.0, 0.0]], text=["<b>x</b>"], data={"a": ["b"]})
    browser.open(
        f"{place.as_uri()}#find=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E&color=%3Cscript%3E&theme=%22%3E%3Cscript%3E"
    )
    assert browser.run("document.getElementById('search').value") == "<img src=x onerror=alert(1)>"
    assert browser.run("document.querySelectorAll('img').length") == 0
    browser.run("cartograd.search.set('<b>')")
    assert browser.run("document.getElementById('found').textContent") == "1 found"
    assert browser.complaints() == []


def test_the_policy_stops_a_script_that_got_in_all_the_same(browser, tmp_path):
    page = write_page(tmp_path / "map.html", [[0.0, 0.0]])
    page.write_text(
        page.read_text().replace("<body", "<script>window.intruder = 1</script><body onclick='intruder = 1'")
    )
    browser.open(page)
    browser.click(5, 795)
    assert browser.run("typeof window.intruder") == "undefined"
    assert any("Content Security Policy" in text for text in browser.complaints())


@pytest.mark.parametrize("text", ["'); hit(1); ('", '"><script>hit(1)</script>', "</iframe><script>hit(1)</script>"])
def test_notebook_frame_keeps_its_content_inside(browser, tmp_path, text):
    shown = view([[0.0, 0.0]], {"a": [text]}, title=text, open_browser=False)
    shown.close()
    outer = tmp_path / "notebook.html"
    outer.write_text(
        f"<!doctype html><html data-ready=true><script>{SPY}</script><body>{shown._repr_html_()}</body></html>"
    )
    browser.open(outer)
    assert browser.run("window.hits") == []
    assert browser.run("document.querySelectorAll('iframe').length") == 1
    assert browser.run("document.body.querySelectorAll('script').length") == 0
    assert browser.run("document.querySelector('iframe').contentDocument") is None  # it has an origin of its own
