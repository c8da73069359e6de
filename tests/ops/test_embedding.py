"""Tables of rows: Parameters, padding, frequencies, bags of all modes, gradients of gradients."""

import pytest
import torch
import torch.nn.functional as F
from parity import agree, randn

import cartograd

INDEX = torch.tensor([[1, 3, 3], [0, 1, 4]])
FLAT = torch.tensor([1, 3, 3, 0, 1, 4])
OFFSETS = torch.tensor([0, 2, 2, 5])


@pytest.mark.parametrize(
    "options", [{}, {"padding_idx": 1}, {"padding_idx": -2}, {"scale_grad_by_freq": True}, {"padding_idx": 0}]
)
def test_embedding(options):
    agree(lambda w: F.embedding(INDEX, w, **options), randn(5, 2))
    agree(lambda w, i: F.embedding(i, w, **options), randn(5, 2), INDEX)
    agree(lambda w, i: F.embedding(i, w, **options), randn(5, 2), torch.tensor(1))
    agree(lambda w, i: F.embedding(i, w, **options), randn(5, 2), torch.zeros(0, dtype=torch.int64))


def test_a_layer_called_with_an_index_of_ours():
    layer = torch.nn.Embedding(5, 2, padding_idx=3).double()
    out = layer(cartograd.tensor(INDEX))
    assert out.node.name == "embedding"
    out.sum().backward()
    assert layer.weight.grad[:, 0].tolist() == [1, 2, 0, 0, 1]


def test_a_layer_called_with_a_plain_index_while_recording():
    layer = torch.nn.Embedding(5, 2)
    with cartograd.recording():
        layer(INDEX).sum().backward()
    assert layer.weight.grad[:, 0].tolist() == [1, 2, 0, 2, 1]


def test_max_norm_rescales_the_table():
    torch.manual_seed(0)
    layer, twin = torch.nn.Embedding(5, 2, max_norm=0.1), torch.nn.Embedding(5, 2, max_norm=0.1)
    twin.load_state_dict(layer.state_dict())
    layer(cartograd.tensor(INDEX)).pow(2).sum().backward()
    twin(INDEX).pow(2).sum().backward()
    torch.testing.assert_close(layer.weight, twin.weight)
    torch.testing.assert_close(layer.weight.grad, twin.weight.grad)


def test_bad_padding_and_bad_rows_are_refused():
    w = cartograd.tensor(randn(5, 2), requires_grad=True)
    with pytest.raises(AssertionError, match="Padding_idx"):
        F.embedding(INDEX, w, padding_idx=5)
    with pytest.raises(IndexError):
        F.embedding(torch.tensor([5]), w)


@pytest.mark.parametrize("options", [{}, {"padding_idx": 1}, {"scale_grad_by_freq": True}])
def test_the_gradient_is_the_same_when_it_is_recorded(options):
    w = cartograd.tensor(randn(5, 2), requires_grad=True)
    out = F.embedding(INDEX, w, **options).pow(2)
    (plain,) = cartograd.grad(out.sum(), w, retain_graph=True)
    (recorded,) = cartograd.grad(out.sum(), w, create_graph=True)
    torch.testing.assert_close(recorded.data, plain.data)


BAGS = [
    {"mode": "sum"},
    {"mode": "mean"},
    {"mode": "max"},
    {"mode": "sum", "padding_idx": 3},
    {"mode": "mean", "padding_idx": -2},
    {"mode": "mean", "padding_idx": 0},
    {"mode": "max", "padding_idx": 1},
    {"mode": "sum", "include_last_offset": True},
]


