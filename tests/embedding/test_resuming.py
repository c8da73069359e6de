"""Checkpoints: a fit that was interrupted and taken up again ends with the same bits as one that was not."""

import logging
import os
import random
import signal
import threading

import numpy
import pytest
import torch

import cartograd
from cartograd.distributed import checkpoint
from cartograd.embedding.parametric_options import EncoderTraining
from cartograd.errors import DataFileError, FileAccessError, InputError, OptionError, UnsupportedError

X = numpy.random.RandomState(0).rand(150, 6).astype("float32")
STEPS = 45
METHODS = {
    "UMAP": cartograd.UMAP(n_neighbors=8),
    "LargeVis": cartograd.LargeVis(perplexity=8),
    "InfoTSNE": cartograd.InfoTSNE(perplexity=8, n_negatives=10, early_exaggeration_iter=20),
    "TSNE": cartograd.TSNE(perplexity=8, early_exaggeration_iter=20),
    "TSNE, Adam, exponential": cartograd.TSNE(
        perplexity=8, optimizer="Adam", lr=0.5, scheduler="ExponentialLR", scheduler_kwargs={"gamma": 0.95}
    ),
    "SNE": cartograd.SNE(perplexity=8),
    "PACMAP": cartograd.PACMAP(iter_per_phase=10),
    "COSNE": cartograd.COSNE(perplexity=8),
    "TSNEkhorn": cartograd.TSNEkhorn(perplexity=8),
    "TSNEkhorn, unrolled": cartograd.TSNEkhorn(perplexity=8, unrolling=True),
    "PHATE": cartograd.PHATE(),
}


class Stop(Exception):
    """Ends a fit in the middle."""


def stopping_at(step):
    def stop(now, embedding, loss):
        if now == step:
            raise Stop

    return stop


def fit(name, **options):
    model = METHODS[name]
    fresh = type(model)(**{**model.get_params(), "max_iter": STEPS, "check_interval": 5, "random_state": 3, **options})
    return fresh.fit(X)


def umap(folder, **options):
    return fit("UMAP", checkpoint_dir=folder, checkpoint_every=10, **options)


@pytest.mark.parametrize("name", METHODS)
def test_the_same_bits_as_without_an_interruption(name, tmp_path):
    at = random.choice([15, 20, 25, 40])
    print("interrupted at step", at)
    with pytest.raises(Stop):
        fit(name, checkpoint_dir=tmp_path, checkpoint_every=7, callbacks=[stopping_at(at)])
    assert len(list(tmp_path.iterdir())) == 2
    resumed = fit(name, checkpoint_dir=tmp_path, checkpoint_every=7, resume=True)
    whole = fit(name)
    numpy.testing.assert_array_equal(resumed.embedding_, whole.embedding_)
    assert resumed.loss_ == whole.loss_
    assert resumed.n_iter_ == whole.n_iter_ == STEPS


def test_large_maps_that_take_many_steps_at_once(tmp_path):
    rows = numpy.random.RandomState(0).rand(4100, 4).astype("float32")
    options = {"n_neighbors": 5, "max_iter": 30, "check_interval": 25, "random_state": 0}
    kept = {"checkpoint_dir": tmp_path, "checkpoint_every": 7}
    with pytest.raises(Stop):
        cartograd.UMAP(**options, **kept, callbacks=[stopping_at(25)]).fit(rows)
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "step-0000000014.safetensors",
        "step-0000000021.safetensors",
    ]
    resumed = cartograd.UMAP(**options, **kept, resume=True).fit_transform(rows)
    numpy.testing.assert_array_equal(resumed, cartograd.UMAP(**options).fit_transform(rows))


def test_a_finished_fit_is_not_begun_again(tmp_path):
    seen = []
    first = umap(tmp_path)
    again = umap(tmp_path, resume=True, callbacks=[lambda *told: seen.append(told)])
    assert seen == []
    numpy.testing.assert_array_equal(first.embedding_, again.embedding_)
    assert again.n_iter_ == STEPS


