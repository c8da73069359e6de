"""The command line with hostile words: every command ends with a status that is documented, and says one line why."""

import os
import random
import re
import signal
import time

import numpy
import pytest
from click.testing import CliRunner

from cartograd.cli import bench, main
from cartograd.cli import map as map_module
from cartograd.viewer import PageServer

FAILED_BEFORE = [1]
"""Seeds that have failed once: they are tried in each run."""
CASES = 1000
SECONDS_A_CASE = 60
LONGEST_LINE = 1000
WORDS = [
    "", " ", "-", "--", "-1", "0", "1", "2", "1e309", "-1e309", "nan", "inf", "-inf", "1" * 5000, "9" * 19,
    "-" + "9" * 30, "[" * 20_000, '{"a":' * 5000, "[" * 200 + "]" * 200, '"' * 9, "x" * 256, "x" * 5000, "é" * 128,
    "é" * 127 + "ab", "a\0b", "\0", "\ud800", "\udcff\udcfe", "𝟙", "１２", "0x10", "1_000", "1,000", "1e3", "1.5",
    "True", "null", "None", "[]", "{}", "[1,2]", '{"a": 1}', '{"metric": null}', "a=b=c", "=", "=1", "$x^$",
    r"\frac{", "\x1b[31m", "\n", "a\nb", "\r\n", "\t", "%s%n%x", "{0}", "{x}", "'", '"', "`id`", "$(id)", ";", "|",
    "*", "?", "é", "\u202e", "\ufeff", "\u2028", "😀", "a" * 300 + ".html", "x.html", "o.html", "sub", "sub/",
    "nosuch/x.html", "o.html/x.html", "a.csv", "a.csv/", "/dev/null", "/dev/null.csv", "loop", "bytes.csv",
    "empty.csv", "empty.parquet", "empty.cartograd", "broken.json", "array.json", "zipped.csv.zip", "book.xlsx",
    "x", "b", "kind", "-x", "-x,-b", "x,b", "x,-b", ",", ",,", '"a,b"', "auto", "cpu", "cuda", "cuda:99", "cpu:99",
    "meta", "mps", "umap", "pca", "t-sne", "precomputed", "euclidean", "cosine", "error", "drop", "mean", "utf-8",
    "utf-7", "idna", "punycode", "rot13", "undefined", "base64", "zip", "X_pca", "spectral", "random",
]  # fmt: skip
CALLS = [
    ["map", "a.csv", "--method", "pca", "--score-rows", "0", "-o", "m.csv"],
    ["map", "a.csv", "--max-iter", "3", "--n-neighbors", "5", "--score-rows", "0", "-o", "m.html"],
    ["map", "gaps.csv", "--method", "pca", "--missing", "drop", "--one-hot", "kind", "--score-rows", "10"],
    ["transform", "o.cartograd", "a.csv", "-o", "p.csv"],
    ["score", "a.csv", "o.parquet", "--score-rows", "20"],
    ["view", "o.parquet", "--no-browser", "--port", "0"],
    ["view", "o.html", "--no-browser"],
    ["explain", "o.cartograd", "a.csv", "--rows", "0,1"],
    ["bench", "fast", "1"],
    ["info"],
    ["completion", "bash"],
]
SLOW = re.compile(r"--(max-iter|score-rows|n-components)|(max_iter|epochs|interval|iter|n_)")
"""Options whose large values are allowed, and would take their time."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table, a map of it, and files of other kinds."""
    place = tmp_path_factory.mktemp("commands")
    make_files(place)
    return place


def make_files(place):
    rng = numpy.random.default_rng(0)
    rows = numpy.round(rng.normal(size=(24, 3)) + 5 * (numpy.arange(24)[:, None] % 3), 3).tolist()
    lines = [f"{','.join(map(str, row))},k{at % 3}" for at, row in enumerate(rows)]
    (place / "a.csv").write_text("x,b,c,kind\n" + "\n".join(lines))
    (place / "gaps.csv").write_text(
        "x,b,c,kind\n" + "\n".join(line.replace("4.", ",", 1) for line in lines[:3]) + "\n" + "\n".join(lines[3:])
    )
    (place / "empty.csv").write_text("")
    (place / "empty.parquet").write_text("")
    (place / "empty.cartograd").write_text("")
    (place / "broken.json").write_text('[{"a": 1}, {"a":')
    (place / "array.json").write_text('[{"a": 1, "b": 2}, {"a": 2, "b": 3}]')
    (place / "zipped.csv.zip").write_bytes(b"PK\x05\x06" + bytes(18))
    (place / "book.xlsx").write_bytes(b"PK\x05\x06" + bytes(18))
    (place / "bytes.csv").write_bytes(bytes(range(256)))
    (place / "sub").mkdir()
    os.symlink("loop", place / "loop")
    before = os.getcwd()
    os.chdir(place)
    try:
        call = ["map", "a.csv", "--method", "pca", "--score-rows", "0", "-o", "o.html"]
        assert CliRunner().invoke(main, call).exit_code == 0
    finally:
        os.chdir(before)


