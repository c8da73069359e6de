"""The closed-form gradients against the engine's, which differentiates the losses as they are written down."""

import functools
import math

import numpy
import pytest
import torch

from cartograd import SNE, TSNE, UMAP, AffinityMatcher, InfoTSNE, LargeVis, tensor
from cartograd.embedding import umap, umap_forces

ROWS = numpy.random.RandomState(0).rand(60, 4)


def both_gradients(estimator, X, layout=None):
    """The gradient at the third step (or at a layout of one's own), in closed form and by the engine."""
    seen = []

    class Probe(type(estimator)):
        def on_training_step_start(self):
            if self.n_iter_ == 2:
                if layout is not None:
                    self._layout.copy_(layout)
                seen.append((self._gradient().clone(), AffinityMatcher._gradient(self)))

    Probe(**estimator.get_params()).fit(X)
    return seen[0]


def agree(closed, engine, relative=1e-6):
    assert float(engine.abs().max()) > 0
    assert float((closed - engine).abs().max()) <= relative * float(engine.abs().max())


@pytest.fixture
def plain_umap(monkeypatch):
    """UMAP's forces as the loss has them: neither clipped nor softened."""
    monkeypatch.setattr(umap, "CLIP", math.inf)
    monkeypatch.setattr(umap, "attraction", functools.partial(umap_forces.attraction, clip=math.inf))
    monkeypatch.setattr(umap, "repulsion", functools.partial(umap_forces.repulsion, softening=0.0, clip=math.inf))


METHODS = [
    SNE(perplexity=8, max_iter=3, early_exaggeration_coeff=3.0, early_exaggeration_iter=5),
    TSNE(perplexity=8, max_iter=3, method="exact"),
    TSNE(perplexity=8, max_iter=3, method="exact", n_components=3, sparsity=False, early_exaggeration_iter=1),
    LargeVis(perplexity=8, max_iter=3, repulsion_strength=0.7),
    LargeVis(perplexity=8, max_iter=3, discard_NNs=True),
    InfoTSNE(perplexity=8, max_iter=3, n_negatives=20),
    UMAP(n_neighbors=8, max_iter=30, repulsion_strength=1.3),
    UMAP(n_neighbors=8, max_iter=30, n_components=3, min_dist=0.5, discard_NNs=True),
]


@pytest.mark.parametrize("estimator", METHODS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("scaling", [1e-4, 1.0, 100.0])
def test_closed_form_is_the_gradient_of_the_loss(estimator, scaling, plain_umap):
    agree(*both_gradients(estimator.set_params(init_scaling=scaling), ROWS))


@pytest.mark.parametrize("estimator", METHODS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("far", [1.0, 1e4])
def test_also_for_points_at_one_place_and_far_away(estimator, far, plain_umap):
    layout = torch.randn(60, estimator.n_components, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    layout[10:20] = layout[10]
    layout[30] = far
    closed, engine = both_gradients(estimator, ROWS, layout)
    assert torch.isfinite(closed).all()
    there = torch.isfinite(engine).all(1)  # the engine's power of 0 has no derivative; UMAP's force is 0 there
    agree(closed[there], engine[there])
    assert int(there.sum()) >= 49


def test_fft_is_close_to_the_engine():
    estimator = TSNE(perplexity=8, max_iter=3, method="fft", init_scaling=5.0)
    agree(*both_gradients(estimator, ROWS), relative=1e-3)


@pytest.mark.parametrize("distance", [1e-3, 0.1, 1.0, 10.0, 1e4])
def test_umap_forces_of_one_pair(distance):
    a, b = 1.5769, 0.8951
    apart = torch.tensor([[distance * 0.6, distance * 0.8]], dtype=torch.float64)
    z = tensor(apart, requires_grad=True)
    s = (z**2).sum(1)
    torch.log1p(a * s**b).sum().backward()
    assert torch.allclose(umap_forces.attraction(apart.T, a, b, clip=math.inf).T, z.grad.data, rtol=1e-9)
    z = tensor(apart, requires_grad=True)
    s = (z**2).sum(1)
    (torch.log1p(a * s**b) - torch.log(a * s**b)).sum().backward()
    assert torch.allclose(umap_forces.repulsion(apart.T, a, b, softening=0.0, clip=math.inf).T, z.grad.data, rtol=1e-9)


def test_umap_forces_are_clipped_and_softened():
    near = torch.tensor([[1e-3, 0.0]], dtype=torch.float64)
    a, b = 1.5769, 0.8951
    s = 1e-6
    assert float(umap_forces.repulsion(near.T, a, b)[0, 0]) == pytest.approx(
        -2 * b / ((1e-3 + s) * (1 + a * s**b)) * 1e-3
    )
    close = torch.tensor([[0.03, 0.0]], dtype=torch.float64)
    assert float(umap_forces.repulsion(close.T, a, b)[0, 0]) == -4.0
    assert float(umap_forces.repulsion(torch.zeros(2, 1), a, b).abs().max()) == 0.0
