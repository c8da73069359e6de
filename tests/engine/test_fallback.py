"""Every torch function works, with torch's own derivative where we have no rule; nothing is cut off silently."""

import pytest
import torch
from harness import compare, database
from torch.nn import functional

import cartograd
from cartograd import errors

NO_TENSOR_IN = {  # they make tensors of numbers alone, so no tensor of ours is involved
    *[
        "arange",
        "empty",
        "empty_permuted",
        "empty_strided",
        "eye",
        "full",
        "linspace",
        "logspace",
        "ones",
        "randn",
        "scalar_tensor",
        "zeros",
    ],
    *(f"signal.windows.{name}" for name in ["bartlett", "blackman", "cosine", "exponential", "gaussian"]),
    *(
        f"signal.windows.{name}"
        for name in ["general_cosine", "general_hamming", "hamming", "hann", "kaiser", "nuttall"]
    ),
}
ONLY_CUDA = {"jiterator_unary", "jiterator_binary", "jiterator_4inputs_with_extra_args"} | {
    "jiterator_binary_return_by_ref",
    "jiterator_2inputs_2outputs",
}
CONSTANT = {"zero_"}  # in place only: see laws/test_inplace_scan.py
UNFIT = {
    ("normal", "number_mean"): "made of numbers alone",
    ("item", ""): "gives a Python number",
    **{(name, ""): "its values are not defined" for name in ("empty_like", "new_empty", "new_empty_strided")},
    **{
        (name, "in_place" if name == "normal" else ""): "called as torch.Tensor.xxx_(tensor), which C code checks"
        for name in ["cauchy", "exponential", "geometric", "log_normal", "normal", "uniform"]
    },
    ("native_layer_norm", ""): "ours also differentiates the statistics",
    ("native_batch_norm", ""): "ours also differentiates the statistics",
}
NO_METHOD = {"bernoulli", "multinomial"}  # their method is called as torch.Tensor.xxx(tensor), which C code checks


def as_users_call_it(function):
    """Methods are called on the tensor: ``torch.Tensor.xxx(ours)`` itself refuses what is no torch tensor."""
    if type(function).__name__ not in ("method_descriptor", "wrapper_descriptor"):
        return function
    name = function.__name__
    return lambda first, *rest, **options: getattr(first, name)(*rest, **options)


def entries():
    """The entries to scan, and for each one left out why."""
    chosen, left_out = [], {}
    for name, variants in database().items():
        for entry in variants:
            why = UNFIT.get((name, entry.variant_test_name))
            why = why or ("no tensor goes in" if name in NO_TENSOR_IN else None)
            why = why or ("CUDA only" if name in ONLY_CUDA else None)
            why = why or ("in place only" if name in CONSTANT else None)
            why = why or ("no float64" if torch.float64 not in entry.supported_dtypes("cpu") else None)
            if why is None:
                chosen.append(entry)
            else:
                left_out.setdefault(why, []).append(f"{name}.{entry.variant_test_name}")
    return chosen, left_out


def first_samples(entry, count):
    torch.manual_seed(0)
    found = entry.sample_inputs("cpu", torch.float64, requires_grad=entry.supports_autograd)
    return [sample for sample, _ in zip(found, range(count), strict=False)]


@pytest.mark.filterwarnings("ignore")  # torch's own beta and deprecation warnings
@pytest.mark.parametrize("form", ["function", "method"])
def test_every_torch_function_has_torchs_value_requires_grad_and_gradient(form):
    chosen, left_out = entries()
    done, wrong = 0, []
    for entry in chosen:
        call = entry.op if form == "function" else entry.method_variant
        if call is None or (form == "method" and entry.name in NO_METHOD):
            continue
        for sample in first_samples(entry, 2 if form == "function" else 1):
            try:
                compare(as_users_call_it(call), sample, own=False, rtol=1e-7)
                done += 1
            except Exception as error:
                wrong.append(f"{entry.name}.{entry.variant_test_name}: {type(error).__name__} {str(error)[:300]}")
                break
    print(f"{form}: {done} samples of {len(chosen)} entries equal torch's; left out:")
    for why, names in left_out.items():
        print(f"  {why}: {len(names)}: {' '.join(names)}")
    assert not wrong, "\n".join(wrong)
    assert len(chosen) >= 620
    assert done >= (1000 if form == "function" else 300)
    assert sum(map(len, left_out.values())) <= 70


# Arguments and results of every structure


def leaf(*numbers, dtype=torch.float64):
    return cartograd.tensor(list(numbers), requires_grad=True, dtype=dtype)


