"""Torch's own entry points on our tensors: each gives what it gives on torch's, or raises."""

import pytest
import torch
from torch import nn

import cartograd
from cartograd import errors

DATA = torch.tensor([[1.0, -2.0, 0.5], [0.3, 2.0, -1.0]], dtype=torch.float64)


def pair():
    """(layer, input) for torch's tensors and for ours, with the same values."""
    for make in (lambda: DATA.clone().requires_grad_(), lambda: cartograd.tensor(DATA.clone(), requires_grad=True)):
        torch.manual_seed(0)
        yield nn.Sequential(nn.Linear(3, 2), nn.Tanh()).double(), make()


def plain(value):
    return value.data if isinstance(value, cartograd.Tensor) else value.detach()


def compare(function):
    """`function(layer, x)` returns tensors (or None); they must be equal for torch's and for ours."""
    results = [function(layer, x) for layer, x in pair()]
    assert len(results[0]) == len(results[1])
    for theirs, mine in zip(*results, strict=True):
        assert (theirs is None) == (mine is None)
        if theirs is not None:
            torch.testing.assert_close(plain(mine), plain(theirs), rtol=1e-12, atol=1e-12)


# torch.autograd.backward


@pytest.mark.parametrize("listed", [True, False])
def test_backward_accumulates(listed):
    def run(layer, x):
        loss = layer(x).square().sum()
        torch.autograd.backward([loss] if listed else loss)
        return x.grad, layer[0].weight.grad, layer[0].bias.grad

    compare(run)


def test_backward_of_several_roots_with_gradients():
    def run(layer, x):
        y = layer(x)
        torch.autograd.backward([y, x * x, (layer[0].weight ** 2).sum()], [torch.ones(2, 2).double() * 3, DATA, None])
        return x.grad, layer[0].weight.grad, layer[0].bias.grad

    compare(run)


def test_backward_into_some_inputs():
    def run(layer, x):
        torch.autograd.backward(layer(x).sum(), inputs=[layer[0].weight])
        return x.grad, layer[0].weight.grad, layer[0].bias.grad

    compare(run)


def test_backward_twice_needs_retain_graph():
    def run(layer, x):
        loss = layer(x).sum()
        torch.autograd.backward(loss, retain_graph=True)
        torch.autograd.backward(loss)
        with pytest.raises(RuntimeError, match=r"retain_graph=True"):
            torch.autograd.backward(loss)
        return x.grad, layer[0].weight.grad

    compare(run)


def test_method_called_through_its_class():
    def run(layer, x):
        torch.Tensor.backward(layer(x).sum())
        return x.grad, layer[0].weight.grad

    compare(run)


def test_own_methods_called_through_torchs_class():
    x, calls = cartograd.tensor([1.0, 2.0], requires_grad=True), []
    y = x * 3
    torch.Tensor.register_hook(y, lambda g: calls.append(g.tolist()))
    torch.Tensor.register_post_accumulate_grad_hook(x, lambda leaf: calls.append(leaf.grad.tolist()))
    torch.Tensor.backward(y.sum())
    assert calls == [[1.0, 1.0], [3.0, 3.0]]


# torch.autograd.grad


def test_grad_of_inputs_and_parameters():
    def run(layer, x):
        return torch.autograd.grad(layer(x).square().sum(), [x, layer[0].weight])

    compare(run)


def test_gradients_of_parameters_are_plain_tensors():
    """They can be assigned to ``.grad``, as code for torch does."""
    _, (layer, x) = pair()
    found = torch.autograd.grad(layer(x).sum(), layer.parameters())
    for parameter, one in zip(layer.parameters(), found, strict=True):
        parameter.grad = one


@pytest.mark.skipif(torch.torch_version.TorchVersion(torch.__version__) < "2.13", reason="this torch takes no dict")
def test_grad_of_a_dict():
    compare(lambda layer, x: list(torch.autograd.grad(layer(x).sum(), {"x": x}).values()))


