"""The root search: full precision, any bracket, ends of brackets."""

import torch

from cartograd.affinity.rootsearch import bracket, falling_root


def test_roots_to_the_last_digit():
    wanted = torch.linspace(-300, 400, 1001, dtype=torch.float64)
    slope = torch.logspace(-3, 0.5, 1001, dtype=torch.float64)  # sums of e^(-beta d) are no steeper

    def function(u):
        tanh = torch.tanh(slope * (wanted - u))
        return tanh, -slope * (1 - tanh * tanh)

    found = falling_root(function, torch.full_like(wanted, -1000), torch.full_like(wanted, 1500))
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=1e-14)


def test_the_end_of_the_bracket_where_there_is_no_root():
    low, high = torch.tensor([0.0, 0.0]).double(), torch.tensor([1.0, 1.0]).double()
    found = falling_root(lambda u: (torch.tensor([1.0, -1.0]).double(), -torch.ones(2).double()), low, high)
    torch.testing.assert_close(found, torch.tensor([1.0, 0.0]).double(), atol=1e-3, rtol=0)


def test_the_number_of_calls_does_not_depend_on_the_rows():
    def calls(n):
        count = 0

        def function(u):
            nonlocal count
            count += 1
            return 0.3 - u, -torch.ones_like(u)

        falling_root(function, torch.full((n,), -8.0).double(), torch.full((n,), 8.0).double())
        return count

    assert calls(1) == calls(1000) == 15  # 6 halvings of 16 down to 0.25, then 9 of Newton's


def test_brackets_hold_every_bandwidth():
    excess = torch.tensor([[0.0, 1e-30, 1.0], [0.0, 0.0, 0.0], [2.0, 3.0, 4.0]]).double()
    low, high = bracket(excess)
    assert torch.exp(-low.exp()[0] * excess[0]).tolist() == [1.0, 1.0, 1 - 1e-9]
    assert torch.exp(-high.exp()[0] * excess[0]).tolist() == [1.0, 0.0, 0.0]
    assert (low[1], high[1]) == (0, 0)
    assert bool(torch.isfinite(torch.stack([low, high])).all())


def test_no_rows():
    assert falling_root(lambda u: (u, u), torch.empty(0).double(), torch.empty(0).double()).shape == (0,)
