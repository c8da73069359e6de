"""The training of an encoder: what is drawn, what the losses are, how it ends, how it goes on from a file."""

import json
import signal
import subprocess
import sys
import textwrap
import time

import numpy
import pytest
import torch
from sklearn.datasets import make_blobs

import cartograd
from cartograd import TSNE, UMAP, EncoderTraining, InfoTSNE, LargeVis
from cartograd.embedding.parametric_batches import EdgeObjective
from cartograd.embedding.parametric_checkpoint import KEY
from cartograd.neighbors import Graph


def rows(n=120, seed=0):
    print("seed", seed)
    return make_blobs(n, 5, centers=3, random_state=seed)[0].astype("float32")


def small(training=None, **options):
    usual = {"encoder": "mlp", "hidden_sizes": (16,), "n_epochs": 12, "n_neighbors": 10, "random_state": 0}
    return UMAP(**{**usual, "training": training, **options})


class Terms:
    """Stands for an estimator."""

    _seed, repulsion_strength = 5, 1.0


def objective(weights, size, negatives, discard=False):
    n = len(weights)
    indptr, indices = torch.arange(n + 1) * (n - 1), torch.tensor([[j for j in range(n) if j != i] for i in range(n)])
    values = torch.stack([weights[i][indices[i]] for i in range(n)])
    return EdgeObjective(Terms(), Graph(indptr, indices.reshape(-1), values.reshape(-1)), size, negatives, discard)


def test_edges_are_drawn_by_their_weights():
    weights = torch.rand(6, 6, generator=torch.Generator().manual_seed(0)) + 0.05
    weights[2, 3] = 0.0
    drawn = objective(weights, 200_000, 1)
    ids = drawn.draw(0).reshape(2, -1)
    counts = torch.zeros(6, 6).index_put_((ids[0], ids[1]), torch.ones(200_000), accumulate=True)
    expected = weights.clone().fill_diagonal_(0)
    expected = expected / expected.sum() * 200_000
    assert counts[2, 3] == 0
    assert ((counts - expected).abs() <= 5 * expected.sqrt() + 1e-9).all()
    assert torch.equal(drawn.draw(0).reshape(2, -1), ids)
    assert not torch.equal(drawn.draw(1).reshape(2, -1), ids)


@pytest.mark.parametrize("negatives", [3, 40])
@pytest.mark.parametrize("discard", [False, True])
def test_a_row_is_not_its_own_negative(negatives, discard):
    weights = torch.ones(8, 8)
    drawn = objective(weights, 16, negatives, discard)
    heads, tails = drawn.draw(3).reshape(2, -1)
    chosen = torch.arange(16)[None, :].expand(16, -1) if drawn._pushers is None else drawn._pushers
    assert chosen.shape[1] == (3 if negatives == 3 else 16)
    own_edge = chosen == torch.arange(16)[:, None]
    assert not own_edge.any() or bool(drawn._silent[own_edge].all())
    expected = (tails[chosen] == heads[:, None]) | own_edge
    if discard:  # all others are neighbours here
        expected = torch.ones_like(expected)
    assert torch.equal(drawn._silent, expected)


