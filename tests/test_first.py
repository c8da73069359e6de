"""The smoke test, and the first thing to read: what cartograd is, in one file."""

import torch
from torch import nn

import cartograd


def test_a_tensor_remembers_how_it_was_computed():
    x = cartograd.tensor([1.0, 2.0], requires_grad=True)
    loss = (x * x).sum()
    loss.backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_every_torch_function_works_on_it():
    x = cartograd.tensor(torch.eye(2) * 2, requires_grad=True)
    torch.linalg.det(x).backward()
    assert x.grad.tolist() == [[2.0, 0.0], [0.0, 2.0]]


def test_derivatives_of_functions():
    x = cartograd.tensor([1.0, 2.0])
    assert cartograd.hessian(lambda x: (x**3).sum(), x).tolist() == [[6.0, 0.0], [0.0, 12.0]]


def test_an_op_is_a_forward_beside_its_gradient():
    @cartograd.primitive()
    def cube(x: torch.Tensor):
        return x * x * x

    @cube.vjp("x")
    def _(g, x):
        return g * 3 * x * x

    assert cartograd.gradcheck(cube, cartograd.tensor([2.0], requires_grad=True, dtype=torch.float64))


def test_torch_layers_and_optimisers_train_on_it():
    torch.manual_seed(0)
    layer = nn.Linear(2, 1)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    x = cartograd.tensor(torch.randn(32, 2))
    target = x.data @ torch.tensor([[2.0], [-3.0]]) + 1
    losses = []
    for _ in range(100):
        optimiser.zero_grad()
        loss = ((layer(x) - target) ** 2).mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 1e-3 * losses[0]


def test_a_graph_can_be_looked_at():
    x = cartograd.tensor([1.0, 2.0], requires_grad=True)
    table = cartograd.trace((x * x).sum()).explain()
    assert "mul" in table
    assert "test_first.py" in table
