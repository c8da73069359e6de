"""ops/norm.py and ops/layernorm.py: running statistics, eval mode, layouts, spellings, dtypes, errors, parameters."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import cartograd
from cartograd import ops
from cartograd.engine.fallback import TorchPlan


def randn(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype)


def ours(tensor, requires_grad=True):
    return cartograd.tensor(tensor.clone(), requires_grad=requires_grad)


def close(mine, other):
    mine = mine.data if isinstance(mine, cartograd.Tensor) else mine
    torch.testing.assert_close(mine, other.detach(), rtol=1e-10, atol=1e-10)


def names(out):
    return [node.name for node in cartograd.trace(out).nodes]


def require_own(out):
    assert not [node.name for node in cartograd.trace(out).nodes if isinstance(node.plan, TorchPlan)]


MODULES = {
    "batch1d": (lambda: nn.BatchNorm1d(3), (4, 3, 5)),
    "batch1d_flat": (lambda: nn.BatchNorm1d(3), (4, 3)),
    "batch2d": (lambda: nn.BatchNorm2d(3), (2, 3, 4, 2)),
    "batch3d": (lambda: nn.BatchNorm3d(3), (2, 3, 2, 2, 2)),
    "batch_cumulative": (lambda: nn.BatchNorm1d(3, momentum=None), (4, 3, 5)),
    "batch_plain": (lambda: nn.BatchNorm1d(3, affine=False), (4, 3, 5)),
    "batch_untracked": (lambda: nn.BatchNorm1d(3, track_running_stats=False), (4, 3, 5)),
    "instance": (lambda: nn.InstanceNorm1d(3), (4, 3, 5)),
    "instance_affine": (lambda: nn.InstanceNorm2d(3, affine=True), (2, 3, 4, 2)),
    "instance_tracked": (lambda: nn.InstanceNorm1d(3, affine=True, track_running_stats=True), (4, 3, 5)),
    "instance_unbatched": (lambda: nn.InstanceNorm1d(3, affine=True), (3, 5)),
    "group": (lambda: nn.GroupNorm(2, 4), (3, 4, 5)),
    "group_plain": (lambda: nn.GroupNorm(4, 4, affine=False), (3, 4, 5)),
    "layer": (lambda: nn.LayerNorm((4, 5)), (3, 4, 5)),
    "layer_no_bias": (lambda: nn.LayerNorm(5, bias=False), (3, 4, 5)),
    "layer_plain": (lambda: nn.LayerNorm(5, elementwise_affine=False), (3, 4, 5)),
    "rms": (lambda: nn.RMSNorm(5), (3, 4, 5)),
    "rms_plain": (lambda: nn.RMSNorm((4, 5), eps=0.1, elementwise_affine=False), (3, 4, 5)),
    "local_response": (lambda: nn.LocalResponseNorm(2), (2, 4, 3, 3)),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_modules_match_torch(name, training):
    """Two steps, so that running statistics are those of the second; then every gradient, and the buffers."""
    make, shape = MODULES[name]
    torch.manual_seed(0)
    module = make().double().train(training)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    twin = copy.deepcopy(module)
    for _ in range(2):
        x = randn(*shape)
        theirs, mine = x.clone().requires_grad_(), ours(x)
        expected, found = module(theirs), twin(mine)
        close(found, expected)
        require_own(found)
        seed = torch.randn_like(x)
        expected.backward(seed)
        found.backward(seed)
        close(mine.grad, theirs.grad)
    for mine, theirs in zip(twin.parameters(), module.parameters(), strict=True):
        close(mine.grad, theirs.grad)
    for (key, mine), (_, theirs) in zip(twin.named_buffers(), module.named_buffers(), strict=True):
        assert torch.equal(mine, theirs), f"{key}: {mine} is not {theirs}"


@pytest.mark.parametrize("name", ["batch1d", "instance_tracked"])
def test_running_statistics_move_once_and_only_in_training(name):
    make, shape = MODULES[name]
    module = make().double()
    x = ours(randn(*shape))
    out = module(x)
    after = [buffer.clone() for buffer in module.buffers()]
    assert not torch.equal(after[0], torch.zeros(3, dtype=torch.float64))
    out.sum().backward(retain_graph=True)
    out.sum().backward()
    module.eval()
    module(x)
    with cartograd.no_grad():
        module(x)
    for before, buffer in zip(after, module.buffers(), strict=True):
        assert torch.equal(before, buffer)


def test_eval_gradient_is_of_the_statistics_it_used():
    """A training step between an eval forward and its backward moves the statistics; the gradient must not follow."""
    torch.manual_seed(1)
    module = nn.BatchNorm1d(3).double().eval()
    nn.init.normal_(module.running_mean)
    nn.init.uniform_(module.running_var, 0.5, 2)
    rstd = (module.running_var + module.eps).rsqrt()
    x, g = ours(randn(4, 3)), randn(4, 3)
    out = module(x)
    module.train()(ours(randn(4, 3)))
    out.backward(g)
    close(x.grad, g * module.weight * rstd)


def test_eval_input_gradient_keeps_no_input():
    x = ours(randn(4, 3))
    out = F.batch_norm(x, torch.zeros(3).double(), torch.ones(3).double())
    kept = [value for node in cartograd.trace(out).nodes for value in node.saved if isinstance(value, torch.Tensor)]
    assert not [value for value in kept if value.shape == (4, 3)]


def test_two_training_forwards_before_one_backward():
    torch.manual_seed(2)
    module = nn.BatchNorm1d(3).double()
    twin = copy.deepcopy(module)
    x, y = randn(4, 3), randn(4, 3)
    a, b = ours(x), ours(y)
    (module(a) * 2 + module(b)).exp().sum().backward()
    p, q = x.clone().requires_grad_(), y.clone().requires_grad_()
    (twin(p) * 2 + twin(q)).exp().sum().backward()
    close(a.grad, p.grad)
    close(b.grad, q.grad)
    close(module.weight.grad, twin.weight.grad)


LAYOUTS = {"NLC": (3, 5, 4), "NHWC": (3, 2, 5, 4), "NDHWC": (3, 2, 2, 3, 4)}
WITH_LAYOUT = {
    "batch": (ops.batch_norm, F.batch_norm, lambda w, b: {"weight": w, "bias": b, "training": True}),
    "group": (ops.group_norm, F.group_norm, lambda w, b: {"num_groups": 2, "weight": w, "bias": b}),
    "instance": (ops.instance_norm, F.instance_norm, lambda w, b: {"weight": w, "bias": b}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", WITH_LAYOUT)
def test_channels_last(kind, layout):
    torch.manual_seed(3)
    mine, theirs, options = WITH_LAYOUT[kind]
    x, weight, bias = randn(*LAYOUTS[layout]), randn(4), randn(4)
    statistics = {"running_mean": None, "running_var": None} if kind == "batch" else {}
    leaves = [x.clone().requires_grad_(), weight.clone().requires_grad_(), bias.clone().requires_grad_()]
    expected = theirs(leaves[0].movedim(-1, 1), **statistics, **options(*leaves[1:])).movedim(1, -1)
    given = [ours(x), ours(weight), ours(bias)]
    found = mine(given[0], **options(*given[1:]), layout=layout)
    close(found, expected)
    require_own(found)
    seed = torch.randn_like(x)
    expected.backward(seed)
    found.backward(seed)
    for one, other in zip(given, leaves, strict=True):
        close(one.grad, other.grad)


def test_layouts_refused():
    x = ours(randn(5, 4))
    with pytest.raises(cartograd.errors.OptionError, match="takes an input of 3 axes"):
        ops.batch_norm(x, training=True, layout="NLC")
    with pytest.raises(cartograd.errors.OptionError, match="NHWC"):
        ops.group_norm(x, 2, layout="WHCN")
    close(ops.batch_norm(x, training=True, layout="NCL"), F.batch_norm(x.data, None, None, training=True))


def test_torch_spellings_reach_our_rules():
    x, weight, bias = ours(randn(4, 3, 5)), ours(randn(3)), ours(randn(3))
    mean, var = torch.zeros(3).double(), torch.ones(3).double()
    for out, name in (
        (torch.batch_norm(x, weight, bias, mean, var, True, 0.1, 1e-5, False), "native_batch_norm"),
        (torch.batch_norm(x, weight, bias, mean, var, False, 0.1, 1e-5, False), "frozen_batch_norm"),
        (torch.native_batch_norm(x, weight, bias, mean, var, True, 0.1, 1e-5)[0], "native_batch_norm"),
        (torch.ops.aten.native_batch_norm(x, weight, bias, mean, var, True, 0.1, 1e-5)[0], "native_batch_norm"),
        (torch.instance_norm(x, weight, bias, None, None, True, 0.1, 1e-5, False), "native_group_norm"),
        (torch.group_norm(x, 1, weight, bias), "native_group_norm"),
        (torch.layer_norm(x, [5]), "layer_norm"),
        (torch.native_layer_norm(x, [5], None, None, 1e-5)[0], "layer_norm"),
        (torch.rms_norm(x, [5]), "rms_norm"),
    ):
        assert names(out) == [name]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.native_batch_norm(x, None, None, None, None, True, 0.1, 0.1),
        lambda x: torch.native_layer_norm(x, [4], None, None, 0.1),
        lambda x: torch.native_group_norm(x, None, None, 3, 2, 4, 1, 0.1),
    ],
)
def test_statistics_have_gradients_too(call):
    torch.manual_seed(4)
    x = randn(3, 2, 4)
    for mine, other in zip(call(ours(x)), call(x), strict=True):
        close(mine, other)
        assert mine.requires_grad
    assert cartograd.gradcheck(call, ours(x))


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("weight_dtype", [None, torch.float32])
@pytest.mark.parametrize("name", ["batch1d", "group", "layer", "rms"])
def test_dtype_is_kept(name, dtype, weight_dtype):
    make, shape = MODULES[name]
    torch.manual_seed(5)
    module = make().to(weight_dtype or dtype)
    nn.init.normal_(module.weight)
    if name == "layer" and weight_dtype is not None and dtype != weight_dtype:
        module = module.to(dtype)  # this pair of dtypes torch's own kernel refuses
    twin = copy.deepcopy(module)
    x = randn(*shape, dtype=dtype)
    mine, theirs = ours(x), x.clone().requires_grad_()
    expected, found = module(theirs), twin(mine)
    assert found.dtype is expected.dtype
    torch.testing.assert_close(found.data, expected.detach())
    seed = torch.randn_like(expected)
    expected.backward(seed)
    found.backward(seed)
    assert mine.grad.dtype is dtype
    torch.testing.assert_close(mine.grad.data, theirs.grad, rtol=0.02, atol=0.05 if dtype != torch.float32 else 1e-5)
    torch.testing.assert_close(twin.weight.grad, module.weight.grad, rtol=0.02, atol=0.1)
    if name == "batch1d":
        module, twin = module.eval(), twin.eval()
        expected, found = module(theirs), twin(mine)
        found.backward(seed)
        assert found.dtype is expected.dtype


@pytest.mark.parametrize("name", ["batch2d", "group2d", "layer", "rms"])
@pytest.mark.parametrize("wanted", ["input", "weight", "bias"])
def test_one_gradient_alone(name, wanted):
    if name == "rms" and wanted == "bias":
        return
    make, shape = {**MODULES, "group2d": (lambda: nn.GroupNorm(2, 4), (3, 4, 2, 2))}[name]
    torch.manual_seed(6)
    for training in (True, False):
        module = make().double().train(training)
        for key, parameter in module.named_parameters():
            parameter.requires_grad_(key == wanted)
        x = randn(*shape)
        theirs, mine = x.clone().requires_grad_(wanted == "input"), ours(x, wanted == "input")
        targets = (theirs, mine) if wanted == "input" else (getattr(module, wanted),) * 2
        expected = torch.autograd.grad(module(theirs).exp().sum(), targets[0])
        found = cartograd.grad(module(mine).exp().sum(), targets[1])
        close(found[0], expected[0])


@pytest.mark.parametrize("kind", ["strided", "channels_last", "expanded"])
def test_memory_formats(kind):
    torch.manual_seed(7)
    x = randn(2, 4, 3, 5)
    x = {
        "strided": x.transpose(2, 3),
        "channels_last": x.contiguous(memory_format=torch.channels_last),
        "expanded": x[:, :, :1].expand(2, 4, 3, 5),
    }[kind]
    for call in (
        lambda t: F.batch_norm(t, None, None, training=True),
        lambda t: F.group_norm(t, 2),
        lambda t: F.instance_norm(t),
        lambda t: F.layer_norm(t, t.shape[-2:]),
        lambda t: F.rms_norm(t, t.shape[-1:]),
    ):
        theirs, mine = x.detach().requires_grad_(), cartograd.tensor(x, requires_grad=True)
        seed = torch.randn_like(x).transpose(2, 3).contiguous().transpose(2, 3)
        (expected,) = torch.autograd.grad(call(theirs), theirs, seed)
        (found,) = cartograd.grad(call(mine), mine, seed)
        close(found, expected)


def test_an_empty_batch():
    for module in (nn.BatchNorm1d(3), nn.BatchNorm1d(3).eval(), nn.BatchNorm1d(3, affine=False), nn.LayerNorm(5)):
        x = ours(torch.zeros(0, 3, 5))
        module(x).sum().backward()
        assert x.grad.shape == (0, 3, 5)
        for parameter in module.parameters():
            assert torch.equal(parameter.grad, torch.zeros_like(parameter))


def test_errors():
    x = ours(randn(1, 3))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        F.batch_norm(x, None, None, training=True)
    with pytest.raises(ValueError, match="more than 1 spatial element"):
        F.instance_norm(ours(randn(2, 3, 1)))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        F.group_norm(x, 3)
    with pytest.raises(ValueError, match="eps must be positive"):
        F.batch_norm(ours(randn(4, 3)), None, None, training=True, eps=0.0)
    with pytest.raises(RuntimeError, match="evaluation mode"):
        F.batch_norm(x, None, None)
    with pytest.raises(RuntimeError, match="weight should contain 3 elements"):
        F.batch_norm(ours(randn(4, 3)), None, None, weight=torch.ones(2).double(), training=True)
    with pytest.raises(RuntimeError, match="divisible"):
        F.group_norm(ours(randn(4, 3, 2)), 2)
    with pytest.raises(RuntimeError, match="normalized_shape"):
        F.layer_norm(x, [4])


def test_gradients_of_parameters_by_name():
    """`grad` for a Parameter that an op has to repeat over the batch first."""
    module = nn.InstanceNorm1d(3, affine=True, track_running_stats=True).double()
    x = ours(randn(4, 3, 5))
    found = cartograd.grad(module(x).exp().sum(), [module.weight, module.bias])
    expected = torch.autograd.grad(module(x.data).exp().sum(), [module.weight, module.bias])
    for mine, other in zip(found, expected, strict=True):
        close(mine, other)


@pytest.mark.parametrize("shape", [(1, 4, 3, 5), (1, 4, 2, 3, 3), (2, 4, 1, 1), (1, 4, 1, 5)])
def test_group_norm_where_the_memory_format_is_ambiguous(shape):
    torch.manual_seed(0)
    form = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    x, weight, bias, seed = randn(*shape).contiguous(memory_format=form), randn(4), randn(4), randn(*shape)
    other = x.clone(memory_format=torch.contiguous_format).requires_grad_()
    mine = cartograd.tensor(x, requires_grad=True)
    expected, found = F.group_norm(other, 2, weight, bias), F.group_norm(mine, 2, weight, bias)
    expected.backward(seed)
    found.backward(seed)
    close(found, expected)
    close(mine.grad, other.grad)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm", [nn.BatchNorm2d, nn.InstanceNorm2d, lambda count: nn.GroupNorm(2, count)])
@pytest.mark.parametrize("arrange", [lambda p: torch.stack([p, -p], 1)[:, 0], lambda p: p[:1].expand(p.shape)])
def test_strided_and_expanded_parameters(norm, arrange, training):
    torch.manual_seed(0)
    dense = norm(4).double().train(training)
    module = copy.deepcopy(dense)
    for name, values in (("weight", randn(4)), ("bias", randn(4))):
        if getattr(dense, name) is None:
            values = None
        else:
            setattr(module, name, nn.Parameter(arrange(values)))
            setattr(dense, name, nn.Parameter(arrange(values).contiguous()))
    if getattr(module, "running_mean", None) is not None:
        module.running_mean = torch.stack([module.running_mean, randn(4)], 1)[:, 0]
    x, seed = randn(2, 4, 3, 5).contiguous(memory_format=torch.channels_last), randn(2, 4, 3, 5)
    seed = seed.contiguous(memory_format=torch.channels_last)
    mine, other = ours(x), x.clone(memory_format=torch.contiguous_format).requires_grad_()
    found, expected = module(mine), dense(other)
    found.backward(seed)
    expected.backward(seed.contiguous())
    close(found, expected)
    close(mine.grad, other.grad)
    for one, another in zip(module.parameters(), dense.parameters(), strict=True):
        close(one.grad, another.grad)
