"""`AffinityMatcher`: rows, their affinity, a start, and steps until the map's affinity matches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY
from typing import Any

import torch

from cartograd.embedding import loop, matching
from cartograd.embedding.degenerate import disc_of_equal_rows
from cartograd.embedding.device_choice import memory_told, moved
from cartograd.embedding.estimator import Estimator, at_least_two_rows, detached, estimator, loses_nothing
from cartograd.embedding.memory import refuse_if_too_large
from cartograd.embedding.optimisers import check_descent, learning_rate
from cartograd.embedding.placement import Placement, mean_of_neighbours, place
from cartograd.embedding.report import Report
from cartograd.embedding.resuming import check_checkpoints
from cartograd.embedding.shared_fit import SharedFit
from cartograd.embedding.sharing import (
    asked_together,
    divided,
    joined,
    placed_by_all,
    rows_to_join_by,
    shared,
    shared_seed,
    source_of,
    start_of,
    whole_graph,
)
from cartograd.embedding.source import Source, owned, searchable
from cartograd.embedding.start import check_start, starting_points
from cartograd.engine import Tensor
from cartograd.errors import OptionError
from cartograd.neighbors import Graph
from cartograd.neighbors.intake import Given
from cartograd.neighbors.rows import Rows
from cartograd.neighbors.searching import seed_of
from cartograd.neighbors.workers import all_cores

Callback = Callable[[int, Any, float], Any]
KEPT_FOR_FIT = "_layout _moved _given _source _steps _bounds _shown_rows _last_loss optimizer_ scheduler_".split()


@estimator
class AffinityMatcher(SharedFit, Estimator):
    r"""A map whose affinity matches that of the data, by gradient descent.

    .. math:: \min_Z \; L(P, Q(Z)), \qquad L = \sum_{ij} (P_{ij} - Q_{ij})^2 \;\text{or}\; -\sum_{ij} P_{ij} \log Q_{ij}

    The base of all neighbour embeddings, and usable alone: P and Q are any two affinities of `cartograd.affinity`. The
    loss is written with Tensors and differentiated by the engine.

    Parameters
    ----------
    affinity_in : object or "precomputed", default=None
        P: called with the rows, gives a matrix or a `Graph`; "precomputed": the data are P itself.
    affinity_out : object, default=None
        Q: called with the map, a `Tensor`.
    kwargs_affinity_out : dict, default=None
        Keyword arguments of that call.
    loss_fn : str, default="square_loss"
        "square_loss" or "cross_entropy_loss".
    kwargs_loss : dict, default=None
        Keyword arguments of the loss.
    optimizer : str or class, default="Adam"
        An optimiser of ``torch.optim``.
    optimizer_kwargs : dict, default=None
        Its keyword arguments.
    lr : float or "auto", default=1.0
        The learning rate.
    scheduler : str or class, default=None
        A scheduler of ``torch.optim.lr_scheduler``.
    scheduler_kwargs : dict, default=None
        Its keyword arguments.
    min_grad_norm : float, default=1e-7
        The fit ends where the gradient's norm is below this.
    max_iter : int, default=1000
        Steps at most.
    timeout : float, default=None
        The fit ends after so many seconds of steps, with the map that was reached; None for no limit.
    init : str or array-like, default="pca"
        The start: "pca", "spectral", "normal", "hyperbolic", or an array (n, n_components).
    init_scaling : float, default=1e-4
        The standard deviation of the start's first coordinate; None to take the start as it is.
    check_interval : int, default=50
        Steps between looks at the gradient's norm and the loss, and between callbacks.
    backend : str or FaissConfig, default=None
        How neighbours are searched, see `cartograd.neighbors.search`; None for "auto".
    compile : bool, default=False
        Whether the forces of `UMAP` are compiled by ``torch.compile``; needs a C++ compiler, and a minute at first. The
        other methods compute theirs in place and gain nothing by it.
    process_duplicates : bool, default=True
        Whether equal rows are taken as one, and share one place.
    callbacks : sequence of callables, default=None
        Called with (step, embedding, loss) every `check_interval` steps; one that returns True ends the fit.
    checkpoint_dir : str or path, default=None
        A folder for checkpoints of the layout, the last two of which are kept; None for none. Ctrl-C and SIGTERM then
        write one before they end the fit.
    checkpoint_every : int, default=100
        Steps between checkpoints.
    resume : bool, default=False
        Whether to go on from the newest whole checkpoint in `checkpoint_dir`, where there is one; the map has the same
        bits as one that was never interrupted. Otherwise what is there is removed and the fit begins anew.
    n_components, device, verbose, random_state
        See `Estimator`.

    Attributes
    ----------
    embedding_ : (n, n_components)
        The map, of the kind of the data.
    loss_ : list of float
        The loss at every `check_interval` steps.
    n_iter_ : int
        How many steps were taken.
    report_ : dict
        Sizes, choices, seconds by phase.
    """

    affinity_in: Any = None
    _: KW_ONLY
    affinity_out: Any = None
    kwargs_affinity_out: dict[str, Any] | None = None
    loss_fn: str = "square_loss"
    kwargs_loss: dict[str, Any] | None = None
    optimizer: Any = "Adam"
    optimizer_kwargs: Any = None
    lr: Any = 1.0
    scheduler: Any = None
    scheduler_kwargs: Any = None
    min_grad_norm: float = 1e-7
    max_iter: int | str = 1000
    timeout: float | None = None
    init: Any = "pca"
    init_scaling: float | None = 1e-4
    check_interval: int = 50
    backend: Any = None
    compile: bool = False
    process_duplicates: bool = True
    callbacks: Sequence[Callback] | None = None
    checkpoint_dir: Any = None
    checkpoint_every: int = 100
    resume: bool = False

    _use_closed_form_gradients = True

    def fit(self, X: Any, y: Any = None) -> Any:
        """Make a map of the rows of X.

        Parameters
        ----------
        X : array-like, (n, d)
            NumPy, torch, list, pandas or polars frame, ``scipy`` CSR, ``numpy.memmap`` or ``DataLoader``.
        y : array-like, (n,), default=None
            Labels, for methods that use them.
        """
        self.fit_transform(X, y)
        return self

    @loses_nothing
    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Make a map of the rows of X and return it, (n, n_components), of the kind and on the device of X.

        With several processes X is all rows in each of them, and so is the map; or each has its own rows and gets
        their places.
        """
        # a fit takes gradients of its own, also where the caller needs none
        self.check_parameters()
        with self._working(), shared(self), torch.inference_mode(False), torch.enable_grad():
            given, y = joined(self, moved(self, self._read(X, reset=True)), y)
            at_least_two_rows(given, type(self).__name__)
            self._check_data(given, y)
            with all_cores(given.rows.device), memory_told(self):
                self._fit(given, y)
        return self.embedding_

    def transform(self, X: Any) -> Any:
        """Places of new rows in the fitted map, which stays as it is.

        A row of the training set comes back at its fitted place. The place of another depends on that row alone, not on
        which others are given with it.
        """
        model = self._as_fitted()
        with model._working(), asked_together(model):
            given = model._read(X, reset=False)
            with all_cores(given.rows.device), torch.no_grad():
                asked, own = placed_by_all(model, given)
                return detached(place(model, asked.rows)[own], given)

    def _fit(self, given: Given, y: Any) -> None:
        self.report_ = Report(method=type(self).__name__, n=given.rows.count, d=given.rows.width)
        self.report_["interrupted"] = False
        self._seed = shared_seed(self, seed_of(self.random_state))
        with self.report_.phase("duplicates"):
            self._given, source = source_of(self, given)
        if source.n == 1:
            layout = disc_of_equal_rows(self._given.rows, self.n_components, self._seed)
            self._finish(source, layout, layout[:1])
            return
        self._source = source
        self._steps = self._steps_for(source.n)
        self._bounds = divided(self, source.n)
        refuse_if_too_large(self, source)
        self.on_affinity_computation_start()
        self.affinity_in_ = self._affinity(source, y)
        self.on_affinity_computation_end()
        with self.report_.phase("start"):
            self._layout = self._start(source)
        self._optimise()
        self._finish(source, None, self._layout)

    def _optimise(self) -> None:
        self.n_iter_ = 0
        self.loss_: list[float] = []
        with self.report_.phase("layout"):
            loop.run(self)

    def _finish(self, source: Source, layout: torch.Tensor | None, places: torch.Tensor) -> None:
        """Keep what transform needs, drop what only the fit needed."""
        if layout is None:
            layout = places if source.distinct is None else places[source.distinct.inverse]
            self._placement = Placement(owned(source), places.detach(), *self._kept())
        else:
            self._placement = Placement(owned(source), places.detach())
            self.n_iter_, self.loss_ = 0, []
        self.embedding_ = self._shown(layout)
        self._keep_parameters()
        self.is_fitted_ = True
        for name in (*KEPT_FOR_FIT, *self._buffers()):
            self.__dict__.pop(name, None)

    def clear_memory(self) -> None:
        """Drop the affinity, which transform does not need."""
        self.__dict__.pop("affinity_in_", None)

    # what a method may say otherwise

    def _check_together(self) -> None:
        check_descent(
            self.optimizer, self._learning_rate(), self.optimizer_kwargs, self.scheduler, self.scheduler_kwargs
        )
        check_checkpoints(self.checkpoint_dir, self.resume)
        self._steps_for(2)
        self._check_affinities()

    def _check_affinities(self) -> None:
        if self.affinity_in is None:
            raise OptionError('affinity_in must be an affinity or "precomputed", got None')
        if type(self) is AffinityMatcher and self.affinity_out is None:
            raise OptionError("affinity_out must be an affinity of the map, such as StudentAffinity(), got None")

    def _usual_steps(self, n: int) -> int:
        """Return what "auto" means for `max_iter` with n different rows."""
        raise OptionError(f'max_iter="auto" means nothing for {type(self).__name__}: give a number')

    def _steps_for(self, n: int) -> int:
        """Return the number of steps of a map of n different rows."""
        return self._usual_steps(n) if isinstance(self.max_iter, str) else int(self.max_iter)

    def _has_settled(self) -> bool:
        """Return whether the loss is as low as it will be."""
        return False

    def _check_data(self, given: Given, y: Any) -> None:
        """Refuse data that do not fit the parameters, before any work."""
        check_start(self.init, given.rows.count, self.n_components)

    def _rate_of_phase(self, optimizer: type[torch.optim.Optimizer], exaggeration: float) -> float:
        return learning_rate(self._learning_rate(), optimizer, len(self._layout), exaggeration)

    def _learning_rate(self) -> Any:
        return self.lr

    def _metric(self) -> Any:
        return "precomputed" if self.affinity_in == "precomputed" else getattr(self.affinity_in, "metric", "euclidean")

    def _merges(self) -> bool:
        return self.process_duplicates

    def _compiled(self, function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        """A function of tensors, compiled where that is wanted."""
        return torch.compile(function, dynamic=True) if self.compile else function

    def _affinity(self, source: Source, y: Any) -> Any:
        """P of the rows."""
        with self.report_.phase("affinities"):
            rows = searchable(source.rows)
            return matching.given_affinity(rows) if self.affinity_in == "precomputed" else self.affinity_in(rows)

    def _start(self, source: Source) -> torch.Tensor:
        graph = self.affinity_in_ if isinstance(self.affinity_in_, Graph) else None
        rows = None if source.metric == "precomputed" else source.rows
        init = start_of(self, source, self.init)
        if graph is not None and (rows is None or (isinstance(init, str) and init == "spectral")):
            graph = whole_graph(self, graph)
            rows = None if rows is None else rows_to_join_by(self, source, graph)
        if not isinstance(self.init, str) and source.distinct is not None:
            init = torch.as_tensor(init, device=source.rows.device)[source.distinct.first]
        points = starting_points(init, self.init_scaling, rows, graph, source.n, self.n_components, self._seed)
        return points.to(device=source.rows.device, dtype=self._precision()).contiguous()

    def _precision(self) -> torch.dtype:
        """Return the dtype in which points are moved."""
        return torch.float64 if self.precision == "float64" else torch.float32

    def _phase_length(self, step: int) -> int:
        return self._steps - step

    def _before_step(self, step: int) -> None:
        """What changes with the step: phases, negatives."""
        if step == 0:
            loop.begin_phase(self, self._phase_length(0))

    def _may_stop(self) -> bool:
        return True

    def _kept(self) -> tuple[Any, ...]:
        return (min(5, self._source.n),)

    def _place(self, rows: Rows, keys: torch.Tensor) -> torch.Tensor:
        """Places of rows that were not in the training set, (m, n_components): the mean of the nearest, by 1 / d."""
        fitted = self._placement
        if self.affinity_in == "precomputed":
            return mean_of_neighbours(fitted.places, *matching.all_columns(rows, fitted.places.dtype))
        indices, distances = fitted.source.neighbours_of(rows, fitted.k, self.backend, fitted.seed)
        nearest = distances[:, :1].clamp(min=torch.finfo(distances.dtype).tiny)
        weights = (nearest / torch.maximum(distances, nearest)).to(fitted.places.dtype)
        return mean_of_neighbours(fitted.places, indices, weights)

    def _memory(self, n: int, d: int, size: int) -> tuple[float, str]:
        """Bytes that the fit of n rows of d columns will take, and what to do where they are too many."""
        return n * n * (size + 8.0) * 3, "use a neighbour embedding with a sparse affinity, or fewer rows"

    def _buffers(self) -> tuple[str, ...]:
        """Attributes that only the fit needs."""
        return ()

    def _gradient(self) -> torch.Tensor:
        """The gradient of the loss at the layout, by the engine."""
        self.embedding_ = Tensor(self._layout, requires_grad=True)
        loss = self._compute_loss()
        loss.backward()
        self._last_loss = loss.data  # a number where it is looked at: until then nobody waits for a GPU
        gradient = self.embedding_.grad
        return torch.zeros_like(self._layout) if gradient is None else gradient.data

    def _compute_loss(self) -> Any:
        """The loss of the map ``self.embedding_``, a Tensor; to be written anew for another loss."""
        Q = self.affinity_out(self.embedding_, **(self.kwargs_affinity_out or {}))
        return matching.LOSSES[self.loss_fn](self.affinity_in_, Q, **(self.kwargs_loss or {}))

    def _loss_now(self) -> float:
        """The loss at the layout, for the history."""
        return float(self._last_loss)

    def _bad_term(self) -> str:
        return "gradient of the loss"

    def _shown(self, layout: torch.Tensor) -> Any:
        """A layout of the different rows (or all) as users see it: all rows, of the kind of the data, a copy."""
        distinct = self._source.distinct if hasattr(self, "_source") else None
        if distinct is not None and len(layout) == len(distinct.first) < len(distinct.inverse):
            layout = layout[distinct.inverse]
        return detached(layout[self._shown_rows].clone(), self._given)

    def on_affinity_computation_start(self) -> None:
        """Called before the affinity is computed; empty, for subclasses."""

    def on_affinity_computation_end(self) -> None:
        """Called when ``affinity_in_`` is there; empty, for subclasses."""

    def on_training_step_start(self) -> None:
        """Called before each step; empty, for subclasses."""

    def on_training_step_end(self) -> None:
        """Called after each step; empty, for subclasses."""
