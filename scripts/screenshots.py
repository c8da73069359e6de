"""Makes the pictures of the viewer in docs/: a map of the digits in a headless Chromium, light and dark.

Run it as ``python scripts/screenshots.py``; it needs a Chromium, on the path or named in the variable CHROMIUM.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from sklearn.datasets import load_digits

from cartograd import UMAP
from cartograd.viewer import write_page

ROOT = Path(__file__).resolve().parents[1]
NAMES = "zero one two three four five six seven eight nine".split()
LIGHT = "cartograd.pin(cartograd.data.columns[0].values.findIndex((code, row) => code === 6 && row > 900))"
DARK = "cartograd.colorBy(2)"


def digits_page(folder: str) -> Path:
    """A page of scikit-learn's digits, with thumbnails."""
    digits = load_digits()
    layout = UMAP(n_neighbors=15, max_iter=300, random_state=0).fit_transform(digits.data)
    data = {
        "digit": digits.target,
        "name": [NAMES[value] for value in digits.target],
        "ink": digits.data.mean(axis=1),
    }
    given = {"label": "digit", "images": digits.images, "title": "Handwritten digits"}
    return write_page(f"{folder}/digits.html", layout, data=data, **given)


def main() -> int:
    """Write docs/viewer-light.png and docs/viewer-dark.png."""
    sys.path.insert(0, str(ROOT / "tests" / "viewer"))
    from chromium import Chromium, find_chromium  # type: ignore[import-not-found]

    if find_chromium() is None:
        print("no Chromium was found: install one, or name its program in the variable CHROMIUM", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, Chromium() as browser:
        page = digits_page(folder).as_uri()
        browser.resize(1200, 760, scale=1.5)
        for theme, action in (("light", LIGHT), ("dark", DARK)):
            browser.open(f"{page}#theme={theme}")
            browser.run(action)
            browser.settle()
            place = ROOT / "docs" / f"viewer-{theme}.png"
            browser.screenshot(place)
            print(place.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
