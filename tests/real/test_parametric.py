"""Maps by an encoder on real data: new rows as well as those trained on, and sequences."""

import os
from pathlib import Path

import numpy
import pytest
from sklearn.datasets import load_digits

import cartograd
from cartograd.metrics import knn_label_accuracy, trustworthiness

DATA = Path(os.environ.get("CARTOGRAD_DATA", Path(__file__).parents[3] / "shared" / "data"))


def fashion(count):
    path = DATA / "fashion_mnist.npz"
    if not path.exists():
        pytest.skip(f"no {path}; set CARTOGRAD_DATA to the folder of the data")
    X = numpy.load(path)["X"][:count]
    return (X.reshape(len(X), -1) / 255).astype("float32")


def held_out_and_trained(n, held, epochs):
    """Trustworthiness of rows not trained on, and of as many of those trained on, both placed by transform."""
    X = fashion(n + held)
    model = cartograd.UMAP(15, encoder="mlp", n_epochs=epochs, random_state=0)
    Z = model.fit_transform(X[:n])
    again = model.transform(X[:n])
    assert abs(again - Z).max() <= 1e-5
    new = float(trustworthiness(X[n:], model.transform(X[n:]), k=15))
    old = float(trustworthiness(X[:held], again[:held], k=15))
    print(f"{n} rows, {epochs} epochs: trustworthiness {new:.4f} held out, {old:.4f} trained on")
    return new, old


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_fashion():
    new, old = held_out_and_trained(10_000, 2000, 50)
    assert new >= 0.94
    assert abs(new - old) <= 0.01


def test_fewer_of_fashion():
    new, _ = held_out_and_trained(2500, 1000, 40)
    assert new >= 0.93


def digit_sequences():
    """Pictures of 8 by 8 read row by row."""
    X, y = load_digits(return_X_y=True)
    return X.astype("float32").reshape(-1, 8, 8), y


def accuracy(encoder, epochs, learning_rate):
    X, y = digit_sequences()
    training = cartograd.EncoderTraining(learning_rate=learning_rate)
    model = cartograd.UMAP(encoder=encoder, n_epochs=epochs, training=training, random_state=0)
    found = float(knn_label_accuracy(model.fit_transform(X), y, k=10))
    print(f"{encoder}: 10-NN accuracy {found:.4f} after {epochs} epochs")
    return found


def test_digits_as_sequences_by_a_gru():
    assert accuracy("gru", 80, 1e-2) >= 0.9


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_digits_as_sequences_by_mamba3():
    assert accuracy("mamba3", 90, 3e-3) >= 0.9
