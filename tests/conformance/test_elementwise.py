"""OpInfo parity of the elementwise families: ops/elementwise.py, powers.py, elementary.py, special.py, bounds.py."""

import pytest
from harness import check_entry, entries

ARITHMETIC = [
    "add",
    "sub",
    "rsub",
    "mul",
    "div",
    "true_divide",
    "neg",
    "abs",
    "lerp",
    "addcmul",
    "addcdiv",
    "fmod",
    "remainder",
    "__rsub__",
    "__rdiv__",
    "__rmod__",
]
POWERS = ["reciprocal", "square", "sqrt", "rsqrt", "pow", "__rpow__"]
ELEMENTARY = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "atan2",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
]
SPECIAL = ["erf", "erfc", "erfinv", "lgamma", "digamma", "polygamma", "sinc", "xlogy", "logaddexp", "hypot", "logit"]
BOUNDS = [
    "clamp",
    "clamp_min",
    "clamp_max",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "sign",
    "sgn",
    "floor",
    "ceil",
    "trunc",
    "round",
    "nan_to_num",
]


@pytest.mark.parametrize("entry", entries(ARITHMETIC + POWERS + ELEMENTARY + SPECIAL + BOUNDS))
def test_matches_torch(entry):
    check_entry(entry, cap=25)
