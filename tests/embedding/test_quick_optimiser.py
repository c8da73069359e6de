"""Optimisers made without torch's compiler: torch's classes, torch's bits, torch's hooks."""

import subprocess
import sys

import pytest
import torch

from cartograd.embedding.quick_optimiser import quick
from cartograd.embedding.riemannian import RiemannianAdam

CASES = [
    (torch.optim.SGD, {"lr": 0.3}),
    (torch.optim.SGD, {"lr": 200.0, "momentum": 0.8}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.5, "dampening": 0.2, "maximize": True}),
    (torch.optim.Adam, {"lr": 1.0}),
    (torch.optim.Adam, {"lr": 0.01, "betas": (0.5, 0.9), "eps": 1e-7, "amsgrad": True, "weight_decay": 0.1}),
    (torch.optim.Adam, {"lr": 0.01, "foreach": True}),
    (torch.optim.AdamW, {"lr": 0.02}),
    (torch.optim.RMSprop, {"lr": 0.02}),
    (RiemannianAdam, {"lr": 0.02}),
]


def moved(make, kind, options, scheduled, dtype):
    """Where ten steps along given gradients lead, and the state after them."""
    draws = torch.Generator().manual_seed(3)
    points = (torch.rand(40, 2, generator=draws, dtype=dtype) - 0.5).requires_grad_()
    optimiser = make(kind, [points], options)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, total_iters=10) if scheduled else None
    for _ in range(10):
        points.grad = torch.randn(40, 2, generator=draws, dtype=dtype)
        optimiser.step()
        if schedule is not None:
            schedule.step()
    return optimiser, points.detach(), optimiser.state_dict()


@pytest.mark.parametrize("scheduled", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("kind", "options"), CASES)
def test_the_bits_are_torchs(kind, options, scheduled, dtype):
    ours, at, state = moved(quick, kind, options, scheduled, dtype)
    _, there, theirs = moved(lambda kind, points, options: kind(points, **options), kind, options, scheduled, dtype)
    assert type(ours) is kind
    assert torch.equal(at, there)
    assert state["param_groups"] == theirs["param_groups"]
    assert state["state"].keys() == theirs["state"].keys()
    for name, value in theirs["state"].get(0, {}).items():
        same = state["state"][0][name]
        assert same is value is None or torch.equal(torch.as_tensor(same), torch.as_tensor(value)), name


def test_hooks_of_torch_still_fire():
    points, seen = torch.zeros(3, 2), []
    optimiser = quick(torch.optim.SGD, [points], {"lr": 1.0})
    optimiser.register_step_pre_hook(lambda *_: seen.append(float(points[0, 0])))
    optimiser.register_step_post_hook(lambda *_: seen.append(float(points[0, 0])))
    points.grad = torch.ones(3, 2)
    optimiser.step()
    assert seen == [0.0, -1.0]


def test_gradients_are_on_again_after_a_step_and_off_within():
    points, seen = torch.zeros(3, 2, requires_grad=True), []
    optimiser = quick(torch.optim.Adam, [points], {"lr": 1.0})
    (points.sum() * 2).backward()
    assert optimiser.step(lambda: seen.append(torch.is_grad_enabled()) or points.sum()) == 0.0
    assert seen == [True]
    assert torch.is_grad_enabled()
    assert points.requires_grad
    assert points.is_leaf


def test_what_the_constructor_refuses_is_refused():
    with pytest.raises(ValueError, match="Invalid momentum value"):
        quick(torch.optim.SGD, [torch.zeros(2)], {"lr": 0.1, "momentum": -1.0})
    with pytest.raises(TypeError, match="wings"):
        quick(torch.optim.SGD, [torch.zeros(2)], {"lr": 0.1, "wings": 2})


class Grouping(torch.optim.SGD):
    """Adds groups in a way of its own."""

    added = 0

    def add_param_group(self, param_group):
        Grouping.added += 1
        super().add_param_group(param_group)


def test_a_class_with_groups_of_its_own_is_made_as_usual():
    optimiser = quick(Grouping, [torch.zeros(2)], {"lr": 0.1})
    assert Grouping.added == 1
    assert "step" not in vars(optimiser)
    assert "add_param_group" not in vars(quick(torch.optim.SGD, [torch.zeros(2)], {"lr": 0.1}))


FITS = """
import sys
import numpy
from cartograd import PACMAP, TSNE, UMAP, COSNE
X = numpy.random.RandomState(0).rand(60, 4).astype("float32")
fits = (UMAP(n_neighbors=5, max_iter=3), TSNE(perplexity=5, max_iter=3))
for make in (*fits, PACMAP(max_iter=3, n_neighbors=5), COSNE(max_iter=3, perplexity=5)):
    make.fit(X)
print([name for name in ("torch._dynamo", "sympy", "numba") if name in sys.modules])
"""


def test_a_first_fit_waits_neither_for_torchs_compiler_nor_for_numba():
    done = subprocess.run([sys.executable, "-c", FITS], text=True, capture_output=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
