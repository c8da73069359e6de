"""Only plain files are opened: what blocks, never ends or is made of holes is refused at once."""

import os
import socket

import pytest

from cartograd.errors import CartogradError, DataFileError
from cartograd.io import read

Image = pytest.importorskip("PIL.Image")

pytestmark = [pytest.mark.skipif(os.name != "posix", reason="pipes and devices of POSIX"), pytest.mark.timeout(60)]


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "jsonl", "npy", "parquet", "h5ad", "unknown"])
def test_a_pipe_is_no_table(tmp_path, suffix):
    os.mkfifo(tmp_path / f"a.{suffix}")
    with pytest.raises(DataFileError, match=r"it is a pipe, not a plain file; .* give '-'"):
        read(tmp_path / f"a.{suffix}")


def test_a_socket_is_no_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("a.csv")
        with pytest.raises(DataFileError, match="it is a socket, not"):
            read("a.csv")


def test_a_device_is_no_table(tmp_path):
    os.symlink("/dev/zero", tmp_path / "a.npy")
    with pytest.raises(DataFileError, match="it is a device, not"):
        read(tmp_path / "a.npy")


@pytest.mark.parametrize("link", [False, True])
def test_a_pipe_among_images(tmp_path, link):
    folder = tmp_path / "images"
    folder.mkdir()
    Image.new("L", (8, 8)).save(folder / "a.png")
    os.mkfifo(tmp_path / "pipe")
    os.symlink(tmp_path / "pipe", folder / "b.png") if link else os.rename(tmp_path / "pipe", folder / "b.png")
    with pytest.raises(DataFileError, match=r"b\.png: it is a pipe"):
        read(folder)


@pytest.mark.parametrize("beginning", [b"", b"ARROW1\0\0", b"\xff\xff\xff\xff\x10\0\0\0"])
@pytest.mark.parametrize("suffix", ["arrow", "feather", "parquet", "csv", "jsonl", "npy", "npz", "h5ad", "unknown"])
def test_files_of_holes(tmp_path, suffix, beginning):
    path = tmp_path / f"a.{suffix}"
    with open(path, "wb") as file:
        file.write(beginning)
        file.truncate(8 * 2**30 - 10)
    if os.stat(path).st_blocks * 512 > 2**20:
        pytest.skip("this file system has no holes")
    with pytest.raises(CartogradError, match=r"it is a file of 8,589,934,582 bytes, all but [\d,]+ of them holes"):
        read(path)


def test_a_file_with_some_holes_is_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "1,2\n" * 300_000)
    assert len(read(path)) == 300_000
