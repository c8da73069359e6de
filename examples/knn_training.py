"""Train an encoder through the k nearest neighbours themselves: MLP -> pairwise distances -> kNN -> loss.

The encoder's outputs are compared with each other, each one's nearest are picked with `cartograd.knn`, and the loss is
a function of their distances: rows of one class should be near, the nearest of another class farther than a margin. The
gradient goes back through the choice of neighbours, by a scatter over the n k picked pairs, through the distances and
into the weights. Both forms of the op are used: on the outputs, and on a matrix of distances.

    python examples/knn_training.py
"""

import time

import torch
from sklearn.datasets import load_digits
from torch import nn

import cartograd

MARGIN = 2.0


def knn_loss(Z, labels, k=10, from_matrix=False):
    """Pull the picked neighbours of the same class near, push those of another beyond the margin."""
    if from_matrix:
        squares = (Z * Z).sum(1, keepdim=True)
        own = torch.eye(len(labels)) * 1e6  # a row is not its own neighbour
        D = ((squares + squares.T - 2 * (Z @ Z.T)).clamp(min=1e-12) + own).sqrt()
        indices, distances = cartograd.knn(distances=D, k=k)
    else:
        indices, distances = cartograd.knn(Z, k)
    alike = labels[indices.data] == labels[:, None]
    return torch.where(alike, distances, torch.relu(MARGIN - distances)).mean()


def neighbours_of_own_class(encoder, X, labels, k=10):
    """The share of the k nearest in the map that are of the same class."""
    with cartograd.no_grad():
        indices, _ = cartograd.knn(encoder(cartograd.tensor(X)), k)
    return (labels[indices.data] == labels[:, None]).float().mean().item()


def main(steps=150, batch=256, from_matrix=False):
    torch.manual_seed(0)
    X, y = load_digits(return_X_y=True)
    X, y = torch.as_tensor(X, dtype=torch.float32) / 16, torch.as_tensor(y)
    encoder = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 2))
    optimizer = torch.optim.Adam(encoder.parameters(), lr=2e-3)
    before = neighbours_of_own_class(encoder, X[1200:], y[1200:])
    began = time.perf_counter()
    for step in range(steps):
        rows = torch.randperm(1200)[:batch]
        optimizer.zero_grad()
        loss = knn_loss(encoder(cartograd.tensor(X[rows])), y[rows], from_matrix=from_matrix)
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            print(f"step {step + 1}: loss {loss.item():.4f}")
    after = neighbours_of_own_class(encoder, X[1200:], y[1200:])
    print(f"{steps} steps in {time.perf_counter() - began:.1f} s")
    print(f"neighbours of the same digit among rows not trained on: {before:.3f} before, {after:.3f} after")
    return before, after


if __name__ == "__main__":
    main()
    main(from_matrix=True)
