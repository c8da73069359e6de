"""cartograd: maps of data by gradient descent, on an autodiff engine of its own."""

import importlib
from typing import TYPE_CHECKING, Any

from cartograd import errors as errors
from cartograd import ops as ops
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
from cartograd.errors import CartogradError as CartogradError
from cartograd.ops.neighbors import knn as knn
from cartograd.ops.ssd import double_ssd as double_ssd

if TYPE_CHECKING:
    from cartograd import affinity as affinity
    from cartograd import embedding as embedding
    from cartograd import io as io
    from cartograd import metrics as metrics
    from cartograd import neighbors as neighbors
    from cartograd import nn as nn
    from cartograd import tl as tl
    from cartograd import viewer as viewer
    from cartograd.io.model import load_model as load  # noqa: F401
    from cartograd.viewer import plot as plot
    from cartograd.viewer import view as view

__version__ = "0.1.0.dev0"
_LATER = ("affinity", "embedding", "io", "metrics", "neighbors", "nn", "tl", "viewer")
_ESTIMATORS = (
    "AffinityMatcher COSNE ExactIncrementalPCA IncrementalPCA InfoTSNE KernelPCA LargeVis "
    "NegativeSamplingNeighborEmbedding NeighborEmbedding PACMAP PCA PHATE SNE TSNE TSNEkhorn UMAP"
).split()


def __getattr__(name: str) -> Any:
    """Import the parts above the engine when they are first asked for: `import cartograd` stays light."""
    if name in _LATER:
        return importlib.import_module(f"cartograd.{name}")
    if name.endswith("Affinity"):
        return getattr(importlib.import_module("cartograd.affinity"), name)
    if name == "load":
        return importlib.import_module("cartograd.io").load_model
    if name in ("plot", "view"):
        return getattr(importlib.import_module("cartograd.viewer"), name)
    if name in _ESTIMATORS or name == "EncoderTraining":
        return getattr(importlib.import_module("cartograd.embedding"), name)
    raise AttributeError(f"module 'cartograd' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATER, *_ESTIMATORS, "EncoderTraining", "load", "plot", "view"])
