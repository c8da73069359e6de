"""Maps by an encoder: what transform gives, what ends a training, seeds, shapes, files, the way back."""

import numpy
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.utils.estimator_checks import parametrize_with_checks

import cartograd
from cartograd import PACMAP, TSNE, UMAP, EncoderTraining, InfoTSNE, LargeVis
from cartograd.metrics import knn_label_accuracy

METHODS = (UMAP, TSNE, LargeVis, InfoTSNE, PACMAP)


def blobs(n=150, d=6, seed=0):
    print("seed", seed)
    X, y = make_blobs(n, d, centers=4, cluster_std=1.0, random_state=seed)
    return X.astype("float32") * 10 + 300, y


def small(kind=UMAP, **options):
    usual = {"encoder": "mlp", "hidden_sizes": (16,), "n_epochs": 4, "random_state": 0}
    usual["perplexity" if kind in (TSNE, LargeVis, InfoTSNE) else "n_neighbors"] = 10
    return kind(**{**usual, **options})


@pytest.mark.parametrize("kind", METHODS)
def test_clusters_are_told_apart_and_new_rows_placed(kind):
    X, y = blobs(400)
    model = small(kind, hidden_sizes=(32,), n_epochs=60)
    Z = model.fit_transform(X[:300])
    numpy.testing.assert_array_equal(model.transform(X[:300]), Z)
    assert knn_label_accuracy(Z, y[:300], k=10) > 0.98
    both = numpy.concatenate([Z, model.transform(X[300:])])
    assert knn_label_accuracy(both, y, k=10) > 0.98
    assert model.n_iter_ == 60 * 1
    assert len(model.loss_) == 60
    assert model.report_["stopped"] == "epochs"


SHORT = {"encoder": "mlp", "hidden_sizes": (8,), "n_epochs": 2, "training": EncoderTraining(warm_start_epochs=0)}


@parametrize_with_checks([UMAP(**SHORT), PACMAP(**SHORT)])
@pytest.mark.filterwarnings("ignore:.*is too large for .* different rows:UserWarning")
def test_check_estimator(estimator, check):
    check(estimator)


def test_rows_alone_and_together_and_in_any_order():
    X, _ = blobs(200)
    model = small().fit(X)
    whole = model.transform(X)
    numpy.testing.assert_array_equal(model.transform(X[::-1].copy())[::-1], whole)
    numpy.testing.assert_allclose(
        numpy.concatenate([model.transform(X[i : i + 1]) for i in range(9)]), whole[:9], rtol=1e-5
    )


def test_the_seed_decides_all_and_nothing_global_is_touched():
    X, _ = blobs()
    before = torch.get_rng_state()
    first = small().fit_transform(X)
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(3)
    numpy.testing.assert_array_equal(small().fit_transform(X), first)
    assert abs(small(random_state=1).fit_transform(X) - first).max() > 1e-3


def test_a_module_is_copied_and_its_dropout_seeded():
    X, _ = blobs()
    module = torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2)
    )
    kept = {name: one.clone() for name, one in module.state_dict().items()}
    state = torch.get_rng_state()
    first = small(encoder=module)
    Z = first.fit_transform(X)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(one.cpu(), kept[name]) for name, one in module.state_dict().items())
    assert not torch.equal(first.encoder_[0].weight.cpu(), module[0].weight.cpu())
    torch.rand(5)
    numpy.testing.assert_array_equal(small(encoder=module).fit_transform(X), Z)
    numpy.testing.assert_array_equal(first.transform(X), Z)


class Summed(torch.nn.Module):
    """The mean over a sequence of what another module makes of it."""

    def __init__(self, inner, width):
        super().__init__()
        self.inner, self.out = inner, torch.nn.Linear(width, 2)

    def forward(self, x):
        made = self.inner(x)
        return self.out((made[0] if isinstance(made, tuple) else made).mean(1))


