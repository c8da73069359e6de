"""saved_tensors_hooks and offload_to_cpu: the hooks really run, on everything saved, and change nothing else."""

import gc
import pickle

import pytest
import torch
from torch import nn

import cartograd
from cartograd import errors
from cartograd.engine.saved_hooks import Mover


def leaf(*shape, seed=0):
    print("seed", seed)
    generator = torch.Generator().manual_seed(seed)
    return cartograd.tensor(torch.randn(shape, generator=generator, dtype=torch.float64), requires_grad=True)


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.LayerNorm(6), nn.Linear(6, 2)).double()


class Counting:
    def __init__(self):
        self.packed, self.unpacked = [], []

    def pack(self, tensor):
        assert type(tensor) in (torch.Tensor, nn.Parameter)
        assert not torch.is_grad_enabled()
        self.packed.append(tuple(tensor.shape))
        return pickle.dumps(tensor.detach())

    def unpack(self, packed):
        assert not torch.is_grad_enabled()
        made = pickle.loads(packed)
        self.unpacked.append(tuple(made.shape))
        return made


def gradients(model, x, context):
    model.zero_grad()
    x.grad = None
    with context:
        loss = (model(x) ** 2).sum()
    loss.backward()
    return [x.grad.data, *(p.grad for p in model.parameters())]


def test_same_bits_through_pickle_and_every_packed_tensor_is_unpacked():
    model, x, hooks = network(), leaf(5, 4), Counting()
    plain = gradients(model, x, cartograd.enable_grad())
    packed = gradients(model, x, cartograd.saved_tensors_hooks(hooks.pack, hooks.unpack))
    assert all(map(torch.equal, plain, packed))
    assert len(hooks.packed) >= 6
    assert sorted(hooks.packed) == sorted(hooks.unpacked)


def test_values_are_not_kept_besides():
    hooks = Counting()
    x = leaf(1000)
    with cartograd.saved_tensors_hooks(hooks.pack, hooks.unpack):
        y = x.exp().sin()
    assert sum(saved.bytes for saved in cartograd.trace(y).saved()) == 0
    y.sum().backward()
    torch.testing.assert_close(x.grad.data, x.data.exp().cos() * x.data.exp())


def test_a_tensor_saved_twice_by_an_op_is_packed_once():
    hooks, x = Counting(), leaf(3)
    with cartograd.saved_tensors_hooks(hooks.pack, hooks.unpack):
        y = x * x
    assert hooks.packed == [(3,)]
    y.sum().backward()
    assert hooks.unpacked == [(3,)]


def test_hooks_run_in_what_torch_differentiates():
    hooks, x = Counting(), leaf(3)
    with cartograd.saved_tensors_hooks(hooks.pack, hooks.unpack):
        y = torch.special.i0(x)
    assert "torch" in cartograd.trace(y).explain()
    assert hooks.packed
    y.sum().backward()
    assert hooks.unpacked
    torch.testing.assert_close(x.grad.data, torch.special.i1(x.data))


def test_retain_graph_unpacks_again_and_a_freed_graph_says_so():
    hooks, x = Counting(), leaf(3)
    with cartograd.saved_tensors_hooks(hooks.pack, hooks.unpack):
        y = x.exp().sum()
    y.backward(retain_graph=True)
    y.backward()
    assert len(hooks.unpacked) == 2
    torch.testing.assert_close(x.grad.data, 2 * x.data.exp())
    with pytest.raises(errors.GraphFreedError, match="retain_graph=True"):
        y.backward()


def test_innermost_hooks_count_and_the_block_ends():
    outer, inner, x = Counting(), Counting(), leaf(3)
    with cartograd.saved_tensors_hooks(outer.pack, outer.unpack):
        y = x.sin()
        with cartograd.saved_tensors_hooks(inner.pack, inner.unpack):
            y = y.exp()
        y = y.cos()
    y = y * y
    assert (len(outer.packed), len(inner.packed)) == (2, 1)
    y.sum().backward()
    assert (len(outer.unpacked), len(inner.unpacked)) == (2, 1)


