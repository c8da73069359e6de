"""Pictures of the rows."""

import numpy as np
import pytest
import torch

from cartograd.errors import InputError
from cartograd.viewer import thumbnails as module
from cartograd.viewer.thumbnails import thumbnails


def test_bytes_stay():
    images = np.arange(2 * 3 * 4 * 3, dtype=np.uint8).reshape(2, 3, 4, 3)
    np.testing.assert_array_equal(thumbnails(images, 2), images)


def test_numbers_become_bytes():
    assert thumbnails(np.array([[[0.0, 0.5, 1.0]]]), 1).ravel().tolist() == [0, 128, 255]
    assert thumbnails(np.array([[[0.0, 8.0, 16.0]]]), 1).ravel().tolist() == [0, 128, 255]
    assert thumbnails(np.array([[[-4, 4]]]), 1).ravel().tolist() == [0, 255]
    assert thumbnails(torch.tensor([[[True, False]]]), 1).ravel().tolist() == [255, 0]
    assert thumbnails(np.array([[[7.0, 7.0]]]), 1).ravel().tolist() == [0, 0]


def test_large_ones_shrink_by_the_mean_of_squares():
    image = np.random.default_rng(0).integers(0, 256, (1, 200, 300, 3)).astype(np.uint8)
    small = thumbnails(image, 1)
    assert small.shape == (1, 50, 75, 3)
    np.testing.assert_allclose(small[0, 3, 5], image[0, 12:16, 20:24].mean(axis=(0, 1)), atol=0.51)
    assert thumbnails(np.zeros((1, 2, 400)), 1).shape == (1, 1, 80, 1)


def test_refusals(monkeypatch):
    with pytest.raises(InputError, match="finite"):
        thumbnails(np.full((1, 2, 2), np.nan), 1)
    with pytest.raises(InputError, match="one picture for each"):
        thumbnails(np.zeros((1, 2, 2, 2)), 1)
    monkeypatch.setattr(module, "LARGEST_TOTAL", 10)
    with pytest.raises(InputError, match="give smaller images"):
        thumbnails(np.zeros((1, 4, 4), dtype=np.uint8), 1)
