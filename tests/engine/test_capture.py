"""capture: a replayed step gives the bits of the eager one, and what cannot be replayed is refused."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import cartograd
from cartograd import errors


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        return x + self.out(F.scaled_dot_product_attention(q, k, v))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.out = nn.LSTM(6, 5, batch_first=True), nn.Linear(5, 2)

    def forward(self, x):
        return self.out(self.inner(x)[0][:, -1])


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2)), (7, 6)),
    "dropout": (lambda: nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.4), nn.ReLU(), nn.Linear(8, 2)), (7, 6)),
    "batch norm": (lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2)), (7, 6)),
    "conv": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2)
        ),
        (5, 1, 8, 8),
    ),
    "attention": (lambda: nn.Sequential(Block(8), Block(8), nn.Flatten(), nn.Linear(32, 2)), (3, 4, 8)),
    "recurrent": (Recurrent, (3, 4, 6)),
}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
}


def training(make, optimizer, shape, captured, steps=6):
    torch.manual_seed(0)
    model = make()
    opt = OPTIMIZERS[optimizer](model.parameters())

    def step(x, y):
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        return loss

    generator = torch.Generator().manual_seed(1)
    batches = [
        (torch.randn(shape, generator=generator), torch.randn(shape[0], 2, generator=generator)) for _ in range(steps)
    ]
    run = cartograd.capture(step, *map(cartograd.tensor, batches[0])) if captured else step
    found = [run(cartograd.tensor(x), cartograd.tensor(y)).data for x, y in batches]
    state = [v for s in opt.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
    return [*found, *model.state_dict().values(), *(p.grad for p in model.parameters()), *state, torch.rand(2)], run


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", MODELS)
def test_training_gives_the_same_bits(kind, optimizer):
    make, shape = MODELS[kind]
    eager, _ = training(make, optimizer, shape, captured=False)
    replayed, step = training(make, optimizer, shape, captured=True)
    assert len(eager) == len(replayed)
    assert all(map(torch.equal, eager, replayed))
    assert step.recordings <= 2, "once without gradients, once with those of the step before"


def test_capturing_changes_nothing():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
    opt = torch.optim.Adam(model.parameters())
    x = cartograd.tensor(torch.randn(5, 3))

    def step(x):
        opt.zero_grad()
        loss = model(x).sum()
        loss.backward()
        opt.step()
        return loss

    for _ in range(2):  # without state and gradients, then with
        before = copy.deepcopy((model.state_dict(), opt.state_dict()["state"], [p.grad for p in model.parameters()]))
        random = torch.get_rng_state()
        cartograd.capture(step, x)
        after = (model.state_dict(), opt.state_dict()["state"], [p.grad for p in model.parameters()])
        torch.testing.assert_close(after, before, rtol=0, atol=0)
        assert torch.equal(torch.get_rng_state(), random)
        step(x)


def test_the_source_can_be_read():
    weight = nn.Parameter(torch.ones(2, 2))

    def step(x):
        loss = (x @ weight).tanh().sum()
        loss.backward()
        return loss

    source = cartograd.capture(step, cartograd.tensor(torch.ones(3, 2))).source
    print(source)
    lines = source.splitlines()
    assert lines[0] == "# c0: Parameter (2, 2) float32"
    assert any(line.startswith("def step(i0):") for line in lines)
    assert any("mm(i0, c0, out=b0)  # matmul" in line and "test_capture.py:" in line for line in lines)
    assert any("# backward of tanh, at" in line for line in lines)
    compile(source, "source", "exec")


def test_buffers_are_used_again():
    def chain(x):
        for _ in range(50):
            x = x.sin() * 1.01
        return x

    step = cartograd.capture(chain, cartograd.tensor(torch.randn(10)))
    assert "99 results in 2 buffers of 80 bytes in all" in step.source
    x = torch.randn(10)
    assert torch.equal(step(cartograd.tensor(x)).data, chain(cartograd.tensor(x)).data)


def test_what_is_returned_is_not_overwritten():
    weight = nn.Parameter(torch.randn(3, 3))

    def step(x):
        h = x @ weight
        view = h.t()
        h.sum().backward()
        return h, [view, weight.grad], {"n": 3, "h": h * 1}

    run = cartograd.capture(step, cartograd.tensor(torch.randn(2, 3)))
    weight.grad = None
    first = run(cartograd.tensor(torch.ones(2, 3)))
    kept = [first[0].data.clone(), first[1][0].data.clone(), first[2]["h"].data.clone()]
    weight.grad = None
    run(cartograd.tensor(torch.zeros(2, 3)))
    assert type(first[0]) is cartograd.Tensor
    assert type(first[1][1]) is torch.Tensor
    assert first[2]["n"] == 3
    assert all(map(torch.equal, kept, [first[0].data, first[1][0].data, first[2]["h"].data]))
    assert torch.equal(first[1][1], torch.full((3, 3), 2.0)), "the gradient of the first call, held by the user"


def test_gradients_accumulate_as_in_eager():
    found = []
    for captured in (False, True):
        a, b = nn.Parameter(torch.ones(3)), cartograd.tensor(torch.ones(3), requires_grad=True)

        def step(x):
            ((a + b) * x).sum().backward()

        run = cartograd.capture(step, cartograd.tensor(torch.randn(3))) if captured else step
        for value in (1.0, 2.0, 4.0):
            run(cartograd.tensor(torch.full((3,), value)))
        assert a.grad.data_ptr() != b.grad.data.data_ptr(), "the two got the same gradient, but not the same memory"
        found.append([a.grad, b.grad.data])
    assert all(map(torch.equal, *found))
    assert found[1][0][0].item() == 7.0


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad(set_to_none):
    found = []
    for captured in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(3, 1)

        def step(x):
            model.zero_grad(set_to_none)
            model(x).sum().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad

        run = cartograd.capture(step, cartograd.tensor(torch.ones(2, 3))) if captured else step
        for k in range(4):
            run(cartograd.tensor(torch.full((2, 3), k + 1.0)))
        found.append([*model.parameters(), *(p.grad for p in model.parameters())])
    assert all(map(torch.equal, *found))


def test_inputs_that_are_leaves_get_their_gradient():
    step = cartograd.capture(lambda x: (x * x).sum().backward(), cartograd.tensor([1.0, 2.0], requires_grad=True))
    x = cartograd.tensor([3.0, 4.0], requires_grad=True)
    step(x)
    step(x)
    assert x.grad.tolist() == [12.0, 16.0]
    with pytest.raises(errors.CaptureError, match=r"made by sin at .*test_capture\.py.*\.detach\(\)"):
        step(x.sin())


# New recordings


def test_new_shapes_dtypes_and_numbers_are_recorded():
    def scaled(x, power, options):
        return (x**power).sum() * options["scale"]

    step = cartograd.capture(scaled, cartograd.tensor([1.0, 2.0]), 2, {"scale": 1.5})
    for value, power, scale in [
        ([1.0, 2.0], 2, 1.5),
        ([1.0, 2.0, 3.0], 2, 1.5),
        ([1.0, 2.0], 3, 1.5),
        ([1.0, 2.0], 2, 0.5),
    ]:
        found = step(cartograd.tensor(value), power, {"scale": scale})
        assert found.item() == scaled(cartograd.tensor(value), power, {"scale": scale}).item()
    assert step.recordings == 4
    double = step(cartograd.tensor([1.0, 2.0], dtype=torch.float64), 2, {"scale": 1.5})
    assert double.dtype == torch.float64
    transposed = cartograd.tensor(torch.arange(6.0).view(2, 3).t())
    assert step(transposed, 2, {"scale": 1.5}).item() == 82.5


def test_the_cache_is_bounded():
    step = cartograd.capture(lambda x: x * 2, cartograd.tensor([1.0]), cache=3)
    for size in (2, 3, 4, 5, 2):
        assert step(cartograd.tensor(torch.ones(size))).data.sum().item() == 2.0 * size
    assert step.recordings == 3
    with pytest.raises(errors.OptionError, match="at least 1, got 0"):
        cartograd.capture(lambda x: x, cartograd.tensor([1.0]), cache=0)


def test_modes_and_modules_are_watched():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    x = cartograd.tensor(torch.randn(4, 3))
    step = cartograd.capture(model, x)
    model.eval()
    assert torch.equal(step(x).data, model(x).data)
    assert step.recordings == 2
    with torch.no_grad():
        assert not step(x).requires_grad
    model[0].weight.requires_grad_(False)

    def train(x):
        model.zero_grad()
        model(x).sum().backward()

    step = cartograd.capture(train, x)
    step(x)
    assert model[0].weight.grad is None
    model[0].weight.requires_grad_(True)
    step(x)
    assert model[0].weight.grad is not None
    model[0].weight.data = torch.zeros(3, 3)
    assert torch.equal(cartograd.capture(model, x)(x).data, model(x).data)
    step = cartograd.capture(model, x)
    model[0].weight.data = torch.ones(3, 3)
    assert torch.equal(step(x).data, model(x).data), "the Parameter has other memory now"
