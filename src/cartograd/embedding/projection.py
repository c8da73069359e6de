"""Maps by a matrix: what the estimators with principal components share once they are fitted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from cartograd.affinity import checks
from cartograd.affinity.data import plain
from cartograd.embedding.covariance import Centred
from cartograd.embedding.estimator import Estimator, detached, in_range, loses_nothing
from cartograd.embedding.moments import agreed
from cartograd.embedding.stream import is_stream, opened
from cartograd.errors import InputError, OptionError
from cartograd.neighbors import validate
from cartograd.neighbors.intake import Given, intake
from cartograd.neighbors.rows import SparseRows
from cartograd.neighbors.tiles import tile_rows
from cartograd.neighbors.workers import all_cores, spread

PROJECTED_ROWS = 192
GPU_PROJECTED_ROWS = 8192


@dataclass(eq=False, repr=False, kw_only=True)
class Projection(Estimator):
    r"""The base of `PCA`, `IncrementalPCA` and `ExactIncrementalPCA`: :math:`z = V^T (x - \mu)`."""

    @loses_nothing
    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Find the components of X and return its scores, (n, n_components), of the kind of X.

        Parameters
        ----------
        X : array-like, (n, d)
            As for `fit`.
        y : Any, default=None
            Not used.
        """
        self.check_parameters()
        with self._working(), agreed(self):
            kind = None
            if is_stream(X) and not isinstance(X, torch.utils.data.DataLoader):
                X, kind = opened(X)
            given = self._read(X, reset=True)
            given = given if kind is None else replace(given, kind=kind)
            with all_cores(given.rows.device):
                self._fit_rows(given)
                return self._scores(given)

    def transform(self, X: Any) -> Any:
        """The scores of rows: their coordinates along the components, (m, n_components), of the kind of X."""
        with self._working():
            given = self._read(X, reset=False)
            with all_cores(given.rows.device):
                return self._scores(given)

    def inverse_transform(self, X: Any) -> Any:
        r"""The rows that have these scores: :math:`\hat x = V z + \mu`, (m, d), of the kind of X.

        Parameters
        ----------
        X : array-like, (m, n_components)
            Scores.
        """
        given = self._read_scores(X)
        V, mean = self._matrix(given.rows.device), self._mean(given.rows.device)
        with all_cores(given.rows.device):
            rows = product(Centred(given.rows, torch.zeros(len(V), dtype=V.dtype, device=V.device)), V)
        return detached(in_range(rows + mean, given), given)

    def _fit_rows(self, given: Given) -> None:
        raise NotImplementedError

    def _scores(self, given: Given) -> Any:
        device = given.rows.device
        scores = product(Centred(given.rows, self._mean(device)), self._matrix(device).T)
        return detached(in_range(scores, given), given)

    def _read_scores(self, X: Any) -> Given:
        given = intake(X, "X", None if self.device in (None, "auto") else self.device)
        wanted = len(self.components_)
        if given.rows.width != wanted:
            raise InputError(
                f"X has {given.rows.width} columns, but {type(self).__name__} has {wanted} components; give scores as "
                "transform returns them"
            )
        validate.scan(given.rows, "X", tile_rows(wanted))
        return given

    def _mean(self, device: torch.device) -> torch.Tensor:
        return plain(self.mean_).to(device=device, dtype=torch.float64)

    def _matrix(self, device: torch.device) -> torch.Tensor:
        return plain(self.components_).to(device=device, dtype=torch.float64)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)


def product(data: Centred, V: torch.Tensor) -> torch.Tensor:
    """The centred rows times V, (n, m) float64. A row's product does not depend on the other rows.

    All tiles have the same number of rows, the last one filled up with zeros, and V the same layout: matrix products of
    another shape may add in another order, and at the edges of some they do.
    """
    n, d = data.shape
    V = V.T.contiguous().T
    tile = PROJECTED_ROWS if V.device.type == "cpu" else GPU_PROJECTED_ROWS

    def of_tile(start: int) -> torch.Tensor:
        stop = min(start + tile, n)
        if isinstance(data.rows, SparseRows) or stop - start == tile:
            return data.times(start, stop, V)
        filled = torch.zeros(tile, d, dtype=torch.float64, device=V.device)
        filled[: stop - start] = data.block(start, stop)
        return (filled @ V)[: stop - start]

    return torch.cat(list(spread(of_tile, range(0, n, tile))))


def checked_components(n_components: Any, rows: int, columns: int) -> int:
    """How many components: `n_components`, or all for None; refused where there are not so many."""
    largest = min(rows, columns)
    wanted = largest if n_components is None else checks.count(n_components, "n_components")
    if wanted > largest:
        raise OptionError(
            f"n_components={wanted} is too large for n_samples={rows} and n_features={columns}: the largest that fits "
            f"is {largest}"
        )
    return wanted
