"""Complex numbers, where our rules are for real ones: values and gradients are torch's."""

import pytest
import torch

import cartograd

CASES = {
    "sgn": torch.sgn,
    "tensor_split": lambda x: torch.tensor_split(x, [1], 1)[1],
    "repeat_interleave": lambda x: torch.repeat_interleave(x, 2, 0),
    "constant_pad_nd": lambda x: torch.constant_pad_nd(x, (1, 2), 1 + 1j),
    "outer": lambda x: torch.outer(x[0], x[1]),
}


@pytest.mark.parametrize("name", CASES)
def test_complex_numbers_take_torchs_derivative(name):
    value = torch.randn(2, 3, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    other, mine = value.clone().requires_grad_(), cartograd.tensor(value, requires_grad=True)
    expected, found = CASES[name](other), CASES[name](mine)
    torch.testing.assert_close(found.data, expected.detach())
    seed = torch.full(expected.shape, 1 - 2j, dtype=expected.dtype)
    expected.backward(seed)
    found.backward(seed)
    torch.testing.assert_close(mine.grad.data, other.grad)
    torch.testing.assert_close(CASES[name](cartograd.tensor(value)).data, expected.detach())


def test_the_signs_of_real_numbers_have_no_gradient():
    x = cartograd.tensor([-2.0, 0.0, 3.0], requires_grad=True)
    assert torch.sgn(x).tolist() == torch.sign(x).tolist() == [-1.0, 0.0, 1.0]
    torch.sgn(x).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]
