"""Kernels compiled once: kept on disk, found again, never stale, whatever can be written to.

Each test works on a copy of the package that holds two toy kernels instead of ours.
"""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import cartograd

PACKAGE = Path(cartograd.__file__).parent
TOY = """
import numba
from cartograd.kernels.cpu.helper import factor


@numba.njit(nogil=True)
def part():
    return 1


@numba.njit("float32(float32)", cache=True, nogil=True)
def scaled(x):
    return x * factor()
"""
HELPER = """
import numba


@numba.njit("float32()", cache=True, nogil=True)
def factor():
    return 2.0
"""
USE = """
from cartograd.kernels import cpu
toy = cpu.load("toy")
print(toy.scaled(3.0), sum(toy.scaled.stats.cache_hits.values()))
"""


@pytest.fixture
def copied(tmp_path):
    """A folder with a package of nothing but errors and kernels, and an empty home."""
    root = tmp_path / "site" / "cartograd"
    (root / "kernels" / "cpu").mkdir(parents=True)
    (root / "core").mkdir()
    for name in (
        "__init__.py",
        "errors.py",
        "core/interpreter.py",
        "kernels/__init__.py",
        "kernels/cache.py",
        "kernels/cpu/__init__.py",
    ):
        shutil.copy(PACKAGE / name, root / name)
    (root / "kernels" / "cpu" / "toy.py").write_text(TOY)
    (root / "kernels" / "cpu" / "helper.py").write_text(HELPER)
    (tmp_path / "home").mkdir()
    return tmp_path


def start(folder, code=USE, **environment):
    kept = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    places = {"PYTHONPATH": str(folder / "site"), "HOME": str(folder / "home"), "LOCALAPPDATA": str(folder / "home")}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=kept | places | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def run(folder, code=USE, **environment):
    process = start(folder, code, **environment)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert err == ""
    return out.strip()


