"""Likelihoods of bits, counts and Gaussians beyond OpInfo: weights, ends of the range, warnings, errors."""

import pytest
import torch
import torch.nn.functional as F
from side_by_side import agree, values

import cartograd
from cartograd.errors import OptionError

BITS = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]], dtype=torch.float64)


class TestLikelihoods:
    @pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
    def test_binary_cross_entropy(self, reduction):
        x, t = values(2, 3, low=0.1, high=0.9), values(2, 3, low=0.1, high=0.9, seed=1)
        weight = values(3, low=0.5, seed=2)
        agree(lambda x, t: F.binary_cross_entropy(x, t, weight, reduction=reduction), x, t)
        agree(lambda x: F.binary_cross_entropy(x, BITS, reduction=reduction), x)

    def test_binary_cross_entropy_at_the_ends_is_finite(self):
        x = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
        loss = agree(lambda x: F.binary_cross_entropy(x, torch.ones(3).double(), reduction="none"), x)
        assert loss.tolist() == [100.0, 0.0, 100.0]

    @pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
    def test_binary_cross_entropy_with_logits(self, reduction):
        weight, positive = values(2, 1, low=0.5, seed=2), values(3, low=0.5, seed=3)
        for options in ({}, {"weight": weight}, {"pos_weight": positive}, {"weight": weight, "pos_weight": positive}):
            agree(
                lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction=reduction, **options),
                values(2, 3, low=-30, high=30),
                values(2, 3, low=0.0, seed=1),
            )

    def test_logits_broadcast_in_the_kernels_spelling(self):
        # Torch broadcasts the input in the forward pass only, and raises in the backward.
        x, t = cartograd.tensor(values(3), requires_grad=True), cartograd.tensor(values(2, 3), requires_grad=True)
        torch.binary_cross_entropy_with_logits(x, t, None, None, 1).backward()
        wide = x.data.expand(2, 3)
        torch.testing.assert_close(x.grad.data, (torch.sigmoid(wide) - t.data).sum(0) / 6)
        torch.testing.assert_close(t.grad.data, -wide / 6)

    @pytest.mark.parametrize("loss", [F.binary_cross_entropy, F.binary_cross_entropy_with_logits])
    def test_unequal_sizes_are_refused(self, loss):
        with pytest.raises(ValueError, match="must be the same as input size"):
            loss(cartograd.tensor(values(3, low=0.1), requires_grad=True), values(2, 3))

    @pytest.mark.parametrize("log_target", [True, False])
    @pytest.mark.parametrize("reduction", ["none", "batchmean", "sum"])
    def test_kl_div(self, reduction, log_target):
        x, t = values(2, 3), values(2, 3, low=0.1, seed=1)
        agree(lambda x, t: F.kl_div(x, t, reduction=reduction, log_target=log_target), x, t)
        agree(lambda x, t: torch.kl_div(x, t, log_target=log_target), values(3), t)

    def test_kl_div_warns_of_its_mean_as_torch_does(self):
        x = cartograd.tensor(values(2, 3), requires_grad=True)
        with pytest.warns(UserWarning, match="'batchmean' divides only") as caught:
            F.kl_div(x, values(2, 3, low=0.1))
        assert caught[0].filename == __file__

    def test_gaussian_variance_below_eps_still_has_a_gradient(self):
        agree(F.gaussian_nll_loss, values(2, 3), values(2, 3, seed=1), torch.tensor([[0.0], [0.5]]).double())
        agree(lambda x, t, v: F.gaussian_nll_loss(x, t, v, full=True), values(2, 3), values(2, 3), values(2, low=0.1))
        agree(lambda x, t: F.gaussian_nll_loss(x, t, 0.3, reduction="sum"), values(2, 3), values(2, 3, seed=1))

    def test_gaussian_refusals(self):
        x = cartograd.tensor(values(2, 3), requires_grad=True)
        with pytest.raises(OptionError, match="negative"):
            F.gaussian_nll_loss(x, values(2, 3), -torch.ones(2, 3))
        with pytest.raises(OptionError, match="incorrect size"):
            F.gaussian_nll_loss(x, values(2, 3), torch.ones(4))

    @pytest.mark.parametrize("log_input", [True, False])
    def test_poisson(self, log_input):
        agree(
            lambda x, t: F.poisson_nll_loss(x, t, log_input=log_input, full=True),
            values(4, low=0.2),
            values(4, low=0.5, high=3.0, seed=1),
        )
