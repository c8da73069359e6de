"""double_ssd: three algorithms against the recurrence written out step by step, differentiated by torch."""

import math
import subprocess
import sys
import textwrap

import pytest
import torch
from parity import randn
from torch import nn

import cartograd

ALGORITHMS = ["recompute", "serial", "minimal"]
NAMES = ["v", "da", "B", "C", "initial_state"]


def recurrence(v, da, B, C, state=None):
    """h_t = exp(da_t) h_{t-1} + sum_m v_t[m] B_t[m]', y_t[m] = h_t C_t[m], one step after the other."""
    heads, groups = v.shape[4], B.shape[4]
    if state is None:
        state = torch.zeros(v.shape[0], heads, v.shape[5], B.shape[5], dtype=v.dtype)
    v, da, B, C = (one.flatten(1, 2) for one in (v, da, B, C))
    B, C = (one.repeat_interleave(heads // groups, 3) for one in (B, C))
    rows = []
    for t in range(v.shape[1]):
        written = torch.einsum("bmhp,bmhr->bhpr", v[:, t], B[:, t])
        state = da[:, t, :, None, None].exp() * state + written
        rows.append(torch.einsum("bhpr,bmhr->bmhp", state, C[:, t]))
    return torch.stack(rows, 1), state


def inputs(chunks=2, steps=3, ranks=2, heads=4, groups=2, queries=None, batch=2, p=3, r=5, dtype=torch.float64, seed=0):
    keys = (batch, chunks, steps)
    return [
        randn(*keys, ranks, heads, p, seed=seed, dtype=dtype),
        -randn(*keys, heads, seed=seed + 1, dtype=dtype).abs(),
        randn(*keys, ranks, groups, r, seed=seed + 2, dtype=dtype),
        randn(*keys, queries or ranks, groups, r, seed=seed + 3, dtype=dtype),
        randn(batch, heads, p, r, seed=seed + 4, dtype=dtype),
    ]


def with_gradients(function, tensors, lift):
    """Values and the gradients of <y, random> + <final state, random>."""
    given = [lift(one) for one in tensors]
    y, state = function(*given)
    y = y.reshape(y.shape[0], -1, *y.shape[-3:])
    seeds = randn(*y.shape, seed=90).to(y.dtype), randn(*state.shape, seed=91).to(state.dtype)
    ((y * seeds[0]).sum() + (state * seeds[1]).sum()).backward()
    return [plain(one) for one in (y, state, *(one.grad for one in given))]


def plain(value):
    return (value.data if isinstance(value, cartograd.Tensor) else value).detach()


def torch_leaf(value):
    return value.clone().requires_grad_()


def our_leaf(value):
    return cartograd.tensor(value.clone(), requires_grad=True)


def worst(found, expected):
    """The largest difference of any two tensors, relative to the largest element."""
    return max(
        ((a.double() - b.double()).abs().max() / b.double().abs().max()).item()
        for a, b in zip(found, expected, strict=True)
    )


SHAPES = [  # chunks, steps, ranks, heads, groups, ranks of queries
    (1, 1, 1, 1, 1, None),
    (1, 5, 1, 2, 2, None),
    (4, 1, 2, 2, 1, None),
    (3, 4, 2, 4, 2, None),
    (2, 5, 3, 4, 1, None),
    (2, 3, 4, 4, 4, None),
    (2, 3, 4, 4, 2, 2),
    (3, 2, 1, 2, 1, 3),
    (11, 2, 1, 2, 2, None),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_values_and_all_gradients_are_those_of_the_recurrence(algorithm, shape):
    tensors = inputs(*shape)
    expected = with_gradients(recurrence, tensors, torch_leaf)

    def ours(*given):
        return cartograd.double_ssd(*given, algorithm=algorithm)

    def theirs(*given):
        return cartograd.double_ssd.as_torch()(*given, algorithm=algorithm)

    assert worst(with_gradients(ours, tensors, our_leaf), expected) < 1e-12
    assert worst(with_gradients(theirs, tensors, torch_leaf), expected) < 1e-12


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_from_zero_and_through_one_output_alone(algorithm):
    *tensors, _ = inputs()
    for place in (0, 1):
        theirs, ours = [torch_leaf(one) for one in tensors], [our_leaf(one) for one in tensors]
        out = recurrence(*theirs)[place]
        weight = randn(*out.shape, seed=7)
        (out * weight).sum().backward()
        mine = cartograd.double_ssd(*ours, algorithm=algorithm)[place]
        (mine.reshape(weight.shape) * weight).sum().backward()
        for name, one, other in zip(NAMES, ours, theirs, strict=False):
            expected = torch.zeros_like(other) if other.grad is None else other.grad
            found = torch.zeros_like(other) if one.grad is None else one.grad.data  # C does not reach the state
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-12, msg=f"{name} through output {place}")


@pytest.mark.parametrize("wanted", NAMES)
def test_each_input_alone(wanted):
    tensors = inputs()
    expected = dict(zip(NAMES, with_gradients(recurrence, tensors, torch_leaf)[2:], strict=True))[wanted]
    given = [cartograd.tensor(one, requires_grad=name == wanted) for name, one in zip(NAMES, tensors, strict=True)]
    y, state = cartograd.double_ssd(*given)
    y = y.flatten(1, 2)
    ((y * randn(*y.shape, seed=90)).sum() + (state * randn(*state.shape, seed=91)).sum()).backward()
    for name, one in zip(NAMES, given, strict=True):
        assert (one.grad is not None) == (name == wanted)
    torch.testing.assert_close(given[NAMES.index(wanted)].grad.data, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_both_derivatives_against_differences(algorithm):
    tensors = inputs(chunks=2, steps=1, ranks=2, heads=2, groups=1, batch=1, p=1, r=1)

    def function(*given):
        return cartograd.double_ssd(*given, algorithm=algorithm)

    assert cartograd.gradcheck(function, [our_leaf(one) for one in tensors])
    assert cartograd.gradgradcheck(function, [our_leaf(one) for one in tensors])
    torch_function = cartograd.double_ssd.as_torch()

    def theirs(*given):
        return torch_function(*given, algorithm=algorithm)

    assert torch.autograd.gradcheck(theirs, [torch_leaf(one) for one in tensors])
    assert torch.autograd.gradgradcheck(theirs, [torch_leaf(one) for one in tensors])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_float32_is_right_to_five_digits(algorithm):
    """512 steps, decays from nearly none to nearly total side by side."""
    tensors = inputs(chunks=16, steps=32, ranks=2, heads=2, groups=2, batch=1, p=4, r=8, dtype=torch.float32)
    tensors[1] = -(10 ** (1.5 * randn(1, 16, 32, 2, seed=5))).float()
    expected = with_gradients(recurrence, [one.double() for one in tensors], torch_leaf)

    def function(*given):
        return cartograd.double_ssd(*given, algorithm=algorithm)

    assert worst(with_gradients(function, tensors, our_leaf), expected) < 1e-5


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_comes_in_and_float32_computes(dtype, algorithm):
    tensors = inputs(chunks=4, steps=8, dtype=dtype)
    tensors[1], tensors[4] = tensors[1].float(), tensors[4].float()
    expected = with_gradients(recurrence, [one.double() for one in tensors], torch_leaf)

    def function(*given):
        return cartograd.double_ssd(*given, algorithm=algorithm)

    found = with_gradients(function, tensors, our_leaf)
    assert [one.dtype for one in found] == [dtype, torch.float32, dtype, torch.float32, dtype, dtype, torch.float32]
    assert worst([found[1]], [expected[1]]) < 1e-6  # nothing on its way was rounded to half precision
    assert worst(found, expected) < (0.01 if dtype is torch.bfloat16 else 0.002)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_decay_total_decay_and_growth(algorithm):
    tensors = inputs(chunks=2, steps=4)
    tensors[1][:, :, 0] = 0
    tensors[1][:, 1, 2, :2] = -math.inf  # two heads forget everything here
    tensors[1][:, 0, 3] = 0.7
    expected = recurrence(*tensors)
    y, state = cartograd.double_ssd(*[our_leaf(one) for one in tensors], algorithm=algorithm)
    torch.testing.assert_close(plain(y).flatten(1, 2), expected[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(plain(state), expected[1], rtol=1e-12, atol=1e-12)
    given = [our_leaf(one) for one in tensors]
    y, state = cartograd.double_ssd(*given, algorithm=algorithm)
    (y.sum() + state.sum()).backward()
    assert all(one.grad.data.isfinite().all() for one in given)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_steps_that_fill_a_chunk_change_nothing(algorithm):
    tensors = inputs(chunks=1, steps=5)
    padded = [torch.cat([one, torch.zeros_like(one[:, :, :3])], 2) for one in tensors[:4]]
    whole = cartograd.double_ssd(*tensors, algorithm=algorithm)
    longer = cartograd.double_ssd(*padded, tensors[4], algorithm=algorithm)
    torch.testing.assert_close(longer[0].data[:, :, :5], whole[0].data, rtol=0, atol=1e-14)
    torch.testing.assert_close(longer[1].data, whole[1].data, rtol=0, atol=1e-14)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_chunks_at_all(algorithm):
    tensors = inputs(chunks=0)
    given = [our_leaf(one) for one in tensors]
    y, state = cartograd.double_ssd(*given, algorithm=algorithm)
    assert y.shape == (2, 0, 3, 2, 4, 3)
    assert torch.equal(state.data, tensors[4])
    state.sum().backward()
    assert torch.equal(given[4].grad.data, torch.ones_like(tensors[4]))


def test_torch_tensors_parameters_and_arrays():
    tensors = inputs()
    expected = recurrence(*tensors)[0]
    for algorithm in ALGORITHMS:
        for given in (tensors, [one.numpy() for one in tensors]):
            y, state = cartograd.double_ssd(*given, algorithm=algorithm)
            assert type(y) is type(state) is cartograd.Tensor
            assert not y.requires_grad
            torch.testing.assert_close(y.data.flatten(1, 2), expected, rtol=0, atol=1e-12)
        keys = nn.Parameter(tensors[2])
        cartograd.double_ssd(tensors[0], tensors[1], keys, *tensors[3:], algorithm=algorithm)[0].sum().backward()
        theirs = torch_leaf(tensors[2])
        recurrence(tensors[0], tensors[1], theirs, *tensors[3:])[0].sum().backward()
        torch.testing.assert_close(keys.grad, theirs.grad, rtol=0, atol=1e-12)
        y, _ = cartograd.double_ssd.as_torch()(*tensors, algorithm=algorithm)
        assert type(y) is torch.Tensor


def test_recompute_saves_its_inputs_and_nothing_else():
    given = [our_leaf(one) for one in inputs(groups=1)]
    y, _ = cartograd.double_ssd(*given)
    (node,) = cartograd.trace(y).nodes
    assert node.name == "ssd"
    saved = [one for one in node.saved if one is not None]
    assert {one.untyped_storage().data_ptr() for one in saved} == {one.data.data_ptr() for one in given}
    assert sum(block.bytes for block in cartograd.trace(y).saved()) == sum(one.data.nbytes for one in given)
    assert saved[2].shape[4] == 1  # keys of the one group, not of four heads


def test_as_torch_saves_its_inputs_and_nothing_else():
    given = [torch_leaf(one) for one in inputs(groups=1)]
    kept = set()
    with torch.autograd.graph.saved_tensors_hooks(lambda one: kept.add(one.data_ptr()) or one, lambda one: one):
        cartograd.double_ssd.as_torch()(*given)
    assert kept == {one.data_ptr() for one in given}


PEAK = """
    import torch, cartograd
    def status(key):  # in MiB
        return int(open("/proc/self/status").read().split(key + ":")[1].split()[0]) / 1024
    def loss(length, algorithm):
        shape = (1, length // 16, 16)  # 16 steps of rank 4 are one product of 64 rows
        made = [torch.randn(*shape, 4, 4, P), -torch.rand(*shape, 4), torch.randn(*shape, 4, G, R),
                torch.randn(*shape, 4, G, R), torch.randn(1, 4, P, R)]
        given = [cartograd.tensor(one, requires_grad=True) for one in made]
        before = status("VmRSS")
        y, state = cartograd.double_ssd(*given, algorithm=algorithm)
        return y.sum() + state.sum(), before
    torch.set_num_threads(1)
    loss(64, "ALGORITHM")[0].backward()
    root, before = loss(2048, "ALGORITHM")
    root.backward()
    print(status("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
@pytest.mark.parametrize("sizes", [(16, 16, 2), (64, 128, 1), (64, 128, 4)], ids="P {0[0]} R {0[1]} G {0[2]}".format)
def test_peak_of_a_pass_is_a_third_of_minimals(sizes):
    """2,048 steps of rank 4, four heads; the peak counts the gradients of the inputs too, which both must have."""
    peaks = {}
    for algorithm in ("recompute", "minimal"):
        code = "P, R, G = {}, {}, {}\n".format(*sizes) + textwrap.dedent(PEAK).replace("ALGORITHM", algorithm)
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        peaks[algorithm] = float(run.stdout)
    print(peaks)
    assert peaks["minimal"] > 3 * peaks["recompute"]


def test_autocast_does_not_reach_inside():
    tensors = inputs(dtype=torch.float32)
    plain_y, plain_state = cartograd.double_ssd(*tensors)
    for algorithm in ALGORITHMS:
        given = [our_leaf(one) for one in tensors]
        with torch.autocast("cpu", torch.bfloat16):
            y, state = cartograd.double_ssd(*given, algorithm=algorithm)
            theirs = cartograd.double_ssd.as_torch()(*tensors, algorithm=algorithm)
        torch.testing.assert_close(plain(y), plain_y.data, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(plain(state), plain_state.data, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(theirs[0], plain_y.data, rtol=1e-5, atol=1e-5)
        y.sum().backward()
        assert given[0].grad.data.abs().max() > 0


def test_an_input_changed_before_the_backward_pass_is_noticed():
    given = [our_leaf(one) for one in inputs()]
    y, _ = cartograd.double_ssd(*given)
    given[0].data.add_(1)
    with pytest.raises(cartograd.errors.InplaceError, match="ssd"):
        y.sum().backward()


def test_the_same_bits_with_any_number_of_threads():
    tensors = inputs(chunks=4, steps=32, heads=8, p=16, r=32, dtype=torch.float32)
    before, runs = torch.get_num_threads(), []

    def function(*given):
        return cartograd.double_ssd(*given)

    try:
        for threads in (1, 1, 2, 4):
            torch.set_num_threads(threads)
            runs.append(with_gradients(function, tensors, our_leaf))
    finally:
        torch.set_num_threads(before)
    for run in runs[1:]:
        assert all(torch.equal(one, other) for one, other in zip(runs[0], run, strict=True))


def changed(place, value):
    tensors = inputs()
    tensors[place] = value(tensors[place])
    return tensors


@pytest.mark.parametrize(
    ("tensors", "error", "message"),
    [
        (
            changed(0, lambda v: v[0]),
            ValueError,
            r"v must have the axes \(batch, chunks, steps, ranks, heads, channels",
        ),
        (changed(1, lambda da: da[..., :3]), ValueError, r"da must have shape \(2, 2, 3, 4\)"),
        (changed(2, lambda B: B[:, :, :, :1]), ValueError, r"B must have shape \(2, 2, 3, 2, 2, 5\)"),
        (changed(3, lambda C: C[..., :4]), ValueError, r"C must have shape \(2, 2, 3, 2, 2, 5\)"),
        (changed(3, lambda C: C[:, :, :, :0]), ValueError, r"C must have shape \(2, 2, 3, 1, 2, 5\)"),
        (
            changed(4, lambda h: h[:1]),
            ValueError,
            r"initial_state must have shape \(2, 4, 3, 5\), .*got \(1, 4, 3, 5\)",
        ),
        (changed(2, lambda B: B.repeat(1, 1, 1, 1, 2, 1)[..., :3, :]), ValueError, "3 groups .* 4 heads"),
        (changed(0, lambda v: v[:, :, :0]), ValueError, "at least one step"),
        (changed(0, lambda v: v.int()), ValueError, "v must be of floating-point numbers, got torch.int32"),
        (changed(1, lambda da: "strong"), TypeError, "da cannot be read as a tensor"),
        (changed(2, lambda B: B.to("meta")), ValueError, "B is on meta, but v is on cpu"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_fit_is_refused(tensors, error, message):
    for function in (cartograd.double_ssd, cartograd.double_ssd.as_torch()):
        with pytest.raises(error, match=message) as raised:
            function(*tensors)
        assert isinstance(raised.value, cartograd.CartogradError)


def test_unknown_algorithm():
    with pytest.raises(ValueError, match="unknown algorithm 'fast': known are recompute, serial, minimal"):
        cartograd.double_ssd(*inputs(), algorithm="fast")
