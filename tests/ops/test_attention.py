"""Attention by formula and by kernel: masks, unseeing rows, dropout, groups of heads, dtypes, and torch's modules."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import cartograd
from cartograd.engine.fallback import TorchPlan


def randn(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype)


def ours(tensor):
    return cartograd.tensor(tensor.detach().clone(), requires_grad=tensor.requires_grad)


def close(mine, other, tolerance=1e-10):
    mine = mine.data if isinstance(mine, cartograd.Tensor) else mine
    torch.testing.assert_close(mine, other.detach(), rtol=tolerance, atol=tolerance)


def nodes(out):
    return [node.name for node in cartograd.trace(out).nodes]


def require_own(out):
    assert not [node.name for node in cartograd.trace(out).nodes if isinstance(node.plan, TorchPlan)]


def compare(query, key, value, mask=None, tolerance=1e-10, name=None, **options):
    """Values and all gradients equal torch's; `name` is the op that must have done it."""
    wanted = [one.clone().requires_grad_() for one in (query, key, value)]
    if mask is not None:
        mask = mask.detach().clone().requires_grad_(mask.requires_grad)
    mine = [ours(one) for one in wanted]
    given = None if mask is None else (ours(mask) if mask.requires_grad else mask)
    torch.manual_seed(1)
    expected = F.scaled_dot_product_attention(*wanted, mask, **options)
    torch.manual_seed(1)
    found = F.scaled_dot_product_attention(*mine, given, **options)
    close(found, expected, tolerance)
    require_own(found)
    assert name is None or name in nodes(found)
    pairs = list(zip(mine, wanted, strict=True))
    pairs += [(given, mask)] if mask is not None and mask.requires_grad else []
    seed = torch.randn_like(expected)
    right = torch.autograd.grad(expected, [other for _, other in pairs], seed)
    for one, other in zip(cartograd.grad(found, [one for one, _ in pairs], seed), right, strict=True):
        assert one.dtype is other.dtype
        close(one, other, tolerance)
    return found


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_kernel_and_formula_agree_with_torch(causal, scale):
    torch.manual_seed(0)
    q, k, v = randn(2, 3, 4, 6), randn(2, 3, 5, 6), randn(2, 3, 5, 6)
    compare(q, k, v, is_causal=causal, scale=scale, name="fused_attention")
    with sdpa_kernel(SDPBackend.MATH):
        compare(q, k, v, is_causal=causal, scale=scale, name="attention")
    compare(q[0], k[0], v[0], is_causal=causal, scale=scale, name="attention")
    compare(q[0, 0], k[0, 0], v[0, 0, :, :2], is_causal=causal, scale=scale, name="attention")


MASKS = {
    "bool": lambda: torch.rand(4, 5) > 0.4,
    "bool_batch": lambda: torch.rand(2, 1, 4, 5) > 0.4,
    "float": lambda: randn(4, 5),
    "float_batch": lambda: randn(2, 3, 4, 5),
    "float_row": lambda: randn(1, 5),
    "float32": lambda: torch.randn(4, 5),
}


@pytest.mark.parametrize("kind", MASKS)
def test_masks(kind):
    torch.manual_seed(2)
    q, k, v = randn(2, 3, 4, 6), randn(2, 3, 5, 6), randn(2, 3, 5, 6)
    mask = MASKS[kind]()
    compare(q, k, v, mask)
    compare(q, k, v[..., :2], mask, name="attention")
    if mask.is_floating_point() and kind != "float32":
        compare(q, k, v, mask.requires_grad_(), name="attention")


@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_a_row_that_sees_nothing_is_zero(kind, backend):
    torch.manual_seed(3)
    q, k, v = randn(1, 2, 4, 6), randn(1, 2, 5, 6), randn(1, 2, 5, 6)
    seen = torch.rand(4, 5) > 0.3
    seen[1] = False
    mask = seen if kind == "bool" else torch.zeros(4, 5).double().masked_fill(~seen, -math.inf)
    with sdpa_kernel(backend):
        out = compare(q, k, v, mask)
        assert (out.data[:, :, 1] == 0).all()
        leaf = ours(q.requires_grad_())
        (first,) = cartograd.grad(
            F.scaled_dot_product_attention(leaf, ours(k), ours(v), mask).sum(), leaf, create_graph=True
        )
        (second,) = cartograd.grad((first * first).sum(), leaf)
        assert (first.data[:, :, 1] == 0).all()
        assert (second.data[:, :, 1] == 0).all()
        assert torch.isfinite(second.data).all()