def same_as_torch(function, *numbers, dtype=torch.float64):
    """`function` of leaves has the gradients that torch gives."""
    mine = [leaf(*one, dtype=dtype) for one in numbers]
    theirs = [torch.tensor(one, dtype=dtype, requires_grad=True) for one in numbers]
    found, expected = function(*mine), function(*theirs)
    torch.testing.assert_close(found.data, expected.detach())
    found.backward()
    expected.backward()
    for x, t in zip(mine, theirs, strict=True):
        torch.testing.assert_close(x.grad.data, t.grad)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.stack([x, y, x * 2]).prod(),
        lambda x, y: torch.cat(tensors=(x, y), dim=-1).cumsum(0).sum(),
        lambda x, y: torch.einsum("i,j->", x, y),
        lambda x, y: torch.block_diag(x, y).square().sum(),
        lambda x, y: torch.meshgrid(x, y, indexing="ij")[0].sum() * torch.cartesian_prod(x, y).sum(),
        lambda x, y: sum(one.prod() for one in torch.broadcast_tensors(x, y)),
        lambda x, y: torch.linalg.multi_dot([x.reshape(1, 3), y.reshape(3, 1), x.reshape(1, 3)]).sum(),
        lambda x, y: functional.pad(x, (1, 2), value=3.0).prod() + functional.normalize(y, dim=0).sum(),
        lambda x, y: torch.where(x.detach() > 0, input=x, other=y).prod(),
        lambda x, y: torch.index_put(x, (torch.tensor([0, 2]),), y[:2]).prod(),
        lambda x, y: x[[0, 2]].prod() * y[torch.tensor([True, False, True])].sum() * x[..., None, 1:].sum(),
        lambda x, y: torch.lerp(x, y, weight=torch.tensor(0.3, dtype=x.dtype)).prod(),
        lambda x, y: x.unflatten(0, (3, 1)).permute(1, 0).expand(4, 3).sum() + y.tile(2).prod(),
    ],
)
def test_lists_keywords_indices_and_views(function):
    same_as_torch(function, [0.5, -1.2, 2.0], [1.5, 0.3, -0.7])


def test_structures_of_results_are_torchs_own():
    x = cartograd.tensor(torch.randn(3, 3), requires_grad=True)
    found = x.max(dim=1)
    assert type(found) is torch.return_types.max
    assert found.values.requires_grad
    assert not found.indices.requires_grad
    assert type(torch.linalg.svd(x)) is torch.return_types.linalg_svd
    assert isinstance(x.split(2), tuple)
    assert isinstance(x.size(), torch.Size)
    assert isinstance(torch.is_floating_point(x), bool)
    assert torch.result_type(x, 1) is torch.float32


@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_any_subset_of_several_outputs(used):
    data = torch.tensor([[2.0, 0.5], [0.1, 1.0]], dtype=torch.float64)
    x, t = cartograd.tensor(data, requires_grad=True), data.clone().requires_grad_()
    found, expected = torch.linalg.svd(x), torch.linalg.svd(t)
    sum(found[i].abs().sum() for i in used).backward()
    sum(expected[i].abs().sum() for i in used).backward()
    torch.testing.assert_close(x.grad.data, t.grad)


def test_an_output_used_many_times_and_another_never():
    x = leaf(3.0, 1.0, 2.0)
    values, _ = torch.sort(x)
    (values * values + values).sum().backward()
    assert x.grad.tolist() == [7.0, 3.0, 5.0]


def test_function_that_returns_its_argument():
    same_as_torch(
        lambda x: (x.contiguous() * x.to(torch.float64) + functional.dropout(x, training=False)).sum(), [1.0, 2.0]
    )


