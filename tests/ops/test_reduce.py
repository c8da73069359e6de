"""Reductions, running sums and selections: what OpInfo's samples do not cover."""

import math

import pytest
import torch

import cartograd

NAN, INF = math.nan, math.inf


def both(function, *values, dtype=torch.float64):
    """(result, gradients) of ours and of torch, summed over floating outputs with weights 1, 2, 3, ..."""
    found = []
    for make in (lambda data: cartograd.tensor(data, requires_grad=True), lambda data: data.requires_grad_()):
        leaves = [make(torch.tensor(value, dtype=dtype)) for value in values]
        outs = function(*leaves)
        outs = outs if isinstance(outs, tuple) else (outs,)
        outs = [out for out in outs if out.requires_grad]
        weights = [torch.arange(1.0, out.numel() + 1).reshape(out.shape).to(out.dtype) for out in outs]
        for out, weight in zip(outs, weights, strict=True):
            out.backward(weight, retain_graph=True)
        found.append(([out.detach() for out in outs], [leaf.grad for leaf in leaves]))
    (ours, our_grads), theirs = found
    return ([out.data for out in ours], [grad.data for grad in our_grads]), theirs


def agree(function, *values, dtype=torch.float64):
    ours, theirs = both(function, *values, dtype=dtype)
    torch.testing.assert_close(ours[0], theirs[0], equal_nan=True)
    torch.testing.assert_close(ours[1], theirs[1], equal_nan=True)
    return ours[1][0]


def leaf(*shape, dtype=torch.float64, seed=0):
    print("seed", seed)
    data = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) - 0.5
    return cartograd.tensor(data.to(dtype), requires_grad=True)


SPELLINGS = [
    ("sum", lambda x: (x.sum(), torch.sum(x), x.sum(0, True), torch.sum(x, dim=(0, 1)), x.sum(axis=1, keepdims=True))),
    ("mean", lambda x: (x.mean(), torch.mean(x, [0]), x.mean(axis=-1))),
    ("prod", lambda x: (x.prod(), torch.prod(x, 1, True), x.prod(dim=0))),
    ("amax", lambda x: (x.amax(), torch.amax(x, (0, 1)), x.amax(axis=0))),
    ("amin", lambda x: (x.amin(), torch.amin(x, 1, keepdim=True))),
    ("logsumexp", lambda x: (x.logsumexp(0), torch.logsumexp(x, (0, 1)), torch.special.logsumexp(x, -1))),
    ("var", lambda x: (x.var(), x.var(False), x.var(0), x.var(0, False, True), torch.var(x, (0, 1), correction=0))),
    ("std", lambda x: (x.std(unbiased=False), torch.std(x, axis=0), x.std(1, keepdim=True, correction=2))),
    ("vector_norm", lambda x: (x.norm(), x.norm(1, 0), x.norm("fro", (0, 1)), torch.linalg.vector_norm(x, 3))),
    ("vector_norm", lambda x: (torch.linalg.norm(x), torch.linalg.norm(x, INF, 0), torch.linalg.norm(x, "fro"))),
    ("vector_norm", lambda x: (torch.norm(x), torch.norm(x, 2, dim=1), torch.norm(x, p=1.5))),
    ("cumsum", lambda x: (x.cumsum(0), torch.cumsum(x, -1), x.cumsum(axis=0))),
    ("cumprod", lambda x: (x.cumprod(0), torch.cumprod(x, dim=1))),
    ("logcumsumexp", lambda x: (x.logcumsumexp(0), torch.logcumsumexp(x, 1))),
    ("max_of_all", lambda x: (x.max(), torch.max(x), torch.max(input=x))),
    ("min_of_all", lambda x: (x.min(), torch.min(x))),
    ("median_of_all", lambda x: (x.median(), torch.median(x))),
    ("nansum", lambda x: (x.nansum(), torch.nansum(x, 0))),
]


@pytest.mark.parametrize(("name", "calls"), SPELLINGS)
def test_every_spelling_reaches_the_op(name, calls):
    x = leaf(3, 4)
    for result, expected in zip(calls(x), calls(x.data), strict=True):
        assert result.node.name == name
        torch.testing.assert_close(result.data, expected)


CHOOSING = [
    lambda x: x.max(0),
    lambda x: torch.max(x, dim=1, keepdim=True),
    lambda x: torch.min(x, axis=-1),
    lambda x: x.median(1),
    lambda x: x.nanmedian(0, True),
    lambda x: x.mode(0),
    lambda x: x.kthvalue(2),
    lambda x: x.topk(2, dim=0, largest=False),
    lambda x: x.sort(descending=True),
    lambda x: torch.sort(x, stable=True, dim=0),
    lambda x: x.cummax(1),
    lambda x: torch.cummin(x, 0),
]


@pytest.mark.parametrize("call", CHOOSING)
def test_values_and_indices_by_name(call):
    x = leaf(3, 4)
    result, expected = call(x), call(x.data)
    assert type(result) is type(expected)
    assert result.values.requires_grad
    assert not result.indices.requires_grad
    assert torch.equal(result.indices.data, expected.indices)
    agree(lambda one: call(one)[0], x.data.tolist())


