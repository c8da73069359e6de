"""OpInfo parity of ops/activation.py, activation_smooth.py, softmax.py, dropout.py and convert.py."""

import pytest
from harness import check_entry, entries

FUNCTIONAL = [
    "relu",
    "relu6",
    "hardtanh",
    "threshold",
    "leaky_relu",
    "rrelu",
    "prelu",
    "softshrink",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "silu",
    "mish",
    "gelu",
    "elu",
    "selu",
    "softplus",
    "logsigmoid",
    "softsign",
    "tanhshrink",
    "glu",
    "softmin",
]
DROPOUT = ["dropout", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"]
PLAIN = ["sigmoid", "tanh", "softmax", "log_softmax"]
CONVERSIONS = ["clone", "to", "float", "double", "half", "bfloat16", "positive"]


def functional(names):
    return entries([f"nn.functional.{name}" for name in names])


@pytest.mark.parametrize("entry", functional(FUNCTIONAL) + entries(PLAIN))
def test_matches_torch(entry):
    check_entry(entry, cap=25)


@pytest.mark.filterwarnings("ignore:dropout2d|dropout3d:UserWarning")
@pytest.mark.parametrize("entry", functional(DROPOUT) + entries(CONVERSIONS))
def test_matches_torch_where_the_result_may_be_the_input_itself(entry):
    check_entry(entry, call=lambda input, *args, **kwargs: entry.op(input * 1.0, *args, **kwargs), cap=25)


@pytest.mark.parametrize("entry", functional(["celu"]))
def test_celu_matches_torch_to_single_precision(entry):
    check_entry(entry, cap=25, rtol=1e-6)  # torch computes 1 / alpha in single precision in its gradient
