"""Folders of images."""

import struct
import zlib

import numpy
import pytest

from cartograd.errors import DataFileError
from cartograd.io import images, read

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def folder(tmp_path):
    """Four grey pictures of 5 x 7 pixels in two subfolders, and things that are none."""
    draw = numpy.random.default_rng(0)
    pixels = draw.integers(0, 256, size=(4, 7, 5), dtype=numpy.uint8)
    for number, (label, picture) in enumerate(zip(["cat", "cat", "dog", "dog"], pixels, strict=True)):
        (tmp_path / label).mkdir(exist_ok=True)
        Image.fromarray(picture).save(tmp_path / label / f"{number}.png")
    (tmp_path / "readme.txt").write_text("none")
    (tmp_path / ".hidden.png").write_bytes(b"none")
    return tmp_path, pixels


def test_pixels_labels_and_pictures(folder):
    path, pixels = folder
    table = read(path)
    numpy.testing.assert_array_equal(table.X, pixels.reshape(4, -1))
    numpy.testing.assert_array_equal(table.thumbnails, pixels)
    assert table.X.dtype == numpy.float32
    assert table.label.tolist() == ["cat", "cat", "dog", "dog"]
    assert table.ids.tolist() == ["cat/0.png", "cat/1.png", "dog/2.png", "dog/3.png"]
    assert read(path / "cat").label is None


def test_different_sizes_and_colours_become_one(folder):
    path, _ = folder
    Image.new("RGBA", (80, 40), (255, 0, 0, 255)).save(path / "dog" / "red.webp", lossless=True)
    Image.new("P", (3, 3)).save(path / "dog" / "small.gif")
    table = read(path)
    assert table.thumbnails.shape == (6, images.SIDE, images.SIDE, 3)
    red = table.thumbnails[table.ids.tolist().index("dog/red.webp")]
    assert (red == [255, 0, 0]).all()


def test_large_pictures_are_reduced_to_means(tmp_path):
    halves = numpy.zeros((128, 128), dtype=numpy.uint8)
    halves[:, 64:] = 200
    Image.fromarray(halves).save(tmp_path / "a.png")
    table = read(tmp_path)
    assert table.thumbnails.shape == (1, 32, 32)
    assert table.thumbnails[0, 0].tolist() == [0] * 16 + [200] * 16


def test_grey_of_16_bits_keeps_its_shades(tmp_path):
    Image.fromarray(numpy.array([[0, 25_700, 65_535]], dtype=numpy.uint16)).save(tmp_path / "a.png")
    assert read(tmp_path).X.tolist() == [[0, 100, 255]]


def test_turned_pictures_are_turned_back(tmp_path):
    picture = Image.fromarray(numpy.array([[1, 2, 3], [4, 5, 6]], dtype=numpy.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6  # shown after a quarter turn clockwise
    picture.save(tmp_path / "a.png", exif=exif)
    assert read(tmp_path).thumbnails[0].tolist() == [[4, 1], [5, 2], [6, 3]]


def test_broken_pictures_are_named(folder, tmp_path):
    path, _ = folder
    whole = (path / "cat" / "0.png").read_bytes()
    (path / "cat" / "0.png").write_bytes(whole[:50])
    with pytest.raises(DataFileError, match=r"it cannot be read as images: cat/0\.png"):
        read(path)


def test_huge_pictures_are_refused_unopened(folder, monkeypatch):
    monkeypatch.setattr(images, "MOST_PIXELS", 30)
    with pytest.raises(DataFileError, match="has 5 x 7 pixels, more than 30"):
        read(folder[0])
    monkeypatch.undo()
    with pytest.raises(DataFileError, match="the pixels would take"):
        read(folder[0], max_bytes=100)


def test_a_folder_without_pictures(tmp_path):
    with pytest.raises(DataFileError, match=r"there are no images in it \(files that end in \.bmp"):
        read(tmp_path)


def grey_16_bits(side):
    """A PNG file of side x side black pixels of 16 bits."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(bytes(2 * side + 1)) for _ in range(side)) + packer.flush()
    head = struct.pack(">IIBBBBB", side, side, 16, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("side", "count", "what"), [(9900, 40, "an image in it"), (5000, 40, "its images")])
def test_images_that_are_bombs(tmp_path, side, count, what):
    content = grey_16_bits(side)
    for place in range(count):
        (tmp_path / f"{place}.png").write_bytes(content)
    with pytest.raises(DataFileError, match=rf"{what} would expand from [\d,]+ to [\d,]+ bytes, more than 200 times"):
        read(tmp_path)


@pytest.mark.parametrize("dtype", [numpy.uint16, numpy.int32, numpy.float32])
def test_large_grey_of_many_bits_is_made_small_in_strips(tmp_path, dtype, monkeypatch):
    values = (numpy.arange(40 * 40) * 30).reshape(40, 40)
    Image.fromarray(values.astype(dtype)).save(tmp_path / "a.tiff")
    whole = read(tmp_path).X
    monkeypatch.setattr(images, "STRIP", 300)
    numpy.testing.assert_array_equal(read(tmp_path).X, whole)
    numpy.testing.assert_array_equal(whole.reshape(40, 40), (values * (255 / 65535)).astype(numpy.uint8))


def test_infinite_pixels_are_black(tmp_path):
    values = numpy.full((4, 4), 0.5, dtype=numpy.float32)
    values[0] = [numpy.nan, numpy.inf, -numpy.inf, 255]
    Image.fromarray(values).save(tmp_path / "a.tiff")
    assert read(tmp_path).X.reshape(4, 4)[0].tolist() == [0, 0, 0, 255]
