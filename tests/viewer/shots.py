"""Pictures of a page as services take them: `chromium --headless --screenshot` and `--print-to-pdf`, from the shell.

As a script it counts the pictures that do not show the map: ``python tests/viewer/shots.py PICTURES PAGE [FLAG ...]``
takes so many at each size of a page of ten categories, and one on paper.
"""

import re
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
from chromium import find_chromium
from PIL import Image

from cartograd.viewer.colors import PALETTE

SIZES = ((800, 600), (1200, 800), (1400, 900), (390, 844))
FLAGS = (
    "--headless", "--no-sandbox", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-quic", "--virtual-time-budget=8000",
)  # fmt: skip
NEAR = 48
"""A pixel has a color if no channel is farther from it than this."""
BLACK = 12
"""A pixel is black if no channel is above this; the dark ground is (16, 19, 23)."""
BESIDE = 240
"""Pixels at the right that the legend covers in windows of at least 720."""


def chromium(page, *flags):
    """Run Chromium once with a profile of its own; `page` is a path or an address."""
    address = page if "://" in str(page) else Path(page).absolute().as_uri()
    with tempfile.TemporaryDirectory(prefix="cartograd-chromium-", ignore_cleanup_errors=True) as profile:
        call = [find_chromium(), *FLAGS, f"--user-data-dir={profile}", *flags, address]
        subprocess.run(call, check=True, timeout=120, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def take(page, width, height, *flags):
    """Take a screenshot, (height, width, 3) uint8."""
    with tempfile.TemporaryDirectory(prefix="cartograd-shot-") as folder:
        shot = Path(folder, "shot.png")
        chromium(page, f"--screenshot={shot}", f"--window-size={width},{height}", *flags)
        return np.asarray(Image.open(shot).convert("RGB"))


def print_page(page, *flags):
    """Print a page; the bytes of the PDF."""
    with tempfile.TemporaryDirectory(prefix="cartograd-print-") as folder:
        sheet = Path(folder, "sheet.pdf")
        chromium(page, f"--print-to-pdf={sheet}", "--no-pdf-header-footer", *flags)
        return sheet.read_bytes()


def rgb(color):
    """The channels of a color "#rrggbb"."""
    return [int(color[at : at + 2], 16) for at in (1, 3, 5)]


def black_share(image):
    """Return the share of pixels that are black."""
    return float((image.max(axis=2) <= BLACK).mean())


def shown_share(image, colors, least=12):
    """Return the share of `colors` that at least so many pixels are near to, nearer than to the other colors."""
    pixels = image.reshape(-1, 3).astype(np.int16)
    pixels = pixels[np.ptp(pixels, axis=1) > 24]  # neither the ground nor ink
    apart = np.abs(pixels[:, None] - np.array([rgb(color) for color in colors], dtype=np.int16)).max(axis=2)
    counts = np.bincount(apart.argmin(axis=1)[apart.min(axis=1) <= NEAR], minlength=len(colors))
    return float((counts >= least).mean())


def is_the_map(image, colors=PALETTE[:10]):
    """Whether a picture shows at least half of the colors beside the legend, and less than 5 % black."""
    width = image.shape[1]
    return (
        black_share(image) < 0.05 and shown_share(image[:, : width - BESIDE if width >= 720 else width], colors) >= 0.5
    )


def strokes(sheet):
    """Return the colors "#rrggbb" of the lines on a page of a PDF, and how many images it holds."""
    found = set()
    for begin in re.finditer(rb"stream\r?\n", sheet):
        try:
            text = zlib.decompressobj().decompress(sheet[begin.end() :])
        except zlib.error:
            continue
        for channels in re.findall(rb"([\d.]+) ([\d.]+) ([\d.]+) RG\b", text):
            found.add("#" + "".join(f"{round(float(channel) * 255):02x}" for channel in channels))
    return found, sheet.count(b"/Subtype /Image")


def main(count, page, *flags):
    """Print how many pictures of each size do not show the map."""
    for width, height in SIZES:
        bad = sum(not is_the_map(take(page, width, height, *flags)) for _ in range(int(count)))
        print(f"{width} x {height}: {bad} of {count} pictures do not show the map", flush=True)
    colors, images = strokes(print_page(page, *flags))
    print(f"on paper: {len(colors & set(PALETTE[:10]))} of 10 colors are drawn, {images} images")


if __name__ == "__main__":
    main(*sys.argv[1:])
