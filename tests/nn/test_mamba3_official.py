"""Mamba3 against the reference functions of its authors, and their checkpoints' names.

`data/mamba3_official.npz` was made once, in float64 throughout, by the step and chunk references of the test files of
github.com/state-spaces/mamba (tests/ops/triton/test_mamba3_siso.py, tests/ops/tilelang/test_mamba3_mimo.py), fed as its
modules/mamba3.py feeds its kernels: for each case random weights, inputs, outputs, last states, and the gradients of
the weights and the input that torch's autograd finds through those references.
"""

from pathlib import Path

import numpy
import pytest
import torch
from parity import randn

import cartograd
from cartograd.nn import Mamba3, Mamba3Stack, load_official

GOLDEN = numpy.load(Path(__file__).parent / "data" / "mamba3_official.npz")
CASES = {
    "siso": {"ngroups": 2},
    "siso_full_rope": {"ngroups": 4, "rope_fraction": 1.0, "a_activation": "heavy_tail"},
    "mimo_adjacent": {"ngroups": 2, "mimo_rank": 3},
    "mimo_adjacent_norm": {"mimo_rank": 2, "rope_fraction": 1.0, "a_activation": "heavy_tail", "out_norm": True},
    "mimo_halves": {"ngroups": 2, "mimo_rank": 3},
    "mimo_halves_full_rope": {"ngroups": 4, "mimo_rank": 2, "rope_fraction": 1.0},
    "mimo_of_rank_one": {},
}


def golden(case, name):
    return torch.from_numpy(GOLDEN[f"{case}/{name}"])


def weights(case):
    prefix = f"{case}/weight/"
    return {key.removeprefix(prefix): torch.from_numpy(GOLDEN[key]) for key in GOLDEN if key.startswith(prefix)}


def loaded(case, **more):
    block = Mamba3(6, d_state=8, headdim=3, chunk_size=4, **CASES[case], **more).double()
    block.load_official(weights(case))
    if "adjacent" in case:
        block.pairing = "adjacent"  # so does the authors' reference for one step, unlike their kernels
    return block


def close(found, expected):
    found = found.data if isinstance(found, cartograd.Tensor) else found
    torch.testing.assert_close(found.detach(), expected, rtol=0, atol=1e-11 * (1 + expected.abs().max().item()))


@pytest.mark.parametrize("formulation", ["double", "single", "stacked"])
@pytest.mark.parametrize("case", CASES)
def test_outputs_states_and_gradients(case, formulation):
    block = loaded(case, formulation=formulation)
    u = cartograd.tensor(golden(case, "u"), requires_grad=True)
    y, cache = block(u, return_cache=True)
    close(y, golden(case, "y"))
    close(cache.state, golden(case, "state"))
    y.backward(golden(case, "gy"))
    close(u.grad, golden(case, "grad/u"))
    folded = ("in_proj", "out_proj") if case == "mimo_of_rank_one" else ()  # hold the product of two of the file's
    for name, parameter in block.named_parameters():
        if name.split(".")[0] not in folded:
            close(parameter.grad, golden(case, f"grad/{name}"))


@pytest.mark.parametrize("case", CASES)
def test_step_by_step(case):
    block, cache, rows = loaded(case), None, []
    for u_t in golden(case, "u").unbind(1):
        y, cache = block.step(u_t, cache)
        rows.append(y)
    close(torch.stack(rows, 1), golden(case, "y"))
    close(cache.state, golden(case, "state"))


def test_pairing_follows_the_file():
    assert loaded("siso").pairing == "adjacent"
    assert loaded("mimo_of_rank_one").pairing == "halves"
    assert loaded("mimo_halves").pairing == "halves"


def test_arrays_are_taken_too():
    block = Mamba3(6, d_state=8, headdim=3, ngroups=2).double()
    block.load_official({name: value.numpy() for name, value in weights("siso").items()})
    assert all(torch.equal(value, weights("siso")[name]) for name, value in block.state_dict().items())


def test_a_norm_of_one_head_serves_all():
    given = weights("mimo_adjacent_norm")
    given["norm.weight"] = randn(3)
    block = Mamba3(6, d_state=8, headdim=3, mimo_rank=2, rope_fraction=1.0, out_norm=True).double()
    block.load_official(given)
    assert torch.equal(block.norm.weight.data, randn(3).repeat(4))


def language_model(layers=2):
    """What a checkpoint of the authors' language model is named like, in random numbers."""
    given = {"backbone.embedding.weight": randn(10, 6), "lm_head.weight": randn(10, 6)}
    for place in range(layers):
        prefix = f"backbone.layers.{place}."
        given |= {f"{prefix}mixer.{name}": value * (1 + place) for name, value in weights("siso").items()}
        given |= {f"{prefix}norm.weight": 1 + randn(6, seed=place), f"{prefix}norm2.weight": 1 + randn(6, seed=9)}
        given |= {f"{prefix}mlp.fc1.weight": randn(16, 6, seed=3), f"{prefix}mlp.fc2.weight": randn(6, 8, seed=4)}
    return given | {"backbone.norm_f.weight": randn(6, seed=5)}


def test_a_language_models_backbone():
    stack = Mamba3Stack(6, 2, mlp_width=8, d_state=8, headdim=3, ngroups=2).double()
    given = language_model()
    assert stack.load_official(given) == ["embedding.weight", "lm_head.weight"]
    u = randn(2, 5, 6, seed=8)
    residual = u  # by hand, of torch's functions and the loaded blocks
    for place, layer in enumerate(stack.layers):
        part = {name.split(f"layers.{place}.")[1]: value for name, value in given.items() if f"layers.{place}." in name}
        residual = residual + layer.mixer(torch.rms_norm(residual, (6,), part["norm.weight"], 1e-5))
        value, gate = (torch.rms_norm(residual, (6,), part["norm2.weight"], 1e-5) @ part["mlp.fc1.weight"].T).chunk(
            2, -1
        )
        residual = residual + (value * torch.nn.functional.silu(gate)) @ part["mlp.fc2.weight"].T
    close(stack(u), torch.rms_norm(residual, (6,), given["backbone.norm_f.weight"], 1e-5).detach())
    assert torch.equal(stack.layers[1].mixer.D.data, weights("siso")["D"] * 2)


def test_weights_of_another_block_are_refused():
    block = Mamba3(6, d_state=8, headdim=3, rope_fraction=1.0)
    before = block.in_proj.weight.clone()
    with pytest.raises(ValueError, match=r"in_proj.weight is \(70, 6\), not \(56, 6\).*rope_fraction"):
        load_official(block, weights("siso"))
    with pytest.raises(ValueError, match=r"A_log has no place"):
        load_official(block, weights("siso") | {"A_log": torch.zeros(4)})
    missing = weights("siso")
    del missing["dt_bias"]
    with pytest.raises(ValueError, match="dt_bias is missing"):
        load_official(Mamba3(6, d_state=8, headdim=3, ngroups=2), missing)
    with pytest.raises(ValueError, match="mimo_x has 36 values for 12 channels"):
        load_official(Mamba3(6, d_state=8, headdim=3, ngroups=2), weights("mimo_halves"))
    with pytest.raises(TypeError, match="not a Linear"):
        load_official(torch.nn.Linear(2, 2), {})
    assert torch.equal(before, block.in_proj.weight)
