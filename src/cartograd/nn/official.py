"""Published Mamba-3 weights, in the layout of the authors' package `mamba_ssm`, into our modules.

Our parameters have its names and shapes. What differs is put right here:

| in the file | here |
|---|---|
| ``mimo_x``, ``mimo_z``, ``mimo_o`` of rank 1 | multiplied into the projections; channels are then paired "halves" |
| ``norm.weight`` of one head's channels | repeated for every head |
| ``backbone.`` before every name, ``embedding``, ``lm_head`` | dropped; the latter two are no part of a stack |

A file does not tell the activation of A: "softplus" up to release 2.3.2, "heavy_tail" later; nor `angle_bound`, which
is 1. Set these where the block is made.
"""

from __future__ import annotations

import torch
from torch import nn

from cartograd.errors import InputError, UnsupportedError
from cartograd.nn.mamba3 import Mamba3
from cartograd.nn.stack import Mamba3Stack

_NOT_OF_A_STACK = ("embedding.", "lm_head.")
_MIMO = ("mimo_x", "mimo_z", "mimo_o")


def load_official(module: nn.Module, state_dict: dict[str, torch.Tensor]) -> list[str]:
    """Take over published weights.

    Parameters
    ----------
    module : Mamba3 or Mamba3Stack
        Filled in place; its options must be those the weights were made with.
    state_dict : dict
        A block's weights for a block; a language model's (or its backbone's) for a stack. Tensors, or arrays.

    Returns
    -------
    names : list of str
        What the file has and the module does not: the embedding and the head of a language model.
    """
    state_dict = {name: torch.as_tensor(value) for name, value in state_dict.items()}
    if isinstance(module, Mamba3):
        _load(module, _block_weights(module, state_dict))
        return []
    if not isinstance(module, Mamba3Stack):
        raise UnsupportedError(f"load_official fills a Mamba3 or a Mamba3Stack, not a {type(module).__name__}")
    named = {name.removeprefix("backbone."): value for name, value in state_dict.items()}
    left_over = [name for name in named if name.startswith(_NOT_OF_A_STACK)]
    weights = {name: value for name, value in named.items() if name not in left_over}
    for place, layer in enumerate(module.layers):
        prefix = f"layers.{place}.mixer."
        mixer = layer.mixer
        if not isinstance(mixer, Mamba3):
            raise UnsupportedError("published weights read one way: make the stack with bidirectional=False")
        inner = {name.removeprefix(prefix): weights.pop(name) for name in list(weights) if name.startswith(prefix)}
        weights |= {prefix + name: value for name, value in _block_weights(mixer, inner).items()}
    _load(module, weights)
    return left_over


def _block_weights(block: Mamba3, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights as our block has them; sets its `pairing`."""
    weights = dict(given)
    block.pairing = "halves" if "mimo_x" in weights else "adjacent"
    if block.mimo_rank == 1 and "mimo_x" in weights:
        x, z, o = (weights.pop(name).flatten() for name in _MIMO)
        if len(x) != block.d_inner:
            raise InputError(f"mimo_x has {len(x)} values for {block.d_inner} channels: mimo_rank is not 1 in the file")
        projection = weights["in_proj.weight"].clone()
        projection[: block.d_inner] *= z.unsqueeze(1)
        projection[block.d_inner : 2 * block.d_inner] *= x.unsqueeze(1)
        weights["in_proj.weight"] = projection
        weights["out_proj.weight"] = weights["out_proj.weight"] * o
    if block.norm is not None and weights.get("norm.weight", torch.empty(0)).numel() == block.headdim:
        weights["norm.weight"] = weights["norm.weight"].repeat(block.nheads)
    return weights


def _load(module: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """Load, or say all that does not fit."""
    own = module.state_dict()
    class_tokens = [name for name in own if name.startswith("class_tokens.")]  # ours alone: they stay as they are
    wrong = [f"{name} is missing" for name in own if name not in weights and name not in class_tokens]
    wrong += [f"{name} has no place" for name in weights if name not in own]
    wrong += [
        f"{name} is {tuple(value.shape)}, not {tuple(own[name].shape)}"
        for name, value in weights.items()
        if name in own and value.shape != own[name].shape
    ]
    if wrong:
        raise InputError(
            f"the weights are not of this {type(module).__name__}: {'; '.join(wrong[:6])}"
            f"{'; ...' if len(wrong) > 6 else ''}. Compare d_model, d_state, headdim, expand, ngroups, mimo_rank, "
            "rope_fraction, out_norm, n_layers and mlp_width with the file's."
        )
    module.load_state_dict(weights, strict=not class_tokens)