def test_without_resume_earlier_checkpoints_are_removed(tmp_path):
    umap(tmp_path)
    with pytest.raises(Stop):
        umap(tmp_path, callbacks=[stopping_at(15)])
    assert [path.name for path in tmp_path.iterdir()] == ["step-0000000010.safetensors"]


def test_nothing_to_resume_is_a_beginning(tmp_path):
    numpy.testing.assert_array_equal(umap(tmp_path / "new", resume=True).embedding_, fit("UMAP").embedding_)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n_neighbors": 9}, "the parameter n_neighbors was '8' and is '9' now"),
        ({"random_state": 4}, "the seed was 3 and is 4 now"),
        ({"lr": 0.5}, "the parameter lr was '1.0' and is '0.5' now"),
        ({"max_iter": 50}, "the parameter max_iter was '45' and is '50' now"),
    ],
)
def test_other_parameters_are_refused(tmp_path, change, said):
    umap(tmp_path)
    with pytest.raises(InputError, match="checkpoints of another fit") as error:
        umap(tmp_path, resume=True, **change)
    assert said in str(error.value)


def test_other_data_are_refused(tmp_path):
    umap(tmp_path)
    other = X.copy()
    other[17, 3] += 1e-6
    model = cartograd.UMAP(n_neighbors=8, max_iter=STEPS, check_interval=5, random_state=3)
    with pytest.raises(InputError, match="the data's digest was"):
        model.set_params(checkpoint_dir=tmp_path, resume=True).fit(other)


def damage(path, kind):
    data = bytearray(path.read_bytes())
    if kind == "cut":
        data = data[: len(data) // 2]
    elif kind == "empty":
        data = data[:0]
    else:
        data[{"last byte": -1, "middle": len(data) // 2, "facts": 200}[kind]] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("kind", ["cut", "empty", "last byte", "middle", "facts"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, caplog, kind):
    with pytest.raises(Stop):
        umap(tmp_path, callbacks=[stopping_at(35)])
    newest = sorted(tmp_path.iterdir())[-1]
    damage(newest, kind)
    with caplog.at_level(logging.WARNING, "cartograd"):
        resumed = umap(tmp_path, resume=True)
    assert newest.name in caplog.text
    assert "trying the one before" in caplog.text
    numpy.testing.assert_array_equal(resumed.embedding_, fit("UMAP").embedding_)


def test_all_checkpoints_damaged(tmp_path):
    umap(tmp_path)
    for path in tmp_path.iterdir():
        damage(path, "middle")
    with pytest.raises(DataFileError, match=r"no checkpoint in .* is whole"):
        umap(tmp_path, resume=True)


def test_files_of_killed_processes_are_tidied_away(tmp_path):
    (tmp_path / ".step-0000000005.safetensors.abcd.tmp").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    umap(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "notes.txt",
        "step-0000000040.safetensors",
        "step-0000000045.safetensors",
    ]


def test_a_full_disk_leaves_the_older_checkpoints(tmp_path, monkeypatch):
    umap(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileAccessError, match="No space left on device"):
        checkpoint.write(tmp_path, 99, {}, {"a": torch.ones(3)})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"checkpoint_every": 0}, OptionError, "checkpoint_every"),
        ({"resume": True}, OptionError, "give it as checkpoint_dir="),
        ({"resume": "yes"}, OptionError, "resume"),
        ({"checkpoint_dir": 7}, UnsupportedError, "checkpoint_dir must be a path as text, got 7"),
        ({"checkpoint_dir": __file__}, FileAccessError, "is a file"),
    ],
)
def test_what_is_refused(options, kind, said):
    with pytest.raises(kind, match=said):
        cartograd.UMAP(**options).fit(X)


def sending(number, at):
    def send(now, embedding, loss):
        if now == at:
            signal.raise_signal(number)

    return send


def test_sigterm_writes_a_checkpoint_and_leaves(tmp_path):
    with pytest.raises(SystemExit) as left:
        umap(tmp_path, callbacks=[sending(signal.SIGTERM, 25)])
    assert left.value.code == 143
    assert sorted(tmp_path.iterdir())[-1].name == "step-0000000025.safetensors"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    numpy.testing.assert_array_equal(umap(tmp_path, resume=True).embedding_, fit("UMAP").embedding_)


