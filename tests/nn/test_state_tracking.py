"""Counters made of Mamba-3 blocks with weights set by hand, and the example that trains one."""

import importlib.util
from pathlib import Path

import pytest
import torch
from parity import randn

import cartograd

PATH = Path(__file__).resolve().parents[2] / "examples" / "state_tracking.py"
SPEC = importlib.util.spec_from_file_location("state_tracking", PATH)
example = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(example)
LENGTH = 4096


def drawn(high, seed=0):
    print("seed", seed)
    return torch.randint(0, high, (2, LENGTH), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("formulation", ["double", "single", "stacked"])
def test_parity_of_4096_bits_is_exact(formulation):
    bits = drawn(2)
    counter = example.parity_counter()
    counter.formulation = formulation
    with torch.no_grad():
        y = counter(torch.stack([bits.float(), torch.ones(2, LENGTH)], -1))[..., 0]
    expected = (bits.cumsum(1) % 2).float()
    assert expected.mean() > 0.4
    assert (y - expected).abs().max() < 1e-6


def test_parity_of_nothing_but_ones_and_on_our_engine():
    tokens = torch.ones(1, LENGTH, 2)
    y = example.parity_counter()(cartograd.tensor(tokens)).data[0, :, 0].detach()
    assert (y - (torch.arange(1, LENGTH + 1) % 2)).abs().max() < 1e-5


def test_parity_step_by_step():
    bits = drawn(2)[:, :300].float()
    counter, cache, rows = example.parity_counter(), None, []
    with torch.no_grad():
        for t in range(300):
            y, cache = counter.step(torch.stack([bits[:, t], torch.ones(2)], -1), cache)
            rows.append(y[:, 0])
    assert (torch.stack(rows, 1) - bits.cumsum(1) % 2).abs().max() < 1e-4


def test_without_rotation_the_same_weights_only_count():
    bits = drawn(2).float()
    counter = example.parity_counter()
    with torch.no_grad():
        counter.in_proj.weight[-1] = 0
        y = counter(torch.stack([bits, torch.ones(2, LENGTH)], -1))[..., 0]
    torch.testing.assert_close(y, bits.cumsum(1))


def test_sums_modulo_5_of_4096_digits_are_exact():
    digits = drawn(5, seed=1)
    digits[:, 0] = 0
    with torch.no_grad():
        counts = example.counted_sums(digits)
    assert torch.equal(counts.round().long() % 5, digits.cumsum(1) % 5)
    assert (counts - counts.round()).abs().max() < 1e-3


def test_training_is_the_same_on_both_engines():
    options = example.arguments(["--device", "cpu", "--d-model", "8", "--d-state", "4", "--headdim", "8"])
    models = []
    for engine in ("torch", "cartograd"):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = example.Tracker(options, rotation=True).double()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for step in range(4):
            bits = torch.randint(0, 2, (4, 7), generator=torch.Generator().manual_seed(step))
            share = example.learn(model, optimizer, bits, engine)
            assert 0 <= share.item() <= 1
        models.append(model)
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_scaled_accuracy_of_a_coin_and_of_the_truth():
    class Coin(torch.nn.Module):
        def forward(self, bits):
            return randn(*bits.shape, 2, seed=int(bits.sum()))

    class Truth(torch.nn.Module):
        def forward(self, bits):
            return torch.nn.functional.one_hot(bits.cumsum(1) % 2, 2)

    assert abs(example.scaled_accuracy(Coin(), 20, "cpu", seed=1, count=2048)) < 0.1
    assert example.scaled_accuracy(Truth(), 20, "cpu", seed=1, count=256) == 1


def test_a_short_sweep_prints_a_table(capsys):
    options = "--device cpu --steps 2 --batch 2 --lengths 4 4 --test-length 5 --rates 1e-3 --seeds 0 --d-model 4"
    with torch.random.fork_rng():
        best = example.sweep(example.arguments([*options.split(), "--headdim", "4", "--d-state", "2"]))
    assert set(best) == {"rotation", "no rotation"}
    assert all(-1 <= score <= 1 for score in best.values())
    assert "no rotation      1e-03    0" in capsys.readouterr().out
