"""What to write instead of an argument of another library that an estimator does not have."""

from __future__ import annotations

import difflib
import inspect
from typing import Any

from cartograd.errors import UnsupportedError

BOUNDED = "leave it out: memory is bounded anyway"
EXACT = "leave it out: the search picks its own way, see backend="
INSTEAD: dict[str, str] = {
    # umap-learn
    "low_memory": BOUNDED,
    "densmap": "density-preserving maps are DensMAP, once it is there; leave it out",
    "dens_lambda": "it is for DensMAP, once it is there; leave it out",
    "dens_frac": "it is for DensMAP, once it is there; leave it out",
    "dens_var_shift": "it is for DensMAP, once it is there; leave it out",
    "output_dens": "it is for DensMAP, once it is there; leave it out",
    "metric_kwds": "write metric= as a function of two Tensors that has these numbers in it",
    "output_metric": "maps are Euclidean, COSNE's are hyperbolic; leave it out",
    "output_metric_kwds": "maps are Euclidean, COSNE's are hyperbolic; leave it out",
    "transform_queue_size": EXACT,
    "angular_rp_forest": EXACT,
    "force_approximation_algorithm": 'write backend="cells" to search approximately, "exact" to search exactly',
    "target_n_neighbors": "y holds classes, which need none; leave it out",
    "target_metric": "y holds classes; leave it out",
    "target_metric_kwds": "y holds classes; leave it out",
    "transform_seed": "leave it out: new rows are placed by what is in them, the same each time",
    "transform_mode": "leave it out: fit(X) gives the graph as affinity_in_ besides the map",
    "tqdm_kwds": "write verbose=True for progress bars",
    "unique": "write process_duplicates=True, which is the default",
    "disconnection_distance": "leave it out, or give neighbors without far ones as precomputed_knn=",
    "dims": "leave it out: the shape of the rows is read off X",
    "parametric_reconstruction": 'write decoder="mlp"',
    "parametric_embedding": 'write encoder="mlp"',
    "autoencoder_loss": 'write decoder="mlp", which is trained when the map is finished',
    "keras_fit_kwargs": "write training=EncoderTraining(...)",
    "loss_report_frequency": "write callbacks=, called every check_interval steps",
    # openTSNE
    "n_iter": "write max_iter=",
    "exaggeration": "write early_exaggeration=, for the first early_exaggeration_iter steps",
    "dof": "the map has one degree of freedom; leave it out",
    "theta": "leave it out: repulsion is exact or by Fourier transform, see method=",
    "n_interpolation_points": "leave it out: the grid is as fine as its error needs",
    "min_num_intervals": "leave it out: the grid is as fine as its error needs",
    "ints_in_interval": "leave it out: the grid is as fine as its error needs",
    "initialization": "write init=",
    "metric_params": "write metric= as a function of two Tensors that has these numbers in it",
    "initial_momentum": 'write optimizer_kwargs={"momentum": ...}',
    "final_momentum": 'write optimizer_kwargs={"momentum": ...}',
    "max_grad_norm": "leave it out: steps are limited anyway",
    "max_step_norm": "leave it out: steps are limited anyway",
    "neighbors": "write backend=",
    "knn_kwargs": "write backend=, a FaissConfig for details of the search",
    "negative_gradient_method": 'write method="fft" or method="exact"',
    "callbacks_every_iters": "write check_interval=",
    # scikit-learn
    "n_iter_without_progress": "write min_grad_norm=, or timeout=",
    "angle": "leave it out: repulsion is exact or by Fourier transform, see method=",
    "square_distances": "leave it out: distances are squared as the method needs them",
    "whiten": "divide the scores by the root of explained_variance_ instead",
    "svd_solver": "leave it out: the solver is picked by the shape of the rows",
    "tol": "leave it out: components are iterated to full precision",
    "iterated_power": "leave it out: components are iterated to full precision",
    "n_oversamples": "leave it out: components are iterated to full precision",
    "power_iteration_normalizer": "leave it out: components are iterated to full precision",
    "eigen_solver": "leave it out: the solver is picked by the shape of the matrix",
    "kernel": 'write affinity=GaussianAffinity(sigma, zero_diag=False) for "rbf", or affinity="precomputed"',
    "gamma": "write affinity=GaussianAffinity(sigma, zero_diag=False), with gamma = 1 / sigma",
    "alpha": "a kernel's map has no way back; PCA has inverse_transform",
    "max_iter": "leave it out: components are iterated to full precision",
    "degree": "write affinity= as a function of the rows",
    "coef0": "write affinity= as a function of the rows",
    "kernel_params": "write affinity= as a function of the rows",
    "fit_inverse_transform": "a kernel's map has no way back; PCA has inverse_transform",
    "remove_zero_eig": "write nodiag=True",
    "copy_X": "leave it out: the data are never written to",
    "copy": "leave it out: the data are never written to",
    # pacmap
    "num_iters": "write max_iter= for all steps, iter_per_phase= for those of the first two phases",
    "distance": "write metric=",
    "pair_neighbors": "write precomputed_knn=",
    "pair_MN": "leave it out: mid-near pairs are drawn by the seed",
    "pair_FP": "leave it out: far pairs are drawn by the seed",
    "apply_pca": "leave it out: rows of more than 100 columns are compared in their 100 leading components",
    "intermediate": "write callbacks=, called every check_interval steps",
    "intermediate_snapshots": "write callbacks=, called every check_interval steps",
    "save_tree": "leave it out: a fitted map places new rows anyway",
    "knn_backend": "write backend=",
    # phate
    "knn": "write k=",
    "decay": "write alpha=",
    "n_landmark": "write n_landmarks=",
    "n_pca": "leave it out, or transform X with PCA(n_pca) first",
    "knn_dist": "write metric_in=",
    "mds_solver": "leave it out: the stress is descended with optimizer=",
    "mds_dist": "leave it out: the map is Euclidean",
    "mds": "leave it out: the map is metric",
}
"""By the name of the argument."""


def refuse_unknown(name: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise where an estimator's constructor does not take these arguments, with what to write instead.

    Parameters
    ----------
    name : str
        The estimator.
    signature : inspect.Signature
        That of its constructor, self included.
    args, kwargs : tuple and dict
        The arguments.
    """
    known = [one for one in signature.parameters.values() if one.name != "self"]
    for argument in kwargs:
        if argument not in signature.parameters:
            raise UnsupportedError(
                f"{name} has no parameter {argument!r}: {_advice(argument, [p.name for p in known])}"
            )
    places = [one.name for one in known if one.kind is one.POSITIONAL_OR_KEYWORD]
    if len(args) > len(places):
        raise UnsupportedError(
            f"{name} takes {', '.join(places) or 'nothing'} by position, got {len(args)} arguments; "
            "give the others by name"
        )
    for argument in places[: len(args)]:
        if argument in kwargs:
            raise UnsupportedError(f"{name} got {argument} twice, by position and by name; give it once")


def _advice(argument: str, known: list[str]) -> str:
    if argument in INSTEAD:
        return INSTEAD[argument]
    near = difflib.get_close_matches(argument, known, 1)
    return f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
