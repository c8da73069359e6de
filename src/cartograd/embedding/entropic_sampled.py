"""What LargeVis and InfoTSNE share: entropic input, repulsion from random rows, and the kernels for both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from cartograd.core.lazy import lazy_attribute
from cartograd.embedding import device_descent, device_rows
from cartograd.embedding.device_rows import SampledOnDevice
from cartograd.embedding.entropic_input import EntropicInput
from cartograd.embedding.kernel_rows import HOOKS, inherited, served
from cartograd.embedding.negative import NegativeSamplingNeighborEmbedding
from cartograd.embedding.sampled_rows import MODULE, Kind, SampledRows
from cartograd.embedding.source import Source
from cartograd.kernels import cpu
from cartograd.neighbors import Graph

FORCES = (
    "_gradient _draw _allowed _sampled _compute_loss _compute_attractive_loss _compute_repulsive_loss _loss_now "
    "_compute_attractive_gradients _compute_repulsive_gradients on_training_step_start on_training_step_end"
).split()
"""Methods that make up the layout, or may look at its random rows: with one written anew, torch makes the map."""


class EntropicSampled(EntropicInput, NegativeSamplingNeighborEmbedding):
    """A neighbour embedding of joint probabilities with random rows for its repulsion.

    In float32 and in the plane, large maps on the CPU and all on a GPU are made by kernels. They write no random rows
    down: on the CPU they draw those of ``neg_indices_``, on a GPU others (`cartograd.embedding.ring`).
    """

    if TYPE_CHECKING:
        encoder: Any

    def _kind(self) -> Kind:
        raise NotImplementedError

    def _usual(self) -> type:
        """The class whose forces the kernels know."""
        raise NotImplementedError

    def _affinity(self, source: Source, y: Any) -> Graph:
        usual = self._has_closed_form() and inherited(type(self), self._usual(), FORCES)
        shape = source.n, self.n_components, self._precision(), source.rows.device
        size = served(*shape) or device_rows.served(*shape)
        changed = self.discard_NNs or self.encoder is not None
        changed = changed or (self._bounds is not None and source.rows.device.type != "cpu")
        self._by_kernel = size and usual and not changed
        if self._by_kernel and source.rows.device.type == "cpu":
            cpu.prepare(MODULE)  # while the search is at work
        return super()._affinity(source, y)

    @lazy_attribute
    def _rows(self) -> SampledRows | SampledOnDevice | None:
        """The graph as the kernels take it; None where torch makes the map."""
        if not (self._by_kernel and isinstance(self.affinity_in_, Graph)):
            return None
        if self.affinity_in_.device.type == "cuda":
            return SampledOnDevice(self.affinity_in_, self._kind(), self._seed)
        return SampledRows(self.affinity_in_, self._kind(), self._seed, self._part()) if cpu.usable() else None

    def _owns_rows(self) -> bool:
        return self.encoder is None and self._has_closed_form()

    def _draw(self, step: int) -> None:
        if self._rows is None:
            super()._draw(step)

    def _gradient(self) -> torch.Tensor:
        if self._rows is None:
            return super()._gradient()
        pull, strength = self.early_exaggeration_coeff_, float(self.repulsion_strength)
        return self._rows.gradient(self._layout, self._step, pull, strength)

    def _many_steps(self, first: int) -> Callable[[int, Sequence[float]], None] | None:
        """Steps in which nobody looks in, on a GPU."""
        if not isinstance(self._rows, SampledOnDevice) or not inherited(type(self), self._usual(), HOOKS):
            return None
        self._before_step(first)
        return self._take if device_descent.served(self.optimizer_) else None

    def _take(self, first: int, rates: Sequence[float]) -> None:
        assert isinstance(self._rows, SampledOnDevice)
        pull, strength = self.early_exaggeration_coeff_, float(self.repulsion_strength)
        self._rows.advance(self.optimizer_, first, rates, pull, strength)
        self.n_iter_ = first + len(rates)

    def _loss_now(self) -> float:
        if self._rows is None:
            return super()._loss_now()
        attraction, repulsion = self._rows.losses(self._layout, self._step)
        return attraction + self.repulsion_strength * repulsion

    def _bad_term(self) -> str:
        if self._rows is not None:
            self.__dict__["_rows"] = None
            self._draw(self._step)
        return super()._bad_term()

    def _buffers(self) -> tuple[str, ...]:
        return (*super()._buffers(), "_rows", "_blocks")