def in_the_way(path):
    """A file where a folder would be made: nobody can write below it, not even root."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")


def files(folder):
    return sorted(path.name for path in folder.rglob("*.nb?"))


def test_beside_the_source_once_and_found_again_but_not_after_an_upgrade(copied):
    assert run(copied) == "6.0 0"
    kernels = copied / "site" / "cartograd" / "kernels" / "cpu"
    assert len(files(kernels / "__pycache__")) == 4
    shown = "from cartograd.kernels import cache, cpu\nfolder = cache.expected_folder()\n"
    shown += "print([(name, cpu.kernels_of(name), cache.kernels_in(folder, name)) for name in cpu.names()])"
    assert run(copied, shown) == "[('helper', ['factor'], ['factor']), ('toy', ['scaled'], ['scaled'])]"
    assert run(copied) == "6.0 1"
    helper = kernels / "helper.py"
    before = helper.stat()
    helper.write_text(HELPER.replace("2.0", "5.0"))  # as long, and of the same time; toy.py is as it was
    os.utime(helper, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert run(copied, PYTHONDONTWRITEBYTECODE="1", PYTHONPYCACHEPREFIX=str(copied / "none")) == "15.0 0"


def test_a_damaged_file_is_not_used(copied):
    assert run(copied) == "6.0 0"
    for path in (copied / "site").rglob("*.nbc"):
        path.write_bytes(path.read_bytes()[:100])
    assert run(copied) == "6.0 0"


def test_a_folder_that_is_named(copied):
    assert run(copied, NUMBA_CACHE_DIR=str(copied / "named")) == "6.0 0"
    assert len(files(copied / "named")) == 4
    assert files(copied / "site") == []


def test_where_the_installation_cannot_be_written_the_users_folder_is(copied):
    in_the_way(copied / "site" / "cartograd" / "kernels" / "cpu" / "__pycache__")
    assert run(copied, XDG_CACHE_HOME=str(copied / "caches")) == "6.0 0"
    if sys.platform.startswith("linux"):
        assert len(files(copied / "caches" / "cartograd")) == 4
    assert run(copied, XDG_CACHE_HOME=str(copied / "caches")) == "6.0 1"


def test_where_nothing_can_be_written_each_process_compiles_and_leaves_nothing(copied):
    in_the_way(copied / "site" / "cartograd" / "kernels" / "cpu" / "__pycache__")
    in_the_way(copied / "home" / ".cache")
    in_the_way(copied / "home" / "Library")
    temporary = copied / "temporary"
    temporary.mkdir()
    code = "from cartograd.kernels import cache\nprint(cache.expected_folder())" + USE
    assert run(copied, code, TMPDIR=str(temporary)).splitlines() == ["None", "6.0 0"]
    assert list(temporary.iterdir()) == []


def test_processes_that_compile_at_once_do_not_disturb_each_other(copied):
    processes = [start(copied) for _ in range(3)]
    assert [process.communicate(timeout=120)[0].split()[0] for process in processes] == ["6.0"] * 3
    assert run(copied) == "6.0 1"


def test_a_program_that_ends_while_a_thread_compiles_ends_well(copied):
    assert run(copied, "from cartograd.kernels import cpu\ncpu.prepare('toy', 'helper')") == ""


posix = pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
ANYONE = stat.S_IWGRP | stat.S_IWOTH


def writable_by_others(folder):
    return [path.name for path in folder.rglob("*") if path.lstat().st_mode & ANYONE]


@posix
def test_no_umask_lets_other_users_write_kernels(copied):
    assert run(copied, "import os\nos.umask(0)" + USE, NUMBA_CACHE_DIR=str(copied / "a" / "named")) == "6.0 0"
    assert len(files(copied / "a")) == 4
    assert writable_by_others(copied / "a") == []
    assert run(copied, NUMBA_CACHE_DIR=str(copied / "a" / "named")) == "6.0 1"


@posix
def test_kernels_that_others_could_have_written_are_compiled_anew(copied):
    assert run(copied, NUMBA_CACHE_DIR=str(copied / "named")) == "6.0 0"
    (folder,) = (copied / "named").iterdir()
    folder.chmod(0o777)
    assert run(copied, NUMBA_CACHE_DIR=str(copied / "named")) == "6.0 0"
    assert writable_by_others(copied / "named") == []


@posix
def test_a_folder_that_others_can_replace_or_that_is_a_link_is_not_used(copied):
    (copied / "open").mkdir()
    (copied / "open").chmod(0o777)
    out, err = start(copied, NUMBA_CACHE_DIR=str(copied / "open")).communicate(timeout=120)
    assert out.strip() == "6.0 0"
    assert "kernels are not read from it" in err
    assert files(copied / "open") == []
    (copied / "open").chmod(0o755)
    (folder,) = (copied / "open").iterdir()
    folder.rmdir()
    (copied / "elsewhere").mkdir()
    folder.symlink_to(copied / "elsewhere")
    start(copied, NUMBA_CACHE_DIR=str(copied / "open")).communicate(timeout=120)
    assert files(copied / "elsewhere") == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give folders away")
def test_a_folder_of_another_user_is_not_used(copied):
    assert run(copied, NUMBA_CACHE_DIR=str(copied / "named")) == "6.0 0"
    (folder,) = (copied / "named").iterdir()
    os.chown(folder, 65534, 65534)
    code = "from cartograd.kernels import cache\nprint(cache.expected_folder())" + USE
    out, err = start(copied, code, NUMBA_CACHE_DIR=str(copied / "named")).communicate(timeout=120)
    assert str(folder) not in out
    assert out.splitlines()[1] == "6.0 0"
    assert "belongs to another user" in err


BROKEN = """
import logging
from cartograd.errors import KernelError
from cartograd.kernels import cpu
logging.basicConfig(format="%(name)s %(message)s")
cpu.prepare("toy").join()
print(cpu.usable(), cpu.usable())
try:
    cpu.load("toy")
except KernelError as error:
    print(error)
"""


def test_a_broken_numba_is_said_once_and_loading_says_what_to_do(copied):
    (copied / "site" / "numba.py").write_text("raise ImportError('Numba needs NumPy 9.9 or less')")
    out, err = start(copied, BROKEN).communicate(timeout=60)
    said = out.splitlines()
    assert said[0] == "False False"
    assert said[1].startswith("the kernels 'toy' cannot be compiled here (ImportError: Numba needs NumPy 9.9 or less)")
    assert "pip install --force-reinstall" in said[1]
    (warned,) = err.splitlines()
    assert warned.startswith("cartograd.kernels numba cannot be used (ImportError: Numba needs NumPy 9.9 or less)")
    assert "computing with torch alone" in warned