def test_max_of_two_tensors_is_the_larger_of_each():
    agree(lambda a, b: torch.max(a, b), [1.0, 2.0, 3.0], [3.0, 2.0, 1.0])
    agree(lambda a, b: a.min(other=b), [1.0, 2.0, 3.0], [3.0, 2.0, 1.0])
    x = leaf(2, 3)
    assert torch.equal(x.max(torch.zeros(3)).data, x.data.clamp(min=0))


def test_ties_share_evenly_among_all_and_go_to_one_along_an_axis():
    assert agree(lambda x: x.amax(), [2.0, 2.0, 1.0]).tolist() == [0.5, 0.5, 0.0]
    assert agree(lambda x: x.amin(0), [2.0, 1.0, 1.0]).tolist() == [0.0, 0.5, 0.5]
    assert agree(lambda x: x.max(), [2.0, 2.0, 1.0]).tolist() == [0.5, 0.5, 0.0]
    assert agree(lambda x: x.median(), [2.0, 2.0, 1.0]).tolist() == [0.5, 0.5, 0.0]
    assert agree(lambda x: x.max(0).values, [2.0, 2.0, 1.0]).sum() == 1
    x = cartograd.tensor([2.0, 2.0, 1.0], requires_grad=True)
    torch.aminmax(x).max.backward()
    assert x.grad.tolist() == [0.5, 0.5, 0.0], "torch before 2.13 cannot differentiate it"


@pytest.mark.parametrize("name", ["max", "min", "median", "nanmedian", "amax", "amin"])
def test_nan_as_torch_has_it(name):
    agree(lambda x: getattr(x, name)(), [1.0, NAN, 3.0, NAN])
    agree(lambda x: getattr(x, name)(), [1.0, 2.0, 3.0])


@pytest.mark.parametrize("p", [0.5, 1, 1.5, 2, 3, INF, -INF, -1])
def test_norm_is_safe_at_zero(p):
    assert not agree(lambda x: x.norm(p), [0.0, 0.0]).isnan().any()
    agree(lambda x: x.norm(p), [0.0, 2.0, -2.0])
    agree(lambda x: torch.linalg.vector_norm(x, p, dim=1), [[0.0, 0.0], [1.0, -3.0]])


def test_norm_zero_counts_and_has_gradient_zero():
    x = cartograd.tensor([0.0, 2.0, 3.0], requires_grad=True)
    x.norm(0).backward()
    assert x.norm(0).item() == 2
    assert x.grad.tolist() == [0, 0, 0]


def test_nuclear_norm_takes_torchs_derivative():
    x = leaf(3, 3)
    torch.linalg.norm(x, "nuc").backward()
    theirs = x.data.clone().requires_grad_()
    torch.linalg.norm(theirs, "nuc").backward()
    torch.testing.assert_close(x.grad.data, theirs.grad)


@pytest.mark.parametrize(
    "values", [[[2.0, 3.0, 4.0]], [[0.0, 3.0, 4.0]], [[0.0, 3.0, 0.0]], [[0.0, 0.0, 0.0]], [[5.0]]]
)
@pytest.mark.parametrize("name", ["prod", "cumprod"])
def test_products_with_zeros_to_the_second_order(name, values):
    def first(x):
        return getattr(x, name)(1)

    agree(first, values)
    x = torch.tensor(values, dtype=torch.float64)
    expected = torch.autograd.functional.hessian(lambda one: first(one).sum(), x)
    found = cartograd.hessian(lambda one: first(one).sum(), cartograd.tensor(x))
    torch.testing.assert_close(found.data, expected)


def test_standard_deviation_of_equal_numbers_has_gradient_zero():
    assert agree(lambda x: x.std(), [1.0, 1.0, 1.0]).tolist() == [0, 0, 0]
    assert agree(lambda x: torch.std_mean(x, 0)[0], [1.0, 1.0]).tolist() == [0, 0]


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("correction", [1, 2, 3])
def test_variance_without_freedom_as_torch_has_it(correction):
    agree(lambda x: x.var(correction=correction), [1.0, 2.0])
    agree(lambda x: x.var(0, correction=correction), [1.0, 2.0])
    agree(lambda x: torch.var_mean(x, correction=correction), [1.0, 1.0])


def test_one_output_of_two_is_enough():
    x = leaf(2, 3)
    torch.var_mean(x, 1)[1].sum().backward()
    torch.testing.assert_close(x.grad.data, torch.full((2, 3), 1 / 3, dtype=torch.float64))


@pytest.mark.parametrize("values", [[1000.0, -1000.0, 1000.0], [-2000.0, -1000.0], [-INF, 1.0, 2.0]])
def test_logsumexp_neither_overflows_nor_loses(values):
    assert agree(lambda x: x.logsumexp(0), values).isfinite().all()


