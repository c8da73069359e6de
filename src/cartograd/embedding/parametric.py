"""Parametric maps: an encoder is trained so that its outputs are the map, and places new rows in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import torch
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from cartograd.affinity.counter import stream
from cartograd.distributed.checkpoint import open_folder
from cartograd.embedding.estimator import detached, estimator
from cartograd.embedding.neighbor import NeighborEmbedding, is_default
from cartograd.embedding.parametric_batches import EdgeObjective, Objective
from cartograd.embedding.parametric_checkpoint import check_folder
from cartograd.embedding.parametric_decoder import check_decoder, train_decoder, untrained_decoder
from cartograd.embedding.parametric_input import Flattened, fitting_shape, standard_scale
from cartograd.embedding.parametric_network import Network, check_output, own_copy
from cartograd.embedding.parametric_options import EncoderTraining, tell_of_unused
from cartograd.embedding.parametric_training import FEWEST_IN_BATCH, Training, duration, own_draws_given_back
from cartograd.embedding.source import Source
from cartograd.errors import InputError, OptionError
from cartograd.neighbors import Graph, validate
from cartograd.neighbors.intake import Given, intake
from cartograd.neighbors.workers import all_cores
from cartograd.nn.encoders import check_sizes

BATCH_SIZE = 512


def _with_decoder(method: Callable[..., Any]) -> Any:
    """Let an estimator have this method where it has a decoder."""
    return available_if(lambda self: self.decoder is not None)(method)


@estimator
class Parametric(NeighborEmbedding):
    r"""A neighbour embedding whose map may be the output of an encoder, :math:`z_i = f_\theta(x_i)`.

    .. math:: \min_\theta \; \lambda \, A(f_\theta(X); P) + \rho \, R(f_\theta(X))

    is estimated on batches of edges, drawn by their weights, with negatives; the gradient goes through the engine into
    the weights. Neighbours are searched as without an encoder, among flat rows. Rows are standardised before the
    encoder sees them, which is part of the model. After the training ``embedding_`` is the encoder's output, and so is
    `transform` of any row.

    Parameters
    ----------
    encoder : str or torch.nn.Module, default=None
        None for a map without one; "mlp", "cnn" for images (n, c, h, w), "gru", "lstm", "attention" or "mamba3" for
        sequences (n, T, d); or a module that makes (b, n_components) of a batch, of which a copy is trained.
    decoder : str or torch.nn.Module, default=None
        What `inverse_transform` uses: "mlp", or a module that makes rows of places; trained when the map is finished.
    hidden_sizes : tuple of int, default=None
        The widths of the layers of an encoder or decoder given by name; None for its own default.
    batch_size : int, default=512
        Edges of a step.
    n_epochs : int, default=None
        In an epoch as many edges are drawn as there are rows; None for 1500 steps and at least 30 epochs. Without an
        encoder or a decoder another name of `max_iter`.
    patience : int, default=None
        The training ends after so many epochs without a smaller loss.
    min_desired_loss : float, default=None
        The training ends where an epoch's loss is not above this.
    training : EncoderTraining, default=None
        Learning rate, warm start, checkpoints and the rest; None for its defaults.
    """

    encoder: Any = field(default=None, kw_only=True)
    decoder: Any = field(default=None, kw_only=True)
    hidden_sizes: Sequence[int] | None = field(default=None, kw_only=True)
    batch_size: int = field(default=BATCH_SIZE, kw_only=True)
    n_epochs: int | None = field(default=None, kw_only=True)
    patience: int | None = field(default=None, kw_only=True)
    min_desired_loss: float | None = field(default=None, kw_only=True)
    training: EncoderTraining | None = field(default=None, kw_only=True)

    @property
    def encoder_(self) -> torch.nn.Module:
        """The trained encoder, which reads standardised rows."""
        check_is_fitted(self)
        if getattr(self, "_network", None) is None:
            raise AttributeError("there is no encoder_: the map was made without an encoder")
        return self._network.module

    # checks, before any work

    def _check_together(self) -> None:
        super()._check_together()
        self._refuse_unused()
        self._options().check()
        if self._is_trained() and self.metric == "precomputed":
            raise OptionError(
                'encoder and decoder read rows, and metric="precomputed" gives distances; give the rows as X, and '
                "their neighbours as precomputed_knn="
            )

    def _refuse_unused(self) -> None:
        """Refuse parameters that say how a network is trained where none is."""
        for name in () if self.encoder is not None else ("patience", "min_desired_loss"):
            if getattr(self, name) is not None:
                raise OptionError(f"{name} is for maps with an encoder: give one, or leave {name} out")
        for name in () if self._is_trained() else ("batch_size", "hidden_sizes", "training"):
            if not is_default(self, name):
                raise OptionError(f"{name} is for maps with an encoder or a decoder: give one, or leave {name} out")
        steps = (self.n_epochs, self.max_iter)
        if not self._is_trained() and None not in steps and not is_default(self, "max_iter") and len(set(steps)) > 1:
            raise OptionError(
                f"n_epochs={steps[0]} is another name of max_iter={steps[1]} without an encoder or a decoder: give one"
            )

    def _steps_for(self, n: int) -> int:
        return super()._steps_for(n) if self.n_epochs is None or self._is_trained() else self.n_epochs

    def _options(self) -> EncoderTraining:
        return EncoderTraining() if self.training is None else self.training

    def _is_trained(self) -> bool:
        return self.encoder is not None or self.decoder is not None

    def _read(self, X: Any, *, reset: bool) -> Given:
        if not self._is_trained():
            return super()._read(X, reset=reset)
        flat = Flattened(X)
        if not reset:
            check_is_fitted(self)
            fitting_shape(flat.shape, self._shape)
        given = super()._read(flat.table, reset=reset)
        if reset:
            self._shape: tuple[int, ...] = flat.shape or (given.rows.width,)
        elif flat.shape is not None:  # of batches, known only now
            fitting_shape(flat.shape, self._shape)
        return given

    def _check_data(self, given: Given, y: Any) -> None:
        super()._check_data(given, y)
        self.__dict__.pop("_network", None)
        self.__dict__.pop("_decoder", None)
        rows = given.rows
        if self.encoder is not None:
            if self.checkpoint_dir is not None:
                open_folder(self.checkpoint_dir)
            if self._options().checkpoint is not None:
                check_folder(self._options().checkpoint)
            ones = torch.ones(rows.width, dtype=torch.float64, device=rows.device)
            network = Network(own_copy(self.encoder), self._shape, (self.n_components,), self._sizes(), ones * 0, ones)
            check_output(network, rows.take(torch.zeros(1, dtype=torch.int64, device=rows.device)), "encoder")
        if self.decoder is not None:
            check_decoder(self.decoder, self._shape, self.n_components, self._sizes(), rows)

    def _sizes(self) -> tuple[int, ...] | None:
        return None if self.hidden_sizes is None else check_sizes(self.hidden_sizes)

    # the training

    def _optimise(self) -> None:
        if self.encoder is None:
            super()._optimise()
            return
        self.n_iter_, self.loss_ = 0, []
        tell_of_unused(self)
        with self.report_.phase("training"):
            self._network = self._untrained(self._source)
            steps, epochs = duration(self._source.n, self._batch_rows(), self.n_epochs)
            Training(self, self._network, self._objective(), self._options(), steps, epochs).run()
        self._layout = self._network.of(self._source.rows)

    def _untrained(self, source: Source) -> Network:
        ones = torch.ones(source.rows.width, dtype=torch.float64, device=source.rows.device)
        centre, scale = standard_scale(source.rows) if self._options().standardize else (ones * 0, ones)
        seed = stream(self._seed, "encoder") >> 1
        kind = own_copy(self.encoder)
        return Network(kind, self._shape, (self.n_components,), self._sizes(), centre, scale, seed=seed)

    def _batch_rows(self) -> int:
        return min(self.batch_size, max(FEWEST_IN_BATCH, self._source.n))

    def _finish(self, source: Source, layout: torch.Tensor | None, places: torch.Tensor) -> None:
        if self.encoder is not None and layout is not None:  # all rows are equal: nothing to train on
            self._network = self._untrained(source)
            places = self._network.of(source.rows)
            layout = places.expand(len(layout), -1)
        if self.decoder is not None:
            with self.report_.phase("decoder"):
                self._train_decoder(source, places)
        super()._finish(source, layout, places)

    def _train_decoder(self, source: Source, places: torch.Tensor) -> None:
        rows = getattr(self, "_source", source).rows  # a method may search in rows of fewer dimensions
        network = untrained_decoder(self.decoder, self._shape, places, rows, self._sizes(), self._seed)
        batch = min(self.batch_size, max(FEWEST_IN_BATCH, len(places)))
        steps, epochs = duration(len(places), batch, self.n_epochs)
        with own_draws_given_back(network):
            if not isinstance(network.kind, str):
                torch.manual_seed(stream(self._seed, "draws of a decoder") >> 1)
            loss = train_decoder(network, places, rows, self._options(), batch, steps * epochs, self._seed)
        self.report_["decoder_loss"] = loss
        self._decoder = network

    # what a method says of its loss

    def _objective(self) -> Objective:
        assert isinstance(self.affinity_in_, Graph)
        discard = bool(getattr(self, "discard_NNs", False))
        return EdgeObjective(self, self.affinity_in_, self._batch_rows(), self._negatives_of_edge(), discard)

    def _negatives_of_edge(self) -> int:
        rate = self._options().negative_rate
        return (self._usual_negatives() if rate is None else rate) or 1

    def _usual_negatives(self) -> int:
        """Negatives of an edge where the options do not say."""
        return int(getattr(self, "n_negatives", None) or self.batch_size)

    def _batch_attraction(self, s: Any) -> Any:
        """The attraction of edges with these squared distances (B,), their mean."""
        raise NotImplementedError(f"{type(self).__name__} must write _batch_attraction for an encoder")

    def _batch_repulsion(self, s: Any) -> Any:
        """The repulsion of the heads of edges from negatives at these squared distances (B, q), the mean over heads."""
        raise NotImplementedError(f"{type(self).__name__} must write _batch_repulsion for an encoder")

    def _batch_of_pairs(self, s: list[Any], progress: float) -> Any:
        """The loss of pairs of several kinds, by their squared distances."""
        raise NotImplementedError(f"{type(self).__name__} must write _batch_of_pairs for an encoder")

    def _lambda_at(self, progress: float) -> float:
        """The exaggeration: for the same share of the training as it has of the steps without an encoder."""
        return 1.0 if self._settled_at(progress) else float(self._exaggeration())

    def _settled_at(self, progress: float) -> bool:
        """Whether the loss is the final one at this point of the training, from 0 to 1."""
        return progress >= (self.early_exaggeration_iter or 0) / self._steps

    # new rows

    def transform(self, X: Any) -> Any:
        """Places of rows in the fitted map, which stays as it is: what the encoder makes of them."""
        if getattr(self, "_network", None) is None:
            return super().transform(X)
        model = self._as_fitted()
        with model._working():
            given = model._read(X, reset=False)
            with all_cores(given.rows.device):
                return detached(self._network.of(given.rows), given)

    @_with_decoder
    def inverse_transform(self, Z: Any) -> Any:
        """Rows that belong at places of the map, by the decoder, (m, ...) in the shape of the rows fitted.

        Parameters
        ----------
        Z : array-like, (m, n_components)
            Places in the map.
        """
        check_is_fitted(self)
        places = intake(Z, "Z", self._decoder.centre_in.device)
        if places.rows.width != self.n_components:
            raise InputError(f"Z has {places.rows.width} columns, but the map has {self.n_components} dimensions")
        validate.scan(places.rows, "Z", 1 << 16)
        with all_cores(places.rows.device):
            rows = self._decoder.of(places.rows)
        return places.answer(rows.to(places.rows.dtype).reshape(len(rows), *self._shape))
