import json

import numpy
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.manifold import trustworthiness
from sklearn.model_selection import LeaveOneOut, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from cartograd import PCA, TSNE, UMAP
from cartograd.io import load_model, read


def places(path, axes=("x", "y")):
    found = read(path, columns=list(axes))
    return found.X


def told_by_neighbours(Z, labels):
    """The share of labels that the 10 nearest others tell, by scikit-learn."""
    return cross_val_score(KNeighborsClassifier(10), Z, labels, cv=LeaveOneOut()).mean()


def test_the_map_is_the_one_that_python_makes(run_json, run, table, rows, quick):
    told = run_json("map", table, "--label", "kind", "--seed", 3, *quick)
    expected = UMAP(n_neighbors=8, max_iter=15, random_state=3).fit_transform(rows)
    numpy.testing.assert_array_equal(places("map.parquet"), expected)
    assert told["method"] == "UMAP"
    assert told["parameters"]["n_neighbors"] == 8
    assert told["parameters"]["random_state"] == told["seed"] == 3
    assert told["n_iter"] == 15
    assert told["input"] == {
        "source": "a.csv",
        "rows": 60,
        "features": 4,
        "columns": ["kind", "note"],
        "label": "kind",
    }
    assert told["files"] == {
        "page": "map.html",
        "table": "map.parquet",
        "picture": "map.png",
        "model": "map.cartograd",
    }
    assert {"read", "search", "affinities", "start", "layout", "score", "write"} <= told["seconds"].keys()
    assert sum(told["seconds"].values()) - 2 * told["seconds"]["total"] <= 1e-2


def test_scores_agree_with_scikit_learn(run_json, table, rows, quick):
    scores = run_json("map", table, "--label", "kind", *quick)["scores"]
    Z = places("map.parquet")
    assert scores["trustworthiness"] == pytest.approx(trustworthiness(rows, Z, n_neighbors=15), abs=1e-9)
    assert scores["continuity"] == pytest.approx(trustworthiness(Z, rows, n_neighbors=15), abs=1e-9)
    assert (scores["rows"], scores["k"]) == (60, 15)
    assert 0 < scores["recall@15"] <= 1
    assert 0.5 < scores["triplets"] <= 1


def test_the_table_has_the_columns_of_the_input(run, table, rows, quick):
    run("map", table, "--label", "kind", "-o", "out.csv", *quick)
    written = read("out.csv", columns=["x", "y"])
    assert list(written.columns) == ["input_x", "b", "c", "d", "kind", "note"]
    numpy.testing.assert_array_equal(written.columns["input_x"], rows[:, 0])
    assert written.columns["note"][59] == "note 59"


def test_the_summary_for_people(run, table, quick):
    result = run("map", table, "--label", "kind", *quick)
    for expected in (
        "Read a.csv: 60 rows, 4 features, label 'kind'",
        "UMAP(n_neighbors=8",
        "seed=0",
        "15 steps",
        "Seconds: ",
        "Scores of all rows",
        "trustworthiness",
        "recall@15",
        "label accuracy",
        "map.html",
        "map.parquet",
        "map.png",
        "map.cartograd",
        "view map.html",
    ):
        assert expected in result.stdout
    assert result.stderr == ""


def test_quiet_is_silent(run, table, quick):
    result = run("map", table, "--quiet", "--n-neighbors", 80, "--max-iter", 5)
    assert result.output == ""


def test_json_holds_what_was_noted(run, table):
    result = run("map", table, "--n-neighbors", 80, "--max-iter", 5, "--json")
    notes = json.loads(result.stdout)["notes"]
    assert len(notes) == 1
    assert "n_neighbors" in notes[0]
    assert result.stderr == f"Note: {notes[0]}\n"


def test_verbose_says_what_was_decided(run, table, quick):
    result = run("map", table, "--verbose", *quick)
    assert "column 'kind' is kept beside the features: text" in result.stderr
    assert "layout took" in result.stderr
    assert "layout took" not in result.stdout
    assert "layout took" not in run("map", table, *quick).stderr


def test_scores_of_a_sample_say_so(run, table, quick):
    result = run("map", table, "--score-rows", 20, *quick)
    assert "Scores of 20 of the 60 rows, drawn at random" in result.stdout
    assert "Scores" not in run("map", table, "--score-rows", 0, *quick).stdout


@pytest.mark.parametrize("labels", ["quantity", "alike"])
def test_labels_that_are_no_classes(run_json, here, rows, quick, labels):
    values = rows[:, 0] + 0.125 if labels == "quantity" else ["same"] * 60
    lines = ["a,b,c,label"] + [f"{a},{b},{c},{v}" for (a, b, c, _), v in zip(rows, values, strict=True)]
    (here / "t.csv").write_text("\n".join(lines))
    told = run_json("map", "t.csv", "--label", "label", *quick)
    assert "label_accuracy" not in told["scores"]
    assert any("no label accuracy" in note for note in told["notes"])


