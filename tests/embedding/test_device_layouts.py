"""Many steps of LargeVis, InfoTSNE and PaCMAP at once are single ones: the way of a GPU, with torch for its kernels."""

from functools import cached_property
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch

import cartograd
from cartograd.embedding import device_descent, ring
from cartograd.embedding.device_rows import PairsOnDevice, SampledOnDevice
from cartograd.embedding.entropic_sampled import EntropicSampled
from cartograd.embedding.replaying import Replayed, send
from cartograd.kernels import gpu

METHODS = {
    "LargeVis": {"perplexity": 8, "n_negatives": 4},
    "InfoTSNE": {"perplexity": 8, "n_negatives": 15, "early_exaggeration_iter": 8},
    "PACMAP": {"n_neighbors": 5, "iter_per_phase": 5},
    "PACMAP by SGD": {"n_neighbors": 5, "iter_per_phase": 5, "optimizer": "SGD", "lr": 1e-3},
}


class Edges(NamedTuple):
    """A graph edge by edge."""

    rows: torch.Tensor
    columns: torch.Tensor
    weights: torch.Tensor


def edges_of(indptr, columns, weights):
    return Edges(torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff()), columns, weights)


def pulls(Z, edges, a, b, power, out=None):
    apart = Z[edges.rows] - Z[edges.columns]
    force = edges.weights * a / (b + apart.square().sum(1)) ** power
    return (torch.zeros_like(Z) if out is None else out).index_add_(0, edges.rows, force[:, None] * apart)


def totals(Z, edges, b, logarithm):
    soft = b + (Z[edges.rows] - Z[edges.columns]).square().sum(1)
    return (edges.weights * (torch.log(soft) if logarithm else 1 / soft)).sum()


def shifts(keys, count, n):
    return torch.stack([ring.shifts(int(key) % (1 << 64), count, n, keys.device) for key in keys])


def pushes(around, order, shift, contrastive, factor, out):
    Z = torch.empty_like(around)
    Z[order.long()] = around
    return out.add_(ring.pushes(Z, order.long(), shift, contrastive), alpha=factor)


def by_momentum(Z, gradient, velocity, rate, momentum):
    velocity.mul_(momentum).add_(gradient)
    Z.sub_(rate * velocity)


def by_adam(Z, gradient, mean, square, rate, root, betas, eps):
    mean.lerp_(gradient, 1 - betas[0])
    square.mul_(betas[1]).addcmul_(gradient, gradient, value=1 - betas[1])
    Z.sub_(rate * mean / (square.sqrt() / root + eps))


@pytest.fixture
def kernels(monkeypatch):
    """The GPU's way on the CPU."""
    modules = {
        "edges": SimpleNamespace(edges_of=edges_of, pulls=pulls, totals=totals),
        "negatives": SimpleNamespace(shifts=shifts, pushes=pushes),
        "moving": SimpleNamespace(by_momentum=by_momentum, by_adam=by_adam),
    }
    monkeypatch.setattr(gpu, "load", modules.__getitem__)
    for kind, rows in (
        (EntropicSampled, lambda model: SampledOnDevice(model.affinity_in_, model._kind(), model._seed)),
        (cartograd.PACMAP, lambda model: PairsOnDevice(model._kinds())),
    ):
        found = cached_property(rows)
        found.__set_name__(kind, "_rows")
        monkeypatch.setattr(kind, "_rows", found)


def fitted(name, **more):
    options = {"max_iter": 23, "check_interval": 6, "random_state": 0, **METHODS[name], **more}
    X = torch.randn(70, 6, generator=torch.Generator().manual_seed(1))
    return getattr(cartograd, name.split()[0])(**options).fit(X)


@pytest.mark.cpu
@pytest.mark.parametrize("name", METHODS)
def test_a_fit_in_stretches_is_one_step_by_step(kernels, monkeypatch, name):
    taken = []
    take = device_descent.Stretch.take
    monkeypatch.setattr(device_descent.Stretch, "take", lambda *given: taken.append(len(given[2])) or take(*given))
    together = fitted(name)
    assert taken == ([5, 2, 3, 5, 4] if name == "InfoTSNE" else [5, 5, 5, 4])
    monkeypatch.setattr(device_descent, "served", lambda optimiser: False)
    single = fitted(name)
    assert len(taken) < 6
    assert together.n_iter_ == single.n_iter_ == 23
    assert together.loss_ == pytest.approx(single.loss_, rel=1e-4)
    assert float((together.embedding_ - single.embedding_).abs().mean() / single.embedding_.abs().mean()) < 1e-3


@pytest.mark.cpu
@pytest.mark.parametrize("name", ["InfoTSNE", "PACMAP"])
def test_a_fit_goes_on_from_a_checkpoint(kernels, name, tmp_path):
    def stop(step, *_):
        if step == 18:
            raise InterruptedError

    kept = {"checkpoint_dir": tmp_path, "checkpoint_every": 7}  # stretches end at other steps
    with pytest.raises(InterruptedError):
        fitted(name, **kept, callbacks=[stop])
    resumed, whole = fitted(name, **kept, resume=True), fitted(name)
    assert torch.equal(resumed.embedding_, whole.embedding_)
    assert resumed.loss_ == whole.loss_


@pytest.mark.cpu
def test_a_hook_is_called_at_every_step(kernels):
    seen = []

    class Mine(cartograd.LargeVis):
        def on_training_step_end(self):
            seen.append(self.n_iter_)

    Mine(perplexity=8, max_iter=9, random_state=0).fit(torch.randn(60, 4))
    assert seen == list(range(9))


def test_optimisers_that_take_their_own_steps():
    Z = torch.zeros(3, 2)
    for usual in (torch.optim.SGD([Z], 0.1), torch.optim.SGD([Z], 0.1, 0.9), torch.optim.Adam([Z], 0.1, (0.5, 0.9))):
        assert device_descent.served(usual)
    for other in (torch.optim.SGD([Z], 0.1, 0.9, nesterov=True), torch.optim.SGD([Z], 0.1, weight_decay=0.1),
                  torch.optim.SGD([Z], 0.1, maximize=True), torch.optim.SGD([Z], 0.1, 0.9, dampening=0.5),
                  torch.optim.Adam([Z], 0.1, amsgrad=True), torch.optim.AdamW([Z], 0.1)):  # fmt: skip
        assert not device_descent.served(other)


def test_what_was_recorded_is_dropped_when_it_depends_on_something_else(device):
    said, room = [], torch.zeros(2, device=device)
    replayed = Replayed(device)

    def work(by):
        said.append(by)
        room.add_(by)

    for by, of, known in ((1, "a", 0), (1, "a", 1), (1, "a", 1), (2, "b", 0), (2, "b", 1), (1, "a", 0)):
        assert replayed.knows(of) == bool(known)
        replayed.run(lambda by=by: work(by), of, 4)
    assert room.tolist() == [8.0, 8.0]
    assert len(said) == (5 if device.type == "cuda" else 6)
    send(room, [3.0, 4.0])
    assert room.tolist() == [3.0, 4.0]
