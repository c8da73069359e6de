"""Principal components of data that come in batches, as exact as those of all rows at once."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import torch

from cartograd.affinity.data import plain
from cartograd.embedding.covariance import centred, power_of_two
from cartograd.embedding.estimator import at_least_two_rows, detached, estimator, loses_nothing
from cartograd.embedding.moments import Moments, agreed, merged, moments, over_processes, sharers, spectrum_of
from cartograd.embedding.projection import Projection, checked_components
from cartograd.embedding.stream import batches, is_stream
from cartograd.errors import InputError
from cartograd.neighbors.intake import Given
from cartograd.neighbors.progress import steps
from cartograd.neighbors.searching import seed_of
from cartograd.neighbors.workers import all_cores


@estimator
class ExactIncrementalPCA(Projection):
    r"""Principal components from the covariance, which is summed batch by batch.

    .. math:: M = \sum_i (x_i - \mu)(x_i - \mu)^T = V \Lambda V^T, \qquad Z = (X - 1 \mu^T) V_c

    Memory is that of one batch and of the d x d matrix M, in float64. Batches are merged about their own means (Chan,
    Golub and LeVeque, 1983), so one walk over the data is enough and the result is that of all rows at once, however
    they are cut. Where the mean is known from a walk of its own, `compute_mean`, M is taken about that. Singular values
    below 1e-6 of the largest are rounding: M has the square of the data's condition number. `PCA` has not.

    Parameters
    ----------
    n_components : int, default=2
        How many components to keep; None for all, min(n, d).
    device : torch.device or str, default="auto"
        Where to compute; "auto" for where the data are.
    distributed : bool or "auto", default="auto"
        Whether the processes of ``torch.distributed`` each hold some of the rows; "auto" where a group of several is
        initialised. For `fit` and `fit_transform`.
    verbose : bool, default=False
        Whether to show progress bars, where standard error is a terminal.
    random_state : int, numpy.random.RandomState or numpy.random.Generator, default=None
        Seed of the first guess where the components are iterated; None for a fixed one.

    Attributes
    ----------
    mean_ : (d,)
        The mean row. This and the following are of the kind of the data.
    components_ : (n_components, d)
        The directions.
    explained_variance_, explained_variance_ratio_, singular_values_ : (n_components,)
        As in `PCA`.
    noise_variance_ : float
        The mean variance along the directions left out.
    scatter_, seen_mean_ : (d, d) and (d,)
        M and the mean of the rows seen, in float64: what the next `partial_fit` goes on from.
    n_components_, n_samples_seen_ : int
        How many components and rows.

    Examples
    --------
    >>> import torch
    >>> X = torch.arange(12.0).reshape(6, 2)
    >>> model = ExactIncrementalPCA(n_components=1).fit([X[:1], X[1:4], X[4:]])
    >>> model.n_samples_seen_, round(model.transform(X[:1]).item(), 4)
    (6, -7.0711)
    """

    n_components: int | None = 2  # type: ignore[assignment]
    _: KW_ONLY
    device: Any = "auto"
    distributed: bool | str = "auto"
    verbose: bool = False
    random_state: Any = None

    @loses_nothing
    def compute_mean(self, X: Any) -> ExactIncrementalPCA:
        """The first of two walks: the mean, about which `partial_fit` then sums; forgets what was fitted before.

        Parameters
        ----------
        X : array-like, (n, d), or batches of it
            As for `fit`.
        """
        self.check_parameters()
        count, mean, first = 0, torch.zeros(()), None
        for given in self._batches(X):
            first = first or given
            with all_cores(given.rows.device):
                own = centred(given.rows).mean
            count += given.rows.count
            mean = own if first is given else mean + (own - mean) * (given.rows.count / count)
        assert first is not None
        self._forget()
        self.n_features_in_, self.n_samples_in_ = first.rows.width, count
        self.mean_, self.given_mean_ = detached(mean, first), first.answer(mean)
        return self

    @loses_nothing
    def partial_fit(self, X: Any, y: Any = None) -> ExactIncrementalPCA:
        """Take one more batch into account.

        Parameters
        ----------
        X : array-like, (m, d)
            The batch, of any length.
        y : Any, default=None
            Not used.
        """
        self.check_parameters()
        fresh = not getattr(self, "is_fitted_", False)
        given = self._read(X, reset=fresh)
        width = given.rows.width
        if hasattr(self, "given_mean_") and len(self.given_mean_) != width:
            raise InputError(f"X has {width} features, but compute_mean was given {len(self.given_mean_)}")
        wanted = checked_components(self.n_components, width, width)  # a batch may have fewer rows than that
        with all_cores(given.rows.device):
            self._store(moments(given.rows) if fresh else self._grown(given), wanted, given)
        return self

    @loses_nothing
    def fit(self, X: Any, y: Any = None) -> ExactIncrementalPCA:
        """Find the components of X, forgetting what was fitted before.

        Parameters
        ----------
        X : array-like, (n, d), or batches of it
            NumPy, torch, list, pandas or polars frame, ``scipy`` CSR, ``numpy.memmap``; or a ``DataLoader``, a
            generator or a list of batches, which are read once and not stored.
        y : Any, default=None
            Not used.
        """
        self.check_parameters()
        with self._working(), agreed(self):
            if not is_stream(X):
                given = self._read(X, reset=True)
                with all_cores(given.rows.device):
                    self._fit_rows(given)
                return self
            found, first = self._summed(X)
            self.n_features_in_, self.n_samples_in_ = first.rows.width, found.count
            self._store_new(found, first)
            return self

    def _batches(self, X: Any) -> Any:
        device = None if self.device in (None, "auto") else self.device
        incoming = batches(X if is_stream(X) else [X], device)
        total = len(X) if hasattr(X, "__len__") and is_stream(X) else 0
        return steps(incoming, total, "ExactIncrementalPCA", self.verbose)

    def _summed(self, X: Any) -> tuple[Moments, Given]:
        found, first = None, None
        for given in self._batches(X):
            with all_cores(given.rows.device):
                own = moments(given.rows, None if found is None else found.scale)
                found = own if found is None else merged(found, own)
            first = first or given
        assert found is not None
        assert first is not None
        if found.count < 2:
            raise InputError("ExactIncrementalPCA needs at least 2 rows, got 1 sample")
        return found, first

    def _fit_rows(self, given: Given) -> None:
        at_least_two_rows(given, "ExactIncrementalPCA")
        self._store_new(moments(given.rows), given)

    def _grown(self, given: Given) -> Moments:
        """What was seen so far and one more batch."""
        mean, scatter = (
            plain(part).to(device=given.rows.device, dtype=torch.float64) for part in (self.seen_mean_, self.scatter_)
        )
        scale = power_of_two(float(scatter.diagonal().max().sqrt()))
        before = Moments(self.n_samples_seen_, mean, scatter * scale * scale, scale)
        return merged(before, moments(given.rows, scale))

    def _forget(self) -> None:
        for name in ("given_mean_", "is_fitted_"):
            self.__dict__.pop(name, None)

    def _store_new(self, found: Moments, given: Given) -> None:
        ranks = sharers(self.distributed)
        if ranks is not None:
            found = over_processes(found, ranks)
        wanted = checked_components(self.n_components, found.count, given.rows.width)
        self._forget()
        self._store(found, wanted, given)

    def _store(self, found: Moments, wanted: int, given: Given) -> None:
        known = plain(self.given_mean_).to(found.mean) if hasattr(self, "given_mean_") else None
        spectrum_of(found, wanted, seed_of(self.random_state), given, known).store(self, given)
        self.seen_mean_ = given.answer(found.mean)
        self.scatter_ = given.answer(found.scatter / found.scale / found.scale)
        self.n_samples_seen_ = found.count
