import errno
import importlib.util
import os

import pytest

from cartograd.viewer import page


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("a.b.html", ["a.b.cartograd", "a.b.html", "a.b.parquet", "a.b.png"]),
        ("plain", ["plain.cartograd", "plain.html", "plain.parquet", "plain.png"]),
        ("t.csv", ["t.cartograd", "t.csv", "t.html", "t.png"]),
        ("p.svg", ["p.cartograd", "p.html", "p.parquet", "p.svg"]),
        ("m.cartograd", ["m.cartograd", "m.html", "m.parquet", "m.png"]),
    ],
)
def test_files_are_called_alike(run, here, output, expected):
    run("map", "iris", "--method", "pca", "--score-rows", 0, "-o", output)
    assert sorted(os.listdir()) == expected


def test_a_folder_gets_files_called_map(run, here):
    (here / "results").mkdir()
    run("map", "iris", "--method", "pca", "--score-rows", 0, "-o", "results")
    assert sorted(os.listdir("results")) == ["map.cartograd", "map.html", "map.parquet", "map.png"]


def test_the_same_seed_gives_the_same_files(run, here, table, quick):
    for name in ("one", "two"):
        (here / name).mkdir()
        run("map", table, "--label", "kind", "-o", f"{name}/map.html", *quick)
    for file in ("map.html", "map.parquet", "map.png"):
        assert (here / "one" / file).read_bytes() == (here / "two" / file).read_bytes(), file


def test_another_seed_gives_another_map(run, here, table, quick):
    run("map", table, "-o", "one.csv", *quick)
    run("map", table, "-o", "two.csv", "--seed", 1, *quick)
    assert (here / "one.csv").read_text() != (here / "two.csv").read_text()


def test_what_was_there_stays_whole_where_writing_fails(run, here, table, quick, monkeypatch):
    (here / "map.html").write_text("old")

    def half_a_page(*arguments, **options):
        yield "<!doctype html>"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(page, "page_parts", half_a_page)
    result = run("map", table, *quick, status=1)
    assert (here / "map.html").read_text() == "old"
    assert sorted(os.listdir()) == ["a.csv", "map.html"]
    assert "No space left on device" in result.stderr
    assert "Hint: what was there before is unchanged" in result.stderr


def test_the_second_run_replaces_the_first(run, here, table, quick):
    run("map", table, "-o", "out.html", *quick)
    before = {name: (here / name).read_bytes() for name in ("out.html", "out.parquet", "out.png", "out.cartograd")}
    run("map", table, "-o", "out.html", "--seed", 1, *quick)
    for name, content in before.items():
        assert (here / name).read_bytes() != content, name


def test_without_the_optional_packages(run, here, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name in ("pyarrow", "matplotlib") else find(name, *more),
    )
    result = run("map", "iris", "--method", "pca", "--score-rows", 0)
    assert sorted(os.listdir()) == ["map.cartograd", "map.csv", "map.html"]
    assert 'pip install "cartograd[tables]"' in result.stderr
    assert 'pip install "cartograd[plot]"' in result.stderr


def test_a_folder_of_images(run_json, here):
    image = pytest.importorskip("PIL.Image")
    for name in ("dark", "light"):
        (here / "photos" / name).mkdir(parents=True)
        for place in range(8):
            level = place * 6 + (200 if name == "light" else 0)
            image.new("RGB", (8, 8), (level, level // 2, 30)).save(here / "photos" / name / f"{place}.png")
    told = run_json("map", "photos", "--n-neighbors", 5, "--max-iter", 5)
    assert (told["input"]["rows"], told["input"]["features"], told["input"]["label"]) == (16, 192, "label")
    assert '"images":{' in (here / "map.html").read_text().replace(" ", "")
