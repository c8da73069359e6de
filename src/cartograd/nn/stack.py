"""Mamba-3 blocks in a network: a residual layer with its feed-forward part, and a stack of them."""

from __future__ import annotations

import math
from typing import Any, TypedDict, Unpack

import torch
import torch.nn.functional as F
from torch import nn

from cartograd.errors import InputError, UnsupportedError
from cartograd.nn.bidirectional import Bidirectional
from cartograd.nn.class_tokens import ClassTokens
from cartograd.nn.mamba3 import EPSILON, Mamba3, Mamba3Cache
from cartograd.nn.mamba3_arguments import one_of, positive

SCHEDULES = ("cyclic", "stretched")


class Mamba3Options(TypedDict, total=False):
    """The options of a `Mamba3` block, all but its width."""

    d_state: int
    headdim: int
    expand: float
    ngroups: int
    mimo_rank: int
    chunk_size: int | None
    rope_fraction: float
    angle_bound: float
    a_activation: str
    out_norm: bool
    formulation: str


class SwiGLU(nn.Module):
    """W_2 (a * silu(b)) with a, b = W_1 x.

    Parameters
    ----------
    d_model : int
        Channels in and out.
    width : int
        Channels between.
    """

    def __init__(self, d_model: int, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(d_model, 2 * width, bias=False)
        self.fc2 = nn.Linear(width, d_model, bias=False)

    def forward(self, x: Any) -> Any:
        """Of (..., d_model)."""
        value, gate = self.fc1(x).chunk(2, -1)
        return self.fc2(value * F.silu(gate))


class Mamba3Layer(nn.Module):
    """u + block(norm(u)), then u + swiglu(norm(u)).

    Parameters
    ----------
    d_model : int
        Channels of a token.
    mlp_width : int, default=None
        Channels inside the feed-forward part: None for 8 / 3 of d_model, rounded up to a multiple of 8; 0 for none.
    bidirectional : bool, default=False
        Whether two blocks read the sequence both ways; there is no cache then.
    **block
        Options of `Mamba3`.

    Examples
    --------
    >>> import torch, cartograd
    >>> layer = cartograd.nn.Mamba3Layer(8, d_state=4, headdim=4)
    >>> layer(torch.randn(1, 3, 8)).shape
    torch.Size([1, 3, 8])
    """

    def __init__(
        self,
        d_model: int,
        mlp_width: int | None = None,
        bidirectional: bool = False,
        **block: Unpack[Mamba3Options],
    ) -> None:
        super().__init__()
        width = 8 * math.ceil(d_model / 3) if mlp_width is None else mlp_width
        self.norm = nn.RMSNorm(d_model, eps=EPSILON)
        ahead = Mamba3(d_model, **block)
        self.mixer: nn.Module = Bidirectional(ahead, Mamba3(d_model, **block)) if bidirectional else ahead
        self.norm2 = nn.RMSNorm(d_model, eps=EPSILON) if width else None
        self.mlp = SwiGLU(d_model, width) if width else None

    def forward(self, u: Any, cache: Mamba3Cache | None = None, return_cache: bool = False) -> Any:
        """Read (b, t, d_model); the cache is that of the block, as in `Mamba3.forward`."""
        if isinstance(self.mixer, Bidirectional):
            if cache is not None or return_cache:
                raise UnsupportedError("a bidirectional layer reads whole sequences: it has no cache")
            return self._feed_forward(u + self.mixer(self.norm(u)))
        read, cache = self.mixer(self.norm(u), cache, return_cache=True)
        y = self._feed_forward(u + read)
        return (y, cache) if return_cache else y

    def step(self, u_t: Any, cache: Mamba3Cache | None = None) -> tuple[Any, Mamba3Cache]:
        """Read one token, (b, d_model)."""
        if not isinstance(self.mixer, Mamba3):
            raise UnsupportedError("a bidirectional layer reads whole sequences: it has no step")
        read, cache = self.mixer.step(self.norm(u_t), cache)
        return self._feed_forward(u_t + read), cache

    def _feed_forward(self, u: Any) -> Any:
        return u if self.mlp is None or self.norm2 is None else u + self.mlp(self.norm2(u))


class Mamba3Stack(nn.Module):
    """Layers one after the other, and a last norm; (b, t, d_model) to the same, or longer by class tokens.

    Parameters
    ----------
    d_model : int
        Channels of a token.
    n_layers : int
        Layers with weights of their own.
    n_virtual_layers : int, default=None
        How many layers are run, each with the weights of one of the `n_layers`; None for as many.
    schedule : str, default="cyclic"
        Whose weights: "cyclic" 0 1 2 0 1 2, "stretched" 0 0 1 1 2 2.
    mlp_width : int, default=None
        As in `Mamba3Layer`.
    bidirectional : bool, default=False
        As in `Mamba3Layer`.
    class_tokens : int, default=0
        Learned tokens put into the sequence; ``stack.class_tokens.pick(y)`` are their outputs.
    class_position : str, default="last"
        Where: see `ClassTokens`. With a cache only "first", which are read before the first token.
    **block
        Options of `Mamba3`.

    Examples
    --------
    >>> import torch, cartograd
    >>> stack = cartograd.nn.Mamba3Stack(8, 2, n_virtual_layers=4, class_tokens=1, d_state=4, headdim=4)
    >>> y = stack(torch.randn(3, 5, 8))
    >>> y.shape, stack.class_tokens.pick(y).shape
    (torch.Size([3, 6, 8]), torch.Size([3, 1, 8]))
    """

    def __init__(
        self,
        d_model: int,
        n_layers: int,
        n_virtual_layers: int | None = None,
        schedule: str = "cyclic",
        mlp_width: int | None = None,
        bidirectional: bool = False,
        class_tokens: int = 0,
        class_position: str = "last",
        **block: Unpack[Mamba3Options],
    ) -> None:
        super().__init__()
        count = positive("n_layers", n_layers)
        depth = positive("n_virtual_layers", count if n_virtual_layers is None else n_virtual_layers)
        one_of("schedule", schedule, SCHEDULES)
        self.order = [i % count if schedule == "cyclic" else i * count // depth for i in range(depth)]
        self.layers = nn.ModuleList(Mamba3Layer(d_model, mlp_width, bidirectional, **block) for _ in range(count))
        self.norm_f = nn.RMSNorm(d_model, eps=EPSILON)
        self.class_tokens = ClassTokens(d_model, class_tokens, class_position) if class_tokens else None
        self._start_small(depth)

    def _start_small(self, depth: int) -> None:
        """Divide what is added to the residual by the root of the number of additions: it starts at one size."""
        for name, weight in self.layers.named_parameters():
            if name.endswith(("out_proj.weight", "fc2.weight")):
                additions = depth * (1 if self.layers[0].mlp is None else 2)
                with torch.no_grad():
                    weight.div_(math.sqrt(additions))

    def forward(self, u: Any, cache: tuple[Mamba3Cache, ...] | None = None, return_cache: bool = False) -> Any:
        """Read (b, t, d_model).

        Parameters
        ----------
        u : Tensor, (b, t, d_model)
            The tokens.
        cache : tuple of Mamba3Cache, default=None
            One for each layer that is run; None before the first token.
        return_cache : bool, default=False
            Whether to return ``(y, cache)`` and not y alone.
        """
        if self.class_tokens is not None:
            self._require_first(cache is not None or return_cache)
            u = self.class_tokens(u) if cache is None else u
        if not (return_cache or cache is not None):
            for index in self.order:
                u = self.layers[index](u)
            return self.norm_f(u)
        caches: list[Mamba3Cache] = []
        for index, one in zip(self.order, self._by_layer(cache), strict=True):
            u, after = self.layers[index](u, one, return_cache=True)
            caches.append(after)
        y = self.norm_f(u)
        return (y, tuple(caches)) if return_cache else y

    def step(self, u_t: Any, cache: tuple[Mamba3Cache, ...] | None = None) -> tuple[Any, tuple[Mamba3Cache, ...]]:
        """Read one token, (b, d_model); class tokens, which must be "first", are read before the first one."""
        if self.class_tokens is not None:
            self._require_first(True)
            if cache is None:
                _, cache = self((u_t if u_t.dim() == 3 else u_t.unsqueeze(1))[:, :0], return_cache=True)
        caches: list[Mamba3Cache] = []
        for index, one in zip(self.order, self._by_layer(cache), strict=True):
            layer = self.layers[index]
            assert isinstance(layer, Mamba3Layer)
            u_t, after = layer.step(u_t, one)
            caches.append(after)
        return self.norm_f(u_t), tuple(caches)

    def load_official(self, state_dict: dict[str, torch.Tensor]) -> list[str]:
        """Take over the layers of a published Mamba-3 model; see `cartograd.nn.load_official`."""
        from cartograd.nn.official import load_official

        return load_official(self, state_dict)

    def _by_layer(self, cache: tuple[Mamba3Cache, ...] | None) -> tuple[Mamba3Cache | None, ...]:
        if cache is None:
            return (None,) * len(self.order)
        if len(cache) != len(self.order):
            raise InputError(f"the cache is of {len(cache)} layers, but {len(self.order)} are run")
        return cache

    def _require_first(self, cached: bool) -> None:
        if cached and self.class_tokens is not None and self.class_tokens.position != "first":
            raise UnsupportedError(
                f"class tokens at position {self.class_tokens.position!r} need the whole sequence, so there is no "
                'cache and no step: use class_position="first"'
            )