@pytest.mark.parametrize("options", BAGS, ids=str)
def test_bags(options):
    offsets = torch.tensor([0, 2, 2, 6]) if options.get("include_last_offset") else OFFSETS
    agree(lambda w: F.embedding_bag(FLAT, w, offsets, **options), randn(5, 2))
    agree(lambda w, i, o: F.embedding_bag(i, w, o, **options), randn(5, 2), FLAT, offsets)
    if not options.get("include_last_offset"):
        agree(lambda w, i: F.embedding_bag(i, w, **options), randn(5, 2), INDEX)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_scaled_by_frequency(mode):
    # Row by row, because torch 2.13 divides the gradient of row 4 by how often another row was looked up.
    grads = []
    for scaled in (False, True):
        w = cartograd.tensor(randn(5, 2), requires_grad=True)
        F.embedding_bag(FLAT, w, OFFSETS, mode=mode, scale_grad_by_freq=scaled).sum().backward()
        grads.append(w.grad.data)
    torch.testing.assert_close(grads[1], grads[0] / FLAT.bincount().clamp(min=1).unsqueeze(1))


SCALED = {"mode": "mean", "scale_grad_by_freq": True, "padding_idx": 3}


@pytest.mark.parametrize("options", [*BAGS, SCALED], ids=str)
def test_the_gradient_of_bags_is_the_same_when_it_is_recorded(options):
    offsets = torch.tensor([0, 2, 2, 6]) if options.get("include_last_offset") else OFFSETS
    w = cartograd.tensor(randn(5, 2), requires_grad=True)
    out = F.embedding_bag(FLAT, w, offsets, **options).pow(2)
    (plain,) = cartograd.grad(out.sum(), w, retain_graph=True)
    (recorded,) = cartograd.grad(out.sum(), w, create_graph=True)
    torch.testing.assert_close(recorded.data, plain.data)


@pytest.mark.parametrize("needs", [[True, True], [True, False], [False, True]])
def test_weighted_bags(needs):
    for padding in (None, 3):
        options = {"mode": "sum", "padding_idx": padding}
        agree(
            lambda w, s: F.embedding_bag(FLAT, w, OFFSETS, per_sample_weights=s, **options),
            randn(5, 2),
            randn(6, seed=1),
            needs=needs,
        )
    agree(lambda w, s: F.embedding_bag(INDEX, w, mode="sum", per_sample_weights=s), randn(5, 2), randn(2, 3, seed=1))


def test_second_derivative_of_weighted_bags():
    w, s = cartograd.tensor(randn(5, 2), requires_grad=True), cartograd.tensor(randn(6), requires_grad=True)

    def bags(w, s):
        return F.embedding_bag(FLAT, w * w, OFFSETS, mode="sum", per_sample_weights=s, padding_idx=3)

    # The padding row is not looked up at all, so this is the derivative, not just torch's convention.
    assert cartograd.gradgradcheck(bags, (w, s))


def test_a_bag_layer():
    layer = torch.nn.EmbeddingBag(5, 2, mode="max")
    layer(cartograd.tensor(INDEX)).sum().backward()
    expected = layer.weight.grad.clone()
    layer.zero_grad()
    layer(INDEX).sum().backward()
    torch.testing.assert_close(expected, layer.weight.grad)


def test_a_sparse_gradient_is_torchs():
    layer = torch.nn.Embedding(5, 2, sparse=True)
    layer(cartograd.tensor(INDEX)).sum().backward()
    assert layer.weight.grad.is_sparse
    assert layer.weight.grad.to_dense()[:, 0].tolist() == [1, 2, 0, 2, 1]


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_strided_indices(mode):
    index = torch.stack([FLAT, 4 - FLAT], 1)[:, 0]
    offsets = torch.stack([OFFSETS, OFFSETS], 1)[:, 0]
    agree(lambda w: F.embedding_bag(index, w, offsets, mode=mode), randn(5, 2))
    agree(lambda w: F.embedding_bag(cartograd.tensor(index) if isinstance(w, cartograd.Tensor) else index, w, offsets,
                                    mode=mode), randn(2, 5).T)  # fmt: skip


def test_bags_of_strided_weights_of_samples():
    index = torch.stack([FLAT, 4 - FLAT], 1)[:, 0]
    agree(
        lambda w, s: F.embedding_bag(index, w, OFFSETS, mode="sum", per_sample_weights=s[:, 1]),
        randn(5, 2),
        randn(6, 3, seed=1),
    )
