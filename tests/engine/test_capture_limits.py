"""What a captured step refuses, and what else it goes together with."""

import threading

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import cartograd
from cartograd import errors


def line_of(text):
    with open(__file__) as file:
        return next(number for number, line in enumerate(file, 1) if text in line and "line_of" not in line)


def branches(x):
    y = x.sum()
    if y > 1:  # the branch
        return y * 2
    return y * 3


def loops(x):
    while x.abs().max() > 1:  # the loop
        x = x * 0.5
    return x


def items(x):
    return x * x.sum().item()  # the item


def lists(x):
    return x * len(x.tolist())  # the list


def arrays(x):
    return x * float(numpy.asarray(x.detach()).sum())  # the array


def plain_arrays(x):
    return x * float(x.data.numpy().sum())  # the plain array


def masks(x):
    return x[x > 0]  # the mask


def counts(x):
    return torch.nonzero(x)  # the count


def indexes(x):
    return [1, 2, 3][int(x.sum())] * x  # the index


REFUSED = {
    "the branch": branches,
    "the loop": loops,
    "the item": items,
    "the list": lists,
    "the array": arrays,
    "the plain array": plain_arrays,
    "the mask": masks,
    "the count": counts,
    "the index": indexes,
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_depends_on_values_is_refused_with_the_line(kind):
    message = (
        rf"test_capture_limits\.py:{line_of('# ' + kind)}: what it does then may depend on the values.*torch\.where"
    )
    with pytest.raises(errors.CaptureError, match=message):
        cartograd.capture(REFUSED[kind], cartograd.tensor([0.1, 0.2]))
    x = cartograd.tensor([0.1, 0.2], requires_grad=True)
    (x * 2).sum().backward()  # no mode was left on
    assert x.grad.tolist() == [2.0, 2.0]


def test_a_refused_step_leaves_everything_as_it_was():
    weight = nn.Parameter(torch.ones(2))

    def step(x):
        (weight * x).sum().backward()
        with torch.no_grad():
            weight.sub_(weight.grad)
        return weight.sum().item()

    with pytest.raises(errors.CaptureError, match="reads a value"):
        cartograd.capture(step, cartograd.tensor([1.0, 2.0]))
    assert weight.tolist() == [1.0, 1.0]
    assert weight.grad is None


def test_values_may_decide_with_torch_where():
    step = cartograd.capture(lambda x: torch.where(x > 0, x * 2, x * 3).sum(), cartograd.tensor([1.0, -1.0]))
    assert step(cartograd.tensor([-2.0, 5.0])).item() == 4.0


def test_a_function_that_changes_by_itself_is_refused():
    values = iter(range(100))

    def step(x):
        with torch.no_grad():
            return x * torch.tensor(float(next(values)))

    run = cartograd.capture(step, cartograd.tensor([1.0]))
    assert run(cartograd.tensor([1.0])).item() == 0.0, "what Python made is as it was when it was recorded"

    @cartograd.primitive()
    def counting(x: torch.Tensor):
        return torch.from_numpy(x.numpy() * next(values))

    with pytest.raises(errors.CaptureError, match="does not give the bits"):
        cartograd.capture(counting, cartograd.tensor([1.0]))


def test_closures_of_optimizers_are_refused():
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.LBFGS([weight])

    def step(x):
        def closure():
            loss = (weight * x).sum()
            loss.backward()
            return loss

        optimizer.step(closure)

    with pytest.raises(errors.CaptureError, match="closure"):
        cartograd.capture(step, cartograd.tensor([1.0, 2.0]))
    assert weight.tolist() == [1.0, 1.0]


def test_graphs_from_outside_are_refused():
    x = cartograd.tensor([1.0, 2.0], requires_grad=True)
    outside = x.sin()
    with pytest.raises(errors.CaptureError, match=r"differentiates sin \(called at .*ran before"):
        cartograd.capture(lambda y: (outside * y).sum().backward(), cartograd.tensor([1.0, 2.0]))


def test_torchs_own_autograd_is_refused():
    weight = nn.Parameter(torch.ones(2))
    for gradient in (None, torch.ones(2)):
        weight.grad = gradient
        with pytest.raises(errors.CaptureError, match=r"torch's own autograd.*cartograd\.tensor"):
            cartograd.capture(lambda x: (x * weight).sum().backward(), torch.ones(2))
        assert weight.grad is gradient
    with pytest.raises(errors.CaptureError, match=r"graph of torch's own.*\.detach\(\)"):
        cartograd.capture(lambda x: x * weight, torch.ones(2))
    step = cartograd.capture(lambda x: (x * weight).detach() * 2, torch.ones(2))
    assert step(torch.full((2,), 3.0)).tolist() == [6.0, 6.0]


def test_the_result_has_no_graph_and_says_so():
    weight = nn.Parameter(torch.ones(2))
    step = cartograd.capture(lambda x: (x * weight).sum(), cartograd.tensor([1.0, 2.0]))
    loss = step(cartograd.tensor([1.0, 2.0]))
    assert loss.requires_grad
    assert loss.item() == 3.0
    with pytest.raises(errors.CaptureError, match="inside the captured function"):
        loss.backward()


# What it goes together with


@cartograd.primitive()
def through_numpy(x: torch.Tensor):
    return torch.from_numpy(numpy.sin(x.numpy()))


@through_numpy.vjp("x")
def _(g, x):
    return g * torch.from_numpy(numpy.cos(x.numpy()))


FUNCTIONS = {
    "numpy inside an op": lambda x: through_numpy(x * 2).exp().sum(),
    "torch's derivative": lambda x: torch.special.i0e(x.sin()).sum(),
    "several outputs": lambda x: sum(p.sin().sum() * k for k, p in enumerate(torch.split(x, 2))) + x.max(0)[0],
    "in place": lambda x: (x * 2).add_(x.sin()).mul_(3).exp().sum(),
    "views": lambda x: (x.view(2, 3).t() @ x.view(2, 3)).diagonal().sum() + x[1:4].sum(),
    "indexing": lambda x: x[torch.tensor([0, 2, 2])].sin().sum() + x.gather(0, torch.tensor([1, 1])).sum(),
    "cumulative": lambda x: torch.cumsum(x, 0).logsumexp(0),
    "einsum": lambda x: torch.einsum("i,j->ij", x, x).tril().sum(),
    "sort": lambda x: (torch.sort(x)[0] * torch.arange(6.0)).sum(),
    "double": lambda x: x.to(torch.float64).sin().sum().to(torch.float32),
    "norm": lambda x: F.normalize(x.view(2, 3)).sum() + torch.linalg.vector_norm(x),
    "softmax": lambda x: F.cross_entropy(x.view(2, 3), torch.tensor([0, 2])),
    "checkpoint": lambda x: cartograd.checkpoint(lambda t: t.sin().exp(), x).sum(),
    "second derivative": lambda x: (cartograd.grad((x**3).sum(), x, create_graph=True)[0] * x).sum(),
    "random": lambda x: (x * torch.rand(6) + torch.randn(6)).sum() + F.dropout(x, 0.5).sum(),
    "constants": lambda x: (
        (x + torch.ones(6) * torch.tensor(3.0) - torch.full((6,), 0.5)).sum() * float("inf").__class__(2)
    ),
    "infinite": lambda x: x.masked_fill(x > 0, float("-inf")).softmax(0).sum(),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_functions(kind):
    function = FUNCTIONS[kind]

    def step(x):
        loss = function(x)
        loss.backward()
        return loss

    def leaf(seed):
        return cartograd.tensor(torch.randn(6, generator=torch.Generator().manual_seed(seed)), requires_grad=True)

    run = cartograd.capture(step, leaf(0))
    for seed in (1, 2, 3):
        one, other = leaf(seed), leaf(seed)
        torch.manual_seed(seed)
        expected = step(one)
        torch.manual_seed(seed)
        found = run(other)
        assert torch.equal(expected.data.nan_to_num(7), found.data.nan_to_num(7))
        assert torch.equal(one.grad.data.nan_to_num(7), other.grad.data.nan_to_num(7))
    assert run.recordings == 1


@pytest.mark.parametrize("seed", range(25))
def test_random_graphs(seed):
    import random

    print("seed", seed)
    weight = nn.Parameter(torch.randn(3, 3, generator=torch.Generator().manual_seed(seed)))
    unary = [
        torch.sin,
        torch.tanh,
        lambda t: t @ weight,
        lambda t: t.t().contiguous().t(),
        lambda t: torch.sort(t, 1)[0],
    ]
    unary += [lambda t: F.dropout(t, 0.3), lambda t: torch.stack(torch.unbind(t, 1), 1), torch.special.i0e]
    binary = [torch.add, torch.mul, torch.sub, lambda a, b: a * b.mean(), lambda a, b: torch.cat([a, b])[1:3]]

    def step(x):
        chance = random.Random(seed)
        made = [x]
        for _ in range(20):
            a, b = chance.choice(made[-5:]), chance.choice(made)
            made.append(chance.choice(unary)(a) if chance.random() < 0.6 else chance.choice(binary)(a, b).tanh())
        (made[-1].sum() + made[10].mean()).backward()
        return made[5], made[-1]

    example = torch.randn(2, 3, generator=torch.Generator().manual_seed(seed))
    run = cartograd.capture(step, cartograd.tensor(example, requires_grad=True))
    for number in range(3):
        found = []
        for call in (step, run):
            torch.manual_seed(number)
            weight.grad = None
            x = cartograd.tensor(example * (number + 1), requires_grad=True)
            outs = call(x)
            found.append(
                [*(one.data.clone() for one in outs), x.grad.data, *([] if weight.grad is None else [weight.grad])]
            )
        assert len(found[0]) == len(found[1])
        assert all(map(torch.equal, *found))


def test_hooks_are_part_of_the_step():
    weight = nn.Parameter(torch.ones(3))
    weight.register_hook(lambda g: g.clamp(max=1.0))

    def step(x):
        h = weight * x
        h.register_hook(lambda g: g * 2)
        h.sum().backward()

    run = cartograd.capture(step, cartograd.tensor([1.0, 1.0, 1.0]))
    run(cartograd.tensor([0.1, 0.4, 3.0]))
    torch.testing.assert_close(weight.grad, torch.tensor([0.2, 0.8, 1.0]))


def test_an_error_in_a_replay_names_the_op():
    table = nn.Embedding(5, 2)
    step = cartograd.capture(lambda i: table(i).sum(), cartograd.tensor([0, 1]))
    with pytest.raises(IndexError) as caught:
        step(cartograd.tensor([0, 9]))
    assert "in a captured step: embedding, at" in caught.value.__notes__[0]
    assert "test_capture_limits.py" in caught.value.__notes__[0]


def test_anomaly_mode_looks_at_every_op():
    def step(x):
        return (x - 1).log().sum()

    run = cartograd.capture(step, cartograd.tensor([2.0]))
    assert run(cartograd.tensor([1.0])).item() == -float("inf")
    with (
        pytest.raises(errors.AnomalyError, match=r"log made an Inf at .*test_capture_limits\.py"),
        cartograd.detect_anomaly(),
    ):
        run(cartograd.tensor([1.0]))


def test_a_captured_step_inside_another():
    inner = cartograd.capture(lambda x: x.sin() * 2, cartograd.tensor([1.0]))
    outer = cartograd.capture(lambda x: inner(x).exp(), cartograd.tensor([1.0]))
    assert outer(cartograd.tensor([0.5])).item() == cartograd.tensor([0.5]).sin().mul(2).exp().item()


def test_several_threads_may_call_it():
    step = cartograd.capture(lambda x: (x.sin() * x).exp().sum(), cartograd.tensor(torch.ones(100)))
    wrong = []

    def work(seed):
        x = torch.randn(100, generator=torch.Generator().manual_seed(seed))
        expected = (x.sin() * x).exp().sum().item()
        for _ in range(100):
            if step(cartograd.tensor(x)).item() != expected:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_inside_a_budget_every_op_is_seen():
    x = cartograd.tensor(torch.randn(100), requires_grad=True)

    def step():
        y = x
        for _ in range(6):
            y = y.sin()
        y.sum().backward()

    run = cartograd.capture(step)
    run()
    expected, x.grad = x.grad.data, None
    with cartograd.memory_budget(1600) as budget:
        run()
    assert torch.equal(x.grad.data, expected)
    assert budget.plan.recomputed


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_graph():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).cuda()
    twin = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).cuda()
    twin.load_state_dict(model.state_dict())

    def make(net, optimizer):
        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(net(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    eager = make(model, torch.optim.Adam(model.parameters()))
    batches = [(torch.randn(8, 16, device="cuda"), torch.randn(8, 4, device="cuda")) for _ in range(5)]
    replayed = make(twin, torch.optim.Adam(twin.parameters()))
    replayed = cartograd.capture(replayed, *map(cartograd.tensor, batches[0]))
    for batch in batches:
        one, other = eager(*map(cartograd.tensor, batch)), replayed(*map(cartograd.tensor, batch))
        torch.testing.assert_close(one.data, other.data)
    torch.testing.assert_close(list(model.parameters()), list(twin.parameters()))
