"""Functions that torch itself writes in Python, of smaller functions: their own bodies run, and our rules do the work.

See `engine.transparent` for how. A function belongs here if its body only calls torch functions and no family has a
rule for it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from cartograd.engine.fallback import run_torch
from cartograd.engine.primitive import composite
from cartograd.engine.transparent import transparent


def _dtype_or_none(mask: Any) -> torch.dtype | None:
    """torch's own asks whether the mask is a ``torch.Tensor``; ours is not."""
    return None if mask is None else mask.dtype


normalize = composite(F.normalize)(transparent(F.normalize))
gumbel_softmax = composite(F.gumbel_softmax)(transparent(F.gumbel_softmax))
local_response_norm = composite(F.local_response_norm)(transparent(F.local_response_norm))
multi_head_attention_forward = composite(F.multi_head_attention_forward)(
    transparent(F.multi_head_attention_forward, _none_or_dtype=_dtype_or_none)
)

if hasattr(F, "linear_cross_entropy"):  # since torch 2.13
    _linear_cross_entropy = transparent(F.linear_cross_entropy)

    @composite(F.linear_cross_entropy)
    def linear_cross_entropy(*args: Any, **kwargs: Any) -> Any:
        """As in torch; with `options`, torch's op that works in chunks has its own gradient."""
        if kwargs.get("options") is not None:
            return run_torch(F.linear_cross_entropy, args, kwargs)
        return _linear_cross_entropy(*args, **kwargs)