def test_the_terms_are_those_of_the_methods():
    s = torch.rand(40, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 9 + 0.5
    umap = UMAP()
    umap.a_, umap.b_ = 1.5, 0.9
    q = 1 / (1 + 1.5 * s**0.9)
    torch.testing.assert_close(umap._batch_attraction(s[:, 0]), -torch.log(q[:, 0]).mean(), rtol=2e-3, atol=0)
    torch.testing.assert_close(umap._batch_repulsion(s), -torch.log(1 - q).sum(1).mean() / 2, rtol=2e-3, atol=0)
    p = 1 / (2 + s)
    torch.testing.assert_close(LargeVis()._batch_attraction(s[:, 0]), -torch.log(p[:, 0]).mean())
    torch.testing.assert_close(LargeVis()._batch_repulsion(s), -torch.log(1 - p).sum(1).mean())
    student = 1 / (1 + s)
    for kind, push in ((InfoTSNE, torch.log(student.sum(1)).mean()), (TSNE, torch.log(student.mean()))):
        torch.testing.assert_close(kind()._batch_attraction(s[:, 0]), -torch.log(student[:, 0]).mean())
        torch.testing.assert_close(kind()._batch_repulsion(s), push)


def test_the_warm_start_is_the_principal_components():
    X = rows(300)
    model = small(EncoderTraining(warm_start_epochs=400, learning_rate=1e-2), n_epochs=1, min_desired_loss=1e9)
    start = cartograd.PCA(n_components=2).fit_transform(X)
    Z = model.fit_transform(X)
    correlation = [abs(numpy.corrcoef(Z[:, i], start[:, i])[0, 1]) for i in range(2)]
    assert min(correlation) > 0.95, correlation


def test_what_ends_a_training():
    X = rows()
    model = small(min_desired_loss=1e9).fit(X)
    assert (model.report_["stopped"], len(model.loss_), model.n_iter_) == ("min_desired_loss", 1, 1)
    model = small(timeout=1e-9).fit(X)
    assert (model.report_["stopped"], model.loss_) == ("timeout", [])
    assert numpy.isfinite(model.embedding_).all()
    model = small(patience=3, n_epochs=300).fit(X)
    assert model.report_["stopped"] == "patience"
    best = int(numpy.argmin(model.loss_))
    assert len(model.loss_) == best + 1 + 3 < 300
    assert model.report_["best_epoch"] == best + 1
    told = []
    model = small(EncoderTraining(progress=lambda now: told.append(now) or now.epoch == 5)).fit(X)
    assert model.report_["stopped"] == "callback"
    assert [one.epoch for one in told] == [1, 2, 3, 4, 5]
    assert told[-1].best == min(model.loss_)
    assert told[-1].loss == model.loss_[-1]
    seen = []
    small(callbacks=[lambda step, Z, loss: seen.append((step, Z.shape))], check_interval=4).fit(X)
    assert seen == [(4, (120, 2)), (8, (120, 2)), (12, (120, 2))]


class Slow(torch.nn.Module):
    """Takes its time for a batch."""

    def __init__(self):
        super().__init__()
        self.layer, self.calls = torch.nn.Linear(5, 2), 0

    def forward(self, x):
        self.calls += self.training
        time.sleep(0.02 * self.training)
        return self.layer(x)


def test_the_time_of_the_warm_start_counts():
    X = rows()
    model = small(encoder=Slow(), timeout=0.05).fit(X)
    assert (model.report_["stopped"], model.loss_, model.n_iter_) == ("timeout", [], 0)
    assert 1 <= model.encoder_.calls <= 4
    assert not torch.equal(
        model.encoder_.layer.weight.cpu(), model.encoder.layer.weight.cpu()
    )  # what was learnt is kept


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, cartograd.no_grad])
@pytest.mark.parametrize("encoder", ["mlp", None])
def test_a_fit_needs_no_gradients_of_the_caller(mode, encoder):
    X = torch.as_tensor(rows())
    options = {"encoder": encoder, "decoder": "mlp", "n_epochs": 3, "max_iter": 20}
    expected = small(**options).fit_transform(X)
    with mode():
        model = small(**options)
        Z = model.fit_transform(X.clone())
        assert model.inverse_transform(Z).shape == X.shape
        assert torch.equal(model.transform(X), Z)
    assert torch.equal(Z, expected)


def test_what_the_training_does_not_look_at_is_said(caplog):
    X = rows()
    with caplog.at_level("WARNING", "cartograd.embedding"):
        small(n_epochs=1).fit(X)
        assert not caplog.messages
        small(n_epochs=1, lr=0.5, max_iter=77).fit(X)
    assert len(caplog.messages) == 2
    assert "lr=0.5 is for maps without an encoder, and not used: see training=EncoderTraining(learn" in caplog.text
    assert "max_iter=77 is for maps without an encoder, and not used: see n_epochs=" in caplog.text


def test_ctrl_c_keeps_the_best_weights():
    X = rows()

    def interrupt(now):
        if now.epoch == 6:
            raise KeyboardInterrupt

    model = small(EncoderTraining(progress=interrupt))
    with pytest.warns(RuntimeWarning, match="interrupted in epoch 7 of 12: the best weights so far"):
        Z = model.fit_transform(X)
    assert model.report_["stopped"] == "interrupted"
    assert len(model.loss_) == 6
    numpy.testing.assert_array_equal(model.transform(X), Z)
    assert model.report_["best_epoch"] == int(numpy.argmin(model.loss_)) + 1 <= 6


INTERRUPTED = """
    import numpy, cartograd
    X = numpy.random.RandomState(0).rand(200, 6).astype("float32")
    told = lambda step, Z, loss: print("step", step, flush=True)
    model = cartograd.UMAP(encoder="mlp", hidden_sizes=(8,), n_epochs=10**6, callbacks=[told], check_interval=1)
    Z = model.fit_transform(X)
    best = int(numpy.argmin(model.loss_)) + 1
    print(model.report_["stopped"], model.report_["best_epoch"] == best, bool((model.transform(X) == Z).all()))
"""


