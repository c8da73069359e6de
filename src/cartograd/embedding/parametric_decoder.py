"""The way back: a decoder that learns the rows from their places in a finished map."""

from __future__ import annotations

import math
from typing import Any

import torch

from cartograd.affinity.counter import integers, stream
from cartograd.embedding.optimisers import make_optimiser
from cartograd.embedding.parametric_input import standard_scale
from cartograd.embedding.parametric_network import Network, check_output, own_copy
from cartograd.embedding.parametric_options import EncoderTraining
from cartograd.engine import Tensor, recording
from cartograd.neighbors.rows import Rows, TensorRows

DECODERS = ("mlp",)
MOST_STEPS = 3000
HIDDEN_SIZES = (256, 256)


def untrained_decoder(
    decoder: Any, shape: tuple[int, ...], places: torch.Tensor, rows: Rows, hidden_sizes: Any, seed: int
) -> Network:
    """A decoder of places to rows of this shape, in the scales of both, before its training."""
    centre_in, scale_in = standard_scale(TensorRows(places))
    centre_out, scale_out = standard_scale(rows)
    kind, sizes = own_copy(decoder), None
    if isinstance(kind, str):
        sizes = HIDDEN_SIZES if hidden_sizes is None else tuple(hidden_sizes)[::-1]
    where = (centre_in, scale_in, centre_out, scale_out)
    return Network(kind, (places.shape[1],), shape, sizes, *where, seed=stream(seed, "decoder") >> 1)


def check_decoder(decoder: Any, shape: tuple[int, ...], n_components: int, hidden_sizes: Any, rows: Rows) -> None:
    """Refuse a decoder that does not give rows of this shape, before any work."""
    place = torch.zeros(1, n_components, dtype=torch.float64, device=rows.device)
    few = TensorRows(rows.take(torch.zeros(1, dtype=torch.int64, device=rows.device)))
    check_output(untrained_decoder(decoder, shape, place, few, hidden_sizes, 0), place, "decoder")


def train_decoder(
    network: Network, places: torch.Tensor, rows: Rows, options: EncoderTraining, batch: int, steps: int, seed: int
) -> float:
    r"""Train the decoder D, with the map fixed; gives the mean loss of the last tenth of the steps.

    .. math:: \min_D \; \frac{1}{n d} \sum_i |D(z_i) - x_i|^2 \quad \text{in units of each column's scale}

    Parameters
    ----------
    network : Network
        The decoder.
    places : torch.Tensor
        (n, c).
    rows : Rows
        (n, d).
    options : EncoderTraining
        Optimiser, learning rate, weight penalty.
    batch : int
        Rows of a step.
    steps : int
        Steps, at most `MOST_STEPS`.
    seed : int
        Seed of the draws.
    """
    assert network.centre_out is not None
    assert network.scale_out is not None
    parameters: list[torch.Tensor] = [one for one in network.module.parameters() if one.requires_grad]
    decay = {"weight_decay": options.weight_penalty} if options.weight_penalty else {}
    optimiser = make_optimiser(options.optimizer, parameters, options.learning_rate, decay)
    network.module.train()
    steps = min(steps, MOST_STEPS)
    losses = []
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = options.learning_rate * (1 - step / steps)
        ids = integers(stream(seed, "decoder", step), len(places), (batch,), places.device)
        target = ((rows.take(ids) - network.centre_out) / network.scale_out).to(network.dtype)
        optimiser.zero_grad(set_to_none=True)
        with recording():
            made = network.module(Tensor(network.prepared(places[ids]))).reshape(len(ids), -1)
            loss = ((made - target) ** 2).mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.data.detach())
    network.module.eval()
    return float(torch.stack(losses[-math.ceil(steps / 10) :]).mean())
