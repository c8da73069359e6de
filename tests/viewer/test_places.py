"""Names stand where their points are thickest."""

import numpy as np
import pytest

from cartograd.viewer.places import densest_places
from cartograd.viewer.points import spread


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_the_larger_of_two_clusters(dimensions):
    rng = np.random.default_rng(0)
    near, far = np.zeros(dimensions), np.full(dimensions, 10.0)
    points = np.concatenate([rng.normal(near, 1.0, (900, dimensions)), rng.normal(far, 1.0, (300, dimensions))])
    place = densest_places(points, np.zeros(1200, dtype=int), 1)[0]
    assert np.abs(place - near).max() < 0.3


def test_each_category_has_its_own_and_an_empty_one_none():
    rng = np.random.default_rng(1)
    centres = np.array([[0.0, 0.0], [5.0, 1.0], [9.0, 9.0]])
    codes = rng.integers(0, 3, 3000)
    codes[codes == 2] = 3  # category 2 has no points, 3 stands for none
    points = centres[np.minimum(codes, 2)] + rng.normal(size=(3000, 2)) * 0.3
    places = densest_places(points, codes, 3)
    np.testing.assert_allclose(places[:2], centres[:2], atol=0.1)
    assert np.isnan(places[2]).all()


def test_a_rings_name_stands_on_the_ring():
    angles = np.linspace(0, 2 * np.pi, 2000, endpoint=False)
    points = np.column_stack([np.cos(angles), np.sin(angles)])
    place = densest_places(points, np.zeros(2000, dtype=int), 1)[0]
    assert 0.8 < np.hypot(*place) < 1.15


@pytest.mark.parametrize("points", [[[2.0, 3.0]], [[1.0, 1.0]] * 5, [[0.0, 0.0], [0.0, 1.0]]])
def test_few_and_equal_points(points):
    points = np.array(points)
    place = densest_places(points, np.zeros(len(points), dtype=int), 1)[0]
    assert (place >= points.min(axis=0) - 1e-9).all()
    assert (place <= points.max(axis=0) + 1e-9).all()


def test_one_dimension_spreads_as_its_histogram():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(5000, 1))
    shown = spread(points)
    np.testing.assert_array_equal(shown[:, 0], points[:, 0])
    heights = [np.ptp(shown[np.abs(points[:, 0] - at) < 0.1, 1]) for at in (0.0, 1.0, 2.0)]
    assert heights[0] > heights[1] > heights[2]
    np.testing.assert_allclose(heights[1] / heights[0], np.exp(-0.5), atol=0.12)  # the normal density's ratio
