"""checkpoint together with the engine's other features, its errors, and checkpoint_sequential."""

import pytest
import torch
from torch import nn

import cartograd
from cartograd import errors
from cartograd.engine.meter import PeakBytes


def leaf(*shape, seed=0):
    print("seed", seed)
    generator = torch.Generator().manual_seed(seed)
    return cartograd.tensor(torch.randn(shape, generator=generator, dtype=torch.float64), requires_grad=True)


class Counted:
    """A function that counts its calls."""

    def __init__(self, function):
        self.function = function
        self.calls = 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return self.function(*args, **kwargs)


def collect(loss, *tensors):
    for tensor in tensors:
        tensor.grad = None
    loss.backward()
    return [torch.as_tensor(getattr(t.grad, "data", t.grad)).clone() for t in tensors]


def test_second_derivatives_and_second_passes():
    def piece(x):
        return (x**3).sin()

    x = leaf(3)
    (expected,) = cartograd.grad(cartograd.grad(piece(x).sum(), x, create_graph=True)[0].sum(), x)
    block = Counted(piece)
    y = cartograd.checkpoint(block, x).sum()
    (first,) = cartograd.grad(y, x, create_graph=True)
    (second,) = cartograd.grad(first.sum(), x)
    torch.testing.assert_close(second.data, expected.data, rtol=1e-12, atol=1e-12)
    block = Counted(piece)
    y = cartograd.checkpoint(block, x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert block.calls == 3, "once, and once a pass"
    with pytest.raises(errors.GraphFreedError):
        y.backward()


def test_gradcheck():
    assert cartograd.gradcheck(lambda x: cartograd.checkpoint(lambda t: t.sin() * t.exp(), x), leaf(3))
    assert cartograd.gradgradcheck(lambda x: cartograd.checkpoint(lambda t: t.sin() * t.exp(), x), leaf(3))


def test_the_table_shows_that_nothing_is_saved():
    y = cartograd.checkpoint(lambda t: t.exp().sin(), leaf(5))
    table = cartograd.trace(y).explain().splitlines()
    assert [line.split()[5:7] for line in table[1:]] == [["0", "B"], ["0", "B"]]
    assert [(saved.name, saved.bytes) for saved in cartograd.trace(y).saved()] == [("checkpoint", 40)]


def test_buffers_are_as_they_were_when_it_is_computed_again():
    """Spectral norm improves its estimate in place at every call, and computes with it."""
    found = []
    for call in (lambda f, x: f(x), cartograd.checkpoint):
        torch.manual_seed(0)
        layer = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)).double()
        x = leaf(3, 4)
        found.append([*collect(call(layer, x).exp().sum(), x, *layer.parameters()), *layer.buffers()])
    assert all(map(torch.equal, *found))


def test_under_no_grad_nothing_is_kept():
    x = leaf(3)
    with cartograd.no_grad():
        y = cartograd.checkpoint(torch.exp, x)
    assert not y.requires_grad


def test_a_function_that_changes_its_mind_is_refused():
    x = leaf(3)
    turns = iter([torch.sin, torch.cos])
    y = cartograd.checkpoint(lambda t: next(turns)(t), x)
    with pytest.raises(errors.CheckpointError, match=r"cos of \(3,\) float64 instead of sin.*same every time"):
        y.sum().backward()
    turns = iter([2, 1])

    def fewer(t):
        for _ in range(next(turns)):
            t = t.sin()
        return t

    with pytest.raises(errors.CheckpointError, match="saved 1 values, 2 the first time"):
        cartograd.checkpoint(fewer, x).sum().backward()


def test_errors_in_the_recomputation_say_where_it_comes_from():
    x, calls = leaf(3), []

    def piece(t):
        calls.append(1)
        if len(calls) == 2:
            raise KeyError("gone")
        return t.exp()

    y = cartograd.checkpoint(piece, x).sum()
    with pytest.raises(KeyError) as caught:
        y.backward()
    assert "recomputation of the checkpoint at" in caught.value.__notes__[0]
    assert "test_remat_features.py" in caught.value.__notes__[0]
    cartograd.checkpoint(piece, x).sum().backward()  # no mode was left on
    assert torch.equal(x.grad.data, x.data.exp())


def test_a_changed_input_or_parameter_is_noticed():
    x, weight = leaf(3), nn.Parameter(torch.ones(3, dtype=torch.float64))
    h = x * 1
    y = cartograd.checkpoint(lambda t: (t * weight).exp(), h).sum()
    h.data.add_(1)
    with pytest.raises(errors.InplaceError, match="changed in place"):
        y.backward()
    y = cartograd.checkpoint(lambda t: (t * weight).exp(), x).sum()
    with torch.no_grad():
        weight.add_(1)
    with pytest.raises(errors.InplaceError, match=r"mul.*recompute"):
        y.backward()