def _modules():
    nn = torch.nn
    attention = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    return {
        "lazy": (nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(2)), (24,)),
        "lazy images": (nn.Sequential(nn.LazyConv2d(4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)), (1, 4, 6)),
        "double": (nn.Linear(24, 2).double(), (24,)),
        "in place": (nn.Sequential(nn.Linear(24, 8), nn.ReLU(inplace=True), nn.Linear(8, 2)), (24,)),
        "pooled": (
            nn.Sequential(
                nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(24, 2)
            ),
            (1, 4, 6),
        ),
        "two layers": (Summed(nn.LSTM(6, 4, num_layers=2, dropout=0.1, batch_first=True), 4), (4, 6)),
        "both ways": (Summed(nn.GRU(6, 4, bidirectional=True, batch_first=True), 8), (4, 6)),
        "transformer": (Summed(nn.Sequential(nn.Linear(6, 4), attention), 4), (4, 6)),
        "mamba3": (Summed(nn.Sequential(nn.Linear(6, 4), cartograd.nn.Mamba3(4, 2, 4)), 4), (4, 6)),
        "weight norm": (nn.utils.parametrizations.weight_norm(nn.Linear(24, 2)), (24,)),
        "partly frozen": (nn.Sequential(nn.Linear(24, 8).requires_grad_(False), nn.Tanh(), nn.Linear(8, 2)), (24,)),
    }


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
@pytest.mark.parametrize("name", list(_modules()))
def test_any_module(name):
    X, _ = blobs(60, 24)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module, shape = _modules()[name]
    X = X.reshape(60, *shape)
    state = torch.get_rng_state()
    model = small(encoder=module, training=EncoderTraining(warm_start_epochs=0))
    Z = model.fit_transform(X)
    assert torch.equal(state, torch.get_rng_state())
    numpy.testing.assert_allclose(model.transform(X), Z, atol=1e-5)
    numpy.testing.assert_array_equal(clone(model).fit_transform(X), Z)
    if not name.startswith("lazy"):
        pairs = zip(module.parameters(), model.encoder_.parameters(), strict=True)
        assert all(torch.equal(one.cpu(), trained.cpu()) != one.requires_grad for one, trained in pairs)
        assert numpy.ptp(Z, axis=0).min() > 0


