"""What is replaced in torch: a custom Function keeps its gradient, whatever kind of method torch's own apply is."""

import logging
import subprocess
import sys

import pytest
import torch

import cartograd
from cartograd import errors
from cartograd.engine import torch_patches
from cartograd.engine.torch_patches import adopt, is_ours, replace


class Cube(torch.autograd.Function):
    """x^3, with a gradient that nothing but its own backward gives: 3 x^2 + 1."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (3 * x * x + 1)


class Scaled(torch.autograd.Function):
    """The form with setup_context, two inputs and an option."""

    @staticmethod
    def forward(x, y, factor=2.0):
        return x * y * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])
        ctx.factor = inputs[2]

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y * ctx.factor, g * x * ctx.factor, None


def check_custom_functions():
    x = cartograd.tensor([1.0, 2.0], requires_grad=True)
    (Cube.apply(x * 2) * 3).sum().backward()
    assert x.grad.tolist() == [6 * 13.0, 6 * 49.0]
    y, z = cartograd.tensor([3.0], requires_grad=True), torch.nn.Parameter(torch.tensor([5.0]))
    Scaled.apply(y, z).sum().backward()
    assert (y.grad.item(), z.grad.item()) == (10.0, 6.0)
    Scaled.apply(y, z, 1.0).sum().backward()
    assert (y.grad.item(), z.grad.item()) == (15.0, 9.0)
    (first,) = cartograd.grad(Cube.apply(y), y, create_graph=True)
    assert cartograd.grad(first, y)[0].item() == 18.0
    plain = torch.tensor([2.0], requires_grad=True)
    Cube.apply(plain).sum().backward()
    assert plain.grad.item() == 13.0


def test_a_custom_function_keeps_its_gradient():
    check_custom_functions()


@pytest.mark.parametrize("kind", ["Python", "C"])
def test_both_kinds_of_apply_are_replaced(monkeypatch, kind):
    """Torch 2.13 and older have a classmethod in Python, 2.14 and newer one in C."""
    original = torch._C._FunctionBase.__dict__["apply"]
    assert type(original).__name__ == "classmethod_descriptor"
    if kind == "Python":
        original = classmethod(lambda cls, *args: torch._C._FunctionBase.__dict__["apply"].__get__(None, cls)(*args))
    monkeypatch.setattr(torch.autograd.Function, "apply", original)
    if kind == "Python":
        x = cartograd.tensor([1.0], requires_grad=True)
        assert not Cube.apply(x).requires_grad, "the gradient is lost silently without the replacement"
    adopt()
    assert is_ours(vars(torch.autograd.Function)["apply"])
    x = cartograd.tensor([1.0, 2.0], requires_grad=True)
    Cube.apply(x).sum().backward()
    assert x.grad.tolist() == [4.0, 13.0]


def test_the_second_call_changes_nothing():
    before = vars(torch.autograd.Function)["apply"]
    adopt()
    assert vars(torch.autograd.Function)["apply"] is before


def test_tensors_inside_lists_reach_a_custom_function():
    class Total(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, others):
            assert type(others[0]) is torch.Tensor
            return x + sum(others)

        @staticmethod
        def backward(ctx, g):
            return g, None

    x, other = cartograd.tensor([1.0], requires_grad=True), cartograd.tensor([2.0])
    out = Total.apply(x, [other, other])
    out.backward()
    assert (out.item(), x.grad.item()) == (5.0, 1.0)


@pytest.mark.parametrize("register", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_backward_hooks_of_modules_are_refused(register):
    layer = torch.nn.Linear(2, 1)
    getattr(layer, register)(lambda *_: None)
    for wanted in (True, False):
        with pytest.raises(errors.UnsupportedError, match=r"full backward hook cannot see .* use tensor.register_hook"):
            layer(cartograd.tensor(torch.ones(3, 2), requires_grad=wanted))
    layer(torch.ones(3, 2, requires_grad=True)).sum().backward()
    assert layer.weight.grad.tolist() == [[3.0, 3.0]]


class OursInside(torch.nn.Module):
    """Its forward computes with a Parameter and a tensor of ours."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        return {"out": [cartograd.tensor(x) * self.weight]}


@pytest.fixture
def group():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_distributed_data_parallel_is_refused_where_it_would_not_average(group):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    x = torch.ones(3, 2)
    with pytest.raises(errors.UnsupportedError, match=r"does not average .* torch.distributed.all_reduce"):
        model(cartograd.tensor(x))
    with cartograd.recording(), pytest.raises(errors.UnsupportedError, match="does not average"):
        model(x)
    with pytest.raises(errors.UnsupportedError, match="does not average"):
        torch.nn.parallel.DistributedDataParallel(OursInside())(x)
    with torch.no_grad():
        assert torch.equal(model(cartograd.tensor(x)).data, model(x))
    model(x).sum().backward()
    assert model.module.weight.grad.tolist() == [[3.0, 3.0]]


def test_a_missing_entry_is_named_in_one_line(monkeypatch, caplog):
    def install():
        replace(torch.utils.hooks, "no_such_name", lambda original: original)

    monkeypatch.setattr(torch_patches, "REPLACEMENTS", {"this": install, "that": install, "none": lambda: None})
    with caplog.at_level(logging.WARNING, "cartograd.engine"):
        adopt()
    (record,) = caplog.records
    assert record.getMessage().endswith("with cartograd tensors, do not use this, that")
    assert torch.__version__ in record.getMessage()


def test_cartograd_is_imported_where_torch_cannot_be_changed():
    program = (
        "import torch.utils.hooks\n"
        "del torch.utils.hooks.BackwardHook.setup_input_hook\n"
        "import cartograd\n"
        "x = cartograd.tensor([2.0], requires_grad=True)\n"
        "(x * x).backward()\n"
        "print(x.grad.item())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "4.0\n"
    assert len(done.stderr.splitlines()) == 1
    assert "do not use full backward hooks of modules" in done.stderr