def test_one_tensor_in_two_places_of_one_call():
    same_as_torch(lambda x: torch.dist(x, x * 2) + torch.cdist(x[None], x[None] * 2).sum(), [1.0, 2.0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_conversions_carry_the_gradient_back_to_the_first_dtype(dtype):
    x = leaf(1.0, 2.0, dtype=torch.float32)
    for y in (x.to(dtype), x.to(torch.zeros(1, dtype=dtype)), x.type(dtype), x.to(device="cpu", dtype=dtype)):
        assert y.dtype == dtype
        x.grad = None
        (y * y).sum().backward()
        assert x.grad.dtype == torch.float32
        assert x.grad.tolist() == [2.0, 4.0]
    assert not x.long().requires_grad
    assert not (x > 1).requires_grad


def test_own_and_fallback_ops_mix_in_one_graph():
    same_as_torch(
        lambda x: (torch.special.i0(x * 2).exp() * torch.special.erfcx(x) + torch.logit(torch.sigmoid(x))).sum(),
        [0.5, -1.2, 2.0],
    )


def test_error_of_torch_comes_through_unchanged():
    with pytest.raises(RuntimeError, match=r"size of tensor|must match|shape"):
        torch.special.xlog1py(leaf(1.0, 2.0), leaf(1.0, 2.0, 3.0))
    with pytest.raises(RuntimeError, match=r"shapes cannot be multiplied|size mismatch|mat1"):
        leaf(1.0, 2.0).reshape(1, 2) @ leaf(1.0, 2.0, 3.0).reshape(1, 3)


def test_error_in_a_fallback_gradient_gets_a_note():
    def broken(x):
        class Broken(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 1

            @staticmethod
            def backward(ctx, g):
                raise ZeroDivisionError("inside")

        return Broken.apply(x)

    from cartograd.engine.fallback import run_torch

    y = run_torch(broken, (leaf(1.0),), {})
    with pytest.raises(ZeroDivisionError, match="inside") as caught:
        y.backward()
    assert "broken" in " ".join(caught.value.__notes__)
    assert "test_fallback.py" in " ".join(caught.value.__notes__)


# Complex numbers


def complex_pair(*numbers):
    data = torch.tensor(numbers, dtype=torch.complex128)
    return cartograd.tensor(data.clone(), requires_grad=True), data.clone().requires_grad_()


@pytest.mark.parametrize(
    "function",
    [
        lambda z: z.abs().sum(),
        lambda z: (z * z.conj()).real.sum(),
        lambda z: torch.exp(z).imag.sum(),
        lambda z: (z * (1 + 2j) + 3 - z / 2j).abs().sum(),
        lambda z: torch.view_as_real(z).prod(),
        lambda z: torch.fft.ifft(torch.fft.fft(z) * z).abs().sum(),
        lambda z: (-z).angle().sum() + (z**2).real.sum() + (2j - z).abs().sum(),
        lambda z: torch.stack([z, z * 2]).sum(dim=0).abs().prod(),
        lambda z: (z @ z).abs(),
    ],
)
def test_complex_leaf(function):
    mine, theirs = complex_pair(1 + 2j, 3 - 1j, -0.5 + 0.1j)
    found, expected = function(mine), function(theirs)
    found.backward()
    expected.backward()
    torch.testing.assert_close(found.data, expected.detach())
    torch.testing.assert_close(mine.grad.data, theirs.grad)
    assert mine.grad.dtype == torch.complex128


def test_complex_leaf_of_an_own_op_with_keyword_only_parameters():
    mine, theirs = complex_pair(1 + 2j, 3 - 1j)
    torch.linalg.vector_norm(mine).backward()
    torch.linalg.vector_norm(theirs).backward()
    torch.testing.assert_close(mine.grad.data, theirs.grad)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.fft.irfft(torch.fft.rfft(x) * (1 + 1j), n=3).square().sum(),
        lambda x: torch.fft.rfft(x).abs().prod(),
        lambda x: (x * torch.tensor([1 + 2j, 3 - 1j, 1j], dtype=torch.complex128) + x).abs().sum(),
        lambda x: torch.complex(x, x * 2).angle().sum() + torch.polar(x, x).real.sum(),
        lambda x: (1j * x - x).abs().sum() + (x + 2j).abs().sum() + (x / 1j).abs().sum(),
    ],
)
def test_real_leaf_through_complex_numbers(function):
    same_as_torch(function, [0.5, -1.2, 2.0])


def test_real_and_complex_leaf_together():
    z, w = complex_pair(1 + 2j, 3 - 1j)
    x, t = leaf(0.5, -1.2), torch.tensor([0.5, -1.2], dtype=torch.float64, requires_grad=True)
    (x * z + x - z).abs().sum().backward()
    (t * w + t - w).abs().sum().backward()
    torch.testing.assert_close(x.grad.data, t.grad)
    torch.testing.assert_close(z.grad.data, w.grad)


def test_second_derivative_through_complex_numbers():
    def function(x):
        return torch.fft.rfft(x * x).abs().square().sum()

    data = torch.tensor([0.5, -1.2, 2.0], dtype=torch.float64)
    expected = torch.autograd.functional.hessian(function, data)
    torch.testing.assert_close(cartograd.hessian(function, cartograd.tensor(data)).data, expected)


def test_integers_cannot_require_grad():
    with pytest.raises(errors.UnsupportedError, match=r"int64.*float32"):
        cartograd.tensor([1, 2], requires_grad=True)
