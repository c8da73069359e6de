"""Steps of an optimiser by kernels, and many of them at once, against torch's optimisers step by step."""

import pytest
import torch

from cartograd.embedding.device_descent import DeviceDescent
from cartograd.embedding.device_rows import PairsOnDevice, SampledOnDevice
from cartograd.embedding.sampled_rows import Kind
from cartograd.neighbors import Graph

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
OPTIMISERS = {
    "plain": lambda Z: torch.optim.SGD([Z], lr=0.1),
    "momentum": lambda Z: torch.optim.SGD([Z], lr=0.1, momentum=0.8),
    "adam": lambda Z: torch.optim.Adam([Z], lr=0.1),
    "other adam": lambda Z: torch.optim.Adam([Z], lr=0.1, betas=(0.5, 0.9), eps=0.01),
}


@pytest.fixture
def graph(kernel_device):
    generator = torch.Generator().manual_seed(1)
    rows, columns = torch.randint(0, 150, (2, 900), generator=generator)
    apart, weights = rows != columns, torch.rand(900, generator=generator)
    return Graph.from_edges(rows[apart], columns[apart], weights[apart], 150).symmetrise("max").to(kernel_device)


@pytest.fixture
def places(kernel_device):
    return (2 * torch.randn(150, 2, generator=torch.Generator().manual_seed(2))).to(kernel_device)


def stepped(optimiser, Z, gradient, rate):
    """One step of torch's own."""
    optimiser.param_groups[0]["lr"] = rate
    Z.grad = gradient
    optimiser.step()


@pytest.mark.parametrize("name", OPTIMISERS)
def test_steps_are_those_of_torch_and_take_turns_with_them(kernel_device, name):
    generator = torch.Generator().manual_seed(0)
    ours = torch.randn(700, 2, generator=generator).to(kernel_device)
    theirs = ours.clone()
    mine, true = OPTIMISERS[name](ours), OPTIMISERS[name](theirs)
    descent = DeviceDescent(mine)
    for turn in range(3):
        gradients = torch.randn(3, 700, 2, generator=generator).to(kernel_device)
        rates = [0.5 - 0.1 * turn, 0.2, 0.05]
        if turn == 1:  # the optimiser itself
            for rate, gradient in zip(rates, gradients):
                stepped(mine, ours, gradient, rate)
        else:
            descent.expect(rates)
            for ahead in range(3):
                descent.move(gradients[ahead], ahead)
        for rate, gradient in zip(rates, gradients):
            stepped(true, theirs, gradient, rate)
        assert float((ours - theirs).abs().max()) < 2e-6
    for name, value in true.state[theirs].items():
        if value is not None:
            torch.testing.assert_close(mine.state[ours][name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["momentum", "adam"])
@pytest.mark.parametrize(("c", "contrast"), [(1.0, True), (2.0, False)])
def test_many_steps_with_random_rows_are_single_ones(kernel_device, graph, places, name, c, contrast):
    rows, scale = SampledOnDevice(graph, Kind(c, contrast, 6), 3), 0.02 if name == "momentum" else 0.3
    one, many = places.clone(), places.clone()
    single, together = OPTIMISERS[name](one), OPTIMISERS[name](many)
    for first in (0, 5, 10, 15):  # launched, recorded, replayed; then with other factors
        rates, pull = [scale / (1 + step) for step in range(first, first + 5)], 1.0 if first == 15 else 1.5
        for step, rate in enumerate(rates, first):
            stepped(single, one, rows.gradient(one, step, pull, 0.7), rate)
        rows.advance(together, first, rates, pull, 0.7)
        assert float((one - many).abs().mean()) < 1e-4  # single ones may be far where a gradient is near 0
    assert float((one - places).abs().mean()) > 0.1


def test_many_steps_of_pairs_are_single_ones(kernel_device, places):
    generator, n = torch.Generator().manual_seed(4), 150
    shifts = [torch.randint(1, n, (n, m), generator=generator) for m in (5, 3, 8)]
    pairs = PairsOnDevice([((shift + torch.arange(n)[:, None]) % n).to(kernel_device) for shift in shifts])
    one, many = places.clone(), places.clone()
    single, together = OPTIMISERS["adam"](one), OPTIMISERS["adam"](many)
    for first in (0, 5, 10, 15):  # without the second kind in the end
        mids = [0.0 if first == 15 else 1e4 * (1 - step / 20) for step in range(first, first + 5)]
        forces = [((20.0, 11.0), (mid, 10001.0), (-1.0, 2.0)) for mid in mids]
        for at in forces:
            stepped(single, one, pairs.gradient(one, at)[0], 0.1)
        pairs.advance(together, [0.1] * 5, forces)
        assert float((one - many).abs().mean()) < 1e-4  # single ones may be far where a gradient is near 0
    assert float((one - places).abs().mean()) > 0.1
