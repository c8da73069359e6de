"""Principal components by one walk over the data, in batches, in memory of one batch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch

from cartograd.affinity.counter import normal, stream
from cartograd.affinity.data import plain
from cartograd.core.checks import count
from cartograd.embedding.covariance import Centred, power_of_two
from cartograd.embedding.estimator import at_least_two_rows, detached, estimator, loses_nothing
from cartograd.embedding.projection import Projection
from cartograd.embedding.singular import decomposed, svd, upright
from cartograd.embedding.spectrum import Spectrum
from cartograd.embedding.stream import batches, is_stream, regrouped
from cartograd.errors import OptionError
from cartograd.neighbors.intake import Given
from cartograd.neighbors.progress import steps
from cartograd.neighbors.rows import TensorRows
from cartograd.neighbors.searching import seed_of
from cartograd.neighbors.workers import all_cores


@dataclass(frozen=True)
class State:
    """What is known of the rows seen so far.

    Parameters
    ----------
    count : int
        How many rows.
    mean, variance : torch.Tensor
        (d,) each, of the columns; the variance of rows times `scale`, with n in the denominator.
    directions, values : torch.Tensor
        (c, d) and (c,): components and singular values of the rows times `scale`.
    rest : float
        The squares of the singular values left out at the last batch, summed.
    left : int
        How many these were.
    scale : float
        A power of two that keeps squares in range.
    """

    count: int
    mean: torch.Tensor
    variance: torch.Tensor
    directions: torch.Tensor
    values: torch.Tensor
    rest: float
    left: int
    scale: float


@estimator
class IncrementalPCA(Projection):
    r"""Principal components of data that come in batches (Ross, Lim, Lin and Yang, 2008).

    The singular values and directions so far, the new rows about their own mean, and one row for the way the mean
    moved are decomposed together:

    .. math:: U' S' V'^T =
        \begin{pmatrix} S V^T \\ B - 1 \mu_B^T \\ \sqrt{n m / (n + m)} \, (\mu - \mu_B)^T \end{pmatrix}

    with n rows before and m in the batch. What the components leave out of a batch is lost to the next, so results
    depend a little on the batches; `ExactIncrementalPCA` has none of that and needs memory for a d x d matrix. Batches
    are computed in float64. Agrees with scikit-learn's ``IncrementalPCA``, signs included.

    Parameters
    ----------
    n_components : int, default=None
        How many components to keep; None for as many as the first batch has rows or columns, whichever are fewer.
    copy : bool, default=True
        Accepted for scikit-learn's sake: the data are never written to.
    batch_size : int, default=None
        Rows of a batch in `fit`, whatever the batches of a loader are; None for five times the number of columns.
    svd_driver : str, default=None
        The ``driver`` of ``torch.linalg.svd`` on CUDA: "gesvd", "gesvdj" or "gesvda".
    lowrank : bool, default=False
        Whether batches are decomposed approximately, by random projection (Halko, Martinsson and Tropp, 2011).
    lowrank_q : int, default=None
        The size of that projection; None for twice the number of components.
    lowrank_niter : int, default=4
        How many times it is sharpened.
    device : torch.device or str, default="auto"
        Where to compute; "auto" for where the data are.
    verbose : bool, default=False
        Whether to show progress bars, where standard error is a terminal.
    random_state : int, numpy.random.RandomState or numpy.random.Generator, default=None
        Seed of the projection and of first guesses; None for a fixed one.

    Attributes
    ----------
    mean_, var_ : (d,)
        Mean and variance (n in the denominator) of the columns. These and the following are of the kind of the data.
    components_ : (n_components, d)
        The directions.
    explained_variance_, explained_variance_ratio_, singular_values_ : (n_components,)
        As in `PCA`.
    noise_variance_ : float
        The mean variance along the directions left out at the last batch.
    n_components_, n_samples_seen_, batch_size_ : int
        How many components, rows, and rows of a batch.

    Examples
    --------
    >>> import torch
    >>> X = torch.arange(12.0).reshape(6, 2)
    >>> model = IncrementalPCA(n_components=1, batch_size=3).fit(X)
    >>> model.n_samples_seen_, round(model.transform(X[:1]).item(), 4)
    (6, -7.0711)
    """

    n_components: int | None = None  # type: ignore[assignment]
    _: KW_ONLY
    copy: bool = True
    batch_size: int | None = None
    svd_driver: str | None = None
    lowrank: bool = False
    lowrank_q: int | None = None
    lowrank_niter: int = 4
    device: Any = "auto"
    verbose: bool = False
    random_state: Any = None

    @loses_nothing
    def fit(self, X: Any, y: Any = None) -> IncrementalPCA:
        """Find the components of X, batch by batch, forgetting what was fitted before.

        Parameters
        ----------
        X : array-like, (n, d), or batches of it
            NumPy, torch, list, pandas or polars frame, ``scipy`` CSR, ``numpy.memmap``; or a ``DataLoader``, a
            generator or a list of batches, which are read once and not stored.
        y : Any, default=None
            Not used.
        """
        self.check_parameters()
        with self._working():
            return self._fitted_to(X)

    def _fitted_to(self, X: Any) -> IncrementalPCA:
        if not is_stream(X):
            given = self._read(X, reset=True)
            with all_cores(given.rows.device):
                self._fit_rows(given)
            return self
        incoming = batches(X, None if self.device in (None, "auto") else self.device)
        first = next(incoming)
        with all_cores(first.rows.device):
            self._fit_pieces(_blocks(first, incoming), first)
        self.n_features_in_, self.n_samples_in_ = first.rows.width, self.n_samples_seen_
        return self

    @loses_nothing
    def partial_fit(self, X: Any, y: Any = None) -> IncrementalPCA:
        """Take one more batch into account, all of X at once.

        Parameters
        ----------
        X : array-like, (m, d)
            The batch. The first must have at least 2 rows, and `n_components`; the others may be of any length.
        y : Any, default=None
            Not used.
        """
        self.check_parameters()
        fresh = not getattr(self, "is_fitted_", False)
        given = self._read(X, reset=fresh)
        with self._working(), all_cores(given.rows.device):
            rows = given.rows.block(0, given.rows.count)
            self._store(self._updated(None if fresh else self._state(given), rows), given)
        return self

    def _check_together(self) -> None:
        if self.lowrank_q is not None:
            count(self.lowrank_q, "lowrank_q", self.n_components or 1)

    def _fit_rows(self, given: Given) -> None:
        at_least_two_rows(given, "IncrementalPCA")
        rows, size = given.rows, self.batch_size or 5 * given.rows.width
        blocks = (rows.block(start, min(start + size, rows.count)) for start in range(0, rows.count, size))
        self._fit_pieces(steps(blocks, -(-rows.count // size), "IncrementalPCA", self.verbose), given)

    def _fit_pieces(self, pieces: Any, given: Given) -> None:
        least = self.n_components or 0
        size = max(int(self.batch_size or 5 * given.rows.width), least)
        state = None
        for batch in regrouped(pieces, size, least):
            state = self._updated(state, batch)
        assert state is not None
        self.batch_size_ = size
        self._store(state, given)

    def _updated(self, state: State | None, batch: torch.Tensor) -> State:
        """The state after one more batch."""
        m, d = batch.shape
        wanted = self._wanted(m, d) if state is None else len(state.values)
        batch = batch.to(torch.float64)
        own = batch[0] + ((batch - batch[0]) / m).sum(0)  # a sum could leave the range
        scale = power_of_two(float((batch - own).abs().max())) if state is None else state.scale
        apart = (batch - own).mul_(scale)
        squares = apart.square().sum(0)
        if state is None:
            count, mean, stacked = m, own, apart
        else:
            count = state.count + m
            mean = state.mean + (own - state.mean) * (m / count)
            moved = (state.mean - own) * (scale * math.sqrt(state.count / count * m))
            stacked = torch.cat([state.values[:, None] * state.directions, apart, moved[None]])
            squares = squares + state.variance * state.count + moved.square()
        values, directions = self._decomposed(stacked, wanted)
        left = 0 if wanted in (m, d) else min(stacked.shape) - wanted  # scikit-learn's rule
        rest = max(float(stacked.square().sum()) - float(values.square().sum()), 0.0)
        return State(count, mean, squares / count, directions, values, rest, left, scale)

    def _wanted(self, m: int, d: int) -> int:
        if m < 2:
            raise OptionError(f"the first batch must have at least 2 rows, got n_samples={m}")
        if self.n_components is None:
            return min(m, d)
        if self.n_components > d:
            raise OptionError(
                f"n_components={self.n_components} is too large for n_features={d}: the largest that fits is {d}"
            )
        if self.n_components > m:
            raise OptionError(
                f"n_components={self.n_components} is too large for a first batch of n_samples={m}: give as many rows "
                "in it, or fewer components"
            )
        return int(self.n_components)

    def _decomposed(self, stacked: torch.Tensor, wanted: int) -> tuple[torch.Tensor, torch.Tensor]:
        seed = seed_of(self.random_state)
        if self.lowrank:
            size = min(self.lowrank_q or 2 * wanted, *stacked.shape)
            values, directions = low_rank(stacked, size, self.lowrank_niter, seed, self.svd_driver)
            return values[:wanted], upright(directions[:wanted])
        origin = torch.zeros(stacked.shape[1], dtype=stacked.dtype, device=stacked.device)
        return decomposed(Centred(TensorRows(stacked), origin), wanted, seed, driver=self.svd_driver)

    def _state(self, given: Given) -> State:
        """The state that the fitted attributes tell of."""
        mean, variance, directions, values = (
            plain(part).to(device=given.rows.device, dtype=torch.float64)
            for part in (self.mean_, self.var_, self.components_, self.singular_values_)
        )
        scale = power_of_two(float(values[0]))
        variance = variance * scale * scale
        return State(self.n_samples_seen_, mean, variance, directions, values * scale, 0.0, 0, scale)

    def _store(self, state: State, given: Given) -> None:
        total = float(state.variance.sum()) * state.count
        parts = (state.mean, state.directions, state.values, total, state.count, state.left, state.scale)
        Spectrum(*parts).store(self, given)
        free, s = max(state.count - 1, 1), state.scale
        self.noise_variance_ = state.rest / free / max(state.left, 1) / s / s if state.left > 0 else 0.0
        self.var_ = detached(state.variance / s / s, given)
        self.n_samples_seen_ = state.count


def low_rank(
    matrix: torch.Tensor, size: int, sharpenings: int, seed: int, driver: str | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""About the `size` leading singular values and directions of a matrix, by random projection.

    With Q an orthonormal basis of :math:`(A A^T)^q A G`, G random, :math:`Q^T A = U S V^T` gives S and V.

    Parameters
    ----------
    matrix : torch.Tensor
        A, (n, d).
    size : int
        Columns of G.
    sharpenings : int
        q.
    seed : int
        Seed of G.
    driver : str, default=None
        The ``driver`` of ``torch.linalg.svd``, on CUDA.
    """
    G = normal(stream(seed, "low rank"), (matrix.shape[1], size), matrix.device).to(matrix.dtype)
    Q = torch.linalg.qr(matrix @ G).Q
    for _ in range(sharpenings):
        Q = torch.linalg.qr(matrix @ torch.linalg.qr(matrix.T @ Q).Q).Q
    _, values, directions = svd(Q.T @ matrix, driver)
    return values, directions


def _blocks(first: Given, others: Iterator[Given]) -> Iterator[torch.Tensor]:
    yield first.rows.block(0, first.rows.count)
    for given in others:
        yield given.rows.block(0, given.rows.count)
