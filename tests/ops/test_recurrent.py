"""ops/recurrent.py and ops/scan.py against torch's own modules, in float64."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import cartograd
from cartograd.engine.fallback import TorchPlan

KINDS = {
    "rnn_tanh": lambda *sizes, **options: nn.RNN(*sizes, **options),
    "rnn_relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
    "gru": nn.GRU,
    "lstm": nn.LSTM,
    "lstm_proj": lambda *sizes, **options: nn.LSTM(*sizes, proj_size=2, **options),
}
CELLS = {
    "rnn_tanh": nn.RNNCell,
    "rnn_relu": lambda *sizes, **options: nn.RNNCell(*sizes, nonlinearity="relu", **options),
    "gru": nn.GRUCell,
    "lstm": nn.LSTMCell,
}


def close(mine, other):
    torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)


def flat(result):
    out, last = result
    return [out, *(last if isinstance(last, tuple) else [last])]


def leaves(tensors):
    """The same values as torch leaves, and as ours."""
    return (
        [one.clone().requires_grad_() for one in tensors],
        [cartograd.tensor(one.clone(), requires_grad=True) for one in tensors],
    )


def first_states(module, shape):
    """Random states of all layers, on top of `shape` (the batch, or nothing)."""
    layers = module.num_layers * (2 if module.bidirectional else 1)
    hidden = module.proj_size or module.hidden_size
    widths = [hidden, module.hidden_size] if isinstance(module, nn.LSTM) else [hidden]
    return [torch.randn(layers, *shape, width, dtype=torch.float64) for width in widths]


def as_hx(states):
    return tuple(states) if len(states) == 2 else states[0]


def require_our_scan(outs):
    names = {node.name for node in cartograd.trace(*outs).nodes if not isinstance(node.plan, TorchPlan)}
    assert names & {"rnn_scan", "gru_scan", "lstm_scan"}, names


def compare(module, tensors, call):
    """Run `call(module, leaves)` with torch and with ours: values, and gradients of tensors and parameters."""
    module.zero_grad()
    twin = copy.deepcopy(module)
    theirs, ours = leaves(tensors)
    expected, found = call(module, theirs), call(twin, ours)
    require_our_scan(found)
    for mine, other in zip(found, expected, strict=True):
        close(mine.data, other.detach())
    seeds = [torch.randn_like(one) for one in expected]
    torch.autograd.backward(expected, seeds)
    total = sum((mine * seed).sum() for mine, seed in zip(found, seeds, strict=True))
    total.backward()
    for mine, other in zip(ours, theirs, strict=True):
        close(mine.grad.data, other.grad)
    for (name, mine), (_, other) in zip(twin.named_parameters(), module.named_parameters(), strict=True):
        assert mine.grad is not None, name
        close(mine.grad, other.grad)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("layers", "bidirectional", "batch_first", "bias"),
    [(1, False, False, True), (2, True, False, True), (3, False, True, False), (1, True, True, False)],
)
def test_sequences_match_torch(kind, layers, bidirectional, batch_first, bias):
    torch.manual_seed(0)
    options = {"num_layers": layers, "bidirectional": bidirectional, "batch_first": batch_first, "bias": bias}
    module = KINDS[kind](3, 4, dtype=torch.float64, **options)
    x = torch.randn((2, 5, 3) if batch_first else (5, 2, 3), dtype=torch.float64)
    compare(module, [x, *first_states(module, (2,))], lambda m, t: flat(m(t[0], as_hx(t[1:]))))


@pytest.mark.parametrize("kind", KINDS)
def test_without_first_state_and_without_a_batch(kind):
    torch.manual_seed(1)
    module = KINDS[kind](3, 4, num_layers=2, dtype=torch.float64)
    x = torch.randn(5, 3, dtype=torch.float64)
    compare(module, [x], lambda m, t: flat(m(t[0])))
    compare(module, [x, *first_states(module, ())], lambda m, t: flat(m(t[0], as_hx(t[1:]))))
    compare(module, [torch.randn(1, 1, 3, dtype=torch.float64)], lambda m, t: flat(m(t[0])))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_packed_sequences_match_torch(kind, bidirectional):
    torch.manual_seed(2)
    module = KINDS[kind](3, 4, num_layers=2, bidirectional=bidirectional, dtype=torch.float64)
    x = torch.randn(5, 3, 3, dtype=torch.float64)

    def call(m, t):
        packed = pack_padded_sequence(t[0], torch.tensor([2, 5, 4]), enforce_sorted=False)
        out, last = m(packed, as_hx(t[1:]))
        return flat((pad_packed_sequence(out)[0], last))

    compare(module, [x, *first_states(module, (3,))], call)


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("bias", [True, False])
def test_cells_match_torch(kind, bias):
    torch.manual_seed(3)
    module = CELLS[kind](3, 4, bias=bias, dtype=torch.float64)
    x, h, c = (torch.randn(2, width, dtype=torch.float64) for width in (3, 4, 4))
    if kind == "lstm":
        compare(module, [x, h, c], lambda m, t: list(m(t[0], (t[1], t[2]))))
    else:
        compare(module, [x, h], lambda m, t: [m(t[0], t[1])])
    compare(module, [x[0]], lambda m, t: list(m(t[0])) if kind == "lstm" else [m(t[0])])


def test_dropout_between_layers_draws_as_torch_does():
    torch.manual_seed(4)
    module = nn.GRU(3, 4, num_layers=3, dropout=0.4, dtype=torch.float64)
    x = torch.randn(5, 2, 3, dtype=torch.float64)

    def call(m, t):
        torch.manual_seed(5)
        return flat(m(t[0]))

    compare(module, [x], call)
    calm = module.eval()
    mine = calm(cartograd.tensor(x))[0]
    close(mine.data, calm(x)[0].detach())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wanted", ["input", "state", "weight_hh_l0", "bias_ih_l0", "weight_hr_l0"])
def test_one_gradient_alone(kind, wanted):
    if wanted == "weight_hr_l0" and kind != "lstm_proj":
        return
    torch.manual_seed(6)
    module = KINDS[kind](3, 4, dtype=torch.float64)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name == wanted)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    states = first_states(module, (2,))

    def gradient(wrap, ask):
        given = [wrap(x, wanted == "input"), *(wrap(one, wanted == "state") for one in states)]
        outs = flat(module(given[0], as_hx(given[1:])))
        target = {"input": given[0], "state": given[1]}.get(wanted)
        target = dict(module.named_parameters())[wanted] if target is None else target
        return ask([(one * one).sum() for one in outs], target)[0]

    other = gradient(lambda t, need: t.clone().requires_grad_(need), torch.autograd.grad)
    mine = gradient(lambda t, need: cartograd.tensor(t.clone(), requires_grad=need), cartograd.grad)
    close(mine.data, other)


@pytest.mark.parametrize("kind", ["rnn_tanh", "gru", "lstm"])
def test_second_derivative_matches_torch(kind):
    torch.manual_seed(7)
    module = KINDS[kind](2, 3, bidirectional=True, dtype=torch.float64)
    x = torch.randn(3, 2, 2, dtype=torch.float64)
    theirs, ours = x.clone().requires_grad_(), cartograd.tensor(x.clone(), requires_grad=True)
    weight = module.weight_hh_l0
    (first,) = torch.autograd.grad(module(theirs)[0].sum(), theirs, create_graph=True)
    expected = torch.autograd.grad((first * first).sum(), [theirs, weight])
    (first,) = cartograd.grad(module(ours)[0].sum(), ours, create_graph=True)
    found = cartograd.grad((first * first).sum(), [ours, weight])
    for mine, other in zip(found, expected, strict=True):
        close(mine.data, other)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtype_is_kept(kind, dtype):
    module = KINDS[kind](3, 4, dtype=dtype)
    x = cartograd.tensor(torch.randn(4, 2, 3, dtype=dtype), requires_grad=True)
    out = module(x)[0]
    out.sum().backward()
    assert out.dtype is x.grad.dtype is module.weight_ih_l0.grad.dtype is dtype


def test_no_grad_records_nothing():
    module = nn.LSTM(3, 4)
    x = cartograd.tensor(torch.randn(4, 2, 3))
    with cartograd.no_grad():
        assert not any(one.requires_grad for one in flat(module(x)))


def test_an_empty_sequence_is_refused():
    with pytest.raises(RuntimeError, match="larger than 0"):
        nn.GRU(3, 4)(cartograd.tensor(torch.randn(0, 2, 3)))
