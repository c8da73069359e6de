"""`NeighborEmbedding`: points attracted by their neighbours and repelled by all others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from cartograd.embedding import loop
from cartograd.embedding.base import AffinityMatcher
from cartograd.embedding.estimator import estimator
from cartograd.embedding.kernel_rows import served
from cartograd.embedding.memory import graph_bytes, return_freed
from cartograd.embedding.neighbourhood import FARTHEST, Neighbourhood, found_or_given
from cartograd.embedding.placement import fixed_sample, mean_of_neighbours, ordered_sum, refine
from cartograd.embedding.sharing import own_neighbourhood
from cartograd.embedding.source import Source
from cartograd.engine import Tensor, no_grad
from cartograd.errors import OptionError
from cartograd.neighbors.intake import Given
from cartograd.neighbors.rows import Rows


@estimator
class NeighborEmbedding(AffinityMatcher):
    r"""A map in which neighbours attract and all points repel each other.

    .. math:: \min_Z \; \lambda \, A(Z; P) + \rho \, R(Z)

    with the exaggeration :math:`\lambda` above 1 for the first steps and 1 afterwards. A subclass writes
    ``_compute_attractive_loss`` and ``_compute_repulsive_loss`` (or ``_compute_loss``) with Tensors, of
    ``self.embedding_`` and ``self.affinity_in_``, and the engine differentiates them; or it writes the gradients,
    ``_compute_attractive_gradients`` and ``_compute_repulsive_gradients``, which are then used instead.

    Parameters
    ----------
    early_exaggeration_coeff : float, default=None
        :math:`\lambda` of the first steps; None for 1.
    early_exaggeration_iter : int, default=None
        The number of those steps; None for 0. When they are over, learning rate and momentum change with it.
    repulsion_strength : float, default=1.0
        :math:`\rho`.
    metric : str or callable, default="sqeuclidean"
        How rows are compared: a metric of `cartograd.neighbors.search`, "precomputed", or a function of two Tensors.
        Methods use the distance or its square as their papers do, whichever is named.
    precomputed_knn : tuple, default=None
        Neighbours found before: indices (n, k) and distances (n, k), not squared.
    distributed : bool or str, default="auto"
        Whether several processes share the work; "auto": where ``torchrun`` has started them. Each is given all rows,
        or its own ones, which are told apart by whether all have the same; "sharded" says that each has its own.
    learning_rate : float or "auto", default=None
        Another name of `lr`.
    early_exaggeration : float, default=None
        Another name of `early_exaggeration_coeff`.
    affinity_in, optimizer, optimizer_kwargs, lr, scheduler, scheduler_kwargs, min_grad_norm, max_iter, init
        See `AffinityMatcher`.
    init_scaling, check_interval, backend, compile, process_duplicates, callbacks
        See `AffinityMatcher`.
    n_components, device, verbose, random_state
        See `Estimator`.
    """

    affinity_out: Any = field(default=None, init=False)
    kwargs_affinity_out: Any = field(default=None, init=False)
    loss_fn: str = field(default="square_loss", init=False)
    kwargs_loss: Any = field(default=None, init=False)
    optimizer: Any = field(default="SGD", kw_only=True)
    optimizer_kwargs: Any = field(default="auto", kw_only=True)
    lr: Any = field(default="auto", kw_only=True)
    scheduler_kwargs: Any = field(default="auto", kw_only=True)
    max_iter: int | str = field(default=2000, kw_only=True)
    early_exaggeration_coeff: float | None = field(default=None, kw_only=True)
    early_exaggeration_iter: int | None = field(default=None, kw_only=True)
    repulsion_strength: float = field(default=1.0, kw_only=True)
    metric: Any = field(default="sqeuclidean", kw_only=True)
    precomputed_knn: Any = field(default=None, kw_only=True)
    distributed: Any = field(default="auto", kw_only=True)
    learning_rate: Any = field(default=None, kw_only=True)
    early_exaggeration: float | None = field(default=None, kw_only=True)

    def _check_aliases(self) -> None:
        for alias, name in (("learning_rate", "lr"), ("early_exaggeration", "early_exaggeration_coeff")):
            if getattr(self, alias) is not None and not is_default(self, name):
                raise OptionError(f"{alias} is another name of {name}: give one of them, not both")

    def _check_together(self) -> None:
        self._check_aliases()
        super()._check_together()

    def _check_data(self, given: Given, y: Any) -> None:
        super()._check_data(given, y)
        found_or_given(self.precomputed_knn, given.rows.count, None)

    def _learning_rate(self) -> Any:
        return self.lr if self.learning_rate is None else self.learning_rate

    def _exaggeration(self) -> Any:
        given = self.early_exaggeration_coeff if self.early_exaggeration is None else self.early_exaggeration
        return 1.0 if given is None else given

    def _metric(self) -> Any:
        return self.metric if self.affinity_in is None else super()._metric()

    def _merges(self) -> bool:
        return self.process_duplicates and self.precomputed_knn is None

    def _neighbourhood(self, source: Source, k: int) -> Neighbourhood:
        """The k nearest rows of each, searched or given, with the time it took in the report."""
        with self.report_.phase("search"):
            found = found_or_given(self.precomputed_knn, source.n, k, source.rows.device)
            if self._bounds is not None:
                self._near = own_neighbourhood(self, source, k, found)
                return self._near
            if found is None:
                found = source.neighbours(k, self.backend, self._seed, self.verbose)
            self._near = Neighbourhood.of(*found)
            return_freed(source.rows)
            return self._near

    def _phase_length(self, step: int) -> int:
        first = self.early_exaggeration_iter or 0
        return min(first, self._steps) if step < first else self._steps - step

    def _before_step(self, step: int) -> None:
        first = self.early_exaggeration_iter or 0
        if step in (0, first):
            self.early_exaggeration_coeff_ = float(self._exaggeration()) if step < first else 1.0
            loop.begin_phase(self, self._phase_length(step))

    def _may_stop(self) -> bool:
        return self.n_iter_ > (self.early_exaggeration_iter or 0)

    def _buffers(self) -> tuple[str, ...]:
        return ("_near",)

    def _kept(self) -> tuple[Any, ...]:
        near = getattr(self, "_near", None)
        k = min(5, self._source.n) if near is None else near.indices.shape[1]
        return (k, 1.0 if near is None else near.scale, self._seed, self._kept_besides())

    def _memory(self, n: int, d: int, size: int) -> tuple[float, str]:
        if self.affinity_in is not None:
            return super()._memory(n, d, size)
        by_kernel = served(n, self.n_components, self._precision(), self._given.rows.device)
        sampled = 0 if by_kernel else self._sampled_pairs()  # a kernel draws a pair where it needs it
        needed = graph_bytes(n, self._searched(n), d, size, sampled)
        return needed, "use fewer neighbours, float32 data or fewer rows"

    def _sampled_pairs(self) -> int:
        return 0

    def _searched(self, n: int) -> int:
        """How many neighbours are searched for each of n rows."""
        return min(n - 1, 30)

    def _kept_besides(self) -> dict[str, Any]:
        return {}

    # the loss, and its gradients

    def _compute_loss(self) -> Any:
        """The loss of the map ``self.embedding_``, with the exaggeration of the present step."""
        attraction = self._compute_attractive_loss()
        return self.early_exaggeration_coeff_ * attraction + self.repulsion_strength * self._compute_repulsive_loss()

    def _compute_attractive_loss(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must write _compute_attractive_loss, or _compute_loss")

    def _compute_repulsive_loss(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must write _compute_repulsive_loss, or _compute_loss")

    def _gradient(self) -> torch.Tensor:
        if not self._has_closed_form():
            return super()._gradient()
        with torch.no_grad():
            attraction = self._compute_attractive_gradients()
            if self.early_exaggeration_coeff_ != 1.0:
                attraction = attraction * self.early_exaggeration_coeff_
            return attraction.add_(self._compute_repulsive_gradients(), alpha=self.repulsion_strength)

    if TYPE_CHECKING:  # a subclass may have them

        def _compute_attractive_gradients(self) -> torch.Tensor: ...

        def _compute_repulsive_gradients(self) -> torch.Tensor: ...

    def _has_closed_form(self) -> bool:
        """Whether the gradients are written down, and not for another loss than the one that is."""
        return self._use_closed_form_gradients and _written_down(type(self))  # type: ignore[arg-type]

    def _loss_now(self) -> float:
        """The loss without exaggeration, so that the whole history can be compared."""
        if not self._has_closed_form() and _depth(type(self), "_compute_loss") < _depth(
            type(self), "_compute_attractive_loss"
        ):
            return float(self._last_loss)
        with no_grad(), torch.no_grad():
            self.embedding_ = Tensor(self._layout)
            attraction = float(self._compute_attractive_loss())
            return attraction + self.repulsion_strength * float(self._compute_repulsive_loss())

    def _bad_term(self) -> str:
        if not self._has_closed_form():
            return "gradient of the loss"
        attraction = bool(torch.isfinite(self._compute_attractive_gradients()).all())
        return "repulsion" if attraction else "attraction"

    # new rows

    def _place(self, rows: Rows, keys: torch.Tensor) -> torch.Tensor:
        fitted = self._placement
        k = min(fitted.k, fitted.source.n)
        indices, distances = fitted.source.neighbours_of(rows, k, self.backend, fitted.seed)
        near = (distances.to(torch.float64) / fitted.scale).clamp_(max=FARTHEST)
        weights = self._weights_of_new(near)
        return self._settle(indices, weights.to(fitted.places.dtype), keys)

    def _weights_of_new(self, distances: torch.Tensor) -> torch.Tensor:
        """How strongly each new row is attracted by its neighbours at these distances, (m, k); by default 1 / d."""
        nearest = distances[:, :1].clamp(min=torch.finfo(distances.dtype).tiny)
        weights = nearest / torch.maximum(distances, nearest)
        return weights / ordered_sum(weights)[:, None]

    def _settle(self, indices: torch.Tensor, weights: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Descend the loss of one moving point among fixed ones, from the mean of its neighbours."""
        fitted = self._placement
        Z = mean_of_neighbours(fitted.places, indices, weights)
        if type(self)._pull is NeighborEmbedding._pull:
            return Z
        fixed = fitted.places[fixed_sample(fitted.source.n, fitted.seed, Z.device)]

        def forces(rows: slice) -> Callable[[torch.Tensor, int], torch.Tensor]:
            near, strength = fitted.places[indices[rows]], weights[rows]

            def gradient(z: torch.Tensor, step: int) -> torch.Tensor:
                apart = z[:, None, :] - near
                pull = strength * self._pull(apart.square().sum(2))
                away = z[:, None, :] - fixed
                push = self.repulsion_strength * self._push_on_new(away.square().sum(2))
                return 2 * (ordered_sum(pull[:, :, None] * apart) - ordered_sum(push[:, :, None] * away))

            return gradient

        return refine(Z, forces, (len(fixed) + indices.shape[1]) * Z.shape[1])

    def _pull(self, s: torch.Tensor) -> torch.Tensor:
        """The derivative of the attraction of a pair by its squared distance."""
        raise NotImplementedError

    def _push(self, s: torch.Tensor) -> torch.Tensor:
        """The derivative of the repulsion of one point, by its squared distances (m, q) to a sample of the others."""
        raise NotImplementedError

    def _push_on_new(self, s: torch.Tensor) -> torch.Tensor:
        """The same for a new row and its distances to a sample of the fitted points, of any size q."""
        return self._push(s)


def is_default(model: Any, name: str) -> bool:
    """Return whether a parameter has the value that its class gives it where the caller gives none."""
    value, usual = getattr(model, name), default_of(type(model), name)
    return value is usual or (type(value) is type(usual) and bool(value == usual))


def default_of(kind: type, name: str) -> Any:
    """The default of a parameter of an estimator's class."""
    return next(one.default for one in fields(kind) if one.name == name)


@lru_cache
def _written_down(kind: type) -> bool:
    """Whether the gradients of this class are of the loss of this class, not of one that it has written anew."""
    loss = min(_depth(kind, f"_compute_{name}") for name in ("loss", "attractive_loss", "repulsive_loss"))
    form = min(_depth(kind, f"_compute_{name}_gradients") for name in ("attractive", "repulsive"))
    return form <= loss and hasattr(kind, "_compute_attractive_gradients")


def _depth(kind: type, name: str) -> int:
    """How far up the classes of `kind` the attribute is defined; large where it is not."""
    return next((i for i, base in enumerate(kind.__mro__) if name in vars(base)), 1000)
