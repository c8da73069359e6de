"""Principal components in the space of a kernel."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY
from typing import Any

import torch

from cartograd.affinity import GaussianAffinity, StudentAffinity
from cartograd.affinity.data import plain
from cartograd.affinity.kernel import gaussian, student
from cartograd.core.checks import shorten
from cartograd.embedding.eigen import is_few, largest_eigenpairs
from cartograd.embedding.estimator import Estimator, at_least_two_rows, detached, estimator, loses_nothing
from cartograd.embedding.memory import GIB, free_bytes
from cartograd.embedding.placement import within_reach
from cartograd.embedding.rowkeys import Register, row_keys
from cartograd.embedding.singular import TOLERANCE, guess, upright
from cartograd.embedding.source import largest_value, searchable
from cartograd.errors import CartogradError, InputError, MemoryBudgetError, OptionError, UnsupportedError
from cartograd.neighbors import Graph, distance_tiles
from cartograd.neighbors.intake import Given, intake
from cartograd.neighbors.rows import TensorRows
from cartograd.neighbors.searching import seed_of
from cartograd.neighbors.tiles import tile_rows
from cartograd.neighbors.workers import all_cores

MATRICES_OF_FEW, MATRICES_OF_ALL = 4.0, 5.5
"""So many (n, n) matrices of float64 are there at once where few eigenvalues are wanted, and where all are found."""
TILE_ELEMENTS = 1 << 22
NEGATIVE = {torch.float32: 5e-3, torch.float64: 1e-5}
"""Negative eigenvalues up to this share of the largest are rounding, by the precision of the data."""
NOTHING = {torch.float32: 2e-7, torch.float64: 1e-12}
"""Eigenvalues up to this share of the largest are zero."""


@estimator
class KernelPCA(Estimator):
    r"""Principal components of rows as a kernel sees them (Schoelkopf, Smola and Mueller, 1997).

    .. math:: H K H = U \Lambda U^T, \qquad H = I - \tfrac1n 1 1^T, \qquad Z = U_c \Lambda_c^{1/2}

    New rows are placed by their kernel k with the rows fitted, centred alike (the formula of Nystroem):

    .. math:: z = \Lambda_c^{-1/2} U_c^T H (k - \tfrac1n K 1)

    K is an n x n matrix, so n is bounded by memory: about 25,000 rows in 20 GiB. Where few components are wanted they
    are iterated, and the other eigenvalues are not found.

    Parameters
    ----------
    n_components : int, default=2
        How many components to keep; None for all whose eigenvalue is not zero.
    affinity : object or "precomputed", default=None
        The kernel: an affinity of `cartograd.affinity` that is symmetric and positive semi-definite, or any function of
        the rows that gives such a matrix; "precomputed" where the data are K itself; None for a new
        ``GaussianAffinity(zero_diag=False)`` at every fit.
    nodiag : bool, default=False
        Whether components whose eigenvalue is zero are left out, be they asked for or not.
    device : torch.device or str, default="auto"
        Where to compute; "auto" for where the data are.
    backend : str, default=None
        None, "auto" or "exact": a kernel takes all pairs.
    verbose : bool, default=False
        Whether to show progress bars, where standard error is a terminal.
    random_state : int, numpy.random.RandomState or numpy.random.Generator, default=None
        Seed of the first guess where the components are iterated; None for a fixed one.

    Attributes
    ----------
    eigenvalues_, eigenvectors_ : (c,) and (n, c)
        :math:`\Lambda_c` and :math:`U_c`, the largest entry of each vector positive, of the kind of the data.
    embedding_ : (n, c)
        Z, of the kind of the data.
    X_fit_ : (n, d)
        The rows fitted, which `transform` needs.
    kernel_means_ : (n,)
        The mean of each column of K, in float64.

    Examples
    --------
    >>> import torch
    >>> X = torch.tensor([[0.0], [0.1], [3.0], [3.1]])
    >>> Z = KernelPCA(n_components=1).fit_transform(X).ravel()
    >>> [round(abs(float(z)), 2) for z in Z]
    [0.71, 0.71, 0.71, 0.71]
    """

    n_components: int | None = 2  # type: ignore[assignment]
    _: KW_ONLY
    affinity: Any = None
    nodiag: bool = False
    device: Any = "auto"
    backend: str | None = None
    verbose: bool = False
    random_state: Any = None

    def fit(self, X: Any, y: Any = None) -> KernelPCA:
        """Find the components of the rows of X.

        Parameters
        ----------
        X : array-like, (n, d), or (n, n) where the affinity is "precomputed"
            NumPy, torch, list, pandas or polars frame, ``scipy`` CSR, ``numpy.memmap`` or ``DataLoader``.
        y : Any, default=None
            Not used.
        """
        self.fit_transform(X, y)
        return self

    @loses_nothing
    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Find the components of X and return its scores, (n, n_components), of the kind of X.

        Parameters
        ----------
        X : array-like, (n, d), or (n, n) where the affinity is "precomputed"
            As for `fit`.
        y : Any, default=None
            Not used.
        """
        self.check_parameters()
        with self._working():
            return self._fitted_to(X)

    def _fitted_to(self, X: Any) -> Any:
        given = self._read(X, reset=True)
        self._check_data(given)
        self.__dict__.pop("_register", None)
        with all_cores(given.rows.device):
            K = self._kernel(given)
            means = K.mean(0)
            self._solve(K.sub_(means).sub_(means[:, None]).add_(means.mean()), given)
        self.kernel_means_ = given.answer(means)
        if self.affinity != "precomputed":
            rows = searchable(given.rows)
            self.X_fit_ = given.answer(rows.clone()) if isinstance(given.rows, TensorRows) else rows
            self._remember(given)
        self._keep_parameters()
        self.is_fitted_ = True
        return self.embedding_

    def _remember(self, given: Given) -> None:
        """Let equal rows have equal scores, to the bit, and recognize the rows of the fit in `transform`."""
        keys = row_keys(given.rows)
        self._register = Register.of(keys)
        first = self._register.find(keys).to(given.home)
        self.embedding_: Any = vars(self)["embedding_"][first.numpy(force=True)]

    def transform(self, X: Any) -> Any:
        """The scores of new rows, (m, n_components), of the kind of X.

        Parameters
        ----------
        X : array-like, (m, d), or (m, n), the kernel with the rows fitted, where the affinity is "precomputed"
            As for `fit`.
        """
        model = self._as_fitted()
        with model._working():
            return model._scores(model._read(X, reset=False))

    def _scores(self, given: Given) -> Any:
        device = given.rows.device
        means, values, vectors = (
            plain(part).to(device=device, dtype=torch.float64)
            for part in (self.kernel_means_, self.eigenvalues_, self.eigenvectors_)
        )
        inverse = torch.where(values > 0, values.clamp(min=1e-300).rsqrt(), 0.0)
        with all_cores(device):
            scores = [
                (tile - means).sub_(tile.mean(1, keepdim=True)).add_(means.mean()) @ (vectors * inverse)
                for tile in self._kernel_tiles(given)
            ]
        found = torch.cat(scores)
        if getattr(self, "_register", None) is not None:
            known = self._register.find(row_keys(given.rows))
            fitted = plain(vars(self)["embedding_"]).to(found)
            found = torch.where((known >= 0)[:, None], fitted[known.clamp(min=0)], found)
        return detached(found, given)

    def _check_data(self, given: Given) -> None:
        at_least_two_rows(given, "KernelPCA")
        n = given.rows.count
        if self.affinity == "precomputed" and given.rows.width != n:
            raise InputError(f'affinity="precomputed" takes the square matrix K, got shape {(n, given.rows.width)}')
        if self.n_components is not None and self.n_components > n:
            raise OptionError(
                f"n_components={self.n_components} is too large for n_samples={n}: the largest that fits is {n}"
            )
        wanted = n if self.n_components is None else self.n_components
        bytes_of_pair = 8 * (MATRICES_OF_FEW if is_few(wanted, n) else MATRICES_OF_ALL)
        needed, free = bytes_of_pair * n * n, free_bytes(given.rows.device)
        if needed > free:
            raise MemoryBudgetError(
                f"KernelPCA of {n} rows would need about {needed / GIB:.1f} GiB for matrices of {n} x {n}, and "
                f"{free / GIB:.1f} GiB are free: use at most {int(math.sqrt(free / bytes_of_pair))} rows, or PCA"
            )

    def _affinity(self) -> Any:
        return GaussianAffinity(zero_diag=False) if self.affinity is None else self.affinity

    def _called(self, rows: Any) -> Any:
        """Return the affinity of rows; an error of the caller's function is shown in a line that names `affinity`."""
        affinity = self._affinity()
        try:
            return affinity(rows)
        except CartogradError:
            raise
        except Exception as error:
            name = getattr(affinity, "__name__", type(affinity).__name__)
            said = f"{type(error).__name__}: {shorten(str(error))}"
            raise UnsupportedError(
                f"affinity {name!r} gives no kernel (n, n) of rows (n, d). It said: {said}"
            ) from error

    def _kernel(self, given: Given) -> torch.Tensor:
        """K, (n, n) float64, a new matrix."""
        n = given.rows.count
        if self.affinity == "precomputed":
            K = torch.cat([given.rows.block(s, min(s + 1024, n)).to(torch.float64) for s in range(0, n, 1024)])
        else:
            K = dense(self._called(searchable(given.rows)))
            K = K.to(device=given.rows.device, dtype=torch.float64)
        if tuple(K.shape) != (n, n):
            raise InputError(f"the affinity of {n} rows must be a matrix {(n, n)}, got shape {tuple(K.shape)}")
        bound = 1e-3 * float(K.abs().max())
        if not bool(((K - K.T).abs() <= bound).all()):  # also where there are NaN
            raise OptionError("the kernel must be finite and symmetric; for an affinity of rows take a symmetric one")
        return (K + K.T).div_(2)

    def _solve(self, K: torch.Tensor, given: Given) -> None:
        n, dtype = given.rows.count, given.rows.dtype
        wanted = n if self.n_components is None else self.n_components
        first = guess(n, wanted, seed_of(self.random_state), K.device)
        found = largest_eigenpairs(K, wanted, first, TOLERANCE[dtype])
        largest = float(found.values[0])
        if found.least < -NEGATIVE[dtype] * max(largest, 0.0) and found.least < -1e-6 * float(K.abs().max()):
            raise OptionError(
                f"the kernel is no inner product: its eigenvalues go from {found.least:.3g} to {largest:.3g}; "
                "use an affinity with zero_diag=False that is positive semi-definite, such as GaussianAffinity"
            )
        values = torch.where(found.values > NOTHING[dtype] * largest, found.values, 0.0)
        vectors = upright(found.vectors.T).T
        if self.nodiag or self.n_components is None:
            values, vectors = values[values > 0], vectors[:, values > 0]
        self.eigenvalues_, self.eigenvectors_ = detached(values, given), detached(vectors, given)
        self.embedding_ = detached(vectors * values.sqrt(), given)

    def _kernel_tiles(self, given: Given) -> Any:
        """The kernel of new rows with those fitted, in tiles (r, n) float64."""
        n, m = len(self.kernel_means_), given.rows.count
        step = max(1, TILE_ELEMENTS // n)
        if self.affinity == "precomputed":
            return (given.rows.block(s, min(s + step, m)).to(torch.float64) for s in range(0, m, step))
        kernel = self._affinity()
        if isinstance(kernel, GaussianAffinity):
            of_distances = gaussian(kernel.sigma)
        elif isinstance(kernel, StudentAffinity):
            of_distances = student(kernel.degrees_of_freedom)
        else:
            raise OptionError(
                "KernelPCA.transform can only be used when `affinity` is a kernel of two rows alone, GaussianAffinity "
                f'or StudentAffinity, or "precomputed"; {type(kernel).__name__} depends on all rows: use fit_transform'
            )
        largest = largest_value(intake(self.X_fit_, "X", None).rows)
        tiles = distance_tiles(
            searchable(within_reach(given.rows, kernel.metric, largest)),
            self.X_fit_,
            metric=kernel.metric,
            device=given.rows.device,
            rows=min(step, tile_rows(given.rows.width)),
        )
        return (torch.exp(of_distances(tile.to(torch.float64))) for _, tile in tiles)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.affinity, str) and self.affinity == "precomputed"
        return tags


def dense(affinity: Any) -> torch.Tensor:
    """What an affinity gave, as a matrix."""
    return affinity.to_dense() if isinstance(affinity, Graph) else plain(affinity)
