"""The training path of examples/knn_training.py: gradients through the nearest neighbours into the weights."""

import importlib.util
from pathlib import Path

import pytest
import torch

import cartograd

PATH = Path(__file__).resolve().parents[2] / "examples" / "knn_training.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("knn_training", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def network_and_rows(seed=0):
    print("seed", seed)
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(40, 6, dtype=torch.float64, generator=generator)
    labels = torch.randint(0, 3, (40,), generator=generator)
    encoder = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).double()
    for one in encoder.parameters():
        one.data = torch.randn(one.shape, dtype=torch.float64, generator=generator)
    return encoder, X, labels


@pytest.mark.parametrize("from_matrix", [False, True])
def test_gradients_reach_the_weights_as_torch_has_them(example, from_matrix):
    encoder, X, labels = network_and_rows()
    example.knn_loss(encoder(cartograd.tensor(X)), labels, k=5, from_matrix=from_matrix).backward()
    ours = [one.grad.clone() for one in encoder.parameters()]
    encoder.zero_grad()
    Z = encoder(X)
    distances, indices = torch.topk((Z[:, None] - Z).square().sum(2).add(torch.eye(40) * 1e9), 5, largest=False)
    alike = labels[indices] == labels[:, None]
    distances = distances.sqrt()
    torch.where(alike, distances, torch.relu(example.MARGIN - distances)).mean().backward()
    for one, gradient in zip(encoder.parameters(), ours, strict=True):
        torch.testing.assert_close(gradient, one.grad, rtol=1e-6, atol=1e-9)
        assert gradient.abs().max() > 1e-4 or one.grad.abs().max() < 1e-9  # the last bias moves all: no gradient


@pytest.mark.parametrize("from_matrix", [False, True])
def test_the_encoder_learns(example, from_matrix):
    before, after = example.main(from_matrix=from_matrix)
    assert before < 0.5 < 0.6 < after, (before, after)
