"""What each parameter of an estimator may be: one constraint for a name, enforced by `check_parameters`.

Constraints of one parameter alone stand here. What two parameters say together (`min_dist` is at most `spread`) is
checked by the estimator that has both, afterwards.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy

from cartograd.affinity.data import check_source, checked_lists
from cartograd.core.checks import (
    FLAG,
    Instance,
    OneOf,
    Or,
    Real,
    Test,
    Whole,
    check_function,
    check_path,
    choice,
    count,
    number,
    optional,
    show,
)
from cartograd.embedding.optimisers import check_optimizer, check_options, check_scheduler
from cartograd.embedding.parametric_network import check_kind
from cartograd.embedding.parametric_options import MOST_DRAWS, EncoderTraining
from cartograd.embedding.singular import DRIVERS
from cartograd.embedding.start import check_start
from cartograd.errors import OptionError, UnsupportedError
from cartograd.neighbors.faiss_index import FaissConfig
from cartograd.neighbors.searching import check_seed
from cartograd.neighbors.validate import check_backend, check_device
from cartograd.nn.encoders import check_sizes

MOST_DIMENSIONS = 1 << 16
MOST_PAIRS, MOST_NEIGHBORS = 10_000.0, 1_000_000
COMPONENTS = ("PCA", "IncrementalPCA", "ExactIncrementalPCA", "KernelPCA")
"""Estimators that find all components where `n_components` is None."""
MOST_THREADS = 4096
FASTEST = 1e38
"""No learning rate is larger: steps are taken in float32."""


def _metric(value: Any, name: str) -> None:
    check_source(value, name=name)


def _backend(value: Any, name: str) -> None:
    if value is not None and not isinstance(value, FaissConfig):
        check_backend(value, name)


def _device(value: Any, name: str) -> None:
    if value is not None and not (isinstance(value, str) and value == "auto"):
        check_device(value, name)


def _init(value: Any, name: str) -> None:
    check_start(value, None, 0)


def _callbacks(value: Any, name: str) -> None:
    known = value is None or isinstance(value, (list, tuple))
    if not known or not all(map(_is_callback, value or ())):
        raise UnsupportedError(f"callbacks must be functions of (step, embedding, loss), in a list, got {show(value)}")


def _is_callback(value: Any) -> bool:
    """Return whether a value can be called with three arguments, as far as its signature tells."""
    if not callable(value):
        return False
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # of functions written in C
        return True
    try:
        signature.bind(0, None, 0.0)
    except TypeError:
        return False
    return True


def _knn(value: Any, name: str) -> None:
    if value is not None:
        checked_lists(value, name)


def _verbose(value: Any, name: str) -> None:
    if not isinstance(value, (bool, numpy.bool_)):
        count(value, name, 0)


def _threads(value: Any, name: str) -> None:
    if value is not None:
        Whole(-MOST_THREADS, MOST_THREADS).check(value, name)
        if value == 0:
            raise OptionError(f"{name} must be None, a number of threads, or -1 for all cores, got 0")


def _kind(value: Any, name: str) -> None:
    if value is not None:
        check_kind(value, name, *((("mlp",),) if name == "decoder" else ()))


def _kernel(value: Any, name: str) -> None:
    if value is None or callable(value) or (isinstance(value, str) and value == "precomputed"):
        return
    raise OptionError(f'{name} must be an affinity, a function of the rows, "precomputed" or None, got {show(value)}')


def _affinity(value: Any, name: str) -> None:
    if value is None or (not isinstance(value, type) and callable(value)):
        return
    if not (isinstance(value, str) and value == "precomputed"):
        raise OptionError(f'{name} must be an affinity or "precomputed", got {show(value)}')


def _affinity_out(value: Any, name: str) -> None:
    if value is not None:
        check_function(value, name)


def _keywords(value: Any, name: str) -> None:
    if value is not None and not (isinstance(value, dict) and all(isinstance(key, str) for key in value)):
        raise UnsupportedError(f"{name} must be a dictionary of keyword arguments or None, got {show(value)}")


def _lr(value: Any, name: str) -> None:
    if isinstance(value, str):
        choice(value, name, ("auto",))
    elif not (value is None and name == "learning_rate"):
        number(value, name, 0.0, strict=True, high=FASTEST)


POSITIVE, NOT_NEGATIVE, SHARE = Real(0.0, strict=True), Real(0.0), Real(0.0, high=1.0)
FACTOR, LENGTH = Real(0.0, high=1e6), Real(1e-6, high=1e6)
"""Factors of forces, and lengths on a map: float32 serves all of them."""
STEPS, MANY = Whole(1, 10**15), Whole(1, 10**9)
AUTO_STEPS = Or(("auto",), STEPS)
CONSTRAINTS: dict[str, Any] = {
    "FP_ratio": Real(0.0, high=MOST_PAIRS),
    "MN_ratio": Real(0.0, high=MOST_PAIRS),
    "a": optional(LENGTH),
    "affinity": Test(_kernel),
    "affinity_in": Test(_affinity),
    "affinity_out": Test(_affinity_out),
    "alpha": POSITIVE,
    "b": optional(LENGTH),
    "backend": Test(_backend),
    "batch_size": optional(MANY),
    "callbacks": Test(_callbacks),
    "check_interval": STEPS,
    "checkpoint_dir": optional(Test(check_path)),
    "checkpoint_every": STEPS,
    "compile": FLAG,
    "copy": FLAG,
    "decoder": Test(_kind),
    "device": Test(_device),
    "discard_NNs": FLAG,
    "distributed": OneOf("auto", True, False, "sharded"),
    "early_exaggeration": optional(LENGTH),
    "early_exaggeration_coeff": optional(LENGTH),
    "early_exaggeration_iter": optional(Whole(0, 10**15)),
    "encoder": Test(_kind),
    "eps_square_affinity_in": FLAG,
    "gamma": LENGTH,
    "hidden_sizes": optional(Test(lambda value, name: check_sizes(value))),
    "init": Test(_init),
    "init_scaling": optional(Real(0.0, strict=True, high=1e6)),
    "iter_per_phase": STEPS,
    "k": MANY,
    "kwargs_affinity_out": Test(_keywords),
    "kwargs_loss": Test(_keywords),
    "learning_rate": Test(_lr),
    "learning_rate_for_h_loss": FACTOR,
    "local_connectivity": FACTOR,
    "loss_fn": OneOf("square_loss", "cross_entropy_loss"),
    "lowrank": FLAG,
    "lowrank_niter": Whole(0, 1000),
    "lowrank_q": optional(MANY),
    "lr": Test(_lr),
    "lr_affinity_in": POSITIVE,
    "max_iter": AUTO_STEPS,
    "max_iter_affinity": STEPS,
    "max_iter_affinity_in": STEPS,
    "method": OneOf("auto", "exact", "fft"),
    "metric": Test(_metric),
    "metric_in": Test(_metric),
    "min_desired_loss": optional(Real()),
    "min_dist": FACTOR,
    "min_grad_norm": NOT_NEGATIVE,
    "n_components": Whole(1, MOST_DIMENSIONS),
    "n_epochs": optional(STEPS),
    "n_jobs": Test(_threads),
    "n_landmarks": optional(Whole(2, 10**9)),
    "n_negatives": optional(Whole(1, MOST_DRAWS)),
    "n_neighbors": Whole(1, MOST_NEIGHBORS),
    "negative_sample_rate": Whole(0, MOST_DRAWS),
    "nodiag": FLAG,
    "optimizer": Test(check_optimizer),
    "optimizer_kwargs": Test(check_options),
    "patience": optional(STEPS),
    "perplexity": Real(0.0, high=MOST_NEIGHBORS),
    "precision": OneOf("float32", "float64"),
    "precomputed_knn": Test(_knn),
    "process_duplicates": FLAG,
    "random_state": Test(check_seed),
    "repulsion_strength": FACTOR,
    "resume": FLAG,
    "scheduler": Test(check_scheduler),
    "scheduler_kwargs": Test(check_options),
    "set_op_mix_ratio": SHARE,
    "sparsity": OneOf(True, False, None),
    "spread": LENGTH,
    "svd_driver": OneOf(*DRIVERS),
    "symmetric_affinity": FLAG,
    "t": Or(("auto",), Whole(1, 10**6)),
    "target_weight": SHARE,
    "timeout": optional(POSITIVE),
    "tol_affinity_in": POSITIVE,
    "training": optional(Instance((EncoderTraining,), "an EncoderTraining")),
    "unrolling": FLAG,
    "verbose": Test(_verbose),
}
"""By the name of the parameter. Where two estimators mean different things by one name, see `SPECIAL`."""

SPECIAL: dict[tuple[str, str], Any] = {
    **{(name, "n_components"): optional(Whole(1, MOST_DIMENSIONS)) for name in COMPONENTS},
    ("UMAP", "n_neighbors"): Whole(2, MOST_NEIGHBORS),
    ("Parametric", "batch_size"): Whole(2, 10**9),
    ("PHATE", "backend"): OneOf(None),
    ("KernelPCA", "backend"): OneOf(None, "auto", "exact"),
    ("PCA", "distributed"): OneOf("auto", True, False),
    ("ExactIncrementalPCA", "distributed"): OneOf("auto", True, False),
}
"""Constraints of one estimator alone."""


def constraint_of(cls: type, name: str) -> Any:
    """Return the constraint of a parameter of an estimator's class; None for one that a user's class adds."""
    for base in cls.__mro__:
        if (base.__name__, name) in SPECIAL:
            return SPECIAL[base.__name__, name]
    return CONSTRAINTS.get(name)
