import numpy
import pytest

from cartograd.io import load_model, read


def test_the_rows_of_the_map_come_back_at_their_places(run, made, table):
    result = run("transform", "out.cartograd", table, "-o", "placed.parquet")
    before, after = read("out.parquet", columns=["x", "y"]), read("placed.parquet", columns=["x", "y"])
    numpy.testing.assert_array_equal(after.X, before.X)
    assert list(after.columns) == list(before.columns)
    assert "Placed 60 rows of a.csv in the map of out.cartograd (UMAP)" in result.stdout
    assert "view placed.parquet" in result.stdout
    assert result.stderr == ""


def test_new_rows_are_where_python_places_them(run, run_json, made, here, rows):
    new = rows[:7] + 0.25
    lines = ["note,d,c,b,x"] + [f"n{i},{d},{c},{b},{x}" for i, (x, b, c, d) in enumerate(new.tolist())]
    (here / "new.csv").write_text("\n".join(lines))  # other columns, in another order
    told = run_json("transform", "out.cartograd", "new.csv", "-o", "new.npy")
    numpy.testing.assert_array_equal(numpy.load("new.npy"), load_model("out.cartograd").transform(new))
    assert told["input"] == {"source": "new.csv", "rows": 7, "features": 4}
    assert told["files"] == {"table": "new.npy"}


def test_from_a_pipe_into_a_pipe(run, made, here, table):
    result = run("transform", "out.cartograd", "-", "-o", "-", input=(here / table).read_bytes())
    (here / "piped.csv").write_text(result.stdout)
    numpy.testing.assert_array_equal(read("piped.csv", columns=["x", "y"]).X, read("out.parquet", columns=["x", "y"]).X)


def test_columns_of_other_names(run, made, here, rows):
    (here / "new.csv").write_text("p,q,r,s\n" + "\n".join(",".join(map(str, row)) for row in rows[:5].tolist()))
    said = run("transform", "out.cartograd", "new.csv", status=1).stderr
    assert said.startswith("Error: new.csv: columns: there is no column 'x', and the map was made with it\nHint: name")
    run("transform", "out.cartograd", "new.csv", "--columns", "p,q,r,s", "-o", "new.npy")
    expected = read("out.parquet", columns=["x", "y"]).X[:5]
    numpy.testing.assert_array_equal(numpy.load("new.npy"), expected)


def test_too_few_columns(run, made, here):
    (here / "new.csv").write_text("p,q\n1,2\n3,4\n")
    said = run("transform", "out.cartograd", "new.csv", "--columns", "p,q", status=1).stderr
    assert "X has 2 features, but UMAP is expecting 4 features" in said


def test_categories_become_the_features_they_were(run, here, rows):
    lines = [f"{a},{b},{'red' if i % 2 else 'blue'}" for i, (a, b, _, _) in enumerate(rows.tolist())]
    (here / "all.csv").write_text("a,b,hue\n" + "\n".join(lines))
    run("map", "all.csv", "--one-hot", "hue", "--method", "pca", "-o", "all.html")
    (here / "blue.csv").write_text("a,b,hue\n" + "\n".join(line for line in lines if "blue" in line))
    run("transform", "all.cartograd", "blue.csv", "-o", "blue.npy")
    expected = read("all.parquet", columns=["x", "y"]).X[::2]
    numpy.testing.assert_allclose(numpy.load("blue.npy"), expected, atol=1e-12)
    (here / "green.csv").write_text("a,b,hue\n1,2,green\n2,3,blue\n")
    said = run("transform", "all.cartograd", "green.csv", status=1).stderr
    assert "green.csv: 'hue=green' is a category that the map was made without" in said


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (["a.csv", "a.csv"], 1, "cannot load a.csv"),
        (["nosuch.cartograd", "a.csv"], 1, "nosuch.cartograd"),
        (["out.cartograd", "nosuch.csv"], 1, "nosuch.csv: there is no such file"),
        (["out.cartograd", "a.csv", "-o", "x.html"], 2, "the name must end in one of .parquet"),
        (["out.cartograd", "a.csv", "-o", "a.csv"], 2, "a.csv would be written over the input"),
        (["out.cartograd", "a.csv", "-o", "-", "--json"], 2, "use one of them"),
    ],
)
def test_what_is_refused(run, made, arguments, status, expected):
    result = run("transform", *arguments, status=status)
    assert expected in result.stderr
    assert result.stdout == ""
