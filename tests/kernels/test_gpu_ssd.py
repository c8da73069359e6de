"""The SSD scan's kernels against torch in float64: values, the last state, and the gradients of all five inputs."""

import pytest
import torch

import cartograd
from cartograd.nn import Mamba3, trapezoid
from cartograd.nn.trapezoid import chunked_scan
from cartograd.ops import ssd_gpu
from cartograd.ops.ssd_trapezoid import trapezoid_ssd

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

Q = 64  # rows of a tile: Q // ranks steps
LIMITS = {torch.float32: 1e-5, torch.float16: 0.005, torch.bfloat16: 0.02}
NAMES = ["y", "final state", "v", "da", "B", "C", "initial state"]
scan = cartograd.double_ssd.as_torch()


def inputs(steps, ranks=1, heads=4, groups=1, queries=None, batch=2, p=32, r=32, dtype=torch.float32, seed=0):
    """One chunk of the op holds the whole sequence: the kernels cut it as they like."""
    print("seed", seed)
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    keys = (batch, 1, steps)
    return [
        normal(*keys, ranks, heads, p).to(dtype),
        -(normal(*keys, heads).abs() * 0.2).float(),
        normal(*keys, ranks, groups, r).to(dtype),
        normal(*keys, queries or ranks, groups, r).to(dtype),
        normal(batch, heads, p, r).float(),
    ]


def with_gradients(tensors, device, dtype=None, seed=1):
    """y, the final state and the gradients of <y, random> + <final state, random>, in float64 on the CPU."""
    given = [None if one is None else one.to(device, dtype or one.dtype).requires_grad_() for one in tensors]
    y, state = scan(*given)
    generator = torch.Generator().manual_seed(seed)
    seeds = [torch.randn(one.shape, generator=generator).to(tensors[0].dtype) for one in (y, state)]
    torch.autograd.backward((y, state), [one.to(device, out.dtype) for one, out in zip(seeds, (y, state), strict=True)])
    found = [y, state, *(None if one is None else one.grad for one in given)]
    return [None if one is None else one.detach().double().cpu() for one in found]


