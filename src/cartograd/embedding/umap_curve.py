"""The curve by which UMAP says how alike two points of the map are."""

from __future__ import annotations

from functools import lru_cache

import numpy


@lru_cache(maxsize=64)
def fit_curve(min_dist: float, spread: float) -> tuple[float, float]:
    r"""a and b of :math:`1 / (1 + a x^{2b})`, fitted to 1 up to `min_dist` and an exponential decay beyond.

    .. math:: \psi(x) = 1 \text{ for } x < \text{min\_dist}, \quad e^{-(x - \text{min\_dist}) / \text{spread}}

    by least squares over 300 places from 0 to 3 spreads, as umap-learn does.

    Parameters
    ----------
    min_dist, spread : float
        How close points may lie, and over which distance they are scattered.
    """
    from scipy.optimize import curve_fit

    x = numpy.linspace(0, spread * 3, 300)
    y = numpy.where(x < min_dist, 1.0, numpy.exp(-(x - min_dist) / spread))
    (a, b), _ = curve_fit(lambda x, a, b: 1.0 / (1.0 + a * x ** (2 * b)), x, y)
    return float(a), float(b)
