"""Nobody waits for the GPU between two looks at a map: CUDA is asked to refuse it while steps are taken."""

import contextlib

import pytest
import torch

import cartograd
from cartograd.embedding import entropic_sampled, loop, pacmap, replaying, tsne, tsne_device, umap

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Synchronization debug mode")]

STRETCHES = {
    "UMAP": (umap.UMAP, {"n_neighbors": 15, "max_iter": 260}),
    "LargeVis": (entropic_sampled.EntropicSampled, {"max_iter": 260}),
    "InfoTSNE": (entropic_sampled.EntropicSampled, {"max_iter": 260, "n_negatives": 20, "early_exaggeration_iter": 0}),
    "PACMAP": (pacmap.PACMAP, {"max_iter": 260, "iter_per_phase": 40}),
    "TSNE": (tsne.TSNE, {"max_iter": 260, "method": "exact", "early_exaggeration_iter": 0}),
}
SINGLE = {
    "UMAP": {"n_neighbors": 15, "optimizer": "Adam", "lr": 0.1},
    "UMAP in three dimensions": {"n_neighbors": 15, "n_components": 3},
    "LargeVis": {"optimizer": "AdamW"},
    "LargeVis without neighbours": {"discard_NNs": True},
    "InfoTSNE": {"optimizer": "AdamW", "n_negatives": 20},
    "PACMAP": {"optimizer": "AdamW"},
    "TSNE": {"optimizer": "Adam", "method": "exact"},
    "SNE": {},
}


def rows():
    generator = torch.Generator().manual_seed(0)
    centres = 3 * torch.randn(10, 20, generator=generator)
    return centres[torch.randint(0, 10, (1500,), generator=generator)] + torch.randn(1500, 20, generator=generator)


@contextlib.contextmanager
def no_waiting(on=True):
    """An error where anything in the block waits for the GPU."""
    torch.cuda.set_sync_debug_mode("error" if on else "default")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def watch(monkeypatch, owner, name, strict):
    """Refuse to wait in those calls of a function for which `strict`, given its number and arguments, says so."""
    plain, calls, strictly = getattr(owner, name), [], []

    def watched(*arguments):
        calls.append(name)
        on = strict(len(calls), *arguments)
        strictly.extend([name] * on)
        with no_waiting(on):
            return plain(*arguments)

    monkeypatch.setattr(owner, name, watched)
    return strictly


def test_waiting_is_noticed(cuda_device):
    Z = torch.ones(3, device=cuda_device)
    with no_waiting(), pytest.raises(RuntimeError, match="synchroniz"):
        float(Z.sum())
    with no_waiting(), pytest.raises(RuntimeError, match="synchroniz"):
        Z.copy_(torch.zeros(3))
    with no_waiting():
        replaying.send(Z, [1.0, 2.0, 3.0])
    assert Z.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("way", ["launched", "replayed"])
@pytest.mark.parametrize("name", STRETCHES)
def test_many_steps_at_once(cuda_device, monkeypatch, name, way):
    owner, options = STRETCHES[name]
    if way == "launched":
        monkeypatch.setattr(replaying, "RECORDED", 1000)
    strictly = watch(monkeypatch, owner, "_take", lambda call, *_: call > 2)  # compiled, then recorded
    getattr(cartograd, name)(random_state=0, device=cuda_device, **options).fit(rows())
    assert len(strictly) >= 3


def test_steps_of_tsne_between_two_looks_at_its_extent(cuda_device, monkeypatch):
    def known(call, steps, Z, grid, count):
        return grid is not None and grid in steps._graphs

    strictly = watch(monkeypatch, tsne_device.TsneOnDevice, "_steps", known)
    cartograd.TSNE(method="fft", max_iter=500, random_state=0, device=cuda_device).fit(rows())
    assert len(strictly) >= 20


def test_looks_of_tsne_at_its_extent(cuda_device, monkeypatch):
    """What a look finds is read later: the steps after it, here none at all, have been launched by then."""
    taken, extents = [], []
    monkeypatch.setattr(tsne_device.TsneOnDevice, "_steps", lambda self, Z, grid, count: taken.append(count))
    monkeypatch.setattr(tsne_device, "_grid", lambda n, extent: extents.append(extent))
    Z = torch.rand(100, 2, device=cuda_device)
    side = float((Z.amax(0) - Z.amin(0)).max())
    with no_waiting():
        tsne_device.TsneOnDevice(None, None)._descend(Z, 50, side)
    assert sum(taken) == 50
    assert max(taken) == tsne_device.FARTHEST
    assert extents == pytest.approx([tsne_device.ROOM * side] * len(taken), rel=1e-6)


@pytest.mark.parametrize("name", SINGLE)
def test_single_steps(cuda_device, monkeypatch, name):
    def between(call, model, bar):
        return call > 3 and (model.n_iter_ + 1) % model.check_interval != 0 and model.n_iter_ + 1 < model.max_iter

    strictly = watch(monkeypatch, loop, "_step", between)
    make = getattr(cartograd, name.split()[0])
    make(random_state=0, device=cuda_device, max_iter=60, check_interval=20, **SINGLE[name]).fit(rows())
    assert len(strictly) >= 50
