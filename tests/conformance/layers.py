"""The layers of torch.nn: how to build a small one of each, and what to call it on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations


@dataclass
class Case:
    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Any, ...]]
    training: bool = True
    fixed: tuple[int, ...] = ()  # float inputs that torch has no gradient for


def r(*shape, low=-1.0, high=1.0):
    return torch.rand(shape, dtype=torch.float64) * (high - low) + low


def on(*shapes, low=-1.0, high=1.0):
    """Random inputs of these shapes."""
    return lambda: tuple(r(*shape, low=low, high=high) for shape in shapes)


def many(name, inputs, *makers, **options):
    """One case for each maker, numbered from the second on."""
    return {f"{name}{i or ''}": Case(make, inputs, **options) for i, make in enumerate(makers)}


# fmt: off
ELEMENTWISE = [
    nn.CELU, nn.ELU, nn.GELU, nn.Hardshrink, nn.Hardsigmoid, nn.Hardswish, nn.Hardtanh, nn.LeakyReLU,
    nn.LogSigmoid, nn.Mish, nn.PReLU, nn.RReLU, nn.ReLU, nn.ReLU6, nn.SELU, nn.SiLU, nn.Sigmoid, nn.Softplus,
    nn.Softshrink, nn.Softsign, nn.Tanh, nn.Tanhshrink, nn.Identity,
]
# fmt: on

ACTIVATIONS = {
    **{kind.__name__: Case(kind, on((3, 4), low=-4.0, high=4.0)) for kind in ELEMENTWISE},
    "GELU.tanh": Case(lambda: nn.GELU("tanh"), on((3, 4))),
    "ReLU.inplace": Case(lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), on((3, 4))),
    "PReLU.channels": Case(lambda: nn.PReLU(4), on((3, 4, 2))),
    "RReLU.eval": Case(nn.RReLU, on((3, 4)), training=False),
    "Threshold": Case(lambda: nn.Threshold(0.1, 2.0), on((3, 4))),
    "GLU": Case(nn.GLU, on((3, 4))),
    "Softmax": Case(lambda: nn.Softmax(1), on((3, 4))),
    "Softmin": Case(lambda: nn.Softmin(1), on((3, 4))),
    "LogSoftmax": Case(lambda: nn.LogSoftmax(0), on((3, 4))),
    "Softmax2d": Case(nn.Softmax2d, on((2, 3, 2, 2))),
    "AdaptiveLogSoftmaxWithLoss": Case(
        lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 10, [3, 6], div_value=2.0),
        lambda: (r(6, 8), torch.tensor([0, 2, 4, 5, 7, 9])),
    ),
}

LINEAR = {
    "Linear": Case(lambda: nn.Linear(4, 3), on((2, 5, 4))),
    "Linear.no_bias": Case(lambda: nn.Linear(4, 3, bias=False), on((4,))),
    "LazyLinear": Case(lambda: nn.LazyLinear(3), on((2, 4))),
    "Bilinear": Case(lambda: nn.Bilinear(3, 2, 4), on((5, 3), (5, 2))),
    "Embedding": Case(lambda: nn.Embedding(5, 3, padding_idx=1), lambda: (torch.tensor([[0, 1], [4, 4]]),)),
    "Embedding.by_frequency": Case(
        lambda: nn.Embedding(5, 3, scale_grad_by_freq=True), lambda: (torch.tensor([0, 4, 4, 2]),)
    ),
    "Embedding.max_norm": Case(lambda: nn.Embedding(5, 3, max_norm=0.5), lambda: (torch.tensor([0, 4, 4, 2]),)),
    "Embedding.sparse": Case(lambda: nn.Embedding(5, 3, sparse=True), lambda: (torch.tensor([0, 4, 4, 2]),)),
    **{
        f"EmbeddingBag.{mode}": Case(
            lambda mode=mode: nn.EmbeddingBag(6, 3, mode=mode), lambda: (torch.tensor([[0, 1, 2], [5, 5, 3]]),)
        )
        for mode in ("sum", "mean", "max")
    },
    "EmbeddingBag": Case(
        lambda: nn.EmbeddingBag(6, 3, mode="sum"), lambda: (torch.tensor([0, 5, 5, 3]), torch.tensor([0, 2]), r(4))
    ),
    "Flatten": Case(nn.Flatten, on((2, 3, 4))),
    "Unflatten": Case(lambda: nn.Unflatten(1, (2, 3)), on((2, 6))),
    "CosineSimilarity": Case(nn.CosineSimilarity, on((3, 4), (3, 4))),
    "PairwiseDistance": Case(nn.PairwiseDistance, on((3, 4), (3, 4))),
}

IMAGES = {1: (2, 4, 6), 2: (2, 4, 6, 5), 3: (2, 4, 5, 4, 4)}


def of_rank(rank):
    """The layers that exist for 1, 2 and 3 spatial axes."""
    image = on(IMAGES[rank])
    pads = 1 if rank == 3 else (1, 2) * rank

    def get(name):
        return getattr(nn, f"{name}{rank}d")

    cases = {
        **many(
            f"Conv{rank}d",
            image,
            lambda: get("Conv")(4, 3, 3),
            lambda: get("Conv")(4, 8, 3, stride=2, padding=1, dilation=1, groups=4, bias=False),
            lambda: get("Conv")(4, 2, 3, padding="same", padding_mode="circular"),
        ),
        **many(
            f"ConvTranspose{rank}d",
            image,
            lambda: get("ConvTranspose")(4, 3, 3),
            lambda: get("ConvTranspose")(4, 4, 3, stride=2, padding=1, output_padding=1, groups=2),
        ),
        f"LazyConv{rank}d": Case(lambda: get("LazyConv")(3, 3), image),
        f"LazyConvTranspose{rank}d": Case(lambda: get("LazyConvTranspose")(3, 3), image),
        f"BatchNorm{rank}d": Case(lambda: get("BatchNorm")(4), image),
        f"BatchNorm{rank}d.eval": Case(lambda: get("BatchNorm")(4), image, training=False),
        f"BatchNorm{rank}d.plain": Case(lambda: get("BatchNorm")(4, affine=False, momentum=None), image),
        f"LazyBatchNorm{rank}d": Case(lambda: get("LazyBatchNorm")(), image),
        f"InstanceNorm{rank}d": Case(lambda: get("InstanceNorm")(4), image),
        f"InstanceNorm{rank}d.affine": Case(
            lambda: get("InstanceNorm")(4, affine=True, track_running_stats=True), image
        ),
        f"LazyInstanceNorm{rank}d": Case(lambda: get("LazyInstanceNorm")(affine=True), image),
        f"MaxPool{rank}d": Case(lambda: get("MaxPool")(2, stride=1, padding=1), image),
        f"MaxPool{rank}d.dilated": Case(lambda: get("MaxPool")(2, dilation=2, ceil_mode=True), image),
        f"AvgPool{rank}d": Case(lambda: get("AvgPool")(2, padding=1, count_include_pad=False), image),
        f"LPPool{rank}d": Case(lambda: get("LPPool")(2, 2), image),
        f"AdaptiveAvgPool{rank}d": Case(lambda: get("AdaptiveAvgPool")(3), image),
        f"AdaptiveMaxPool{rank}d": Case(lambda: get("AdaptiveMaxPool")(3), image),
        f"MaxUnpool{rank}d": Case(lambda: get("MaxUnpool")(2), lambda: _pooled(rank)),
        f"Dropout{rank}d": Case(lambda: get("Dropout")(0.4), image),
        f"ReflectionPad{rank}d": Case(lambda: get("ReflectionPad")(pads), image),
        f"ReplicationPad{rank}d": Case(lambda: get("ReplicationPad")(pads), image),
        f"CircularPad{rank}d": Case(lambda: get("CircularPad")(pads), image),
        f"ZeroPad{rank}d": Case(lambda: get("ZeroPad")(pads), image),
        f"ConstantPad{rank}d": Case(lambda: get("ConstantPad")(pads, 0.7), image),
    }
    if rank > 1:
        cases[f"FractionalMaxPool{rank}d"] = Case(lambda: get("FractionalMaxPool")(2, output_ratio=0.6), image)
    return cases


def _pooled(rank):
    pool = getattr(nn, f"MaxPool{rank}d")(2, return_indices=True)
    return pool(r(2, 3, *(4,) * rank))


IMAGE_LAYERS = {
    "PixelShuffle": Case(lambda: nn.PixelShuffle(2), on((2, 8, 2, 3))),
    "PixelUnshuffle": Case(lambda: nn.PixelUnshuffle(2), on((2, 2, 4, 6))),
    "ChannelShuffle": Case(lambda: nn.ChannelShuffle(2), on((2, 4, 2, 3))),
    "Fold": Case(lambda: nn.Fold((4, 5), (2, 2), padding=1), on((2, 12, 30))),
    "Unfold": Case(lambda: nn.Unfold((2, 3), dilation=1, padding=1, stride=2), on((2, 3, 4, 5))),
    "UpsamplingNearest2d": Case(lambda: nn.UpsamplingNearest2d(scale_factor=2), on((1, 2, 3, 3))),
    "UpsamplingBilinear2d": Case(lambda: nn.UpsamplingBilinear2d(scale_factor=2), on((1, 2, 3, 3))),
    **many(
        "Upsample",
        on((1, 2, 3, 4)),
        lambda: nn.Upsample(scale_factor=2),
        lambda: nn.Upsample(size=(5, 7), mode="bilinear"),
        lambda: nn.Upsample(size=(5, 7), mode="bicubic", align_corners=True),
    ),
    "Upsample.linear": Case(lambda: nn.Upsample(scale_factor=2, mode="linear"), on((1, 2, 3))),
    "Upsample.trilinear": Case(lambda: nn.Upsample(scale_factor=2, mode="trilinear"), on((1, 2, 2, 3, 2))),
}

NORMS = {
    "LayerNorm": Case(lambda: nn.LayerNorm((3, 4)), on((2, 3, 4))),
    "LayerNorm.plain": Case(lambda: nn.LayerNorm(4, elementwise_affine=False), on((2, 3, 4))),
    "LayerNorm.no_bias": Case(lambda: nn.LayerNorm(4, bias=False), on((2, 3, 4))),
    "RMSNorm": Case(lambda: nn.RMSNorm(4), on((2, 3, 4))),
    "GroupNorm": Case(lambda: nn.GroupNorm(2, 4), on((2, 4, 3))),
    "LocalResponseNorm": Case(lambda: nn.LocalResponseNorm(3), on((2, 4, 3))),
    "CrossMapLRN2d": Case(lambda: nn.CrossMapLRN2d(3), on((2, 4, 3, 2))),
    "Dropout": Case(lambda: nn.Dropout(0.3), on((4, 5))),
    "Dropout.eval": Case(lambda: nn.Dropout(0.3), on((4, 5)), training=False),
    "AlphaDropout": Case(lambda: nn.AlphaDropout(0.3), on((4, 5))),
    "FeatureAlphaDropout": Case(lambda: nn.FeatureAlphaDropout(0.3), on((4, 5, 2))),
}

BIG = {"num_layers": 2, "bidirectional": True, "batch_first": True}
RECURRENT = {
    **{
        f"{name}{suffix}": Case(lambda name=name, options=options: getattr(nn, name)(3, 4, **options), on((2, 5, 3)))
        for name in ("RNN", "LSTM", "GRU")
        for suffix, options in (("", {}), (".deep", BIG), (".no_bias", {"bias": False}))
    },
    "RNN.relu": Case(lambda: nn.RNN(3, 4, nonlinearity="relu"), on((5, 2, 3), (1, 2, 4))),
    "GRU.state": Case(lambda: nn.GRU(3, 4), on((5, 2, 3), (1, 2, 4))),
    "GRU.dropout": Case(lambda: nn.GRU(3, 4, num_layers=2, dropout=0.3), on((5, 2, 3))),
    "LSTM.projected": Case(lambda: nn.LSTM(3, 4, proj_size=2), on((5, 2, 3))),
    "LSTM.state": Case(lambda: nn.LSTM(3, 4), lambda: (r(5, 2, 3), (r(1, 2, 4), r(1, 2, 4)))),
    "RNNCell": Case(lambda: nn.RNNCell(3, 4), on((2, 3), (2, 4))),
    "GRUCell": Case(lambda: nn.GRUCell(3, 4), on((2, 3), (2, 4))),
    "LSTMCell": Case(lambda: nn.LSTMCell(3, 4), lambda: (r(2, 3), (r(2, 4), r(2, 4)))),
}

SMALL = {"d_model": 4, "nhead": 2, "dim_feedforward": 6, "dropout": 0.2, "batch_first": True}
ATTENTION = {
    "MultiheadAttention": Case(lambda: nn.MultiheadAttention(4, 2), on((3, 2, 4), (5, 2, 4), (5, 2, 4))),
    "MultiheadAttention.own_sizes": Case(
        lambda: nn.MultiheadAttention(4, 2, kdim=3, vdim=5, add_bias_kv=True, batch_first=True),
        on((2, 3, 4), (2, 5, 3), (2, 5, 5)),
    ),
    "MultiheadAttention.dropout": Case(
        lambda: nn.MultiheadAttention(4, 2, dropout=0.3), on((3, 2, 4), (3, 2, 4), (3, 2, 4))
    ),
    "TransformerEncoderLayer": Case(lambda: nn.TransformerEncoderLayer(**SMALL), on((2, 3, 4))),
    "TransformerEncoderLayer.eval": Case(lambda: nn.TransformerEncoderLayer(**SMALL), on((2, 3, 4)), training=False),
    "TransformerEncoderLayer.norm_first": Case(
        lambda: nn.TransformerEncoderLayer(**SMALL, norm_first=True, activation="gelu"), on((2, 3, 4))
    ),
    "TransformerDecoderLayer": Case(lambda: nn.TransformerDecoderLayer(**SMALL), on((2, 3, 4), (2, 5, 4))),
    "TransformerEncoder": Case(
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(**SMALL), 2, nn.LayerNorm(4)), on((2, 3, 4))
    ),
    "TransformerDecoder": Case(
        lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(**SMALL), 2), on((2, 3, 4), (2, 5, 4))
    ),
    "Transformer": Case(
        lambda: nn.Transformer(**SMALL, num_encoder_layers=1, num_decoder_layers=1), on((2, 3, 4), (2, 5, 4))
    ),
}

INDEX = torch.tensor([1, 0, 3])
SIGNS = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
LOSSES = {
    **{
        name: Case(getattr(nn, name), on((3, 4), (3, 4))) for name in ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss")
    },
    "CrossEntropyLoss": Case(lambda: nn.CrossEntropyLoss(torch.rand(4)), lambda: (r(3, 4), INDEX)),
    "CrossEntropyLoss.smooth": Case(lambda: nn.CrossEntropyLoss(label_smoothing=0.1), lambda: (r(3, 4), INDEX)),
    "CrossEntropyLoss.soft": Case(nn.CrossEntropyLoss, on((3, 4), (3, 4))),
    **(
        {"LinearCrossEntropyLoss": Case(lambda: nn.LinearCrossEntropyLoss(5, 4), lambda: (r(3, 5), INDEX))}
        if hasattr(nn, "LinearCrossEntropyLoss")  # not before torch 2.12
        else {}
    ),
    "NLLLoss": Case(nn.NLLLoss, lambda: (r(3, 4), INDEX)),
    "BCELoss": Case(nn.BCELoss, on((3, 4), (3, 4), low=0.1, high=0.9)),
    "BCEWithLogitsLoss": Case(lambda: nn.BCEWithLogitsLoss(pos_weight=torch.rand(4)), on((3, 4), (3, 4), low=0.1)),
    "KLDivLoss": Case(lambda: nn.KLDivLoss(reduction="batchmean"), on((3, 4), (3, 4), low=0.1)),
    "PoissonNLLLoss": Case(lambda: nn.PoissonNLLLoss(full=True), on((3, 4), (3, 4), low=0.1, high=3.0)),
    "GaussianNLLLoss": Case(nn.GaussianNLLLoss, on((3, 4), (3, 4), (3, 4), low=0.1)),
    "CTCLoss": Case(lambda: nn.Sequential(nn.LogSoftmax(2), _Apply(nn.CTCLoss(), INDEX, (5,), (3,))), on((5, 1, 4))),
    "HingeEmbeddingLoss": Case(nn.HingeEmbeddingLoss, lambda: (r(3), SIGNS), fixed=(1,)),
    "CosineEmbeddingLoss": Case(nn.CosineEmbeddingLoss, lambda: (r(3, 4), r(3, 4), SIGNS), fixed=(2,)),
    "MarginRankingLoss": Case(lambda: nn.MarginRankingLoss(0.2), lambda: (r(3), r(3), SIGNS)),
    "MultiMarginLoss": Case(nn.MultiMarginLoss, lambda: (r(3, 4), INDEX)),
    "MultiLabelMarginLoss": Case(nn.MultiLabelMarginLoss, lambda: (r(2, 3), torch.tensor([[2, 0, -1], [1, -1, 0]]))),
    "MultiLabelSoftMarginLoss": Case(nn.MultiLabelSoftMarginLoss, on((3, 4), (3, 4))),
    "SoftMarginLoss": Case(nn.SoftMarginLoss, lambda: (r(3), SIGNS), fixed=(1,)),
    "TripletMarginLoss": Case(nn.TripletMarginLoss, on((3, 4), (3, 4), (3, 4))),
    "TripletMarginWithDistanceLoss": Case(
        lambda: nn.TripletMarginWithDistanceLoss(distance_function=nn.PairwiseDistance(3), swap=True),
        on((3, 4), (3, 4), (3, 4)),
    ),
}

PARAMETRIZED = {
    "weight_norm": Case(lambda: parametrizations.weight_norm(nn.Linear(4, 3)), on((2, 4))),
    "weight_norm.conv": Case(lambda: parametrizations.weight_norm(nn.Conv1d(4, 3, 2), dim=None), on((2, 4, 5))),
    "spectral_norm": Case(lambda: parametrizations.spectral_norm(nn.Linear(4, 3)), on((2, 4))),
    "spectral_norm.conv": Case(lambda: parametrizations.spectral_norm(nn.Conv2d(2, 3, 2)), on((1, 2, 4, 4))),
    "spectral_norm.old": Case(lambda: nn.utils.spectral_norm(nn.Linear(4, 3)), on((2, 4))),
    "orthogonal": Case(lambda: parametrizations.orthogonal(nn.Linear(4, 4)), on((2, 4))),
}


class _Apply(nn.Module):
    """A module with all its arguments but the first."""

    def __init__(self, module, *rest):
        super().__init__()
        self.module, self.rest = module, rest

    def forward(self, x):
        return self.module(x, *self.rest)


CASES: dict[str, Case] = {
    **ACTIVATIONS,
    **LINEAR,
    **of_rank(1),
    **of_rank(2),
    **of_rank(3),
    **IMAGE_LAYERS,
    **NORMS,
    **RECURRENT,
    **ATTENTION,
    **LOSSES,
    **PARAMETRIZED,
}
