"""The autodiff engine. It knows no op by name."""

import importlib

from cartograd.engine import methods as methods
from cartograd.engine import torch_entry as torch_entry
from cartograd.engine import torch_patches as torch_patches
from cartograd.engine.backward import backward as backward
from cartograd.engine.budget import memory_budget as memory_budget
from cartograd.engine.capture import capture as capture
from cartograd.engine.check import gradcheck as gradcheck
from cartograd.engine.check import gradgradcheck as gradgradcheck
from cartograd.engine.explain import Graph as Graph
from cartograd.engine.explain import trace as trace
from cartograd.engine.functional import grad as grad
from cartograd.engine.functional import hessian as hessian
from cartograd.engine.functional import hvp as hvp
from cartograd.engine.functional import jacobian as jacobian
from cartograd.engine.functional import jvp as jvp
from cartograd.engine.functional import vjp as vjp
from cartograd.engine.graph import Node as Node
from cartograd.engine.modes import detect_anomaly as detect_anomaly
from cartograd.engine.modes import enable_grad as enable_grad
from cartograd.engine.modes import is_grad_enabled as is_grad_enabled
from cartograd.engine.modes import no_grad as no_grad
from cartograd.engine.modes import recording as recording
from cartograd.engine.modes import set_grad_enabled as set_grad_enabled
from cartograd.engine.per_sample import per_sample_grad as per_sample_grad
from cartograd.engine.per_sample import per_sample_norm as per_sample_norm
from cartograd.engine.primitive import Primitive as Primitive
from cartograd.engine.primitive import composite as composite
from cartograd.engine.primitive import primitive as primitive
from cartograd.engine.remat import checkpoint as checkpoint
from cartograd.engine.remat import checkpoint_sequential as checkpoint_sequential
from cartograd.engine.saved_hooks import offload_to_cpu as offload_to_cpu
from cartograd.engine.saved_hooks import saved_tensors_hooks as saved_tensors_hooks
from cartograd.engine.tensor import Tensor as Tensor
from cartograd.engine.tensor import tensor as tensor

importlib.import_module("cartograd.ops")  # whoever has the engine has gradients: the ops make themselves known to it
