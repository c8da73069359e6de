"""cartograd: maps of data by gradient descent, on an autodiff engine of its own.

Names are imported when they are first asked for (PEP 562): `import cartograd` takes hundredths of a second, and a
program that only looks at a file, or prints its help, never waits for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from cartograd import errors as errors
from cartograd.core.interpreter import refuse_subinterpreter
from cartograd.errors import CartogradError as CartogradError

if TYPE_CHECKING:
    from cartograd import affinity as affinity
    from cartograd import embedding as embedding
    from cartograd import engine as engine
    from cartograd import io as io
    from cartograd import metrics as metrics
    from cartograd import neighbors as neighbors
    from cartograd import nn as nn
    from cartograd import ops as ops
    from cartograd import tl as tl
    from cartograd import viewer as viewer
    from cartograd.affinity import DoublyStochasticQuadraticAffinity as DoublyStochasticQuadraticAffinity
    from cartograd.affinity import EntropicAffinity as EntropicAffinity
    from cartograd.affinity import GaussianAffinity as GaussianAffinity
    from cartograd.affinity import MAGICAffinity as MAGICAffinity
    from cartograd.affinity import NormalizedGaussianAffinity as NormalizedGaussianAffinity
    from cartograd.affinity import NormalizedStudentAffinity as NormalizedStudentAffinity
    from cartograd.affinity import PACMAPAffinity as PACMAPAffinity
    from cartograd.affinity import PHATEAffinity as PHATEAffinity
    from cartograd.affinity import SelfTuningAffinity as SelfTuningAffinity
    from cartograd.affinity import SinkhornAffinity as SinkhornAffinity
    from cartograd.affinity import StudentAffinity as StudentAffinity
    from cartograd.affinity import SymmetricEntropicAffinity as SymmetricEntropicAffinity
    from cartograd.affinity import UMAPAffinity as UMAPAffinity
    from cartograd.embedding import COSNE as COSNE
    from cartograd.embedding import PACMAP as PACMAP
    from cartograd.embedding import PACMAP as PaCMAP  # noqa: F401
    from cartograd.embedding import PCA as PCA
    from cartograd.embedding import PHATE as PHATE
    from cartograd.embedding import SNE as SNE
    from cartograd.embedding import TSNE as TSNE
    from cartograd.embedding import UMAP as UMAP
    from cartograd.embedding import AffinityMatcher as AffinityMatcher
    from cartograd.embedding import EncoderTraining as EncoderTraining
    from cartograd.embedding import ExactIncrementalPCA as ExactIncrementalPCA
    from cartograd.embedding import IncrementalPCA as IncrementalPCA
    from cartograd.embedding import InfoTSNE as InfoTSNE
    from cartograd.embedding import KernelPCA as KernelPCA
    from cartograd.embedding import LargeVis as LargeVis
    from cartograd.embedding import NegativeSamplingNeighborEmbedding as NegativeSamplingNeighborEmbedding
    from cartograd.embedding import NeighborEmbedding as NeighborEmbedding
    from cartograd.embedding import TSNEkhorn as TSNEkhorn
    from cartograd.engine import Graph as Graph
    from cartograd.engine import Node as Node
    from cartograd.engine import Primitive as Primitive
    from cartograd.engine import Tensor as Tensor
    from cartograd.engine import capture as capture
    from cartograd.engine import checkpoint as checkpoint
    from cartograd.engine import checkpoint_sequential as checkpoint_sequential
    from cartograd.engine import composite as composite
    from cartograd.engine import detect_anomaly as detect_anomaly
    from cartograd.engine import enable_grad as enable_grad
    from cartograd.engine import grad as grad
    from cartograd.engine import gradcheck as gradcheck
    from cartograd.engine import gradgradcheck as gradgradcheck
    from cartograd.engine import hessian as hessian
    from cartograd.engine import hvp as hvp
    from cartograd.engine import is_grad_enabled as is_grad_enabled
    from cartograd.engine import jacobian as jacobian
    from cartograd.engine import jvp as jvp
    from cartograd.engine import memory_budget as memory_budget
    from cartograd.engine import no_grad as no_grad
    from cartograd.engine import offload_to_cpu as offload_to_cpu
    from cartograd.engine import per_sample_grad as per_sample_grad
    from cartograd.engine import per_sample_norm as per_sample_norm
    from cartograd.engine import primitive as primitive
    from cartograd.engine import recording as recording
    from cartograd.engine import saved_tensors_hooks as saved_tensors_hooks
    from cartograd.engine import set_grad_enabled as set_grad_enabled
    from cartograd.engine import tensor as tensor
    from cartograd.engine import trace as trace
    from cartograd.engine import vjp as vjp
    from cartograd.io.model import load_model as load  # noqa: F401
    from cartograd.ops.neighbors import knn as knn
    from cartograd.ops.ssd import double_ssd as double_ssd
    from cartograd.viewer import plot as plot
    from cartograd.viewer import view as view

__version__ = "0.2.0.dev0"

refuse_subinterpreter()

_ROOMS = "affinity embedding engine io metrics neighbors nn ops tl viewer".split()
_NAMES = {
    "affinity": (
        "DoublyStochasticQuadraticAffinity EntropicAffinity GaussianAffinity MAGICAffinity "
        "NormalizedGaussianAffinity NormalizedStudentAffinity PACMAPAffinity PHATEAffinity SelfTuningAffinity "
        "SinkhornAffinity StudentAffinity SymmetricEntropicAffinity UMAPAffinity"
    ),
    "embedding": (
        "AffinityMatcher COSNE EncoderTraining ExactIncrementalPCA IncrementalPCA InfoTSNE KernelPCA LargeVis "
        "NegativeSamplingNeighborEmbedding NeighborEmbedding PACMAP PaCMAP PCA PHATE SNE TSNE TSNEkhorn UMAP"
    ),
    "engine": (
        "Graph Node Primitive Tensor capture checkpoint checkpoint_sequential composite detect_anomaly "
        "enable_grad grad gradcheck gradgradcheck hessian hvp is_grad_enabled jacobian jvp memory_budget "
        "no_grad offload_to_cpu per_sample_grad per_sample_norm primitive recording saved_tensors_hooks "
        "set_grad_enabled tensor trace vjp"
    ),
    "io": "load",
    "ops.neighbors": "knn",
    "ops.ssd": "double_ssd",
    "viewer": "plot view",
}
"""The public names of each part of the package."""
_ALIASES = {"PaCMAP": "PACMAP", "load": "load_model"}
"""Public names of what has another name where it is written."""
_PLACES = {name: part for part, names in _NAMES.items() for name in names.split()}
__all__ = ["CartogradError", "errors", *_ROOMS, *(name for name in _PLACES if _PLACES[name] != "affinity")]


def __getattr__(name: str) -> Any:
    """Import what is asked for, and keep it: the next time this function is not called."""
    if name in _ROOMS:
        return importlib.import_module(f"cartograd.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module 'cartograd' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"cartograd.{_PLACES[name]}"), _ALIASES.get(name, name))
    return globals().setdefault(name, found)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if _PLACES.get(name) != "affinity")})