def test_second_derivative():
    hooks, x = Counting(), leaf(3)
    with cartograd.saved_tensors_hooks(hooks.pack, hooks.unpack):
        (first,) = cartograd.grad((x**3).sum(), x, create_graph=True)
        (second,) = cartograd.grad(first.sum(), x)
    torch.testing.assert_close(second.data, 6 * x.data)
    assert hooks.unpacked


def test_what_unpack_returns_is_checked():
    x = leaf(3)
    with cartograd.saved_tensors_hooks(lambda t: t, lambda t: t[:2]):
        y = x.exp().sum()
    with pytest.raises(errors.VjpError, match=r"shape \(2,\).*exp \(called at .*test_saved_hooks\.py.*shape \(3,\)"):
        y.backward()
    with cartograd.saved_tensors_hooks(lambda t: t, lambda t: 3):
        y = x.exp().sum()
    with pytest.raises(errors.VjpError, match="returned a int"):
        y.backward()


def test_errors_in_hooks_name_the_op():
    def refuse(value):
        raise OSError("disk full")

    x = leaf(3)
    with pytest.raises(OSError, match="disk full") as caught, cartograd.saved_tensors_hooks(refuse, refuse):
        x.exp()
    assert "saved by exp, called at" in caught.value.__notes__[0]
    with cartograd.saved_tensors_hooks(lambda t: t, refuse):
        y = x.exp().sum()
    with pytest.raises(OSError, match="disk full") as caught:
        y.backward()
    assert "unpack hook" in caught.value.__notes__[0]
    x.exp().sum().backward()  # the mode was left


def test_an_in_place_change_is_seen_where_the_tensor_itself_is_kept():
    x = leaf(3)
    with cartograd.saved_tensors_hooks(lambda t: t, lambda t: t):
        y = x.exp()
        loss = y.sum()
    y.data.add_(1)
    with pytest.raises(errors.InplaceError, match="exp"):
        loss.backward()


def test_anomaly_names_the_op_with_its_values():
    x = cartograd.tensor([0.0], requires_grad=True)
    with cartograd.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        y = x.sqrt().sum()
    message = r"gradient of sqrt has an Inf.*test_saved_hooks\.py.*in \[0, 0\]"
    with pytest.raises(errors.AnomalyError, match=message), cartograd.detect_anomaly():
        y.backward()


def test_other_threads_are_not_concerned():
    import threading

    hooks, x = Counting(), leaf(3)
    made = []
    with cartograd.saved_tensors_hooks(hooks.pack, hooks.unpack):
        thread = threading.Thread(target=lambda: made.append(x.exp().sum()))
        thread.start()
        thread.join()
    assert hooks.packed == []
    made[0].backward()
    torch.testing.assert_close(x.grad.data, x.data.exp())


def test_offload_gives_the_same_bits():
    model, x = network(), leaf(5, 4)
    plain = gradients(model, x, cartograd.enable_grad())
    assert all(map(torch.equal, plain, gradients(model, x, cartograd.offload_to_cpu(min_bytes=0))))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("pin_memory", [False, True])
def test_offload_frees_the_device(pin_memory):
    x = cartograd.tensor(torch.randn(1 << 20, device="cuda"), requires_grad=True)
    before = torch.cuda.memory_allocated()
    with cartograd.offload_to_cpu(pin_memory=pin_memory):
        y = x
        for _ in range(8):
            y = y.sin()
        loss = y.sum()
    del y
    assert torch.cuda.memory_allocated() - before < 4 << 20
    loss.backward()
    other = x.data.clone().requires_grad_()
    y = other
    for _ in range(8):
        y = y.sin()
    y.sum().backward()
    assert torch.equal(x.grad.data, other.grad)


def test_mover_copies_shared_memory_once_and_gives_layouts_back():
    mover = Mover()
    base = torch.arange(12.0).view(3, 4)
    whole, turned = mover.out(base), mover.out(base.t())
    assert whole[0] is turned[0]
    for packed, original in ((whole, base), (turned, base.t()), (mover.out(base[:, 1]), base[:, 1])):
        back = mover.back(packed)
        assert torch.equal(back, original)
        assert back.stride() == original.stride()
    base.add_(1)
    assert mover.out(base)[0] is not whole[0], "changed since, so copied again"
    copy = mover.out(base)[0]
    del whole, turned, packed, base, back, original
    gc.collect()
    assert torch.equal(copy, torch.arange(12.0) + 1)
