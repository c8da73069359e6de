"""The page's export and the tables we write make the same text harmless; needs node, not a browser."""

import json
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

import cartograd.viewer
from cartograd.io.spreadsheet import harmless

SCRIPT = Path(cartograd.viewer.__file__).parent / "web" / "csv.js"
PIECES = [
    *"=+-@;,|\t\n\r\"' a1.",
    "\uff1d",
    "\uff0b",
    "\uff0d",
    "\uff20",
    "\u00a0",
    "\ufeff",
    "\u2028",
    "\0",
    "-1.5",
    "1e3",
]


@pytest.fixture(scope="module")
def node():
    found = shutil.which("node")
    return found or pytest.skip("node is not installed")


def run(node, texts, function):
    script = f"{SCRIPT.read_text()}\nconst texts = {json.dumps(texts)};"
    script += f"process.stdout.write(JSON.stringify(texts.map({function})));"
    done = subprocess.run([node, "-"], input=script, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


def test_the_export_makes_the_same_text_harmless(node):
    seed = time.time_ns() % 2**32
    print("seed", seed)
    draw = random.Random(seed)
    texts = ["".join(draw.choices(PIECES, k=draw.randint(0, 6))) for _ in range(3000)]
    found = run(node, texts, "harmless")
    assert [(text, one) for text, one in zip(texts, found, strict=True) if one != harmless(text)] == []


def test_names_of_columns_in_the_export(node):
    names = ["=1+1", "a;=1+1", "\uff1dA1", "a\n@x", "plain"]
    data = {"dimensions": 2, "columns": [{"name": name} for name in names]}
    script = f"(text) => [...csvLines({json.dumps(data)}, [])][0]"
    assert run(node, [""], script) == [
        'row,x,y,"\'=1+1","a;\'=1+1","\'\uff1dA1","a\n\'@x",plain\r\n',
    ]
