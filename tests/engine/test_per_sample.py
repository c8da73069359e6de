"""per_sample_grad and per_sample_norm against torch's vmap of grad, and against a loop where vmap cannot go."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vmap

import cartograd
from cartograd import errors
from cartograd.engine.per_sample import Request


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        return x + self.out(torch.softmax(q @ k.mT, -1) @ v)


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.place = nn.Embedding(9, 4, padding_idx=2), nn.Parameter(torch.randn(1, 5, 4))
        self.scale, self.out = nn.Parameter(torch.randn(4)), nn.Linear(4, 3)

    def forward(self, i):
        return self.out((self.table(i) + self.place) * self.scale).mean(1)


class Flattening(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 3)
        self.matrix = nn.Parameter(torch.randn(5, 5))

    def forward(self, x):
        rows = torch.tanh(self.first(x.reshape(-1, 4))) @ self.matrix
        return self.second(rows).view(x.shape[0], -1, 3).sum(1)


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.out = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.out(torch.tanh(self.linear(torch.tanh(self.linear(x)))))


def seeded(make):
    def build():
        torch.manual_seed(0)
        return make().double()

    return build


def convolutions(*layers):
    return lambda: nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(3))


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 3)), (4,)),
    "sequence": (lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3), nn.Flatten()), (5, 4)),
    "norms": (lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3), nn.RMSNorm(3)), (4,)),
    "attention": (lambda: nn.Sequential(Attention(4), Attention(4), nn.Flatten(), nn.Linear(20, 3)), (5, 4)),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(2, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3)), (2, 7)),
    "conv2d": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding="same", groups=2),
            nn.GroupNorm(2, 4),
            nn.Tanh(),
            nn.Conv2d(4, 2, 2, padding=1, dilation=2, bias=False),
            nn.InstanceNorm2d(2, affine=True),
            nn.Flatten(),
            nn.Linear(50, 3),
        ),
        (2, 5, 5),
    ),
    "conv3d": (lambda: nn.Sequential(nn.Conv3d(1, 2, 2), nn.Flatten(), nn.Linear(16, 3)), (1, 3, 3, 3)),
    "transposed": (
        lambda: nn.Sequential(
            nn.ConvTranspose2d(2, 4, 3, stride=2, output_padding=1, groups=2),
            nn.Tanh(),
            nn.ConvTranspose2d(4, 1, 2),
            nn.Flatten(),
            nn.Linear(49, 3),
        ),
        (2, 2, 2),
    ),
    "embedding": (Positions, None),
    "flattening": (Flattening, (5, 4)),
    "shared": (Shared, (4,)),
    "frozen batch norm": (
        lambda: nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(12, 3)).eval(),
        (2, 5),
    ),
}
SAMPLES = 6


def problem(kind):
    make, shape = MODELS[kind]
    torch.manual_seed(0)
    model = make().double()
    generator = torch.Generator().manual_seed(1)
    if shape is None:
        x = torch.randint(0, 9, (SAMPLES, 5), generator=generator)
    else:
        x = torch.randn(SAMPLES, *shape, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (SAMPLES,), generator=generator)
    return model, x, y


def loss_of(out, y):
    return F.cross_entropy(out[..., :3], y, reduction="none")


def expected(model, x, y):
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    buffers = dict(model.named_buffers())

    def one(parameters, x, y):
        out = functional_call(model, (parameters, buffers), (x.unsqueeze(0),))
        return loss_of(out, y.unsqueeze(0)).sum()

    return vmap(grad(one), in_dims=(None, 0, 0))(parameters, x, y)


@pytest.fixture
def no_loop(monkeypatch):
    def refuse(self, norms):
        raise AssertionError("fell back to a loop")

    monkeypatch.setattr(Request, "in_a_loop", refuse)


REDUCTIONS = {"each": lambda t: t, "mean": lambda t: t.mean(), "sum": lambda t: t.sum()}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("kind", MODELS)
def test_as_vmap_of_grad(kind, reduction, no_loop):
    model, x, y = problem(kind)

    def loss(x, y):
        return REDUCTIONS[reduction](loss_of(model(x), y))

    found = cartograd.per_sample_grad(loss, model, (x, y))
    right = expected(model, x, y)
    assert list(found) == list(right)
    for name, one in found.items():
        assert isinstance(one, cartograd.Tensor)
        torch.testing.assert_close(
            one.data, right[name], rtol=1e-9, atol=1e-11, msg=lambda text, n=name: f"{n}: {text}"
        )
    norms = cartograd.per_sample_norm(loss, model.parameters(), (x, y))
    total = sum(one.flatten(1).square().sum(1) for one in right.values()).sqrt()
    torch.testing.assert_close(norms.data, total, rtol=1e-9, atol=1e-11)
    assert all(p.grad is None for p in model.parameters())


def loop(fn, params, *batch):
    rows = []
    for k in range(len(batch[0])):
        with cartograd.recording():
            out = fn(*(cartograd.tensor(one[k : k + 1]) for one in batch))
        rows.append([g.data for g in cartograd.grad(out.sum(), params)])
    return [torch.stack(column) for column in zip(*rows, strict=True)]


class Counted:
    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *args):
        self.calls += 1
        return self.function(*args)


def falls_back(fn, params, *batch):
    counted = Counted(fn)
    found = cartograd.per_sample_grad(counted, params, batch)
    for one, right in zip(found, loop(fn, params, *batch), strict=True):
        torch.testing.assert_close(one.data, right, rtol=1e-9, atol=1e-11)
    return counted.calls


def test_ops_without_a_rule_are_run_sample_by_sample():
    torch.manual_seed(0)
    x = torch.randn(5, 3, 4, dtype=torch.float64)
    lstm = nn.LSTM(4, 3, batch_first=True).double()
    assert falls_back(lambda x: lstm(x)[0].sum((1, 2)), list(lstm.parameters()), x) >= 5
    weight = nn.Parameter(torch.randn(3, 4, dtype=torch.float64))
    assert falls_back(lambda x: (x @ weight.t()).tanh().sum((1, 2)), [weight], x) >= 5
    slope = nn.PReLU(3).double()
    assert falls_back(lambda x: slope(x).sum((1, 2)), list(slope.parameters()), x) >= 5


def test_samples_that_have_to_do_with_one_another():
    torch.manual_seed(0)
    x = torch.randn(5, 4, dtype=torch.float64)
    linear = nn.Linear(4, 2).double()

    def centred(x):
        h = linear(x)
        return ((h - 0.5 * h.mean(0)) ** 2).sum(1)

    assert falls_back(centred, list(linear.parameters()), x) >= 5
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double()
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        cartograd.per_sample_grad(lambda x: model(x).sum(1), model, x)


def test_a_weighted_mean_is_no_mean():
    torch.manual_seed(0)
    x, y = torch.randn(5, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 1, 0])
    linear = nn.Linear(4, 3).double()
    weight = torch.tensor([0.1, 0.5, 0.4], dtype=torch.float64)
    assert falls_back(lambda x, y: F.cross_entropy(linear(x), y, weight), list(linear.parameters()), x, y) >= 5


def test_dropout():
    torch.manual_seed(0)
    linear = nn.Linear(4, 2, bias=False).double()
    x = torch.randn(6, 4, dtype=torch.float64)
    torch.manual_seed(5)
    (found,) = cartograd.per_sample_grad(lambda x: F.dropout(linear(x), 0.5).sum(1), linear.parameters(), x)
    torch.manual_seed(5)
    mask = F.dropout(torch.ones(6, 2, dtype=torch.float64), 0.5)
    torch.testing.assert_close(found.data, mask.unsqueeze(2) * x.unsqueeze(1))
    (found,) = cartograd.per_sample_grad(lambda x: F.dropout(linear(x), 0.5).mean(), linear.parameters(), x)
    assert found.shape == (6, 2, 4)


def test_leaf_tensors_unused_parameters_and_one_sample():
    w = cartograd.tensor([1.0, 2.0], requires_grad=True, dtype=torch.float64)
    unused = nn.Parameter(torch.ones(3, dtype=torch.float64))
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.float64)
    found = cartograd.per_sample_grad(lambda x: (x * w).sum(1), {"w": w, "unused": unused}, x)
    assert found["w"].tolist() == x.tolist()
    assert found["unused"].data.abs().sum().item() == 0
    assert found["unused"].shape == (3, 3)
    (alone,) = cartograd.per_sample_grad(lambda x: (x * w).sum(1).mean(), w, x[:1])
    assert alone.tolist() == [[1.0, 2.0]]


def test_hooks_and_grads_of_the_user_are_left_alone():
    w = nn.Parameter(torch.ones(2))
    w.grad = torch.full((2,), 7.0)
    cartograd.per_sample_grad(lambda x: (x * w).sum(1), [w], torch.ones(3, 2))
    assert w.grad.tolist() == [7.0, 7.0]


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (
            lambda w: cartograd.per_sample_grad(lambda x: x * w, [w], torch.ones(3, 2)),
            errors.UnsupportedError,
            r"3 samples.*got shape \(3, 2\)",
        ),
        (
            lambda w: cartograd.per_sample_grad(lambda x: 3.0, [w], torch.ones(3, 2)),
            errors.UnsupportedError,
            "return a Tensor, got float",
        ),
        (
            lambda w: cartograd.per_sample_grad(lambda x: x.sum(1), [w], torch.ones(3, 2)),
            errors.UnsupportedError,
            "does not depend",
        ),
        (
            lambda w: cartograd.per_sample_grad(lambda x, y: x, [w], (torch.ones(3), torch.ones(2))),
            errors.InputError,
            r"first axis.*got \(3,\), \(2,\)",
        ),
        (
            lambda w: cartograd.per_sample_grad(lambda x: x, [w], torch.ones(())),
            errors.InputError,
            r"first axis.*got \(\)",
        ),
        (lambda w: cartograd.per_sample_grad(lambda x: x, [w], 3), errors.InputError, "no tensors"),
        (
            lambda w: cartograd.per_sample_grad(lambda x: x, [], torch.ones(3)),
            errors.InputError,
            "at least one parameter",
        ),
        (
            lambda w: cartograd.per_sample_grad(lambda x: x, [torch.ones(2)], torch.ones(3)),
            errors.NoGradientError,
            "does not require grad",
        ),
    ],
)
def test_requests_that_make_no_sense(call, kind, text):
    with pytest.raises(kind, match=text):
        call(nn.Parameter(torch.ones(2)))


def test_anomaly_names_the_op():
    w = nn.Parameter(torch.tensor([0.0, 1.0]))
    with pytest.raises(errors.AnomalyError, match=r"sqrt.*test_per_sample\.py"), cartograd.detect_anomaly():
        cartograd.per_sample_grad(lambda x: (x * w).sqrt().sum(1), [w], torch.ones(3, 2))