def test_grad_with_create_graph():
    def run(layer, x):
        (first,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad((first.norm(dim=1) - 1).square().sum(), [x, layer[0].weight])

    compare(run)


def test_unused_inputs():
    def run(layer, x):
        other = nn.Parameter(torch.ones(3).double())
        loss = layer(x).sum()
        with pytest.raises(RuntimeError, match=r"not .*used"):
            torch.autograd.grad(loss, [x, other], retain_graph=True)
        found = torch.autograd.grad(loss, [x, other], allow_unused=True, retain_graph=True)
        return (*found, *torch.autograd.grad(loss, [x, other], materialize_grads=True))

    compare(run)


@pytest.mark.parametrize("retain", [True, False])
def test_batched_gradients(retain):
    def run(layer, x):
        y = layer(x)
        seeds = torch.eye(4, dtype=torch.float64).view(4, 2, 2)
        found = torch.autograd.grad(y, [x, layer[0].weight], seeds, is_grads_batched=True, retain_graph=retain)
        return (*found, *(torch.autograd.grad(y.sum(), x) if retain else ()))

    compare(run)


def test_a_gradient_edge_is_refused():
    _, (layer, x) = pair()
    edge = torch.autograd.graph.get_gradient_edge(layer[0].weight)
    with pytest.raises(errors.UnsupportedError, match="takes tensors, not a GradientEdge"):
        torch.autograd.grad(layer(x).sum(), edge)


@pytest.mark.parametrize("plainly", [True, False])
def test_inside_recording(plainly):
    """Torch's own graphs and ours each take their way."""

    def run(layer, x):
        with cartograd.recording():
            y = DATA.clone().requires_grad_() if plainly else x
            loss = layer(y).square().sum()
            found = torch.autograd.grad(loss, list(layer.parameters()), retain_graph=True)
            torch.autograd.backward(loss)
        return (*found, *(p.grad for p in layer.parameters()))

    compare(run)


# torch.autograd.detect_anomaly


@pytest.mark.parametrize("mode", [torch.autograd.detect_anomaly, lambda: torch.autograd.set_detect_anomaly(True)])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_torchs_anomaly_mode_names_the_op_whose_gradient_is_nan(mode, workers):
    x = cartograd.tensor([0.0, 1.0], requires_grad=True)
    with mode():
        loss = (x.sqrt() * 0).sum()
        with pytest.raises(
            RuntimeError, match=r"the gradient of sqrt has a NaN; the op was called at .*test_torch_entry"
        ):
            loss.backward(workers=workers)
        (x.log() * 0 + x).sum()  # a NaN in a forward is none of its business
    (x.sqrt() * 0).sum().backward()
    assert x.grad[0].isnan()


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_torchs_anomaly_mode_lets_an_infinity_pass_and_finds_the_nan_behind_it():
    x, y = cartograd.tensor([0.0], requires_grad=True), cartograd.tensor([0.0], requires_grad=True)
    with torch.autograd.detect_anomaly():
        x.sqrt().backward()
        assert x.grad.item() == float("inf")
        with pytest.raises(errors.AnomalyError, match=r"the gradient of div has a NaN"):
            (x.detach().requires_grad_() / y).backward()  # an Inf for x, a NaN for y
    with torch.autograd.detect_anomaly(check_nan=False):
        (x.sqrt() * 0).sum().backward()


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_a_captured_step_runs_as_it_is_in_torchs_anomaly_mode():
    def fn(x):
        leaf = x.detach().requires_grad_()
        (leaf.sqrt() * 0).sum().backward()
        return leaf.grad

    step = cartograd.capture(fn, cartograd.tensor([0.0]))
    assert step(cartograd.tensor([0.0])).isnan().all()
    with torch.autograd.detect_anomaly(), pytest.raises(errors.AnomalyError, match="gradient of sqrt"):
        step(cartograd.tensor([0.0]))


# torch.autograd.graph.saved_tensors_hooks


def test_torchs_saved_tensors_hooks_apply_to_our_ops():
    packed, unpacked = [], []

    def pack(tensor):
        packed.append(tensor)
        return tensor.half()

    def unpack(half):
        unpacked.append(half)
        return half.double()

    x = cartograd.tensor([0.1, 0.2], dtype=torch.float64, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        loss = (x.exp() * x).sum() + torch.special.erfcx(x).sum()
    count = len(packed)
    assert count >= 4
    assert all(type(one) is torch.Tensor for one in packed)
    (x * x).sum()
    assert len(packed) == count
    loss.backward()
    assert len(unpacked) == count
    assert 0 < (x.grad - (x.detach().exp() * (1 + x.detach()) + _slope_of_erfcx(x.detach()))).abs().max() < 1e-2


def _slope_of_erfcx(x):
    return 2 * x * torch.special.erfcx(x) - 2 / torch.pi**0.5


def test_torchs_save_on_cpu_and_nested_hooks():
    x = cartograd.tensor([1.0, 2.0], requires_grad=True)
    outer, inner = [], []
    hooks = torch.autograd.graph.saved_tensors_hooks
    with hooks(lambda t: outer.append(t) or t, lambda t: t):
        y = x.exp()
        with hooks(lambda t: inner.append(t) or t, lambda t: t), cartograd.saved_tensors_hooks(len, len):
            pass
        with torch.autograd.graph.save_on_cpu():
            y = y * x
        with hooks(lambda t: inner.append(t) or t, lambda t: t) as entered:
            y = y.sin()
        assert entered is None
        y = y.cos()
    y.sum().backward()
    assert (len(outer), len(inner)) == (2, 1)
    data = x.data.clone().requires_grad_()
    (data.exp() * data).sin().cos().sum().backward()
    torch.testing.assert_close(x.grad.data, data.grad)


@pytest.mark.parametrize("disabled", [True, False])
def test_hooks_that_torch_refuses_are_refused(disabled):
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
    with torch.autograd.graph.disable_saved_tensors_hooks("not here") if disabled else hooks:
        if disabled:
            with pytest.raises(RuntimeError, match="not here"), hooks:
                raise AssertionError("not reached")
    assert cartograd.tensor([1.0], requires_grad=True).exp().node.saved[0].item() > 2.7


def test_torchs_checkpoint_gives_the_right_gradients():
    def run(layer, x):
        layer.append(nn.Dropout(0.5))
        torch.manual_seed(3)
        y = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
        (y.square().sum() + torch.special.erfcx(y).sum()).backward()
        return x.grad, layer[0].weight.grad, layer[0].bias.grad

    compare(run)


# torch.distributions


@pytest.mark.parametrize(
    "make",
    [
        lambda x: torch.distributions.Normal(x, 0.1),
        lambda x: torch.distributions.Normal(0.1, x.exp()),
        lambda x: torch.distributions.Gamma(x.exp(), 0.3),
        lambda x: torch.distributions.Uniform(-10.1, x.exp() + 20),
        lambda x: torch.distributions.Laplace(x, 0.7),
        lambda x: torch.distributions.StudentT(3.3, x, 0.7),
        lambda x: torch.distributions.LogNormal(x, 0.7),
    ],
)
def test_numbers_beside_a_double_are_doubles(make):
    def run(layer, x):
        found = make(x).log_prob(torch.full((2, 3), 0.4, dtype=torch.float64))
        found.sum().backward()
        return found, x.grad

    compare(run)


def test_distributions_without_our_tensors_are_torchs():
    assert torch.distributions.Normal(0.0, 1.0).loc.dtype == torch.float32
    assert torch.distributions.Normal(DATA, 1).scale.dtype == torch.float64
    with pytest.raises(ValueError, match="Input arguments must all be instances of Number"):
        torch.distributions.Normal("a", 1.0)


# torch.jit


def scripted(kind, layer):
    """A module or function of torch.jit that computes what `layer` does."""
    return torch.jit.script(layer) if kind == "script" else torch.jit.trace(layer, DATA)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("kind", ["script", "trace"])
@pytest.mark.parametrize("wanted", [True, False])
def test_modules_of_torchs_jit_are_trained(kind, wanted):
    def run(layer, x):
        x = x.requires_grad_(wanted)
        module = scripted(kind, layer)
        for _ in range(3):  # the third call is of optimized code
            (module(x).square().sum() + module(x * 2).sum()).backward()
        return x.grad, *(p.grad for p in module.parameters())

    compare(run)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_module_of_torchs_jit_inside_another():
    def run(layer, x):
        y = nn.Sequential(scripted("script", layer), nn.Tanh())(x).square().sum()
        first = torch.autograd.grad(y, [x, *layer.parameters()], create_graph=True)
        return torch.autograd.grad(sum((one * one).sum() for one in first), [x, *layer.parameters()])

    compare(run)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("around", ["checkpoint", "budget", "hooks"])
def test_a_module_of_torchs_jit_where_memory_is_saved(around):
    def run(layer, x):
        module = scripted("script", nn.Sequential(layer, nn.Linear(2, 2).double(), nn.Tanh()))
        if not isinstance(x, cartograd.Tensor):
            module(x).square().sum().backward()
        elif around == "checkpoint":
            cartograd.checkpoint(lambda x: module(x).square().sum(), x).backward()
        elif around == "hooks":
            with cartograd.saved_tensors_hooks(torch.clone, torch.clone):
                loss = module(x).square().sum()
            loss.backward()
        else:
            with cartograd.memory_budget("1MiB"):
                module(x).square().sum().backward()
        return x.grad, *(p.grad for p in module.parameters())

    compare(run)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_frozen_parameters_and_no_grad_in_a_module_of_torchs_jit():
    _, (layer, x) = pair()
    module = scripted("script", layer.requires_grad_(False))
    assert module(x).requires_grad
    assert not module(x.detach()).requires_grad
    layer.requires_grad_(True)
    with cartograd.no_grad():
        assert not module(x).requires_grad


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("kind", ["script", "trace"])
def test_functions_of_torchs_jit(kind):
    def scaled_sine(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 2

    function = scripted(kind, scaled_sine)

    def run(layer, x):
        y = function(x)
        y.sum().backward()
        return y, x.grad

    compare(run)