class Tokens(torch.nn.Module):
    """Reads numbers of tokens."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(5, 2)

    def forward(self, x):
        assert torch.equal(x, x.round())
        return self.table(x.long()).mean(1)


def test_rows_as_they_are():
    X = numpy.random.RandomState(0).randint(0, 5, (80, 7))
    model = small(encoder=Tokens(), metric="hamming", training=EncoderTraining(standardize=False))
    numpy.testing.assert_allclose(model.fit(X).transform(X), model.embedding_, atol=1e-5)
    again = model.encoder_.cpu()(torch.as_tensor(X)).detach().numpy()
    numpy.testing.assert_allclose(again, model.embedding_, atol=1e-5)


@pytest.mark.parametrize(("encoder", "shape"), [("cnn", (1, 4, 6)), ("cnn", (4, 6)), ("gru", (8, 3)), ("lstm", (8, 3))])
def test_images_and_sequences(encoder, shape):
    X, _ = blobs(80, 24)
    model = small(encoder=encoder, hidden_sizes=(8,), n_epochs=2)
    shaped = torch.as_tensor(X).reshape(80, *shape)
    Z = model.fit_transform(shaped)
    assert isinstance(Z, torch.Tensor)
    assert model.n_features_in_ == 24
    assert torch.equal(model.transform(shaped), Z)
    assert torch.equal(model.transform(torch.as_tensor(X)), Z)  # flat rows of as many numbers
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(shaped), batch_size=32)
    torch.testing.assert_close(small(encoder=encoder, hidden_sizes=(8,), n_epochs=2).fit_transform(loader), Z)
    with pytest.raises(ValueError, match="trained on rows of shape"):
        model.transform(torch.zeros(2, 2, 12))


@pytest.mark.parametrize("encoder", ["attention", "mamba3"])
def test_other_sequences(encoder):
    X, _ = blobs(70, 12)
    X = X.reshape(70, 4, 3)
    model = small(encoder=encoder, hidden_sizes=(8,), n_epochs=1, training=EncoderTraining(warm_start_epochs=0))
    Z = model.fit_transform(X)
    numpy.testing.assert_allclose(model.transform(X), Z, atol=1e-5)


def test_without_an_encoder_three_dimensions_are_refused():
    with pytest.raises(ValueError, match="two dimensions"):
        UMAP().fit(numpy.zeros((10, 3, 2)))


def test_errors_before_any_work():
    X, _ = blobs(40)
    cases = [
        (
            {"encoder": torch.nn.Linear(6, 3)},
            ValueError,
            r"encoder output has shape \(1, 3\) for one row, expected \(1, 2\)",
        ),
        (
            {"encoder": torch.nn.Linear(5, 2)},
            ValueError,
            r"encoder could not read a batch of one row, of shape \(1, 6\)",
        ),
        ({"encoder": 3}, TypeError, "encoder must be a torch.nn.Module or one of mlp"),
        ({"encoder": torch.nn.Linear}, TypeError, "give an instance, not the class"),
        ({"encoder": "tree"}, ValueError, "unknown encoder 'tree'"),
        ({"encoder": "gru"}, ValueError, "reads sequences"),
        ({"encoder": torch.nn.Flatten()}, ValueError, "no parameters to train"),
        ({"decoder": "gru"}, ValueError, "unknown decoder 'gru': known are mlp"),
        ({"decoder": torch.nn.Linear(2, 5)}, ValueError, r"decoder output has shape \(1, 5\)"),
        ({"n_epochs": 0}, ValueError, "n_epochs must be at least 1"),
        ({"patience": 0}, ValueError, "patience must be at least 1"),
        ({"timeout": 0}, ValueError, "timeout must be above 0"),
        ({"batch_size": 1}, ValueError, "batch_size must be at least 2"),
        ({"hidden_sizes": ()}, ValueError, "hidden_sizes must be 1 to 64 numbers"),
        ({"training": {"lr": 1}}, TypeError, "training must be an EncoderTraining"),
        ({"training": EncoderTraining(learning_rate=-1)}, ValueError, "learning_rate must be above 0"),
        ({"training": EncoderTraining(resume=True)}, ValueError, "give its name as checkpoint="),
        ({"metric": "precomputed"}, ValueError, "read rows"),
    ]
    for options, kind, message in cases:
        model = small(**options)
        with pytest.raises(kind, match=message) as caught:
            model.fit(X)
        assert isinstance(caught.value, cartograd.CartogradError)
        assert not hasattr(model, "embedding_")


def test_standardisation_is_part_of_the_model():
    X, y = blobs(300)
    moved = X * 1e-3 + numpy.float32(2)  # the same rows in other units
    model = small(hidden_sizes=(32,), n_epochs=40)
    assert knn_label_accuracy(model.fit_transform(moved), y, k=10) > 0.98
    Z = model.transform(moved)
    encoder = model.encoder_.cpu()
    assert abs(encoder(torch.as_tensor(moved)).detach().numpy() - Z).max() > 0.1  # raw rows are not what it reads
    scaled = (moved - moved.mean(0)) / numpy.maximum(moved.std(0), numpy.sqrt((moved.std(0) ** 2).mean()))
    numpy.testing.assert_allclose(encoder(torch.as_tensor(scaled)).detach().numpy(), Z, atol=2e-3)


def test_far_rows_stay_finite():
    X, _ = blobs()
    model = small().fit(X.astype("float64"))
    far = numpy.full((3, 6), 1e250)
    assert numpy.isfinite(model.transform(far)).all()


def test_equal_rows():
    X = numpy.ones((12, 5))
    model = small()
    with pytest.warns(UserWarning, match="all 12 rows are equal"):
        Z = model.fit_transform(X)
    numpy.testing.assert_array_equal(model.transform(X), Z)
    assert numpy.ptp(Z, axis=0).max() == 0
    X, _ = blobs(60)
    doubled = numpy.concatenate([X, X])
    Z = small().fit_transform(doubled)
    numpy.testing.assert_array_equal(Z[:60], Z[60:])


@pytest.mark.parametrize("kind", [UMAP, TSNE])
def test_a_decoder_leads_back(kind):
    X, _ = blobs(300)
    model = small(kind, decoder="mlp", hidden_sizes=(64,), n_epochs=200)
    back = model.inverse_transform(model.fit_transform(X))
    assert back.dtype == numpy.float32
    error = ((back - X) ** 2).mean() / X.var(0).mean()
    assert error < 0.1, error
    without = small(
        kind, decoder="mlp", encoder=None, max_iter=30, early_exaggeration_iter=0, hidden_sizes=(64,), n_epochs=200
    )
    back = without.inverse_transform(without.fit_transform(X))
    assert ((back - X) ** 2).mean() / X.var(0).mean() < 0.2


def test_a_decoder_gives_the_shape_of_the_rows():
    X, _ = blobs(60, 12)
    model = small(decoder="mlp", encoder="gru").fit(X.reshape(60, 4, 3))
    assert model.inverse_transform(model.embedding_).shape == (60, 4, 3)
    assert not hasattr(TSNE(), "inverse_transform")


def test_a_decoder_of_wide_rows_gives_wide_rows():
    X, _ = blobs(130, 120)  # PaCMAP searches in 100 dimensions
    module = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 120))
    state = torch.get_rng_state()
    model = small(PACMAP, decoder=module).fit(X)
    assert torch.equal(state, torch.get_rng_state())
    back = model.inverse_transform(model.embedding_)
    assert back.shape == X.shape
    again = small(PACMAP, decoder=module).fit(X)
    numpy.testing.assert_array_equal(again.inverse_transform(again.embedding_), back)


def test_a_model_file_holds_the_encoder(tmp_path):
    from cartograd.io import load_model, save_model

    X, _ = blobs()
    model = small(decoder="mlp", training=EncoderTraining(learning_rate=1e-3)).fit(X)
    save_model(model, tmp_path / "map.cartograd")
    again = load_model(tmp_path / "map.cartograd")
    numpy.testing.assert_array_equal(again.transform(X), model.embedding_)
    numpy.testing.assert_array_equal(
        again.inverse_transform(again.embedding_), model.inverse_transform(model.embedding_)
    )
    assert again.training == model.training