def test_mask_and_causal_together():
    """torch allows both where its kernel does, and we everywhere."""
    torch.manual_seed(4)
    q, k, v = randn(1, 2, 4, 6), randn(1, 2, 5, 6), randn(1, 2, 5, 6)
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[2, 1] = False
    compare(q, k, v, mask, is_causal=True, name="fused_attention")
    one = F.scaled_dot_product_attention(ours(q), ours(k), ours(v[..., :3]), mask, is_causal=True)
    both = F.scaled_dot_product_attention(q, k, v[..., :3], mask & torch.ones(4, 5, dtype=torch.bool).tril())
    close(one, both)


@pytest.mark.parametrize("p", [0.3, 1.0])
def test_dropout_draws_as_torch_does(p):
    torch.manual_seed(5)
    q, k, v = randn(2, 3, 4, 6), randn(2, 3, 5, 6), randn(2, 3, 5, 6)
    compare(q, k, v, dropout_p=p, name="attention")
    compare(q, k, v, randn(4, 5).requires_grad_(), dropout_p=p)


@pytest.mark.parametrize("heads", [(6, 2), (6, 1), (4, 4)])
@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_groups_of_heads(heads, backend):
    torch.manual_seed(6)
    many, few = heads
    q, k, v = randn(2, many, 4, 6), randn(2, few, 5, 6), randn(2, few, 5, 6)
    with sdpa_kernel(backend):
        compare(q, k, v, enable_gqa=True)
        compare(q, k, v, torch.rand(2, 1, 4, 5) > 0.3, enable_gqa=True)
        compare(q, k, v, torch.rand(2, many, 4, 5) > 0.3, enable_gqa=True)
        given = [ours(one.requires_grad_()) for one in (q, k, v)]
        out = F.scaled_dot_product_attention(*given, enable_gqa=True)
        (first,) = cartograd.grad(out.sum(), given[1], create_graph=True)
        second = cartograd.grad((first * first).sum(), given)
    wide = [q, *(one.repeat_interleave(many // few, 1) for one in (k, v))]
    with sdpa_kernel(SDPBackend.MATH):
        (first,) = torch.autograd.grad(F.scaled_dot_product_attention(*wide).sum(), k, create_graph=True)
        expected = torch.autograd.grad((first * first).sum(), [q, k, v])
    for mine, other in zip(second, expected, strict=True):
        close(mine, other)


def test_groups_must_divide():
    with pytest.raises(RuntimeError, match="multiple"):
        F.scaled_dot_product_attention(
            cartograd.tensor(randn(5, 4, 6)), randn(2, 4, 6), randn(2, 4, 6), enable_gqa=True
        )


def test_batches_are_broadcast():
    torch.manual_seed(7)
    compare(randn(4, 6), randn(3, 5, 6), randn(5, 2))
    compare(randn(2, 1, 4, 6), randn(3, 5, 6), randn(1, 3, 5, 6))


def test_no_keys_at_all():
    compare(randn(2, 3, 4, 6), randn(2, 3, 0, 6), randn(2, 3, 0, 6))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_dtype_is_kept(dtype):
    torch.manual_seed(8)
    q, k, v = (randn(2, 3, 5, 6, dtype=dtype) for _ in range(3))
    tolerance = 1e-5 if dtype == torch.float32 else 0.02
    assert compare(q, k, v, tolerance=tolerance, name="fused_attention").dtype is dtype
    assert compare(q, k, v[..., :2], tolerance=tolerance, name="attention").dtype is dtype


def test_the_formula_saves_no_matrix_of_weights():
    q, k, v = (cartograd.tensor(randn(40, 6), requires_grad=True) for _ in range(3))
    out = F.scaled_dot_product_attention(q, k, v)
    (node,) = cartograd.trace(out).nodes
    assert max(value.numel() for value in node.saved if isinstance(value, torch.Tensor)) < 40 * 40


def test_a_mask_of_integers_is_refused():
    q = cartograd.tensor(randn(4, 6))
    with pytest.raises(RuntimeError, match="bool or floating-point"):
        F.scaled_dot_product_attention(q, q, q, torch.ones(4, 4, dtype=torch.int64))


def compare_modules(module, tensors, call):
    """A module on torch tensors and on ours: values, gradients of inputs and parameters, and no torch derivative."""
    twin = copy.deepcopy(module)
    theirs = [one.clone().requires_grad_() for one in tensors]
    mine = [ours(one) for one in theirs]
    torch.manual_seed(9)
    expected = call(module, theirs)
    torch.manual_seed(9)
    found = call(twin, mine)
    for one, other in zip(found, expected, strict=True):
        close(one, other)
        require_own(one)
    seeds = [torch.randn_like(one) for one in expected]
    wanted = [*theirs, *module.parameters()]
    right = torch.autograd.grad(expected, wanted, seeds)
    for one, other in zip(cartograd.grad(found, [*mine, *twin.parameters()], seeds), right, strict=True):
        close(one, other)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize(
    "options", [{}, {"bias": False}, {"add_bias_kv": True, "add_zero_attn": True}, {"kdim": 3, "vdim": 5}]
)
def test_multi_head_attention(batch_first, need_weights, options):
    torch.manual_seed(10)
    module = nn.MultiheadAttention(4, 2, batch_first=batch_first, dtype=torch.float64, **options)
    widths = (4, options.get("kdim", 4), options.get("vdim", 4))
    tensors = [randn(2, 3, 4), randn(2, 3, widths[1]), randn(2, 3, widths[2])]

    def call(m, t):
        out, weights = m(*t, need_weights=need_weights)
        return [out] if weights is None else [out, weights]

    compare_modules(module, tensors, call)


def test_multi_head_self_attention_with_masks():
    torch.manual_seed(11)
    module = nn.MultiheadAttention(4, 2, batch_first=True, dtype=torch.float64)
    padding = torch.tensor([[False, False, True], [False, False, False]])
    causal = torch.ones(3, 3, dtype=torch.bool).triu(1)

    def call(m, t):
        return [m(t[0], t[0], t[0], key_padding_mask=padding, attn_mask=causal, need_weights=False)[0]]

    compare_modules(module, [randn(2, 3, 4)], call)
    compare_modules(module, [randn(3, 4)], lambda m, t: [m(t[0], t[0], t[0], attn_mask=causal)[0]])


def test_functional_form_takes_our_masks():
    """A learned mask gets its gradient; torch's own body would refuse it, for not being a ``torch.Tensor``."""
    torch.manual_seed(12)
    module = nn.MultiheadAttention(4, 2, dtype=torch.float64)
    x, mask = randn(3, 2, 4), randn(3, 3)

    def run(x, mask):
        return F.multi_head_attention_forward(
            x, x, x, 4, 2, module.in_proj_weight, module.in_proj_bias, None, None, False, 0.0,
            module.out_proj.weight, module.out_proj.bias, attn_mask=mask, need_weights=False,
        )[0]  # fmt: skip

    theirs, mine = mask.clone().requires_grad_(), cartograd.tensor(mask.clone(), requires_grad=True)
    (expected,) = torch.autograd.grad(run(x, theirs).sum(), theirs)
    (found,) = cartograd.grad(run(cartograd.tensor(x), mine).sum(), mine)
    close(found, expected)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_transformer_layers(norm_first, training):
    torch.manual_seed(13)
    options = {"batch_first": True, "norm_first": norm_first, "dtype": torch.float64}
    encoder = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.2, activation="gelu", **options).train(training)
    compare_modules(encoder, [randn(2, 3, 4)], lambda m, t: [m(t[0])])
    decoder = nn.TransformerDecoderLayer(4, 2, 6, dropout=0.2, **options).train(training)
    causal = nn.Transformer.generate_square_subsequent_mask(3, dtype=torch.float64)
    compare_modules(
        decoder, [randn(2, 3, 4), randn(2, 5, 4)], lambda m, t: [m(t[0], t[1], tgt_mask=causal, tgt_is_causal=True)]
    )


def test_whole_transformer():
    torch.manual_seed(14)
    module = nn.Transformer(4, 2, 2, 1, 6, dropout=0.1, batch_first=True, dtype=torch.float64)
    causal = nn.Transformer.generate_square_subsequent_mask(3, dtype=torch.float64)
    compare_modules(module, [randn(2, 5, 4), randn(2, 3, 4)], lambda m, t: [m(t[0], t[1], tgt_mask=causal)])


def test_second_derivative_through_a_layer():
    torch.manual_seed(15)
    module = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, activation="gelu", batch_first=True, dtype=torch.float64)
    x = randn(2, 3, 4)
    theirs, mine = x.clone().requires_grad_(), cartograd.tensor(x.clone(), requires_grad=True)
    weight = module.self_attn.in_proj_weight
    with sdpa_kernel(SDPBackend.MATH):
        (first,) = torch.autograd.grad(module(theirs).sin().sum(), theirs, create_graph=True)
        expected = torch.autograd.grad((first * first).sum(), [theirs, weight])
    (first,) = cartograd.grad(module(mine).sin().sum(), mine, create_graph=True)
    for one, other in zip(cartograd.grad((first * first).sum(), [mine, weight]), expected, strict=True):
        close(one, other)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["plain", "causal", "bool", "float", "row"])