@pytest.fixture
def commands(folder, monkeypatch):
    """Runs a command in the folder; servers end at once, no process is started, no benchmark runs."""
    spare_the_machine(monkeypatch)
    monkeypatch.chdir(folder)
    return outcome


def spare_the_machine(monkeypatch):
    monkeypatch.setattr(PageServer, "wait", lambda server: None)
    monkeypatch.setattr("webbrowser.open", lambda url: True)
    monkeypatch.setattr(map_module, "handed_over", lambda *given: None)
    monkeypatch.setattr(bench, "_scripts", list)


def words_of(rng):
    """A call with one or two words changed, left out, or added."""
    call = list(rng.choice(CALLS))
    options = [name for one in main.commands[call[0]].params for name in one.opts if name.startswith("--")]
    for _ in range(rng.choice((1, 1, 2))):
        word, place, what = word_of(rng), rng.randrange(1, len(call) + 1), rng.random()
        if what < 0.6 and options:
            option = rng.choice(options)
            call += option_of(rng, option, word)
        elif what < 0.65 or place == len(call):
            call.insert(place, word)
        elif what < 0.95:
            call[place] = word
        else:
            del call[place]
    return [one for one in call if one != "--compile"]


def option_of(rng, option, word):
    """An option with a hostile word, or with one that is likely to be taken."""
    if option == "--set":
        return [
            option,
            rng.choice(SETTINGS) if rng.random() < 0.5 else f"{rng.choice(SETTINGS).partition('=')[0]}={word}",
        ]
    if option in FLAGS:
        return [option]
    likely = LIKELY.get(option)
    return [option, rng.choice(likely.split(" ")) if likely and rng.random() < 0.6 else word]


def word_of(rng):
    """A hostile word, sometimes one of random characters."""
    if rng.random() < 0.8:
        return rng.choice(WORDS)
    kinds = (lambda: rng.randrange(32, 127), lambda: rng.randrange(0x20), lambda: rng.randrange(0x80, 0x3000))
    return "".join(chr(rng.choice(kinds)()) for _ in range(rng.randint(1, 12)))


def environment_of(rng):
    """Mostly none; sometimes a variable of torchrun that is wrong."""
    return (
        {rng.choice(VARIABLES): word_of(rng).replace("\0", "").encode("utf-8", "replace").decode()}
        if rng.random() < 0.1
        else {}
    )


VARIABLES = (
    "WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE MASTER_PORT TORCHELASTIC_RESTART_COUNT CARTOGRAD_DIST_TIMEOUT".split()
)
FLAGS = ("--json", "--quiet", "--verbose", "--debug", "--header", "--no-header", "--no-browser", "--help", "--compile")
LIKELY = {
    "--method": "umap tsne pacmap pca phate largevis infotsne sne tsnekhorn cosne kernelpca incrementalpca PCA t-SNE",
    "--n-neighbors": "1 2 5 23 24 25 1000",
    "--perplexity": "0 1 2 7 23 1e3",
    "--min-dist": "0 .1 1 2 -1",
    "--metric": "euclidean cosine manhattan chebyshev jaccard hamming precomputed sqeuclidean angular nosuch",
    "--n-components": "0 1 2 3 4 24 100",
    "--max-iter": "0 1 2 7",
    "--lr": "0 1 auto 1e-30 1e30 1e308",
    "--backend": "auto exact faiss nndescent x",
    "--init": "pca spectral normal random hyperbolic x",
    "--columns": "x x,b -x -x,-b kind x,x x_0 x,kind",
    "--one-hot": "kind x kind,x kind,kind y",
    "--label": "kind x y",
    "--color": "kind x y",
    "--text": "kind x y",
    "--missing": "error mean median zero drop",
    "--key": "X x kind a",
    "--delimiter": ", ; tab x k .",
    "--encoding": "utf-8 utf-16 latin-1 ascii cp037 utf-7 idna utf-8-sig",
    "--max-bytes": "1 100 100000",
    "--seed": "0 1 4294967295 4294967296 18446744073709551616",
    "--threads": "1 2 256 257",
    "--score-rows": "0 1 2 3 23 24",
    "--device": "cpu cuda cpu:0 meta auto",
    "--processes": "1 0 257",
    "--port": "0 1 80 65536",
    "--rows": "0 0,1 x",
    "--output": "m.html m.csv m.tsv m.svg m.pdf m.npz m.npy m.jsonl m.parquet "
    "m.cartograd m sub sub/ a.csv . - nosuch/m.csv",
}
"""Words that an option is likely to take, or just not."""
SETTINGS = (
    "spread=2 n_neighbors=5 check_interval=1 min_grad_norm=0 init_scaling=null "
    "process_duplicates=false compile=0 optimizer=SGD "
    'optimizer_kwargs={} optimizer_kwargs={"momentum":2} scheduler=StepLR '
    'scheduler_kwargs={"step_size":0} loss_fn=x encoder=mlp '
    "encoder=x distributed=sharded distributed=auto resume=true checkpoint_dir=kept "
    "checkpoint_every=0 kernel=rbf kernel=x gamma=nan "
    "whiten=1 svd_solver=x batch_size=1 t=auto t=0 alpha=inf gamma=-1 early_exaggeration=1e308 "
    "method=exact method=fft angle=2 knn=5 "
    "n_landmarks=2 timeout=0 timeout=1 callbacks=[1] init=[[1,2]] metric=[] lr=[] n_components=2.5 "
    "discard_NNs=1 verbose=1 device=cpu"
).split()