@pytest.mark.parametrize("values", [[1000.0, 0.0, -1000.0], [-1000.0, -999.0, 1000.0], [-2000.0, -2001.0, -2000.0]])
def test_logcumsumexp_neither_overflows_nor_loses(values):
    assert agree(lambda x: x.logcumsumexp(0), values).isfinite().all()


def test_logcumsumexp_has_a_second_derivative_where_gradients_are_zero():
    x = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)
    found = cartograd.hessian(lambda one: one.logcumsumexp(0)[2], cartograd.tensor(x))
    p = x.softmax(0)
    torch.testing.assert_close(found.data, torch.diag(p) - torch.outer(p, p))


SHAPES = [lambda x: x.sum(), lambda x: x.mean(), lambda x: x.prod(), lambda x: x.norm(), lambda x: x.nansum()]
ALONG = ["sum", "mean", "prod", "logsumexp", "cumsum", "cumprod", "logcumsumexp", "std", "nansum", "nanmean"]


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("name", ALONG)
def test_numbers_of_rank_zero_and_empty_tensors(name):
    agree(lambda x: getattr(x, name)(0), 0.7)
    agree(lambda x: getattr(x, name)(-1), [[], []])
    agree(lambda x: getattr(x, name)(0), [[], []])


@pytest.mark.parametrize("call", SHAPES)
def test_all_elements_of_rank_zero_or_none(call):
    agree(call, 0.7)
    agree(call, [])
    agree(call, [[], []])


@pytest.mark.parametrize("name", ["max", "sort", "topk", "cummax", "median", "kthvalue", "mode"])
def test_choosing_from_rank_zero(name):
    agree(lambda x: getattr(x, name)(*((1, 0) if name in ("topk", "kthvalue") else (0,)))[0], 0.7)


@pytest.mark.parametrize("name", [*ALONG, "amax", "amin", "var", "sort", "max", "cummin"])
def test_not_contiguous(name):
    values = leaf(3, 4).data.tolist()
    agree(lambda x: getattr(x.transpose(0, 1), name)(0), values)
    agree(lambda x: getattr(x.unsqueeze(0).expand(2, 3, 4), name)(1), values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [*ALONG, "amax", "var", "norm"])
def test_dtype_is_kept(name, dtype):
    x = leaf(3, 4, dtype=dtype)
    out = getattr(x, name)() if name == "norm" else getattr(x, name)(1)
    out.sum().backward()
    assert out.dtype == x.grad.dtype == dtype


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "cumsum", "cumprod", "nansum"])
def test_dtype_option_is_undone_in_the_gradient(name):
    x = leaf(3, 4, dtype=torch.bfloat16)
    out = getattr(x, name)(1, dtype=torch.float32)
    assert out.dtype == torch.float32
    out.sum().backward()
    theirs = x.data.clone().requires_grad_()
    getattr(theirs, name)(1, dtype=torch.float32).sum().backward()
    assert x.grad.dtype == torch.bfloat16
    torch.testing.assert_close(x.grad.data, theirs.grad)


def test_integer_results_carry_no_gradient():
    x = leaf(3, 4)
    for out in (x.argmax(), x.argsort(), x.argmin(0), x.count_nonzero(), x.sum(dtype=torch.int64), (x > 0).sum()):
        assert isinstance(out, cartograd.Tensor)
        assert not out.requires_grad


@pytest.mark.parametrize("call", [lambda x: x.sum(0), lambda x: x.mean(), lambda x: x.cumsum(1)])
def test_only_sizes_are_saved_where_only_sizes_matter(call):
    saved = call(leaf(3, 4)).node.saved
    assert not [one for one in torch.utils._pytree.tree_leaves(saved) if isinstance(one, torch.Tensor)]


def test_chosen_values_are_not_saved():
    x = leaf(3, 4)
    picked = x.topk(2)
    leaves = torch.utils._pytree.tree_leaves(picked.values.node.parents[0].saved)
    assert [one.dtype for one in leaves if isinstance(one, torch.Tensor)] == [torch.int64]


def test_an_unknown_option_takes_torchs_own_way():
    x = leaf(3, 4)
    with pytest.raises(TypeError, match="colour"):
        x.sum(0, colour=1)
    with pytest.raises(TypeError, match="colour"):
        x.max(0, colour=1)
    with pytest.raises(TypeError, match="colour"):
        x.var(0, colour=1)


def test_errors_are_torchs_own():
    x = leaf(3, 4)
    with pytest.raises(IndexError, match="Dimension out of range"):
        x.sum(2)
    with pytest.raises(TypeError, match="keepdim"):
        x.sum(0, 1)
    with pytest.raises(RuntimeError, match="out of range"):
        x.topk(5)


def test_a_parameter_among_tensors_gets_its_gradient():
    parameter = torch.nn.Parameter(torch.tensor([1.0, 4.0]))
    x = cartograd.tensor([2.0, 3.0], requires_grad=True)
    torch.stack([x, parameter]).max(0).values.sum().backward()
    assert x.grad.tolist() == [1, 0]
    assert parameter.grad.tolist() == [0, 1]
