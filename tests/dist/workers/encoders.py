"""Encoders that several processes train together: gradients in buckets, maps, errors, checkpoints."""

import os
import signal
import warnings

import numpy
import torch
from common import FOLDER, RANK, SIZE, alone, rows, run, same, shard

import cartograd
from cartograd.distributed import find_ranks
from cartograd.distributed.gradients import SharedGradients
from cartograd.embedding.parametric_options import EncoderTraining
from cartograd.engine import Tensor
from cartograd.errors import DistributedError

X = rows(400)
LAST = SIZE - 1


def umap(**options):
    usual = {"n_neighbors": 8, "encoder": "mlp", "hidden_sizes": (16,), "n_epochs": 6, "batch_size": 64}
    return cartograd.UMAP(**{**usual, "random_state": 0, **options})


def network(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        sizes = [(8, 30), (30, 30), (30, 20), (20, 2)]
        layers = [part for one in sizes for part in (torch.nn.Linear(*one), torch.nn.Tanh())]
        return torch.nn.Sequential(*layers)


def gradients_in_buckets():
    """Sums of all processes' gradients, sent in several buckets, some before the backward pass is over."""
    ranks = find_ranks("auto")
    module = network(RANK)
    shared = SharedGradients(ranks, module.parameters(), bucket_bytes=2000)
    reference = network(0)
    for one, other in zip(module.parameters(), reference.parameters(), strict=True):
        assert torch.equal(one, other)  # all begin with the first one's
    assert len(shared.buckets) > 2
    assert shared.buckets[0].weights[0] is list(module.parameters())[-1]
    before = ranks.sent_bytes
    for _ in range(3):
        module.zero_grad()
        with shared.summed():
            module(Tensor(torch.from_numpy(shard(X)))).square().sum().backward()
    assert shared.early >= 3 * (len(shared.buckets) - 1)
    reference(torch.from_numpy(X)).square().sum().backward()
    for one, other in zip(module.parameters(), reference.parameters(), strict=True):
        same(one.grad, other.grad, 1e-4)
    weights = sum(one.numel() for one in module.parameters())
    headers = 48 * (SIZE - 1)
    assert abs(ranks.sent_bytes - before - 3 * (headers + 8 * weights * (SIZE - 1) // SIZE)) <= 3 * len(shared.buckets)


def weights_that_play_no_part():
    ranks = find_ranks("auto")
    module = torch.nn.ModuleList([torch.nn.Linear(8, 2), torch.nn.Linear(8, 2)])
    shared = SharedGradients(ranks, module.parameters(), bucket_bytes=8)
    with shared.summed():
        module[RANK % 2](Tensor(torch.from_numpy(X[:10]))).sum().backward()
    used = [sum(rank % 2 == part for rank in range(SIZE)) for part in (0, 1)]
    for part in (0, 1):
        same(module[part].bias.grad, torch.full((2,), 10.0 * used[part]), 1e-6)


def a_backward_pass_that_fails():
    """The others are told, and do not wait for buckets that never come."""
    ranks = find_ranks("auto")
    module = network(0)
    shared = SharedGradients(ranks, module.parameters(), bucket_bytes=2000)

    def broken(gradient):
        raise ValueError("half way")

    if RANK == LAST:
        list(module.parameters())[2].register_hook(broken)
    try:
        with ranks.one_for_all("a test"):
            with shared.summed():
                module(Tensor(torch.from_numpy(X[:10]))).sum().backward()
            ranks.agree("the next step")
    except (ValueError, DistributedError) as error:
        found = error
    assert "half way" in str(found)
    assert isinstance(found, ValueError if RANK == LAST else DistributedError)
    assert ranks.total(torch.ones(1), "ones").tolist() == [SIZE]


def maps_by_an_encoder():
    """The batches are the same, the sums of gradients are rounded otherwise, and steps are small."""
    options = {"training": EncoderTraining(optimizer="SGD", learning_rate=1e-3), "n_epochs": 2}
    expected = alone(umap(**options), X)
    same(umap(**options).fit_transform(X), expected, 1e-4)
    model = umap(**options)
    same(model.fit_transform(shard(X)), shard(expected), 1e-4)
    same(model.transform(shard(X)), model.embedding_, 1e-5)
    assert numpy.isfinite(umap().fit_transform(X)).all()


def a_module_with_running_means():
    """Every process ends with the same module, although each has seen its own rows alone."""
    module = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 2)
    )
    model = umap(encoder=module, hidden_sizes=None).fit(X)
    ranks = find_ranks("auto")
    for name, one in model.encoder_.state_dict().items():
        assert bool((ranks.gathered(one[None], name) == one).all()), name


def what_ends_a_training():
    def enough(told):
        return told.epoch == 3 and RANK == LAST

    model = umap(training=EncoderTraining(progress=enough)).fit(X)
    assert (model.report_["stopped"], model.report_["epochs"]) == ("callback", 3)

    def raising(told):
        if RANK == LAST:
            raise ValueError("enough of it")

    try:
        umap(training=EncoderTraining(progress=raising)).fit(X)
    except (ValueError, DistributedError) as error:
        found = error
    assert "enough of it" in str(found)
    assert umap(timeout=1e-9).fit(X).report_["stopped"] == "timeout"


def asked_in_the_middle_of_an_epoch():
    """A signal to one process: all end at the same step with a checkpoint, and go on to the same bits."""
    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 2))
    options = {"encoder": module, "hidden_sizes": None, "training": EncoderTraining(checkpoint_every=2)}
    folder = FOLDER / "asked"
    whole = umap(**options).fit_transform(X)

    class Interrupted(cartograd.UMAP):
        def _batch_attraction(self, s):
            if RANK == LAST and self.n_iter_ == 17:
                os.kill(os.getpid(), signal.SIGINT)
            return super()._batch_attraction(s)

    kept = {"checkpoint_dir": folder, "resume": True}
    first = Interrupted(**{**umap(**options).get_params(deep=False), **kept})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        first.fit(X)
    assert any("interrupted in epoch 3" in str(one.message) for one in said)
    assert first.n_iter_ == 18, first.n_iter_
    Interrupted._batch_attraction = cartograd.UMAP._batch_attraction
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["step-0000000014.safetensors", "step-0000000018.safetensors"], names
    again = Interrupted(**{**umap(**options).get_params(deep=False), **kept})
    same(again.fit_transform(X), whole)
    assert len(again.loss_) == 6


CHECKS = [
    gradients_in_buckets,
    weights_that_play_no_part,
    a_backward_pass_that_fails,
    maps_by_an_encoder,
    a_module_with_running_means,
    what_ends_a_training,
    asked_in_the_middle_of_an_epoch,
]

if __name__ == "__main__":
    run(CHECKS)
