import numpy
import pytest

from cartograd.cli import methods


def message(result):
    """What stands on standard error; nothing may be on standard output."""
    assert result.stdout == ""
    return result.stderr


def test_a_file_that_is_not_there(run):
    said = message(run("map", "nosuch.csv", status=1))
    assert said.startswith(
        "Error: nosuch.csv: there is no such file or folder, nor a built-in set (digits, iris, wine)"
    )


def test_a_column_that_is_not_there(run, table):
    said = message(run("map", table, "--label", "knd", status=2))
    assert said == "Error: a.csv: label: there is no column 'knd'\nHint: did you mean 'kind'?\n"


def test_a_missing_value_is_named_by_row_and_column(run, here):
    (here / "gap.csv").write_text("a,b\n" + "1,2\n" * 4 + "3,\n" + "5,6\n" * 30)
    said = message(run("map", "gap.csv", status=1))
    assert said.splitlines() == [
        "Error: gap.csv: row 5 (line 6), column 'b': the value is missing (1 of 70 are)",
        "Hint: say what to do: --missing mean, median or zero fills them, drop leaves such rows out",
    ]


def test_a_cell_that_is_no_number(run, here):
    (here / "odd.csv").write_text("a,b\n" + "1,2\n" * 40 + "3,oops\n" + "5,6\n" * 40)
    said = message(run("map", "odd.csv", status=1))
    assert "Error: odd.csv: row 41 (line 42), column 'b': 'oops' is no number" in said
    assert "Hint: mend the cell, or leave the column out with --columns=-b" in said


def test_the_hint_can_be_followed(run, here):
    cells = "\n".join(f"{i},{'oops' if i == 4 else i % 3},{i * i % 7}" for i in range(80))
    (here / "odd.csv").write_text("a,b,c\n" + cells)
    run("map", "odd.csv", "--method", "pca", status=1)
    run("map", "odd.csv", "--method", "pca", "--columns=-b")


def test_an_unknown_method(run, table):
    said = message(run("map", table, "--method", "umpa", status=2))
    assert "there is no method 'umpa'; did you mean umap?" in said
    assert "tsne" in said
    assert "pacmap" in said


def test_a_parameter_that_the_method_does_not_have(run, table):
    said = message(run("map", table, "--perplexity", 5, status=2))
    assert "UMAP has no parameter 'perplexity'" in said
    assert "n_neighbors" in said
    said = message(run("map", table, "--set", "min_dost=1", status=2))
    assert "UMAP has no parameter 'min_dost'. Did you mean 'min_dist'?" in said


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--n-neighbors", "1"], "n_neighbors must be at least 2 and at most 1000000, got 1"),
        (["--n-neighbors", "many"], "'many' is not a valid integer"),
        (["--set", "n_neighbors=many"], "n_neighbors must be a whole number, got 'many'"),
        (["--metric", "far"], "unknown metric 'far'"),
        (["--set", "spread"], "--set takes NAME=VALUE, got 'spread'"),
        (["--set", "random_state=1"], "--set random_state: use --seed"),
        (["--min-dist", "0.1", "--set", "min_dist=0.2"], "min_dist is given twice"),
        (["--processes", "0"], "0 is not in the range x>=1"),
        (["--missing", "guess"], "'guess' is not one of"),
        (["--columns", ","], "give at least one name"),
        (["--quiet", "--verbose"], "contradict each other"),
        (["--nonsense"], "No such option"),
        (["-o", "map.txt"], "the name must end in one of .html"),
        (["--device", "gpu7"], "device 'gpu7' cannot be used here"),
    ],
)
def test_a_wrong_command_is_refused_before_any_work(run, here, options, expected):
    said = message(run("map", "nosuch.csv", *options, status=2))
    assert expected in said


def test_a_folder_that_is_not_there(run, table):
    said = message(run("map", table, "-o", "nowhere/map.html", status=1))
    assert said.splitlines()[0] == "Error: cannot write nowhere/map.html: there is no folder nowhere"


def test_the_input_is_never_overwritten(run, here, table):
    (here / "map.parquet").write_text("precious")
    said = message(run("map", "./map.parquet", status=2))
    assert "would be written over the input" in said
    assert (here / "map.parquet").read_text() == "precious"
    said = message(run("map", ".", status=2))
    assert "lies in the folder that is read" in said


def test_a_file_of_another_kind(run, here):
    (here / "model.pkl").write_bytes(b"\x80\x04")
    said = message(run("map", "model.pkl", status=1))
    assert said == (
        "Error: model.pkl: pickles can run code when they are opened, and are never read\n"
        "Hint: save as .npy or .parquet\n"
    )


def test_text_that_is_no_table(run):
    assert "standard input" in message(run("map", "-", status=1, input=b""))


def test_an_infinite_value(run, here):
    rows = numpy.ones((20, 3))
    rows[7, 1] = numpy.inf
    numpy.save(here / "x.npy", rows)
    assert "row 8, column 'x1': inf" in message(run("map", "x.npy", status=1))


def test_a_layout_that_diverges(run, table):
    said = message(run("map", table, "--lr", "1e30", "--max-iter", "20", status=1))
    assert said.startswith("Error: ")
    assert "smaller lr" in said


def test_an_error_of_ours_shows_where_with_debug_alone(run, table, monkeypatch):
    def broken(*arguments, **options):
        raise RuntimeError("a wheel came off")

    monkeypatch.setattr(methods, "estimator_class", broken)
    said = message(run("map", table, status=1))
    assert said.splitlines() == [
        "Error: an unexpected RuntimeError: a wheel came off",
        "Hint: this should not happen; --debug shows where it did, for a report to the maintainers",
    ]
    said = message(run("map", table, "--debug", status=1))
    assert "Traceback (most recent call last)" in said
    assert "in broken" in said


def test_an_interrupt_ends_with_130(run, table, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(methods, "estimator_class", interrupted)
    assert message(run("map", table, status=130)) == "Interrupted.\n"