def test_ctrl_c_writes_a_checkpoint_and_gives_the_map_so_far(tmp_path):
    with pytest.warns(RuntimeWarning, match="interrupted after 25 of 45 steps"):
        partial = umap(tmp_path, callbacks=[sending(signal.SIGINT, 25)])
    assert partial.n_iter_ == 25
    assert sorted(tmp_path.iterdir())[-1].name == "step-0000000025.safetensors"
    numpy.testing.assert_array_equal(umap(tmp_path, resume=True).embedding_, fit("UMAP").embedding_)


def test_in_another_thread_no_signal_is_touched(tmp_path):
    found = []
    worker = threading.Thread(target=lambda: found.append(umap(tmp_path).embedding_))
    worker.start()
    worker.join()
    numpy.testing.assert_array_equal(found[0], fit("UMAP").embedding_)


def test_a_schedule_with_functions_in_it_is_refused(tmp_path):
    model = cartograd.TSNE(
        perplexity=8, max_iter=20, scheduler="LambdaLR", scheduler_kwargs={"lr_lambda": Rate()}, checkpoint_dir=tmp_path
    )
    with pytest.raises(UnsupportedError, match="cannot be written to a checkpoint"):
        model.fit(X)


class Rate:
    """A schedule that holds something no file can."""

    def __init__(self):
        self.made_by = object()

    def __call__(self, step):
        return 0.99**step


def encoder(folder, **options):
    usual = {"n_neighbors": 8, "encoder": "mlp", "hidden_sizes": (8,), "n_epochs": 12, "random_state": 0}
    training = EncoderTraining(checkpoint_every=4)
    return cartograd.UMAP(**{**usual, "training": training, "checkpoint_dir": folder, "batch_size": 50, **options})


def test_the_checkpoints_of_an_encoder(tmp_path):
    """As those of a layout: the last two are kept, and one that is damaged gives way to the one before."""
    whole = encoder(None).fit_transform(X)
    encoder(tmp_path).fit(X)
    steps = 12 * 3  # batches of 64 rows
    names = [path.name for path in sorted(tmp_path.iterdir())]
    assert names == [f"step-{step:010d}.safetensors" for step in (steps * 2 // 3, steps)]
    damage(tmp_path / names[1], "middle")
    again = encoder(tmp_path, resume=True).fit(X)
    numpy.testing.assert_array_equal(again.embedding_, whole)
    assert len(again.loss_) == 12
    with pytest.raises(InputError, match="checkpoints of another fit: the parameter n_neighbors"):
        encoder(tmp_path, resume=True, n_neighbors=9).fit(X)
    with pytest.raises(InputError, match="checkpoints of another fit"):
        umap(tmp_path, resume=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_of_an_epoch(tmp_path, number):
    whole = encoder(None).fit(X)

    class Asked(cartograd.UMAP):
        def _batch_attraction(self, s):
            if self.n_iter_ == 16:
                os.kill(os.getpid(), number)
            return super()._batch_attraction(s)

    Asked.__name__ = "UMAP"
    stopped = Asked(**encoder(tmp_path).get_params(deep=False))
    if number == signal.SIGTERM:
        with pytest.raises(SystemExit) as end:
            stopped.fit(X)
        assert end.value.code == 143
    else:
        with pytest.warns(RuntimeWarning, match="interrupted in epoch 6 of 12"):
            stopped.fit(X)
    assert sorted(path.name for path in tmp_path.iterdir())[-1] == "step-0000000017.safetensors"
    again = encoder(tmp_path, resume=True).fit(X)
    numpy.testing.assert_array_equal(again.embedding_, whole.embedding_)
    assert again.loss_ == whole.loss_


def test_a_training_that_patience_ended_is_not_begun_again(tmp_path):
    first = encoder(tmp_path, min_desired_loss=1e9).fit(X)
    again = encoder(tmp_path, min_desired_loss=1e9, resume=True).fit(X)
    assert first.report_["stopped"] == again.report_["stopped"] == "min_desired_loss"
    assert first.report_["epochs"] == again.report_["epochs"] == 1
    numpy.testing.assert_array_equal(again.embedding_, first.embedding_)