@pytest.mark.parametrize("unknown", [0, 5])
def test_label_accuracy_agrees_with_scikit_learn(run_json, here, rows, unknown):
    labels = (numpy.arange(60) + (numpy.arange(60) % 10 == 7)) % 3  # one in ten has the label of another cloud
    lines = [f"{a},{b},{c},{'' if i < unknown else labels[i]}" for i, (a, b, c, _) in enumerate(rows)]
    (here / "t.csv").write_text("a,b,c,kind\n" + "\n".join(lines))
    scores = run_json("map", "t.csv", "--label", "kind", "--method", "pca")["scores"]
    expected = told_by_neighbours(places("map.parquet")[unknown:], labels[unknown:])
    assert scores["label_accuracy"] == pytest.approx(expected)
    assert 0.85 < expected < 0.95


def test_builtin_sets(run_json, run):
    told = run_json("map", "iris", "--n-neighbors", 8, "--max-iter", 15)
    assert (told["input"]["rows"], told["input"]["features"], told["input"]["label"]) == (150, 4, "species")
    expected = UMAP(n_neighbors=8, max_iter=15, random_state=0).fit_transform(load_iris().data)
    numpy.testing.assert_array_equal(places("map.parquet"), expected)
    assert run_json("map", "wine", "--method", "pca")["input"]["rows"] == 178


def test_digits_have_thumbnails(run, here):
    run("map", "digits", "--method", "pca", "-o", "d.html", "--score-rows", 200)
    page = (here / "d.html").read_text()
    assert '"images":{' in page.replace(" ", "")
    assert "digits · PCA" in page
    scores = PCA(n_components=2, random_state=0).fit_transform(load_digits().data.astype(numpy.float32))
    numpy.testing.assert_array_equal(places("d.parquet"), scores)


def test_standard_input(run, table, here, quick):
    run("map", table, "-o", "file.html", *quick)
    result = run("map", "-", "-o", "pipe.html", *quick, input=(here / table).read_bytes())
    assert "Read standard input: 60 rows" in result.stdout
    numpy.testing.assert_array_equal(places("pipe.parquet"), places("file.parquet"))


def test_methods_and_their_parameters(run_json, table, rows):
    options = ["--method", "t-SNE", "--perplexity", 5, "--max-iter", 10, "--set", "early_exaggeration_iter=5"]
    told = run_json("map", table, *options, "--set", "method=exact", "--lr", "20")
    model = TSNE(perplexity=5, max_iter=10, early_exaggeration_iter=5, method="exact", lr=20, random_state=0)
    numpy.testing.assert_array_equal(places("map.parquet"), model.fit_transform(rows))
    assert told["parameters"]["early_exaggeration_iter"] == 5
    assert told["report"]["repulsion"] == "exact"


def test_options_of_reading(run_json, here, quick):
    text = "\n".join(f"{i % 7};{i * i % 11};{'' if i == 4 else i % 5};c{i % 2}" for i in range(40))
    (here / "t.txt").write_text("p;q;r;s\n" + text)
    how = ["--delimiter", ";", "--columns", "p,r", "--missing", "drop", "--one-hot", "s"]
    told = run_json("map", "t.txt", *how, *quick)
    assert (told["input"]["rows"], told["input"]["features"]) == (39, 4)
    written = read("map.parquet", columns=["x", "y"])
    assert written.columns["row"].tolist() == [*range(4), *range(5, 40)]
    assert "s=c0" in written.columns


@pytest.mark.parametrize("dimensions", [1, 3, 5])
def test_other_dimensions(run, here, table, dimensions):
    result = run("map", table, "--method", "pca", "--n-components", min(dimensions, 4), "--score-rows", 0)
    names = {1: ["x"], 3: ["x", "y", "z"], 5: ["dim_0", "dim_1", "dim_2", "dim_3"]}[dimensions]
    assert places("map.parquet", names).shape == (60, len(names))
    assert (here / "map.html").exists() == (here / "map.png").exists() == (dimensions < 4)
    assert ("cannot be shown" in result.stderr) == (dimensions > 3)


def test_a_method_that_keeps_all_components_keeps_two(run_json, table):
    told = run_json("map", table, "--method", "incrementalpca")
    assert told["parameters"]["n_components"] == 2
    assert places("map.parquet").shape == (60, 2)


def test_threads_change_nothing(run, table, quick):
    run("map", table, "--threads", 1, "-o", "one.html", *quick)
    run("map", table, "--threads", 3, "-o", "three.html", *quick)
    numpy.testing.assert_array_equal(places("one.parquet"), places("three.parquet"))


def test_the_model_knows_what_it_was_made_of(run, table, quick):
    run("map", table, "--label", "kind", *quick)
    model = load_model("map.cartograd")
    assert model.report_["input"] == {"source": "a.csv", "columns": ["x", "b", "c", "d"], "one_hot": []}
    numpy.testing.assert_array_equal(model.embedding_, places("map.parquet"))
    assert model.verbose is False