def test_kernels_on_cuda(dtype, kind):
    """Against the formula in float64: torch's own kernels differ from each other by as much."""
    torch.manual_seed(16)
    q, k, v = (torch.randn(2, 3, 20, 16, dtype=dtype, device="cuda") for _ in range(3))
    mask = {
        "bool": torch.rand(2, 1, 20, 20, device="cuda") > 0.4,
        "float": torch.randn(20, 20, dtype=dtype, device="cuda"),
        "row": torch.randn(1, 20, dtype=dtype, device="cuda"),
    }.get(kind)
    mine = [cartograd.tensor(one, requires_grad=True) for one in (q, k, v)]
    exact = [cartograd.tensor(one.double().cpu(), requires_grad=True) for one in (q, k, v)]
    wide = None if mask is None else (mask if mask.dtype == torch.bool else mask.double()).cpu()
    out = F.scaled_dot_product_attention(*mine, mask, is_causal=kind == "causal")
    right = F.scaled_dot_product_attention(*exact, wide, is_causal=kind == "causal")
    assert nodes(out) == ["attention" if dtype == torch.float64 else "fused_attention"]
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-3, torch.bfloat16: 0.05}[dtype]
    close(out.data.double().cpu(), right.data, tolerance)
    seed = torch.randn_like(q)
    found = cartograd.grad(out, mine, seed)
    expected = cartograd.grad(right, exact, seed.double().cpu())
    for one, other in zip(found, expected, strict=True):
        assert one.dtype is dtype
        close(one.data.double().cpu(), other.data, tolerance)


@pytest.mark.parametrize("shape", [(3, 8), (2, 3, 8), (2, 2, 2, 3, 8)])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_of_other_than_four_axes_goes_by_the_formula(shape, causal, monkeypatch):
    """Torch 2.15 answers that a kernel can serve three axes, too: through its own entry, not directly."""
    monkeypatch.setattr(torch, "_fused_sdp_choice", lambda *args, **options: 1)
    torch.manual_seed(0)
    theirs = [randn(*shape).requires_grad_() for _ in range(3)]
    mine = [ours(one) for one in theirs]
    expected = F.scaled_dot_product_attention(*theirs, is_causal=causal)
    found = F.scaled_dot_product_attention(*mine, is_causal=causal)
    seed = randn(*shape)
    expected.backward(seed)
    found.backward(seed)
    close(found, expected)
    for one, other in zip(mine, theirs, strict=True):
        close(one.grad, other.grad)
