"""What a model file may hold: the fitted attributes of every estimator and the parts they are made of.

A table has the fields of one class, each with its type, shape and range. Letters of shapes: n rows fitted, m rows of
the map shown, u different rows, d features, w columns of the rows searched in, c components.

What an estimator has besides is left as it is, unless its name is private or one that its class uses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy
import torch

from cartograd.core.checks import FLAG, Instance, OneOf, Or, Real, Test, Whole, show
from cartograd.errors import CartogradError, ModelFileError
from cartograd.io.fields import (
    DOUBLE,
    FLOATS,
    INT64,
    Checked,
    Entries,
    Field,
    Maybe,
    Numbers,
    Part,
    Plain,
    Sequence,
    Size,
    Sizes,
    check_fields,
    tensor,
)
from cartograd.neighbors.sparse_input import check_structure

ANY_NUMBERS = (
    *FLOATS, torch.float16, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64
)  # fmt: skip
FARTHEST = 1e12
"""No coordinate of a map is larger."""
LARGEST_WEIGHT = 1e6
WIDEST_SHAPE = 1 << 24


def _metric(value: Any, where: str) -> None:
    from cartograd.affinity.data import check_source

    check_source(value, name=where)


def _csr(value: Any, where: str, sizes: Sizes, letters: tuple[str, str] = ("u", "w")) -> None:
    if type(value).__name__ not in ("csr_array", "csr_matrix"):
        raise ModelFileError(f"{where} must be a CSR matrix, got {show(value)}")
    for axis, letter in enumerate(letters):
        sizes.bind(letter, value.shape[axis], f"axis {axis} of {where}")
    Numbers(("stored",)).check(value.data, f"{where}.data", Sizes())
    try:
        check_structure(value, where)
    except CartogradError as error:
        raise ModelFileError(str(error)) from None


def _fitted_rows(value: Any, where: str, sizes: Sizes) -> None:
    if hasattr(value, "tocsr"):
        _csr(value, where, sizes, ("n", "d"))
    else:
        Numbers(("n", "d")).check(value, where, sizes)


def _parameters(value: Any, where: str, sizes: Sizes) -> None:
    from cartograd.embedding.estimator import PLACING

    unknown = [name for name in value if name not in PLACING] if isinstance(value, dict) else [value]
    if unknown:
        raise ModelFileError(f"{where} must hold parameters that place new rows, got {show(unknown[0])}")


def _names(value: Any, where: str, sizes: Sizes) -> None:
    if getattr(value, "shape", None) != (sizes.known.get("d", -1),) or value.dtype.kind not in "OU":
        raise ModelFileError(f"{where} must hold the name of each of the features, got {show(value)}")


def _shape(value: Any, where: str, sizes: Sizes) -> None:
    sides = value if type(value) in (tuple, list) else (0,)
    if not 1 <= len(sides) <= 8 or not all(type(one) is int and 0 < one <= WIDEST_SHAPE for one in sides):
        raise ModelFileError(f"{where} must be the shape of a row, got {show(value)}")


def _weights(value: Any, where: str, sizes: Sizes) -> None:
    if value is not None and not (isinstance(value, dict) and all(isinstance(one, str) for one in value)):
        raise ModelFileError(f"{where} must be a dictionary of weights, got {show(value)}")
    for name, one in (value or {}).items():
        if not isinstance(one, torch.Tensor) or not bool((one.abs() <= LARGEST_WEIGHT).all()):
            raise ModelFileError(
                f"{where}[{show(name)}] must be a tensor of numbers up to {LARGEST_WEIGHT:g}, got {show(one)}"
            )


def _encoder(value: Any, where: str) -> None:
    from cartograd.nn.encoders import NAMES

    OneOf(*NAMES).check(value, where)


def _layers(value: Any, where: str) -> None:
    from cartograd.nn.encoders import check_sizes

    check_sizes(value)


NUMBER = Plain(Instance((float, int, numpy.number), "a number"))
POSITIVE, NOT_NEGATIVE, COUNT = Plain(Real(0.0, strict=True)), Plain(Real(0.0)), Plain(Whole(0))
SHARE = Numbers(("c", "d"), low=-1.01, high=1.01)
PARTS: dict[str, Mapping[str, Field]] = {}
"""Name of a class -> its fields."""
ROWS = Part(("TensorRows", "SparseRows", "FileRows"), PARTS)
PARTS |= {
    "TensorRows": {"data": tensor(("u", "w"))},
    "SparseRows": {
        "matrix": Checked(_csr),
        "dtype": Plain(OneOf(*FLOATS)),
        "device": Plain(Instance((torch.device,), "a device")),
    },
    "FileRows": {
        "array": Numbers(("u", "w"), ANY_NUMBERS, types=(numpy.ndarray,)),
        "dtype": Plain(OneOf(*FLOATS)),
        "device": Plain(Instance((torch.device,), "a device")),
    },
    "Register": {"keys": tensor(("u", 2), INT64), "ids": tensor(("u",), INT64, below="u")},
    "Distinct": {"inverse": tensor(("m",), INT64, below="u"), "first": tensor(("u",), INT64, below="m")},
    "Source": {
        "rows": ROWS,
        "register": Part(("Register",), PARTS),
        "distinct": Maybe(Part(("Distinct",), PARTS)),
        "metric": Plain(Test(_metric)),
        "largest": NOT_NEGATIVE,
    },
    "SpreadSource": {"metric": Plain(Test(_metric)), "largest": NOT_NEGATIVE, "bounds": Sequence(COUNT)},
    "Placement": {
        "source": Part(("Source", "SpreadSource"), PARTS),
        "places": tensor(("u", "c"), low=-FARTHEST, high=FARTHEST),
        "k": Plain(Whole()),
        "scale": POSITIVE,
        "seed": COUNT,
        "more": Entries(
            {
                "perplexity": Plain(Real(0.0)),
                "a": POSITIVE,
                "b": POSITIVE,
                "far": COUNT,
                "reduction": Maybe(Part(("Reduction",), PARTS)),
                "heights": Part(("Heights",), PARTS),
            }
        ),
    },
    "Heights": {"mean": Maybe(tensor(("d",), DOUBLE)), "scale": POSITIVE, "middle": NOT_NEGATIVE, "unit": NOT_NEGATIVE},
    "Reduction": {
        "mean": tensor(("d",), DOUBLE),
        "directions": tensor(("w", "d"), DOUBLE, -1.01, 1.01),
        "scale": POSITIVE,
    },
    "Network": {
        "kind": Plain(Test(_encoder)),
        "shape_in": Checked(_shape),
        "shape_out": Checked(_shape),
        "hidden_sizes": Maybe(Plain(Test(_layers))),
        "centre_in": tensor(("in",), DOUBLE),
        "scale_in": tensor(("in",), DOUBLE, low=1e-37),
        "centre_out": Maybe(tensor(("out",), DOUBLE)),
        "scale_out": Maybe(tensor(("out",), DOUBLE)),
        "weights": Checked(_weights),
        "seed": COUNT,
    },
}
FITTED: dict[str, Field] = {
    "n_features_in_": Size("d"),
    "n_samples_in_": Plain(Whole()),
    "feature_names_in_": Checked(_names),
    "is_fitted_": Plain(OneOf(True)),
    "report_": Plain(Instance((dict,), "a dictionary")),
    "embedding_": Numbers(("m", "c")),
    "n_iter_": COUNT,
    "loss_": Plain(Instance((list,), "a list of numbers")),
    "perplexity_": NUMBER,
    "early_exaggeration_coeff_": NUMBER,
    "lr_": NUMBER,
    "kl_divergence_": NUMBER,
    "a_": NUMBER,
    "b_": NUMBER,
    "weights_": Sequence(NUMBER),
    "_seed": COUNT,
    "_by_kernel": Plain(FLAG),
    "_fitted_with": Checked(_parameters),
    "_sklearn_output_config": Entries({"transform": Plain(OneOf("default", "pandas", "polars"))}),
    "_shape": Checked(_shape),
    "_placement": Part(("Placement",), PARTS),
    "_network": Part(("Network",), PARTS, own_sizes=True),
    "_decoder": Part(("Network",), PARTS, own_sizes=True),
    "_register": Part(
        ("Register",), {"Register": {"keys": tensor(("n", 2), INT64), "ids": tensor(("n",), INT64, below="n")}}
    ),
    "n_components_": Size("c"),
    "mean_": Numbers(("d",)),
    "components_": SHARE,
    "singular_values_": Numbers(("c",), low=0.0),
    "explained_variance_": Numbers(("c",), low=0.0),
    "explained_variance_ratio_": Numbers(("c",), low=0.0),
    "noise_variance_": NOT_NEGATIVE,
    "n_samples_seen_": Plain(Whole()),
    "batch_size_": Plain(Whole()),
    "var_": Numbers(("d",), low=0.0),
    "given_mean_": Numbers(("d",), DOUBLE),
    "seen_mean_": Numbers(("d",), DOUBLE),
    "scatter_": Numbers(("d", "d"), DOUBLE),
    "eigenvalues_": Numbers(("c",), low=0.0),
    "eigenvectors_": Numbers(("n", "c"), low=-1.01, high=1.01),
    "kernel_means_": Numbers(("n",), DOUBLE),
    "X_fit_": Checked(_fitted_rows),
}
"""Fitted attributes, by name."""
REQUIRED: dict[str, tuple[str, ...]] = {
    "AffinityMatcher": ("n_features_in_", "_placement", "embedding_"),
    "Projection": ("n_features_in_", "mean_", "components_"),
    "KernelPCA": ("n_features_in_", "eigenvalues_", "eigenvectors_", "kernel_means_", "embedding_"),
}
"""Name of a base class -> what its fitted estimators have."""
PLACED_BY = {
    "UMAP": ("a", "b"),
    "PACMAP": ("reduction", "far"),
    "COSNE": ("heights",),
    "EntropicInput": ("perplexity",),
}
"""Name of a base class -> the entries of `Placement.more` by which new rows are placed, where two rows differ."""
KERNELS, KERNEL_MEANS = ("NoneType", "GaussianAffinity", "StudentAffinity"), Numbers(("n",), DOUBLE, 0.0, 1.01)
"""Affinities of two rows between 0 and 1, and their means."""
FITTED_WITH: dict[str, Field] = {
    "lr": Plain(Or(("auto",), Real(0.0, high=1e6))),
    "learning_rate": Plain(Or((None, "auto"), Real(0.0, high=1e6))),
    "repulsion_strength": Plain(Real(0.0, high=1e6)),
    "gamma": Plain(Real(0.0, high=1e6)),
    "learning_rate_for_h_loss": Plain(Real(0.0, high=1e6)),
    "local_connectivity": Plain(Real(0.0, high=1e6)),
}
"""Parameters that place new rows, where their range is narrower in an estimator that is fitted."""


def is_attribute(cls: type, name: str) -> bool:
    """Return whether an estimator of a class may have a fitted attribute of that name."""
    return name in FITTED or not (name.startswith("_") or hasattr(cls, name))


def check_part(name: str, values: Mapping[str, Any], sizes: Sizes) -> None:
    """Check what a part of a model is constructed from, before it is; the sizes are its own."""
    table = PARTS.get(name)
    if table is not None:
        check_fields(table, values, name, Sizes(extremes=sizes.extremes))
        if name == "Network":
            _check_network(values)


def check_estimator(model: Any, sizes: Sizes) -> None:
    """Check the parameters of an estimator as its constructor does, and its fitted attributes by the tables."""
    name = type(model).__name__
    try:
        model.check_parameters()
        fitted = model._as_fitted()
        fitted.check_parameters()
    except CartogradError as error:
        raise ModelFileError(f"{name}: {error}") from None
    values = vars(model)
    present = {one: FITTED[one] for one in FITTED if one in values}
    check_fields(present, values, name, sizes)
    required = [one for base in type(model).__mro__ for one in REQUIRED.get(base.__name__, ())]
    missing = [one for one in required if one not in values]
    if "is_fitted_" in values and missing:
        raise ModelFileError(f"{name} has no {missing[0]}, and is said to be fitted")
    if "is_fitted_" not in values and len(missing) < len(required):
        raise ModelFileError(f"{name} has fitted attributes, and is said not to be fitted")
    if "is_fitted_" in values:
        _check_together(fitted, name, sizes)


def _check_together(model: Any, name: str, sizes: Sizes) -> None:
    """Check what fields say of each other."""
    values, known = vars(model), sizes.known
    check_fields({one: field for one, field in FITTED_WITH.items() if one in values}, values, name, sizes)
    if model.n_components is not None and "_network" not in values:
        sizes.bind("c", model.n_components, f"{name}.n_components")
    for parameter, attribute in (("encoder", "_network"), ("decoder", "_decoder")):
        if values.get(parameter) is not None and attribute not in values:
            raise ModelFileError(f"{name} has the {parameter} {show(values[parameter])} and no {attribute}")
    if "_network" in values:
        _check_sides(model._network, ("d", "c"), f"{name}._network", sizes)
    if "_decoder" in values:
        _check_sides(model._decoder, ("c", "d"), f"{name}._decoder", sizes)
    if "_shape" not in values and (values.get("encoder"), values.get("decoder")) != (None, None):
        raise ModelFileError(f"{name} has an encoder or a decoder and no _shape")
    if "_shape" in values:
        sizes.bind("d", math.prod(model._shape), f"{name}._shape")
    if "kernel_means_" in values:
        sizes.bind("m", known["n"], f"{name}.embedding_")
        if type(values.get("affinity")).__name__ in KERNELS:
            KERNEL_MEANS.check(values["kernel_means_"], f"{name}.kernel_means_", sizes)
        if _is_precomputed(values.get("affinity")):
            sizes.bind("d", known["n"], f"{name}.kernel_means_")
        elif "X_fit_" not in values:
            raise ModelFileError(f"{name} has no X_fit_")
    if "_placement" in values:
        _check_placement(model, f"{name}._placement", sizes)


def _check_placement(model: Any, where: str, sizes: Sizes) -> None:
    """Check what the parts by which new rows are placed say of each other."""
    placement, known = model._placement, sizes.known
    source = placement.source
    if placement.more.get("reduction") is None and "w" in known:
        sizes.bind("d", known["w"], f"{where}.source.rows")
    if _is_precomputed(source.metric) or _is_precomputed(getattr(model, "affinity_in", None)):
        sizes.bind("u", known["d"], f"{where}.source.rows")
        distances = getattr(source.rows, "data", None)
        if distances is not None and not _is_precomputed(getattr(model, "affinity_in", None)):
            tensor(("u", "d"), low=0.0).check(distances, f"{where}.source.rows.data", sizes)
    for part in ("reduction", "heights"):
        mean = getattr(placement.more.get(part), "mean", None)
        if mean is not None:  # of rows
            bound = 1.01 * source.largest
            tensor(("d",), DOUBLE, -bound, bound).check(mean, f"{where}.more.{part}.mean", sizes)
    wanted = [one for base in type(model).__mro__ for one in PLACED_BY.get(base.__name__, ())]
    missing = [one for one in wanted if one not in placement.more and known["u"] > 1]
    if missing:
        raise ModelFileError(f"{where}.more has no {missing[0]}")
    if placement.k > known["u"]:
        raise ModelFileError(f"{where}.k is {placement.k}, and there are {known['u']} rows")


def _is_precomputed(value: Any) -> bool:
    return isinstance(value, str) and value == "precomputed"


def _check_sides(network: Any, letters: tuple[str, str], where: str, sizes: Sizes) -> None:
    for letter, shape in zip(letters, (network.shape_in, network.shape_out), strict=True):
        sizes.bind(letter, math.prod(shape), f"a row of {where}")


def _check_network(values: Mapping[str, Any]) -> None:
    """Refuse layers beyond what the weights are for, before any of them is made."""
    stored = sum(one.numel() for one in (values["weights"] or {}).values())
    sides = (*(values["hidden_sizes"] or ()), math.prod(values["shape_out"]))
    if values["weights"] is None or max(sides) > stored:
        raise ModelFileError(f"a Network has layers of up to {max(sides)} numbers, and {stored} weights")
    for side, letter in (("shape_in", "centre_in"), ("shape_out", "centre_out")):
        numbers = values[letter]
        if numbers is not None and math.prod(values[side]) != len(numbers):
            raise ModelFileError(f"the Network's {side} is {values[side]}, and its {letter} has {len(numbers)} numbers")