def test_anomaly_and_provenance_inside():
    x = cartograd.tensor([0.0, 1.0], requires_grad=True)
    y = cartograd.checkpoint(lambda t: t.sqrt(), x).sum()
    assert cartograd.trace(y).nodes[1].where().endswith("test_remat_features.py:" + str(_line("t.sqrt(), x).sum()")))
    message = r"gradient of sqrt.*test_remat_features\.py.*saved: \(2,\) float32 in \[0, 1\]"
    with pytest.raises(errors.AnomalyError, match=message), cartograd.detect_anomaly():
        y.backward()


def _line(text):
    with open(__file__) as file:
        return next(number for number, line in enumerate(file, 1) if text in line)


def test_inside_saved_tensors_hooks_the_inputs_are_packed():
    packed = []

    def pack(tensor):
        packed.append(tuple(tensor.shape))
        return tensor.clone()

    x = leaf(5)
    with cartograd.saved_tensors_hooks(pack, lambda t: t):
        y = cartograd.checkpoint(lambda t: t.sin().exp(), x * 1)
    assert packed == [(5,)]
    assert torch.equal(collect(y.sum(), x)[0], collect((x * 1).sin().exp().sum(), x)[0])


def test_autocast_is_as_it_was():
    torch.manual_seed(0)
    layer = nn.Linear(8, 8)
    x = cartograd.tensor(torch.randn(4, 8), requires_grad=True)
    found = []
    for call in (lambda f, x: f(x), cartograd.checkpoint):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = call(lambda t: layer(t).tanh(), x)
        found.append(collect(y.float().sum(), x, layer.weight))
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("segments", [1, 2, 3, 6])
def test_sequential(segments):
    torch.manual_seed(0)
    layers = [
        Counted(layer) for layer in (nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4), nn.ELU())
    ]
    x = cartograd.tensor(torch.randn(3, 4), requires_grad=True)
    parameters = [p for layer in layers for p in getattr(layer.function, "parameters", list)()]

    def plain(x):
        for layer in layers:
            x = layer(x)
        return x.sum()

    expected = collect(plain(x), x, *parameters)
    for layer in layers:
        layer.calls = 0
    found = collect(cartograd.checkpoint_sequential(layers, segments, x).sum(), x, *parameters)
    assert all(map(torch.equal, expected, found))
    assert all(layer.calls <= 2 for layer in layers)
    heads = [len(layers) * k // segments for k in range(segments)]
    assert sum(layers[k].calls == 2 for k in heads) == segments
    module = nn.Sequential(*(layer.function for layer in layers))
    found = collect(cartograd.checkpoint_sequential(module, segments, x).sum(), x, *parameters)
    assert all(map(torch.equal, expected, found))


def test_sequential_wants_a_number_of_segments():
    with pytest.raises(errors.CheckpointError, match="at least 1, got 0"):
        cartograd.checkpoint_sequential([torch.sin], 0, leaf(2))


def test_peak_memory_falls():
    torch.manual_seed(0)
    block = [
        nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.Tanh()) for _ in range(8)
    ]
    model = nn.Sequential(*block)
    x = cartograd.tensor(torch.randn(256, 64))
    peaks = []
    for call in (model, lambda x: cartograd.checkpoint_sequential(model, 8, x)):
        model.zero_grad()
        with PeakBytes() as meter:
            call(x).sum().backward()
        peaks.append(meter.peak)
    print(peaks)
    assert peaks[1] < 0.55 * peaks[0]


def test_recording_is_as_it_was():
    embedding, index = nn.Embedding(5, 3), torch.tensor([1, 2, 2])
    gradients = []
    for call in (lambda fn, *args: fn(*args), cartograd.checkpoint):
        embedding.weight.grad = None
        with cartograd.recording():
            loss = call(lambda i: embedding(i).sin().sum(), index)
        loss.backward(workers=2)
        gradients.append(embedding.weight.grad)
    assert torch.equal(*gradients)


def test_generators_of_the_users_own_are_turned_back():
    generator = torch.Generator().manual_seed(3)
    x = cartograd.tensor(torch.ones(50), requires_grad=True)
    y = cartograd.checkpoint(lambda t: t.sin() * torch.rand(50, generator=generator) * 1, x)
    expected, following = y.data / x.data.sin(), generator.get_state()
    y.sum().backward()
    assert torch.allclose(x.grad.data, expected * x.data.cos())
    assert torch.equal(generator.get_state(), following), "it goes on from where it was"
