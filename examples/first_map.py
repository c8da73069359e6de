"""A map of handwritten digits, drawn by gradient descent with nothing but the engine.

t-SNE's loss, written as plain arithmetic on Tensors: the engine differentiates it, torch.optim moves the points.
This is the idea behind every method of cartograd in forty lines; the methods themselves are faster and need no n x n
matrices.

    python examples/first_map.py [picture.png]
"""

import sys
import time

import torch
from sklearn.datasets import load_digits
from torch import nn

import cartograd


def affinities(X, perplexity=30.0):
    """Row by row, the Gaussian width whose neighbourhood has the wanted perplexity; then symmetric, of sum 1."""
    distances = torch.cdist(X, X).square().fill_diagonal_(torch.inf)
    log_width = torch.zeros(len(X), 1)
    low, high = log_width - 20, log_width + 20
    for _ in range(60):  # bisection on the entropy
        P = torch.softmax(-distances / log_width.exp(), dim=1)
        entropy = -(P * P.clamp_min(1e-12).log()).sum(1, keepdim=True)
        wide = entropy > torch.tensor(perplexity).log()
        low, high = torch.where(wide, low, log_width), torch.where(wide, log_width, high)
        log_width = (low + high) / 2
    return (P + P.T) / (2 * len(X))


def loss_of(Z, P, exaggeration):
    """KL(P || Q) up to a constant, Q from Student's t: attraction along P, repulsion between all."""
    squares = (Z * Z).sum(1, keepdim=True)
    kernel = 1 / (1 + (squares + squares.T - 2 * (Z @ Z.T)).clamp(min=0))
    return -exaggeration * (P * kernel.log()).sum() + (kernel.sum() - len(P)).log()


def main(steps=400):
    X, y = load_digits(return_X_y=True)
    X = torch.as_tensor(X, dtype=torch.float32)
    P = affinities(X)
    centred = X - X.mean(0)
    start = centred @ torch.linalg.svd(centred, full_matrices=False).Vh[:2].T
    Z = nn.Parameter(start / start.std() * 1e-2)
    optimizer = torch.optim.SGD([Z], lr=len(X) / 12, momentum=0.8)
    began = time.perf_counter()
    for step in range(steps):
        optimizer.zero_grad()
        with cartograd.recording():
            loss = loss_of(Z, P, 12.0 if step < 100 else 1.0)
        loss.backward()
        if step == 100:
            optimizer.param_groups[0]["lr"] = len(X) / 2
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.4f}")
    print(f"{len(X)} digits, {steps} steps in {time.perf_counter() - began:.1f} s")
    return Z.detach(), torch.as_tensor(y)


def draw(Z, y, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(7, 5), dpi=110)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.scatter(Z[:, 0], Z[:, 1], c=y, cmap="tab10", s=7, linewidths=0)
    for digit in range(10):
        place = Z[y == digit].median(0).values
        axes.text(place[0], place[1], str(digit), fontsize=15, weight="bold", ha="center", va="center")
    axes.set_axis_off()
    figure.savefig(path)


if __name__ == "__main__":
    Z, y = main()
    if len(sys.argv) > 1:
        draw(Z, y, sys.argv[1])
        print(f"wrote {sys.argv[1]}")