def takes_long(call):
    """Whether a call asks for much work, which is no mistake."""
    for option, value in zip(call, call[1:] + [""], strict=True):
        number = re.fullmatch(r"\s*\+?([\d_]{5,}|\d+e\d+|\d+\.?\d*e\+?\d+)\s*", value.partition("=")[2] or value)
        if number and SLOW.search(f"{option} {value}"):
            return True
    return False


class TookTooLong(BaseException):
    """A command was not over in time."""


def outcome(call, environment=None):
    """None where a command ended as documented; otherwise what is wrong with how it ended."""

    def ring(*given):
        raise TookTooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS_A_CASE)
    try:
        result = CliRunner().invoke(main, call, input=b"", env=environment)
    except TookTooLong:
        return "took too long"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"raised {type(result.exception).__name__}: {str(result.exception)[:200]}"
    return wrong_words(result, "--debug" in call)


def wrong_words(result, debug):
    """What is wrong with the status of a command and with what it says on standard error."""
    if result.exit_code not in (0, 1, 2, 130):
        return f"status {result.exit_code}"
    if ("Traceback" in result.stderr and not debug) or "an unexpected" in result.stderr:
        return f"says {result.stderr.strip()[:300]!r}"
    if result.exit_code in (0, 130):
        return None
    _, found, said = result.stderr.rpartition("Error: ")
    if not found or not said.strip():
        return f"status {result.exit_code} without an error: {result.stderr[:200]!r}"
    lines = said.rstrip("\n").split("\n")
    if len(lines) > 2 or (len(lines) == 2 and not lines[1].startswith("Hint: ")):
        return f"more than a line and a hint: {said[:300]!r}"
    if max(map(len, lines)) > LONGEST_LINE:
        return f"a line of {max(map(len, lines))} characters: {said[:200]!r}"
    if any(character < " " or character == "\x7f" for line in lines for character in line):
        return f"control characters: {said[:200]!r}"
    return None


def tried(seed, count, run):
    """The calls of a seed that did not end well, and what was wrong."""
    rng = random.Random(seed)
    calls = [(words_of(rng), environment_of(rng)) for _ in range(count)]
    found = [(call, extra, run(call, extra)) for call, extra in calls if not takes_long(call)]
    return [([*map("=".join, extra.items()), *call], wrong) for call, extra, wrong in found if wrong]


def fresh_seed():
    return int(os.environ.get("CARTOGRAD_FUZZ_SEED") or time.time_ns() % 2**32)


def check(seed, count, run):
    print(f"seed {seed}")
    failures = tried(seed, count, run)
    assert not failures, f"seed {seed}: {len(failures)} of {count}, the first: {failures[0]}"


def test_hostile_words(commands):
    check(fresh_seed(), CASES, commands)


@pytest.mark.parametrize("seed", FAILED_BEFORE)
def test_seeds_that_failed_before(commands, seed):
    check(seed, 400, commands)


@pytest.mark.slow
def test_hostile_words_for_long(commands):
    check(fresh_seed(), 20 * CASES, commands)


if __name__ == "__main__":
    import collections
    import pathlib
    import sys
    import tempfile

    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        make_files(pathlib.Path(place))
        spare_the_machine(patch)
        os.chdir(place)
        began = time.time()
        found = tried(int(sys.argv[1]), int(sys.argv[2]), outcome)
        print(f"{len(found)} of {sys.argv[2]} calls fail, {time.time() - began:.0f} s")
        kinds = collections.defaultdict(list)
        for call, wrong in found:
            kinds[" ".join(re.findall(r"[A-Za-z]{3,}", wrong)[:9])].append((call, wrong))
        for kind, cases in sorted(kinds.items(), key=lambda one: -len(one[1])):
            print(len(cases), kind, "|", [word[:40] for word in cases[0][0]], "|", cases[0][1][:240])
        os.chdir("/")
