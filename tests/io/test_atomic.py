"""Files are whole or absent."""

import os
import stat

import pytest

from cartograd.errors import FileAbsentError, FileAccessError
from cartograd.io import open_atomic, replacing


def test_a_block_that_ends_well_replaces_the_file(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with open_atomic(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old", "not before it is whole"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_block_that_raises_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")

    def write():
        with open_atomic(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises((type(error), FileAccessError)) as caught:
        write()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.bin"]
    if isinstance(error, OSError):
        assert isinstance(caught.value, FileAccessError)
        assert caught.value.errno == 28
        assert "No space left on device; what was there before is unchanged" in str(caught.value)


def test_permissions_are_those_of_the_old_file_or_of_the_umask(tmp_path):
    path = tmp_path / "a.bin"
    mask = os.umask(0o027)
    try:
        with open_atomic(path) as file:
            file.write(b"1")
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o604)
    with open_atomic(path) as file:
        file.write(b"2")
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


def test_a_link_is_followed(tmp_path):
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "a.bin", tmp_path / "link.bin"
    real.write_bytes(b"old")
    link.symlink_to(real)
    with replacing(link) as temporary:
        assert temporary.parent == real.parent, "a rename works only within a file system"
        temporary.write_bytes(b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    with (
        pytest.raises(FileAbsentError, match=r"folder .*nowhere does not exist; make it first"),
        open_atomic(tmp_path / "nowhere" / "a"),
    ):
        pytest.fail("the block must not run")
    with pytest.raises(FileAccessError, match="it is a folder"), open_atomic(tmp_path):
        pytest.fail("the block must not run")


def test_long_and_odd_names(tmp_path):
    for name in ("n" * 255, "ü" * 127, "-", " .hidden "):
        with open_atomic(tmp_path / name) as file:
            file.write(b"1")
    assert len(os.listdir(tmp_path)) == 4


@pytest.mark.skipif(os.name != "posix", reason="pipes and devices of POSIX")
def test_what_is_no_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "device.csv").symlink_to("/dev/null")
    for name, kind in (("pipe.csv", "a pipe"), ("device.csv", "a device")):
        with pytest.raises(FileAccessError, match=f"it is {kind}; give the name of a plain file"):
            replacing(tmp_path / name).__enter__()
    assert os.path.exists("/dev/null")
