"""Principal components."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import torch

from cartograd.distributed import Ranks
from cartograd.embedding.covariance import sum_of_squares
from cartograd.embedding.estimator import at_least_two_rows, estimator
from cartograd.embedding.moments import moments, over_processes, sharers, spectrum_of
from cartograd.embedding.projection import Projection, checked_components, product
from cartograd.embedding.quick_scores import quickly
from cartograd.embedding.singular import leading
from cartograd.embedding.spectrum import Spectrum
from cartograd.neighbors.intake import Given
from cartograd.neighbors.rows import Rows
from cartograd.neighbors.searching import seed_of
from cartograd.neighbors.workers import all_cores

START_TOLERANCE = 1e-3
"""The error allowed in the directions of a start, which the layout leaves at once."""


@estimator
class PCA(Projection):
    r"""Principal components: the directions along which the rows vary most.

    .. math:: X - 1 \mu^T = U S V^T, \qquad Z = U_c S_c = (X - 1 \mu^T) V_c

    with :math:`\mu` the mean row and c the number of components. Rows are read a tile at a time, computed in float64,
    from memory, a file, a loader or a sparse matrix, which never becomes dense as a whole. Up to :math:`2^{18}` values
    are decomposed as they are; otherwise the covariance is, where one side is short, and where few components are
    wanted of many they are iterated (block Lanczos). Singular values agree with those of a full decomposition to a
    relative 1e-8 for float64 data and 1e-5 for float32, as long as they are not below 1e-6 of the largest. The sign is
    scikit-learn's: the largest entry of each component is positive.

    Parameters
    ----------
    n_components : int, default=2
        How many components to keep; None for all, min(n, d).
    device : torch.device or str, default="auto"
        Where to compute; "auto" for where the data are.
    distributed : bool or "auto", default="auto"
        Whether the processes of ``torch.distributed`` each hold some of the rows; "auto" where a group of several is
        initialised. Components are then those of all rows, by their covariance, and scores those of a process's own.
    verbose : bool, default=False
        Whether to show progress bars, where standard error is a terminal.
    random_state : int, numpy.random.RandomState or numpy.random.Generator, default=None
        Seed of the first guess where the components are iterated; None for a fixed one.
    svd_driver : str, default=None
        The ``driver`` of ``torch.linalg.svd`` on CUDA: "gesvd", "gesvdj" or "gesvda".

    Attributes
    ----------
    mean_ : (d,)
        The mean row. This and the following are of the kind and precision of the data.
    components_ : (n_components, d)
        The directions, of length one and at right angles.
    explained_variance_ : (n_components,)
        The variance along each, with n - 1 in the denominator.
    explained_variance_ratio_ : (n_components,)
        Its share of the whole.
    singular_values_ : (n_components,)
        S.
    noise_variance_ : float
        The mean variance along the directions left out (Tipping and Bishop, 1999).
    n_components_ : int
        How many components were kept.
    embedding_ : (n, n_components)
        The scores of the rows fitted.

    Examples
    --------
    >>> import numpy
    >>> X = numpy.array([[0.0, 0.0], [3.0, 3.0], [6.0, 6.0]])
    >>> PCA(n_components=1).fit_transform(X).round(3).ravel().tolist()
    [-4.243, 0.0, 4.243]
    """

    n_components: int | None = 2  # type: ignore[assignment]
    _: KW_ONLY
    device: Any = "auto"
    distributed: bool | str = "auto"
    verbose: bool = False
    random_state: Any = None
    svd_driver: str | None = None

    def fit(self, X: Any, y: Any = None) -> PCA:
        """Find the components of the rows of X.

        Parameters
        ----------
        X : array-like, (n, d)
            NumPy, torch, list, pandas or polars frame, ``scipy`` CSR, ``numpy.memmap`` or ``DataLoader``.
        y : Any, default=None
            Not used.
        """
        self.fit_transform(X, y)
        return self

    def _fit_rows(self, given: Given) -> None:
        at_least_two_rows(given, "PCA")
        ranks = sharers(self.distributed)
        if ranks is not None:
            self._fit_shared(given, ranks)
            return
        wanted = checked_components(self.n_components, given.rows.count, given.rows.width)
        found = leading(given.rows, wanted, seed_of(self.random_state), driver=self.svd_driver)
        count, left = given.rows.count, min(given.rows.count, given.rows.width) - wanted
        total, scale = sum_of_squares(found.data), found.data.scale
        Spectrum(found.data.mean, found.directions, found.values, total, count, left, scale).store(self, given)
        self.embedding_ = self._scores(given)

    def _fit_shared(self, given: Given, ranks: Ranks) -> None:
        """By the covariance of the rows of all processes."""
        found = over_processes(moments(given.rows), ranks)
        wanted = checked_components(self.n_components, found.count, given.rows.width)
        spectrum_of(found, wanted, seed_of(self.random_state), given).store(self, given)
        self.embedding_ = self._scores(given)


def principal_scores(rows: Rows, n_components: int, seed: int) -> torch.Tensor:
    """The scores of rows along their leading components, as a start for a layout.

    Parameters
    ----------
    rows : Rows
        The rows, (n, d).
    n_components : int
        How many; columns beyond min(n, d) are zero.
    seed : int
        Seed of the first guess where the components are iterated.

    Returns
    -------
    scores : torch.Tensor
        (n, n_components) float64, on the device of the rows.
    """
    wanted = min(n_components, rows.count, rows.width)
    with all_cores(rows.device):
        found = quickly(rows, wanted, seed, START_TOLERANCE)
        if found is not None:
            return torch.nn.functional.pad(found, (0, n_components - wanted))
        exact = leading(rows, wanted, seed, START_TOLERANCE)
        scores = product(exact.data, exact.directions.T) / exact.data.scale
    return torch.nn.functional.pad(scores, (0, n_components - wanted))
