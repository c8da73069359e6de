"""RiemannianAdam: lengths of steps, one step for each call, what torch.optim expects of an optimiser."""

import pytest
import torch

from cartograd.embedding.poincare_ball import RIM
from cartograd.embedding.riemannian import RiemannianAdam
from cartograd.errors import OptionError, UnsupportedError


def distance(x, y):
    u = (x - y).square().sum(-1) / ((1 - x.square().sum(-1)) * (1 - y.square().sum(-1)))
    return 2 * torch.asinh(u.sqrt())


def starting(count=20, seed=0, scale=0.2, dtype=torch.float64):
    z = torch.randn(count, 2, dtype=dtype, generator=torch.Generator().manual_seed(seed)) * scale
    return z.requires_grad_()


@pytest.mark.parametrize("lr", [1e-3, 0.1, 1.0])
def test_the_first_step_is_as_long_as_the_learning_rate_wherever_a_point_is(lr):
    z = starting(scale=0.4)
    z.data *= 0.95 / z.detach().norm(dim=1, keepdim=True).clamp(min=1)
    before = z.detach().clone()
    optimiser = RiemannianAdam([z], lr=lr)
    z.grad = torch.randn(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    optimiser.step()
    assert torch.allclose(distance(before, z.detach()), torch.full((20,), lr, dtype=torch.float64), rtol=1e-5)


def test_near_the_middle_it_is_adam():
    # lambda is 2 there: r = g / 4 and the norm is |g| / 2, so a step is half of Adam's
    ours = torch.tensor([[3e-6], [-2e-6]], dtype=torch.float64, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    first, second = RiemannianAdam([ours], lr=2e-7, eps=1e-30), torch.optim.Adam([theirs], lr=1e-7, eps=1e-30)
    for _ in range(60):
        for z, optimiser in ((ours, first), (theirs, second)):
            optimiser.zero_grad()
            (1e5 * (z - 1e-6).square()).sum().backward()
            optimiser.step()
    assert torch.allclose(ours, theirs, rtol=1e-5)
    assert not torch.allclose(ours, torch.tensor([[3e-6], [-2e-6]], dtype=torch.float64), rtol=0.1)


def test_one_step_is_counted_for_each_call():
    z = starting()
    optimiser = RiemannianAdam([z], lr=0.01)
    for expected in (1, 2, 3):
        z.grad = torch.ones_like(z)
        optimiser.step()
        assert optimiser.state[z]["step"] == expected
    assert optimiser.state[z]["exp_avg_sq"].shape == (20,)


def test_means_by_hand_for_two_steps():
    z = torch.tensor([[0.3, 0.4]], dtype=torch.float64, requires_grad=True)
    optimiser = RiemannianAdam([z], lr=0.5, betas=(0.9, 0.99))
    z.grad = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    optimiser.step()
    shrink = ((1 - 0.25) / 2) ** 2
    assert float(optimiser.state[z]["exp_avg_sq"]) == pytest.approx(0.01 * shrink)
    here = 1 - float(z.detach().square().sum())
    norm = float(2 / here * optimiser.state[z]["exp_avg"].norm())
    assert norm == pytest.approx(2 / 0.75 * 0.1 * shrink)  # carried along with its length in the ball
    z.grad = torch.tensor([[0.0, 2.0]], dtype=torch.float64)
    optimiser.step()
    assert float(optimiser.state[z]["exp_avg_sq"]) == pytest.approx(0.99 * 0.01 * shrink + 0.01 * 4 * (here / 2) ** 2)


def test_it_finds_the_point_in_the_middle_of_others():
    anchors = starting(seed=5).detach()
    z = torch.tensor([[0.8, -0.3]], dtype=torch.float64, requires_grad=True)
    optimiser = RiemannianAdam([z], lr=0.05)
    for step in range(600):
        optimiser.param_groups[0]["lr"] = 0.05 * (1 - step / 600)
        optimiser.zero_grad()
        distance(z, anchors).square().sum().backward()
        optimiser.step()
    # at the middle the ways to all others add up to nothing
    x = z.detach()[0]
    ways = torch.complex(anchors[:, 0], anchors[:, 1])
    own = torch.complex(x[0], x[1])
    ways = (ways - own) / (1 - own.conj() * ways)
    assert float((torch.atanh(ways.abs()) * ways / ways.abs()).sum().abs()) < 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_points_stay_in_the_ball_whatever_the_gradient(dtype):
    z = starting(dtype=dtype)
    optimiser = RiemannianAdam([z], lr=50.0)
    for step in range(20):
        z.grad = torch.randn(20, 2, dtype=dtype, generator=torch.Generator().manual_seed(step)) * 10.0 ** (step - 10)
        optimiser.step()
        assert bool(torch.isfinite(z).all())
        assert float(z.detach().norm(dim=1).max()) <= RIM[dtype] * (1 + 1e-6)


def test_no_gradient_no_step():
    z, w = starting(), starting(seed=1)
    before = z.detach().clone(), w.detach().clone()
    optimiser = RiemannianAdam([z, w], lr=0.1)
    z.grad = torch.zeros_like(z)
    optimiser.step()
    assert torch.equal(z, before[0])
    assert torch.equal(w, before[1])


def test_it_goes_on_from_a_saved_state():
    runs = []
    for saved in (False, True):
        z = starting()
        optimiser = RiemannianAdam([z], lr=0.1)
        for step in range(10):
            if saved and step == 5:
                state, z = optimiser.state_dict(), z.detach().clone().requires_grad_()
                optimiser = RiemannianAdam([z], lr=1.0)
                optimiser.load_state_dict(state)
            optimiser.zero_grad()
            (z - 0.3).square().sum().backward()
            optimiser.step()
        runs.append(z.detach())
    assert torch.equal(runs[0], runs[1])


def test_closures_groups_and_schedules_work_as_in_torch():
    z, w = starting(), starting(seed=1)
    optimiser = RiemannianAdam([{"params": [z], "lr": 0.2}, {"params": [w]}], lr=0.1)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, total_iters=4)
    before = z.detach().clone(), w.detach().clone()

    def closure():
        optimiser.zero_grad()
        loss = (z**2).sum() + (w**2).sum()
        loss.backward()
        return loss

    assert float(optimiser.step(closure).detach()) == pytest.approx(
        float((before[0] ** 2).sum() + (before[1] ** 2).sum())
    )
    schedule.step()
    assert [group["lr"] for group in optimiser.param_groups] == pytest.approx([0.15, 0.075])
    assert torch.allclose(distance(before[0], z.detach()), torch.tensor(0.2, dtype=torch.float64), rtol=1e-4)
    assert torch.allclose(distance(before[1], w.detach()), torch.tensor(0.1, dtype=torch.float64), rtol=1e-4)


def test_bad_options():
    z = starting()
    with pytest.raises(OptionError, match="lr must be above 0"):
        RiemannianAdam([z], lr=0.0)
    with pytest.raises(OptionError, match="betas must be two numbers"):
        RiemannianAdam([z], betas=(0.9, 1.0))
    with pytest.raises(OptionError, match="eps must be above 0"):
        RiemannianAdam([z], eps=-1.0)
    z.grad = torch.zeros(20, 2, dtype=torch.float64).to_sparse()
    with pytest.raises(UnsupportedError, match="dense gradients"):
        RiemannianAdam([z]).step()
