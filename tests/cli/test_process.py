"""What only a process of its own can show: pipes, signals, exit statuses, what is imported."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from cartograd.io import read

CALL = [sys.executable, "-m", "cartograd"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def start(*arguments, **options):
    return subprocess.Popen(
        [*CALL, *arguments],
        env=ENVIRONMENT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


def test_a_pipe_goes_through(table, here):
    process = start("map", "-", "--method", "pca", "--json", cwd=here)
    out, err = process.communicate((here / table).read_text(), timeout=120)
    assert process.returncode == 0, err
    assert json.loads(out)["input"]["rows"] == 60
    assert err == ""


def test_help_imports_nothing_heavy(here):
    code = (
        "import sys\nfrom cartograd.cli import main\ntry:\n    main(['map', '--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('sklearn', 'scipy', 'numba', 'matplotlib', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, text=True, capture_output=True, cwd=here)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_ctrl_c_writes_what_was_reached(table, here):
    options = ["--n-neighbors", "8", "--max-iter", "2000000", "--verbose", "-o", "cut.html"]
    process = start("map", table, *options, cwd=here)
    said = []
    for line in process.stderr:
        said.append(line)
        if "start took" in line:
            break
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, "".join(said) + err
    assert "Note: interrupted after" in err
    assert "Traceback" not in err
    assert read(here / "cut.parquet", columns=["x", "y"]).X.shape == (60, 2)
    assert {"cut.html", "cut.png", "cut.cartograd"} <= set(os.listdir(here))
    assert "Scores" not in out
    assert "view cut.html" in out


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_view_ends_with_ctrl_c(here):
    (here / "page.html").write_text("<p>hello")
    process = start("view", "page.html", "--no-browser", cwd=here)
    assert process.stdout.readline().startswith("http://127.0.0.1:")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