def test_a_real_ctrl_c():
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(INTERRUPTED)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line == "step 30\n":
                process.send_signal(signal.SIGINT)
                break
        rest = process.stdout.read()
    assert process.returncode == 0
    assert rest.splitlines()[-1] == "interrupted True True"


class Fragile(torch.nn.Module):
    """Gives NaN from its third epoch on (and reads one row and the rows of the fit before)."""

    def __init__(self, after):
        super().__init__()
        self.layer, self.after, self.calls = torch.nn.Linear(5, 2), after, 0

    def forward(self, x):
        self.calls += self.training
        return self.layer(x) * (float("nan") if self.training and self.calls > self.after else 1.0)


def test_a_loss_that_is_not_a_number_ends_it():
    X = rows()
    model = small(EncoderTraining(warm_start_epochs=0), encoder=Fragile(4))
    with pytest.warns(RuntimeWarning, match="loss of epoch 5 is NaN or infinite; use a smaller learning rate"):
        Z = model.fit_transform(X)
    assert numpy.isfinite(Z).all()
    assert len(model.loss_) == 4
    with pytest.raises(cartograd.errors.DivergedError, match="epoch 1"):
        small(EncoderTraining(warm_start_epochs=0), encoder=Fragile(0)).fit(X)


def test_the_penalty_makes_weights_smaller():
    X = rows()
    sizes = []
    for penalty in (0.0, 1.0):
        model = small(
            EncoderTraining(weight_penalty=penalty, warm_start_epochs=0, learning_rate=1e-2), n_epochs=60
        ).fit(X)
        sizes.append(sum(float(one.detach().square().sum()) for one in model.encoder_.parameters()))
    assert sizes[1] < 0.5 * sizes[0], sizes


@pytest.mark.parametrize("with_module", [False, True])
def test_a_training_goes_on_from_its_file_to_the_same_bits(tmp_path, with_module):
    X = rows()
    encoder = "mlp"
    if with_module:
        encoder = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 2))
    whole = small(encoder=encoder).fit(X)
    file = tmp_path / "training.safetensors"

    def killed(now):
        if now.epoch == 8:
            raise MemoryError

    with pytest.raises(MemoryError):
        small(EncoderTraining(checkpoint=file, checkpoint_every=3, progress=killed), encoder=encoder).fit(X)
    told = []
    options = EncoderTraining(checkpoint=file, checkpoint_every=3, resume=True, progress=told.append)
    resumed = small(options, encoder=encoder).fit(X)
    assert [one.epoch for one in told] == [7, 8, 9, 10, 11, 12]
    numpy.testing.assert_array_equal(resumed.embedding_, whole.embedding_)
    assert resumed.loss_ == whole.loss_
    assert resumed.n_iter_ == whole.n_iter_
    finished = small(options, encoder=encoder).fit(X)
    numpy.testing.assert_array_equal(finished.embedding_, whole.embedding_)
    assert [path.name for path in tmp_path.iterdir()] == ["training.safetensors"]


def test_a_file_of_another_training_is_refused(tmp_path):
    X = rows()
    file = tmp_path / "training.safetensors"
    small(EncoderTraining(checkpoint=file)).fit(X)
    go_on = EncoderTraining(checkpoint=file, resume=True)
    with pytest.raises(ValueError, match="another training: rows was 120, and is 100 now"):
        small(go_on).fit(X[:100])
    with pytest.raises(ValueError, match="another training: seed was 0"):
        small(go_on, random_state=1).fit(X)
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(ValueError, match="not a whole checkpoint"):
        small(go_on).fit(X)
    with pytest.raises(FileNotFoundError, match="does not exist; make it first"):
        small(EncoderTraining(checkpoint=tmp_path / "none" / "file")).fit(X)


def test_a_checkpoint_is_data_only(tmp_path):
    from safetensors import safe_open

    file = tmp_path / "training.safetensors"
    model = small(EncoderTraining(checkpoint=file)).fit(rows())
    with safe_open(file, framework="pt") as opened:
        facts = json.loads(opened.metadata()[KEY])
        assert facts["done"]["epoch"] == 12
        assert facts["done"]["losses"] == model.loss_
        best = opened.get_tensor("best.layers.0.weight")
    assert torch.equal(best, model.encoder_.layers[0].weight.detach().cpu())
