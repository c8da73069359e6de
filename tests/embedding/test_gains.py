"""Descent with gains: against openTSNE's own, and when TSNE uses it."""

import numpy
import pytest
import torch

from cartograd import TSNE
from cartograd.embedding.gains import DescentWithGains

ROWS = numpy.random.RandomState(0).rand(200, 4).astype("float32")


def test_the_steps_are_openTSNEs():
    tsne = pytest.importorskip("openTSNE.tsne")
    draw = numpy.random.RandomState(3)
    start, targets = 30 * draw.randn(50, 2), draw.randn(40, 50, 2)

    def forces(step, Z):
        return 0.3 * (Z - targets[step]) + 0.1 * numpy.sin(5 * Z)

    steps = iter([*range(40), 39])  # the last for the divergence it ends with
    theirs = start.copy()
    tsne.gradient_descent()(
        theirs, None, 40, lambda Z, *_, **__: (0.0, forces(next(steps), Z)), learning_rate=2.0, momentum=0.6
    )
    place = torch.from_numpy(start.copy())
    ours = DescentWithGains([place], lr=2.0, momentum=0.6)
    for step in range(40):
        place.grad = torch.from_numpy(forces(step, place.numpy()))
        ours.step()
        place -= place.mean(0)  # as theirs does
    assert numpy.allclose(place.numpy(), theirs, rtol=1e-9, atol=1e-9)
    assert ours.state[place]["gains"].min() < 0.5 < 1.5 < ours.state[place]["gains"].max()


def test_no_point_moves_farther_than_five():
    place = torch.zeros(3, 2)
    ours = DescentWithGains([place], lr=1.0)
    place.grad = torch.tensor([[300.0, 400.0], [-0.3, 0.0], [0.0, 0.0]])
    ours.step()
    assert torch.allclose(place, torch.tensor([[-3.0, -4.0], [0.36, 0.0], [0.0, 0.0]]))  # a gain of 1.2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, DescentWithGains),
        ({"lr": 20.0}, torch.optim.SGD),
        ({"optimizer_kwargs": {"momentum": 0.5}}, torch.optim.SGD),
        ({"optimizer": "Adam"}, torch.optim.Adam),
    ],
)
def test_where_nothing_about_the_descent_is_given_there_are_gains(options, expected):
    kinds = set()

    class Probe(TSNE):
        def on_training_step_start(self):
            kinds.add(type(self.optimizer_))

    Probe(perplexity=5, max_iter=6, early_exaggeration_iter=3, **options).fit(ROWS)
    assert kinds == {expected}


def test_gains_bring_the_divergence_down_sooner():
    options = {"perplexity": 10, "max_iter": 400, "early_exaggeration_iter": 100, "random_state": 0}
    plain = TSNE(optimizer_kwargs={}, **options).fit(ROWS).kl_divergence_
    assert TSNE(**options).fit(ROWS).kl_divergence_ < plain