def assert_agree(tensors, limit):
    assert ssd_gpu.gpu_kernels(*[None if one is None else one.cuda() for one in tensors]) is not None
    found = with_gradients(tensors, "cuda")
    expected = with_gradients(tensors, "cpu", torch.float64)
    for name, one, other in zip(NAMES, found, expected, strict=True):
        if other is not None:
            error = ((one - other).abs().max() / other.abs().max()).item()
            assert error < limit, f"{name}: {error:.1e}"


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("chunks", [(0, 1), (1, -1), (1, 0), (1, 1), (3, 5)], ids=str)
def test_lengths_and_ranks(ranks, chunks):
    steps = max(1, chunks[0] * (Q // ranks) + chunks[1])
    assert_agree(inputs(steps, ranks, heads=2, seed=steps), LIMITS[torch.float32])


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("dtype", list(LIMITS), ids=str)
def test_groups_and_dtypes(dtype, groups):
    assert_agree(inputs(2 * Q + 7, 2, groups=groups, dtype=dtype, seed=groups), LIMITS[dtype])


@pytest.mark.parametrize("groups", [1, 4])
def test_whole_tiles(groups):
    assert_agree(inputs(9 * Q, groups=groups, p=64, r=128, dtype=torch.bfloat16), LIMITS[torch.bfloat16])


@pytest.mark.parametrize("shape", [(20, 40), (80, 24), (64, 160)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_channels_that_do_not_fill_tiles(dtype, shape):
    assert_agree(inputs(70, heads=2, p=shape[0], r=shape[1], dtype=dtype), LIMITS[dtype])


@pytest.mark.parametrize(("ranks", "queries"), [(4, 2), (1, 3)])
def test_other_ranks_of_queries_than_of_keys(ranks, queries):
    assert_agree(inputs(75, ranks, queries=queries, groups=2), LIMITS[torch.float32])


def test_from_zero():
    tensors = inputs(100)
    tensors[4] = None
    assert_agree(tensors, LIMITS[torch.float32])


def test_small_decays_beside_large_ones():
    """Differences of one running sum in float32 would lose the small ones."""
    tensors = inputs(200)
    generator = torch.Generator().manual_seed(3)
    tensors[1] = -(10 ** (1.5 * torch.randn(tensors[1].shape, generator=generator)))
    assert_agree(tensors, LIMITS[torch.float32])


def test_no_decay_total_decay_and_growth():
    tensors = [one.cuda() for one in inputs(130, heads=2)]
    tensors[1][:, :, 3] = 0
    tensors[1][:, :, 70] = -torch.inf
    tensors[1][:, :, 90] = 0.7
    y, state = scan(*tensors)
    expected = scan(*[one.double() for one in tensors])
    torch.testing.assert_close(y.double(), expected[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(state.double(), expected[1], rtol=1e-4, atol=1e-4)
    given = [one.requires_grad_() for one in tensors]
    sum(one.sum() for one in scan(*given)).backward()
    assert all(one.grad.isfinite().all() for one in given)


def test_half_precision_keeps_its_dtypes_and_float16_its_range():
    tensors = [one.cuda().requires_grad_() for one in inputs(3 * Q, dtype=torch.float16)]
    with torch.no_grad():
        tensors[1].zero_()
        for one in (tensors[0], tensors[2]):
            one.copy_(one.abs() * 30)  # the state passes 65,504, the largest float16
        tensors[3].mul_(1e-4)
    y, state = scan(*tensors)
    (y.float().sum() + state.sum() * 1e-6).backward()
    assert (y.dtype, state.dtype, tensors[0].grad.dtype) == (torch.float16, torch.float32, torch.float16)
    assert state.max() > 65504
    assert y.isfinite().all()
    assert all(one.grad.isfinite().all() for one in tensors[:3])  # that of C is the state itself


def test_views_are_taken_as_they_are():
    tensors = [one.cuda() for one in inputs(90)]
    expected = scan(*tensors)
    wide = [torch.cat([one, one], -1) for one in tensors]
    strided = [one[..., : one.shape[-1] // 2] for one in wide]
    strided[3] = tensors[3].transpose(-1, -2).contiguous().transpose(-1, -2)
    for one, other in zip(scan(*strided), expected, strict=True):
        assert torch.equal(one, other)


def test_the_same_bits_every_time():
    tensors = inputs(9 * Q, p=64, r=128, dtype=torch.bfloat16)
    runs = [with_gradients(tensors, "cuda") for _ in range(3)]
    for run in runs[1:]:
        assert all(torch.equal(one, other) for one, other in zip(runs[0], run, strict=True))


def test_on_our_engine_nothing_is_saved_but_the_inputs():
    given = [cartograd.tensor(one.cuda(), requires_grad=True) for one in inputs(90)]
    y, state = cartograd.double_ssd(*given)
    assert sum(block.bytes for block in cartograd.trace(y).saved()) == sum(one.data.nbytes for one in given)
    (y.sum() + state.sum()).backward()
    tensors = [one.data.double().cpu().requires_grad_() for one in given]
    sum(one.sum() for one in scan(*tensors)).backward()
    for mine, other in zip(given, tensors, strict=True):
        error = (mine.grad.data.double().cpu() - other.grad).abs().max() / other.grad.abs().max()
        assert error < 1e-5


def test_what_the_kernels_do_not_take_is_torchs():
    small = [one.cuda() for one in inputs(9, p=3, r=5)]
    assert ssd_gpu.gpu_kernels(*small) is None
    double = [one.cuda().double() for one in inputs(9)]
    assert ssd_gpu.gpu_kernels(*double) is None
    assert ssd_gpu.gpu_kernels(*inputs(9)) is None  # on the CPU
    for tensors in (small, double):
        y, _ = scan(*tensors)
        expected, _ = scan(*[one.double().cpu() for one in tensors])
        torch.testing.assert_close(y.double().cpu(), expected, rtol=1e-4, atol=1e-4)


def test_a_whole_sequence_in_the_blocks_chunks():
    """As Mamba3 calls it: padded to whole chunks."""
    v, da, B, C, state = (one.cuda() for one in inputs(75))
    flat = [one.flatten(1, 2) for one in (v, da, B, C)]
    y, last = chunked_scan(16, "recompute")(*flat, state)
    expected, expected_last = scan(v.double(), da.double(), B.double(), C.double(), state.double())
    torch.testing.assert_close(y.double(), expected.flatten(1, 2), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(last.double(), expected_last, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_trapezoidal_rule_in_one_pass(dtype, groups):
    v, da, B, C, state = inputs(2 * Q + 7, 2, groups=groups, dtype=dtype)
    generator = torch.Generator().manual_seed(5)
    scale, same = (torch.rand(da.shape, generator=generator) + 0.1 for _ in range(2))
    found = []
    for device, kind in (("cuda", None), ("cpu", torch.float64)):
        given = [one.to(device, kind or one.dtype).requires_grad_() for one in (v, da, B, C, scale, same, state)]
        out = trapezoid_ssd.as_torch()(*given)
        seeds = [torch.randn(one.shape, generator=torch.Generator().manual_seed(7)).to(dtype) for one in out]
        torch.autograd.backward(out, [one.to(device, to.dtype) for one, to in zip(seeds, out, strict=True)])
        found.append([one.detach().double().cpu() for one in (*out, *(leaf.grad for leaf in given))])
    for place, (one, other) in enumerate(zip(*found, strict=True)):
        error = ((one - other).abs().max() / other.abs().max()).item()
        assert error < LIMITS[dtype], f"{place}: {error:.1e}"


@pytest.mark.parametrize("each", [False, True])
def test_weights_of_zero_have_their_gradients(each):
    v, da, B, C, state = inputs(2 * Q + 7, 2, groups=4 if each else 1)
    generator = torch.Generator().manual_seed(5)
    scale, same = (torch.rand(da.shape, generator=generator) + 0.1 for _ in range(2))
    scale.view(-1)[::3], same.view(-1)[::5] = 0, 0
    found = []
    for device, kind in (("cuda", torch.float32), ("cpu", torch.float64)):
        given = [one.to(device, kind).requires_grad_() for one in (v, da, B, C, scale, same, state)]
        out = trapezoid_ssd.as_torch()(*given)
        (out[0].square().sum() + out[1].sum()).backward()
        found.append([leaf.grad.double().cpu() for leaf in given])
    for place, (one, other) in enumerate(zip(*found, strict=True)):
        assert (one - other).abs().max() / other.abs().max() < 1e-4, place


@pytest.mark.parametrize("rank", [1, 2])
def test_a_block_takes_the_pass_and_agrees_with_float64(rank, monkeypatch):
    torch.manual_seed(0)
    block, u = Mamba3(32, d_state=32, headdim=16, mimo_rank=rank), torch.randn(2, 90, 32)
    passes, real = [], trapezoid.fused
    monkeypatch.setattr(trapezoid, "fused", lambda terms: passes.append(1) or real(terms))
    found = []
    for device, dtype in (("cuda", torch.float32), ("cpu", torch.float64)):
        block.to(device, dtype).zero_grad()
        given = u.to(device, dtype).requires_grad_()
        y, cache = block(given, return_cache=True)
        (y.square().sum() + cache.state.sum()).backward()
        gradients = [one.grad.double().cpu() for one in block.parameters()]
        found.append([y.detach().double().cpu(), given.grad.double().cpu(), *gradients])
    assert len(passes) == 1
    for one, other in zip(*found, strict=True):
        assert (one - other).abs().max() < 1e-4 * other.abs().max()
