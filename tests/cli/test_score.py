import numpy
import pytest
from sklearn.manifold import trustworthiness

from cartograd.io import read, write_table


def test_the_same_scores_as_when_the_map_was_made(run_json, table, quick):
    first = run_json("map", table, "--label", "kind", "-o", "out.html", *quick)["scores"]
    told = run_json("score", table, "out.parquet", "--label", "kind")
    assert told["scores"] == pytest.approx(first)
    assert told["map"] == "out.parquet"
    assert told["label"] == "kind"
    assert run_json("score", table, "out.cartograd", "--label", "kind")["scores"] == pytest.approx(first)


def test_a_map_that_another_program_made(run_json, run, here, rows):
    Z = rows[:, :2] ** 3
    numpy.save(here / "X.npy", rows)
    numpy.save(here / "Z.npy", Z)
    expected = pytest.approx(trustworthiness(rows, Z, n_neighbors=15), abs=1e-9)
    assert run_json("score", "X.npy", "Z.npy")["scores"]["trustworthiness"] == expected
    write_table("z.csv", {"name": [f"n{i}" for i in range(60)], "y": Z[:, 1], "x": Z[:, 0]})
    assert run_json("score", "X.npy", "z.csv")["scores"]["trustworthiness"] == expected
    write_table("three.csv", {"x": Z[:, 0], "y": Z[:, 1], "z": rows[:, 2], "w": numpy.full(60, numpy.nan)})
    told = run_json("score", "X.npy", "three.csv", "--metric", "cosine")["scores"]
    places = numpy.column_stack([Z, rows[:, 2]])
    assert told["trustworthiness"] == pytest.approx(
        trustworthiness(rows, places, n_neighbors=15, metric="cosine"), abs=1e-9
    )


def test_a_map_of_many_dimensions(run_json, run, here, table):
    run("map", table, "--method", "pca", "--n-components", 4, "--score-rows", 0)
    assert run_json("score", table, "map.parquet")["scores"]["recall@15"] == 1.0
    assert read("map.parquet", columns=["dim_3"]).X.shape == (60, 1)


def test_text_for_people(run, made, table):
    said = run("score", table, "out.parquet", "--label", "kind", "--score-rows", 30).stdout
    assert said.startswith("Scores of 30 of the 60 rows, drawn at random (1 is best):\n  trustworthiness")
    assert "recall@14" in said
    assert "label accuracy" in said


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (["iris", "out.parquet"], 1, "iris has 150 rows and out.parquet has 60 rows"),
        (["a.csv", "a.csv", "--label", "nosuch"], 2, "there is no column 'nosuch'"),
        (["a.csv", "iris"], 1, "this is no map: it has no columns x and y, and 4 columns of numbers"),
        (["a.csv", "nosuch.csv"], 1, "nosuch.csv: there is no such file"),
        (["a.csv", "out.parquet", "--score-rows", "0"], 2, "nothing to do"),
        (["a.csv", "out.parquet", "--metric", "far"], 2, "far"),
    ],
)
def test_what_is_refused(run, made, arguments, status, expected):
    assert expected in run("score", *arguments, status=status).stderr
