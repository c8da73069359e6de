"""Grad mode is torch's own; recording(); threads."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.nn import functional

import cartograd
from cartograd import errors


def leaf(*numbers):
    return cartograd.tensor(list(numbers), requires_grad=True, dtype=torch.float64)


@pytest.mark.parametrize("off", [cartograd.no_grad, torch.no_grad], ids=["ours", "torch"])
@pytest.mark.parametrize("on", [cartograd.enable_grad, torch.enable_grad], ids=["ours", "torch"])
def test_there_is_one_grad_mode(off, on):
    x, w = leaf(1.0), torch.ones(1, requires_grad=True)
    with off():
        assert not cartograd.is_grad_enabled()
        assert not torch.is_grad_enabled()
        assert (x * 2).node is None
        assert torch.special.i0(x).node is None
        assert not (w * 2).requires_grad
        with on():
            assert (x * 2).requires_grad
            assert (w * 2).requires_grad
    assert (x * 2).requires_grad


def test_no_grad_is_a_decorator_too():
    @cartograd.no_grad()
    def function(x):
        return x * 2

    assert not function(leaf(1.0)).requires_grad


def test_set_grad_enabled():
    x = leaf(1.0)
    with cartograd.set_grad_enabled(False):
        assert not (x * 2).requires_grad
    with cartograd.set_grad_enabled(True):
        assert (x * 2).requires_grad


def test_inference_mode_records_nothing():
    x = leaf(1.0)
    with torch.inference_mode():
        assert not (x * 2).requires_grad
        assert not torch.special.i0(x).requires_grad


def test_leaf_made_under_no_grad_still_requires_grad():
    with cartograd.no_grad():
        x = leaf(1.0)
    (x * 2).backward()
    assert x.grad.item() == 2.0


def test_detach_stops_the_gradient():
    x = leaf(3.0)
    (x * x.detach()).backward()
    assert x.grad.item() == 3.0


# recording


def test_recording_records_ops_on_parameters_alone():
    layer = nn.Embedding(4, 2)
    with cartograd.recording():
        rows = layer(torch.tensor([1, 3, 1]))
        assert type(rows) is cartograd.Tensor
        rows.sum().backward()
    assert layer.weight.grad.tolist() == [[0.0, 0.0], [2.0, 2.0], [0.0, 0.0], [1.0, 1.0]]
    assert type(layer(torch.tensor([1]))) is torch.Tensor


def test_embedding_with_a_tensor_of_ours_as_index():
    layer = nn.Embedding(4, 2)
    layer(cartograd.tensor([1, 3, 1])).sum().backward()
    assert layer.weight.grad[:, 0].tolist() == [0.0, 2.0, 0.0, 1.0]


def test_sparse_embedding():
    layer = nn.Embedding(4, 2, sparse=True)
    for expected in (1.0, 2.0):
        layer(cartograd.tensor([1, 3])).sum().backward()
        assert layer.weight.grad.is_sparse
        assert layer.weight.grad.to_dense()[:, 0].tolist() == [0.0, expected, 0.0, expected]


def test_recording_trains_a_whole_model_on_plain_tensors():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).double()
    data = torch.randn(5, 3, dtype=torch.float64)
    with cartograd.recording():
        loss = model(data).square().mean()
        loss.backward()
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(data).square().mean().backward()
    for one, p in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(one, p.grad)


def test_recording_leaves_the_rest_of_torch_alone():
    w = nn.Parameter(torch.ones(2))
    calls = []
    with cartograd.recording():
        assert type(w.data) is torch.Tensor
        assert type(w.detach()) is torch.Tensor
        assert w.shape == (2,)
        assert type(torch.ones(2) + 1) is torch.Tensor
        w.register_post_accumulate_grad_hook(lambda p: calls.append("post"))
        w.register_hook(lambda g: calls.append("hook"))
        optimiser = torch.optim.SGD([w], lr=0.5)
        (w * 3).sum().backward()
        optimiser.step()
    assert calls == ["hook", "post"]
    assert w.tolist() == [-0.5, -0.5]


def test_recording_respects_no_grad():
    w = nn.Parameter(torch.ones(2))
    with cartograd.recording(), cartograd.no_grad():
        assert not (w * 3).requires_grad


# Modules


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (lambda: nn.LSTM(3, 4, num_layers=2, batch_first=True, bidirectional=True), (2, 5, 3)),
        (lambda: nn.GRU(3, 4), (5, 2, 3)),
        (lambda: nn.RNN(3, 4), (5, 2, 3)),
        (lambda: nn.LSTMCell(3, 4), (2, 3)),
        (lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0), (5, 2, 4)),
        (lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True).eval(), (5, 2, 4)),
        (lambda: nn.Conv2d(2, 4, 3, padding=1, groups=2, stride=2), (2, 2, 5, 5)),
        (lambda: nn.ConvTranspose2d(2, 3, 3, stride=2, output_padding=1), (2, 2, 3, 3)),
        (lambda: nn.BatchNorm2d(3), (2, 3, 4, 4)),
        (lambda: nn.BatchNorm1d(3, affine=False), (5, 3)),
        (lambda: nn.BatchNorm1d(3).eval(), (5, 3)),
        (lambda: nn.GroupNorm(2, 4), (2, 4, 3)),
        (lambda: nn.InstanceNorm1d(3, affine=True), (2, 3, 4)),
        (lambda: nn.RMSNorm(3), (2, 3)),
        (lambda: nn.PReLU(3), (2, 3)),
        (lambda: nn.Sequential(nn.ReflectionPad1d(1), nn.AvgPool1d(2), nn.AdaptiveMaxPool1d(2)), (2, 3, 6)),
        (lambda: nn.Sequential(nn.Upsample(scale_factor=2), nn.MaxPool2d(3), nn.PixelShuffle(2)), (1, 4, 6, 6)),
    ],
    ids=lambda one: "" if isinstance(one, tuple) else None,
)
def test_modules_of_torch_have_torchs_gradients(build, shape):
    torch.manual_seed(0)
    module = build().double()
    data = torch.randn(shape, dtype=torch.float64)
    x, t = cartograd.tensor(data, requires_grad=True), data.clone().requires_grad_()
    state = {name: value.clone() for name, value in module.state_dict().items()}

    def loss(out):
        return loss(out[0]) if isinstance(out, tuple) else (out * out.sigmoid()).sum()

    loss(module(x)).backward()
    found = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    module.load_state_dict(state)
    loss(module(t)).backward()
    torch.testing.assert_close(x.grad.data, t.grad)
    for one, p in zip(found, module.parameters(), strict=True):
        torch.testing.assert_close(one, p.grad)


def test_attention_module():
    torch.manual_seed(0)
    module = nn.MultiheadAttention(4, 2).double()
    data = torch.randn(5, 2, 4, dtype=torch.float64)
    x, t = cartograd.tensor(data, requires_grad=True), data.clone().requires_grad_()
    out, weights = module(x, x, x)
    (out.square().sum() + weights.square().sum()).backward()
    found = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    out, weights = module(t, t, t)
    (out.square().sum() + weights.square().sum()).backward()
    torch.testing.assert_close(x.grad.data, t.grad)
    for one, p in zip(found, module.parameters(), strict=True):
        torch.testing.assert_close(one, p.grad)


def test_losses_reach_the_input():
    target = torch.tensor([0, 2])
    x = cartograd.tensor(torch.randn(2, 3), requires_grad=True)
    for loss in (
        functional.cross_entropy(x, target),
        functional.nll_loss(x.log_softmax(1), target),
        functional.mse_loss(x, torch.zeros(2, 3)),
        functional.smooth_l1_loss(x, torch.zeros(2, 3)),
        functional.kl_div(x.log_softmax(1), torch.full((2, 3), 1 / 3), reduction="batchmean"),
        functional.binary_cross_entropy_with_logits(x, torch.ones(2, 3)),
        functional.triplet_margin_loss(x, x + 1, x * 2),
        functional.cosine_embedding_loss(x, x * x, torch.ones(2)),
    ):
        x.grad = None
        loss.backward()
        assert torch.isfinite(x.grad.data).all()
        assert x.grad.data.any()


def test_autocast_gives_gradients_in_the_parameters_dtype():
    torch.manual_seed(0)
    layer = nn.Linear(3, 2)
    data = torch.randn(4, 3)
    found = []
    for x in (cartograd.tensor(data, requires_grad=True), data.clone().requires_grad_()):
        layer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = layer(x) @ torch.ones(2, 2)
        assert out.dtype == torch.bfloat16
        out.float().square().sum().backward()
        found.append((x.grad.data, layer.weight.grad.clone()))
    for mine, other in zip(*found, strict=True):
        assert mine.dtype == other.dtype == torch.float32
        torch.testing.assert_close(mine, other, rtol=2e-2, atol=2e-2)


def test_autocast_of_einsum_and_of_an_op_that_torch_does_not_have():
    data = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    found = []
    for x in (cartograd.tensor(data, requires_grad=True), data.clone().requires_grad_()):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = torch.einsum("ij,kj->ik", x, x)
        assert out.dtype == torch.bfloat16
        out.float().square().sum().backward()
        found.append(torch.as_tensor(x.grad.data))
    torch.testing.assert_close(*found, rtol=2e-2, atol=2e-2)
    x = cartograd.tensor(data, requires_grad=True)
    expected = cartograd.knn(x, 2)[1]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        distances = cartograd.knn(x, 2)[1]
        assert torch.is_autocast_enabled("cpu")
    assert torch.equal(distances.data, expected.data)
    distances.sum().backward()
    mine = x.grad.data.clone()
    x.grad = None
    expected.sum().backward()
    assert torch.equal(mine, x.grad.data)


def test_initialisers_of_torch_fill_a_tensor_of_ours():
    x = cartograd.tensor(torch.zeros(100))
    with cartograd.no_grad():
        nn.init.uniform_(x, 1.0, 2.0)
    assert 1.0 <= x.min().item() <= x.max().item() <= 2.0


def test_backward_hook_of_a_module_runs_or_is_refused():
    layer, calls = nn.Linear(3, 2), []
    layer.register_full_backward_hook(lambda module, given, taken: calls.append("hook"))
    with contextlib.suppress(errors.CartogradError):
        layer(cartograd.tensor(torch.ones(4, 3), requires_grad=True)).sum().backward()
        assert calls == ["hook"], "stored and never called"


# Threads


def work(seed):
    """Build and walk a graph; the result depends on the seed alone."""
    generator = torch.Generator().manual_seed(seed)
    x = cartograd.tensor(torch.rand(4, dtype=torch.float64, generator=generator), requires_grad=True)
    calls = []
    for _ in range(20):
        h = x
        for i in range(15):
            h = h * x + torch.special.i0e(h) if i % 3 else torch.sort(h)[0].tanh()
        h.register_hook(lambda g: calls.append(1))
        h.sum().backward()
    assert len(calls) == 20
    return x.grad.data


def test_threads_build_and_walk_their_own_graphs_at_once():
    expected = [work(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, range(4), timeout=60))
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def test_grad_mode_belongs_to_a_thread():
    x = leaf(1.0)
    seen = []
    with cartograd.no_grad():
        thread = threading.Thread(target=lambda: seen.append((x * 2).requires_grad))
        thread.start()
        thread.join(10)
    assert seen == [True]


def test_graph_built_in_one_thread_is_walked_in_another():
    x = leaf(3.0)
    y = x * x
    thread = threading.Thread(target=y.backward)
    thread.start()
    thread.join(10)
    assert x.grad.item() == 6.0
