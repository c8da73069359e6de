"""Train a small network on handwritten digits with cartograd's engine and print its accuracy.

The model is an ordinary ``nn.Sequential`` and the optimiser an ordinary ``torch.optim.AdamW``: only the input is a
`cartograd.Tensor`, so the graph and the backward pass are ours.
"""

import time

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import cartograd


def batches(X, y, size, generator):
    order = torch.randperm(len(X), generator=generator)
    for rows in order.split(size):
        yield cartograd.tensor(X[rows]), y[rows]


def main(epochs: int = 30) -> float:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    X, y = load_digits(return_X_y=True)
    split = train_test_split(X / 16.0, y, test_size=0.25, random_state=0, stratify=y)
    X_train, X_test, y_train, y_test = (torch.as_tensor(part) for part in split)
    X_train, X_test = X_train.float(), X_test.float()

    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Dropout(0.1), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    start = time.perf_counter()
    for epoch in range(epochs):
        for inputs, labels in batches(X_train, y_train, 64, generator):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1:3}: loss {loss.item():.4f}")
    print(f"trained {epochs} epochs of {len(X_train)} digits in {time.perf_counter() - start:.1f} s")

    model.eval()
    with cartograd.no_grad():
        accuracy = (model(cartograd.tensor(X_test)).argmax(1).data == y_test).float().mean().item()
    print(f"accuracy on {len(X_test)} digits it has not seen: {accuracy:.3f}")
    print("\nWhat the engine recorded for one digit (cartograd.trace(loss).explain()):")
    model.train()
    print(cartograd.trace(nn.functional.cross_entropy(model(cartograd.tensor(X_train[:1])), y_train[:1])).explain())
    return accuracy


if __name__ == "__main__":
    main()
