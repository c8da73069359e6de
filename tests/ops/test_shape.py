"""Shapes, joins and rearrangements: what OpInfo's samples do not cover."""

import pytest
import torch

import cartograd


def leaf(*shape, dtype=torch.float64, seed=0):
    print("seed", seed)
    data = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) - 0.5
    return cartograd.tensor(data.to(dtype), requires_grad=True)


def flat(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def agree(call, x):
    """Values and gradients of `call(x)` are torch's; every output gets a gradient of its own."""
    theirs = x.data.clone().requires_grad_()
    ours = cartograd.tensor(x.data.clone(), requires_grad=True)
    outs, expected = flat(call(ours)), flat(call(theirs))
    assert len(outs) == len(expected)
    for number, (out, other) in enumerate(zip(outs, expected, strict=True)):
        assert torch.equal(out.data, other.detach())
        seed = torch.linspace(1, 2 + number, other.numel(), dtype=other.dtype).reshape(other.shape)
        out.backward(seed, retain_graph=True)
        other.backward(seed, retain_graph=True)
    torch.testing.assert_close(ours.grad.data, theirs.grad)
    return outs


SPELLINGS = [
    ("view", lambda x: (x.view(3, 4), x.view((12,)), x.view(-1, 6), x.view(torch.Size([12])), x.view(size=(4, 3)))),
    ("view", lambda x: (x.view_as(torch.empty(4, 3)),)),
    ("reshape", lambda x: (x.reshape(3, 4), torch.reshape(x, (-1,)), x.reshape(shape=(12,)), x.ravel())),
    ("reshape", lambda x: (torch.ravel(x), x.reshape_as(torch.empty(3, 4)))),
    ("merge_axes", lambda x: (x.flatten(), torch.flatten(x, 1), x.flatten(start_dim=0, end_dim=1))),
    ("unflatten", lambda x: (x.unflatten(2, (3, 1)), torch.unflatten(x, -1, [1, -1]))),
    ("squeeze", lambda x: (x.squeeze(), x.squeeze(0), torch.squeeze(x, (0, 1)), x.squeeze(dim=-2))),
    ("unsqueeze", lambda x: (x.unsqueeze(0), torch.unsqueeze(x, -1), x.unsqueeze(dim=1))),
    ("transpose", lambda x: (x.transpose(0, 1), torch.transpose(x, dim0=0, dim1=-1), x.mT, x.mH, x.adjoint())),
    ("transpose", lambda x: (x.swapaxes(0, 1), torch.swapaxes(x, axis0=0, axis1=2), x.swapdims(1, 2))),
    ("permute", lambda x: (x.permute(2, 0, 1), x.permute((0, 2, 1)), torch.permute(x, dims=(2, 1, 0)))),
    ("movedim", lambda x: (x.movedim(0, -1), torch.moveaxis(x, (0, 1), (1, 2)), x.moveaxis(2, 0))),
    ("expand", lambda x: (x.expand(5, 2, 2, 3), x.expand((2, -1, -1, 3)), x.expand_as(torch.empty(4, 2, 2, 3)))),
    ("expand", lambda x: (torch.broadcast_to(x, (3, 2, 2, 3)), x.broadcast_to(2, 2, 2, 3))),
    ("sum_over_broadcast", lambda x: (x.sum_to_size(2, 1), x.sum_to_size((2, 3)))),
    ("repeat", lambda x: (x.repeat(2, 1, 1), x.repeat((1, 1, 2, 1)), x.tile(2), torch.tile(x, dims=(2, 2)))),
    ("interleave", lambda x: (x.repeat_interleave(2), torch.repeat_interleave(x, 3, dim=1))),
    ("flip", lambda x: (x.flip(0), x.flip(0, 2), torch.flip(x, [1]), torch.flip(x, dims=(1,)), x.fliplr(), x.flipud())),
    ("roll", lambda x: (x.roll(1), x.roll(1, 0), torch.roll(x, (1, -2), dims=(0, 2)))),
    ("rot90", lambda x: (x.rot90(), torch.rot90(x, 2, [1, 2]), x.rot90(-1, (0, 2)))),
    ("tril", lambda x: (x.tril(), torch.tril(x, -1), x.tril(diagonal=1))),
    ("triu", lambda x: (x.triu(), torch.triu(x, 1))),
    ("diagonal", lambda x: (x.diagonal(), torch.diagonal(x, 1, 1, 2), torch.linalg.diagonal(x, offset=-1))),
    ("diag_embed", lambda x: (x.diag_embed(), torch.diag_embed(x, 1, 0, 1), x.diagflat(), torch.diagflat(x, 1))),
    ("narrow", lambda x: (x.narrow(1, 0, 1), torch.narrow(x, -1, -2, 2), x.narrow(0, torch.tensor(1), 1))),
    ("select", lambda x: (x.select(0, 1), torch.select(x, dim=-1, index=-2))),
    ("unfold_axis", lambda x: (x.unfold(2, 2, 1), x.unfold(dimension=0, size=1, step=1))),
    ("cat", lambda x: (torch.cat([x, x], 1), torch.concat((x, x)), torch.concatenate([x, x], axis=-1))),
    ("cat", lambda x: (torch.hstack([x, x]), torch.vstack((x, x)), torch.dstack([x, x]), torch.column_stack((x, x)))),
    ("stack", lambda x: (torch.stack([x, x]), torch.stack((x, x), dim=-1))),
]


@pytest.mark.parametrize(("name", "calls"), SPELLINGS)
def test_every_spelling_reaches_the_op(name, calls):
    x = leaf(2, 2, 3)
    for result in agree(calls, x):
        assert result.node.name == name


def test_transposes_of_a_matrix():
    x = leaf(2, 3)
    for result, name in zip(agree(lambda m: (m.T, m.t(), torch.t(m), m.H), x), ["permute", "t", "t", "transpose"]):
        assert result.node.name == name


PARTS = [
    ("split_along", lambda x: x.split(2)),
    ("split_along", lambda x: torch.split(x, [1, 4], dim=0)),
    ("split_along", lambda x: x.split(split_size=3, dim=1)),
    ("split_along", lambda x: torch.split_with_sizes(x, (1, 2), 1)),
    ("chunk", lambda x: x.chunk(2)),
    ("chunk", lambda x: torch.chunk(x, 4, dim=1)),
    ("split_at", lambda x: x.tensor_split(3)),
    ("split_at", lambda x: torch.tensor_split(x, (1, 3))),
    ("split_at", lambda x: torch.tensor_split(x, torch.tensor([1, -1]), dim=1)),
    ("split_at", lambda x: torch.tensor_split(x, indices=(1, 9), dim=1)),
    ("unbind_axis", lambda x: x.unbind()),
    ("unbind_axis", lambda x: torch.unbind(x, dim=-1)),
    ("unbind_axis", lambda x: tuple(x)),
]


@pytest.mark.parametrize(("name", "call"), PARTS)
def test_parts_share_memory_and_join_again(name, call):
    x = leaf(5, 3)
    result = call(x)
    assert type(result) is tuple
    assert {part.node.parents[0].name for part in result} == {name}
    assert all(part.data.untyped_storage().data_ptr() == x.data.untyped_storage().data_ptr() for part in result)
    agree(call, x)


def test_one_part_alone_gets_zeros_for_the_others():
    x = leaf(5, 3)
    x.split(2)[1].sum().backward()
    assert x.grad.sum(1).tolist() == [0, 0, 3, 3, 0]
    second = leaf(4, 2)
    list(second)[3].sum().backward()
    assert second.grad.sum(1).tolist() == [0, 0, 0, 2]


def test_parts_that_overlap_take_torchs_derivative():
    agree(lambda x: torch.tensor_split(x, (3, 1)), leaf(5, 2))


def test_parts_of_an_empty_axis():
    assert leaf(0, 3).unbind() == ()
    assert list(leaf(0, 3)) == []
    agree(lambda x: x.chunk(3), leaf(0, 3))
    agree(lambda x: x.split(2), leaf(0, 3))


VIEWS = [
    lambda x: x.view(6, 2),
    lambda x: x.reshape(3, 4),
    lambda x: x.flatten(1),
    lambda x: x.unflatten(-1, (3, 1)),
    lambda x: x.squeeze(),
    lambda x: x.unsqueeze(1),
    lambda x: x.transpose(0, 2),
    lambda x: x.permute(2, 0, 1),
    lambda x: x.movedim(0, 1),
    lambda x: x.expand(2, 2, 2, 3),
    lambda x: x.diagonal(),
    lambda x: x.narrow(2, 1, 2),
    lambda x: x.select(1, 0),
    lambda x: x.unfold(2, 2, 1),
    lambda x: x.mT,
]


@pytest.mark.parametrize("call", VIEWS)
def test_views_are_views_and_save_no_tensor(call):
    x = leaf(2, 2, 3)
    result = call(x)
    assert result.data.untyped_storage().data_ptr() == x.data.untyped_storage().data_ptr()
    leaves = torch.utils._pytree.tree_leaves(result.node.saved)
    assert not [one for one in leaves if isinstance(one, torch.Tensor)]


def test_what_changes_nothing_gives_the_same_tensor_back():
    x = leaf(3)
    assert x.flatten() is x
    assert x.contiguous() is x
    assert torch.atleast_1d(x) is x
    assert x.sum_to_size(3) is x


def test_contiguous_copies_where_needed():
    for result in agree(lambda x: x.t().contiguous(), leaf(2, 3)):
        assert result.data.is_contiguous()
        assert result.node.name == "compact"
    images = leaf(1, 2, 3, 4)
    kept = images.contiguous(memory_format=torch.channels_last)
    assert kept.data.is_contiguous(memory_format=torch.channels_last)


def test_rank_zero():
    x = leaf()
    agree(lambda x: x.view(1, 1), x)
    agree(lambda x: x.reshape(()), x)
    agree(lambda x: x.view(()), x)
    agree(lambda x: (x.flatten(), x.ravel(), x.squeeze(), x.unsqueeze(0), x.t(), x.permute(()), x.expand(3)), x)
    agree(lambda x: (x.repeat(3), x.tile(2, 2), x.repeat_interleave(2), x.flip(()), x.roll(1)), x)
    agree(lambda x: (torch.stack([x, x]), torch.hstack([x, x]), torch.vstack([x, x]), torch.dstack([x, x])), x)
    agree(lambda x: torch.atleast_3d(x), x)
    agree(lambda x: torch.column_stack([x, x]), x)


def test_empty():
    x = leaf(0, 3)
    agree(lambda x: (x.view(3, 0), x.reshape(0), x.transpose(0, 1), x.permute(1, 0), x.expand(2, 0, 3)), x)
    agree(lambda x: (x.repeat(2, 2), x.repeat_interleave(2, 1), x.flip(0), x.roll(1), torch.cat([x, x])), x)
    agree(lambda x: (x.repeat(0, 2), x.repeat_interleave(0), x.narrow(0, 1, 0)), leaf(2, 2))


def test_not_contiguous():
    agree(lambda x: x.t().reshape(6), leaf(2, 3))
    agree(lambda x: x.t().flatten(), leaf(2, 3))
    agree(lambda x: x.t().repeat(2, 1).t(), leaf(2, 3))
    agree(lambda x: torch.cat([x.t(), x.t().contiguous()], 1), leaf(2, 3))
    with pytest.raises(RuntimeError, match="view"):
        leaf(2, 3).t().view(6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtype_is_kept(dtype):
    x = leaf(2, 3, dtype=dtype)
    y = torch.cat([x.t().reshape(2, 3), x.repeat(1, 1), x.expand(2, 3)]).flip(0).roll(1).tril()
    assert y.dtype == dtype
    y.sum().backward()
    assert x.grad.dtype == dtype


@pytest.mark.parametrize("join", [torch.cat, torch.stack])
def test_joining_dtypes_gives_each_its_own_back(join):
    single, double = leaf(2, dtype=torch.float32), leaf(2)
    joined = join([single, double])
    assert joined.dtype == torch.float64
    (joined * joined).sum().backward()
    assert single.grad.dtype == torch.float32
    torch.testing.assert_close(single.grad.data, 2 * single.data)
    torch.testing.assert_close(double.grad.data, 2 * double.data)


def test_joining_with_constants_parameters_and_empty_vectors():
    x, parameter, constant = leaf(2, 2), torch.nn.Parameter(torch.ones(1, 2, dtype=torch.float64)), torch.ones(1, 2)
    empty = cartograd.tensor(torch.zeros(0, dtype=torch.float64), requires_grad=True)
    joined = torch.cat([x, empty, constant, parameter])
    joined.backward(torch.arange(8.0, dtype=torch.float64).reshape(4, 2))
    assert x.grad.tolist() == [[0, 1], [2, 3]]
    assert parameter.grad.tolist() == [[6, 7]]
    assert empty.grad.shape == (0,)


def test_joining_a_tensor_with_itself_adds_up():
    x = leaf(2)
    torch.stack([x, x, x]).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_grids():
    for indexing in ("ij", "xy"):
        rows, columns, deep = leaf(2), leaf(3), leaf(4)
        grids = torch.meshgrid(rows, columns, deep, indexing=indexing)
        expected = torch.meshgrid(rows.data, columns.data, deep.data, indexing=indexing)
        assert all(torch.equal(grid.data, other) for grid, other in zip(grids, expected, strict=True))
        (grids[0] * grids[1]).sum().backward()
        torch.testing.assert_close(rows.grad.data, 4 * columns.data.sum().expand(2))
    grids = torch.meshgrid([leaf(2), leaf(3)], indexing="xy")
    assert [tuple(grid.shape) for grid in grids] == [(3, 2), (3, 2)]
    with pytest.warns(UserWarning, match="indexing"):
        torch.meshgrid(leaf(2), leaf(3))


def test_broadcasting_together():
    a, b = torch.broadcast_tensors(leaf(2, 1), leaf(3))
    assert a.shape == b.shape == (2, 3)
    assert a.node.name == "expand"
    x = leaf(2, 1)
    torch.broadcast_tensors(x, torch.ones(4, 1, 3))[0].sum().backward()
    assert x.grad.tolist() == [[12], [12]]


def test_repeating_by_a_tensor_of_counts():
    agree(lambda x: x.repeat_interleave(torch.tensor([2, 0, 1]), 0), leaf(3, 2))
    agree(lambda x: torch.repeat_interleave(x, torch.tensor([2]), dim=1), leaf(3, 2))
    assert cartograd.tensor(torch.tensor([1, 2])).repeat_interleave().tolist() == [0, 1, 1]


def test_diagonal_of_a_matrix_is_a_copy():
    x = leaf(3, 4)
    (result,) = agree(lambda m: torch.diag(m, 1), x)
    assert result.node.name == "diag"
    agree(lambda m: m.diag(-1), leaf(3))
    with torch.no_grad():
        torch.diag(x).add_(1)
    assert torch.equal(x.data, leaf(3, 4).data)


def test_view_under_another_dtype_carries_no_gradient():
    x = leaf(4, dtype=torch.float32)
    assert not x.view(torch.int32).requires_grad
    assert x.view(dtype=torch.int32).dtype == torch.int32


def test_errors_are_torchs_own():
    x = leaf(2, 3)
    with pytest.raises(RuntimeError, match="invalid for input of size 6"):
        x.view(4)
    with pytest.raises(RuntimeError, match=r"duplicate|repeated"):
        x.permute(0, 0)
    with pytest.raises(RuntimeError, match="expand"):
        x.expand(2, 4)
    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        torch.cat([x, leaf(3, 2)], 1)
    with pytest.raises(RuntimeError, match=r"start .* exceeds|length"):
        x.narrow(1, 2, 2)


def test_second_derivatives_pass_through():
    x = leaf(2, 3)

    def function(one):
        left, right = torch.cat([one, one.flip(1)], 1).split([2, 4], 1)
        square = left.repeat(1, 2) * right
        return (square.t().reshape(-1) ** 3).sum() + (one.unfold(1, 2, 1) ** 3).sum() + one.diagonal().prod()

    expected = torch.autograd.functional.hessian(function, x.data)
    torch.testing.assert_close(cartograd.hessian(function, x.detach()).data, expected)
