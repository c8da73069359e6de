"""Ways to damage bytes, each a function of (data, random generator)."""

import json
import struct


def flip(data, draw):
    """Some bits turned over."""
    data = bytearray(data)
    for _ in range(draw.choice([1, 1, 1, 2, 8])):
        data[draw.integers(len(data))] ^= 1 << draw.integers(8)
    return bytes(data)


def overwrite(data, draw):
    """A run of bytes replaced by zeros, ones, or anything."""
    begin, length = draw.integers(len(data)), draw.integers(1, 32)
    run = [b"\0" * length, b"\xff" * length, draw.bytes(length)][draw.integers(3)]
    return data[:begin] + run[: len(data) - begin] + data[begin + length :]


def cut(data, draw):
    """The end missing."""
    return data[: draw.integers(len(data))]


def splice(data, draw):
    """A piece removed, doubled, moved, or put in from elsewhere."""
    begin, end = sorted(draw.integers(len(data) + 1, size=2))
    piece, place = data[begin:end], draw.integers(len(data) + 1)
    ways = [
        data[:begin] + data[end:],
        data[:end] + piece + data[end:],
        data[:place] + piece + data[place:],
        data[:place] + draw.bytes(draw.integers(1, 64)) + data[place:],
    ]
    return ways[draw.integers(4)]


VALUES = [None, True, -1, 0, 3, 2**31, 2**63, 10**30, 1e308, "", "x", "F64", "t1", [], [1], {}, {"$": "tensor"}, [[[]]]]


def edited(tree, draw):
    """JSON with one value replaced, removed, or renamed, somewhere in it."""
    place = tree
    while isinstance(place, (dict, list)) and len(place):
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = keys[draw.integers(len(keys))]
        below = place[key]
        if isinstance(below, (dict, list)) and len(below) and draw.random() < 0.9:
            place = below
            continue
        way = draw.integers(4)
        if way == 0:
            del place[key]
        elif way == 1 and isinstance(place, dict):
            place[str(draw.choice(["x", "t0", "class", "$", "shape"]))] = place.pop(key)
        else:
            place[key] = VALUES[draw.integers(len(VALUES))]
        break
    return tree


def edit_header(data, draw):
    """The JSON before the tensors of a safetensors file changed, its length mended or not."""
    length = struct.unpack("<Q", data[:8])[0]
    outer = edited(json.loads(data[8 : 8 + length]), draw)
    text = json.dumps(outer).encode()
    return struct.pack("<Q", len(text) if draw.random() < 0.8 else length) + text + data[8 + length :]
