"""Reads a page's data back with nothing of ours: an HTML parser, JSON, base64, zlib."""

import base64
import itertools
import json
import zlib
from html.parser import HTMLParser

import numpy as np


class Elements(HTMLParser):
    """Every element of a page: (name, attributes), and the text of scripts and styles."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.all, self.text, self.inside = [], {}, None
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.inside = len(self.all)
        self.all.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside is not None:
            self.text[self.inside] = self.text.get(self.inside, "") + data

    def named(self, tag):
        """(attributes, text) of every element of a kind."""
        return [(attrs, self.text.get(place, "")) for place, (name, attrs) in enumerate(self.all) if name == tag]


class Data:
    """The header and the blocks of a page."""

    def __init__(self, page):
        scripts = {attrs.get("id"): (attrs, text) for attrs, text in Elements(page).named("script")}
        self.header = json.loads(scripts["header"][1])
        self.scripts = scripts

    def block(self, number, kind):
        attrs, text = self.scripts[f"block-{number}"]
        data = base64.b64decode(text, validate=True)
        if attrs["data-packing"] == "deflate":
            data = zlib.decompress(data)
        return np.frombuffer(data, dtype=np.dtype(kind).newbyteorder("<"))

    def coordinates(self):
        info = self.header["coordinates"]
        units = self.block(info["block"], info["type"]).reshape(-1, info["width"]).astype(float)
        if info["type"] == "uint16":
            units = units / 32767.5 - 1
        return units * info["factor"] + info["offset"]

    def column(self, name):
        return next(info for info in self.header["columns"] if info["name"] == name)

    def values(self, name):
        """Numbers, or one string or None a row."""
        info = self.column(name)
        stored = self.block(info["block"], info["type"])
        if "names" not in info:
            return stored
        starts, data = (
            self.block(info["names"]["starts"], "uint32"),
            self.block(info["names"]["bytes"], "uint8").tobytes(),
        )
        names = [data[a:b].decode() for a, b in itertools.pairwise(starts)] + [None]
        return [names[code] for code in stored]
