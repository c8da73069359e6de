"""Distances beyond OpInfo: spellings, broadcasting, kinks, dtypes, layouts, errors, which inputs get a gradient."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from side_by_side import agree, values

import cartograd
from cartograd.errors import OptionError

NN = torch._C._nn
PAIRWISE = [F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss]
SIGNS = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)


class TestDistances:
    @pytest.mark.parametrize("wanted", [[0], [1], [0, 1]])
    @pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
    @pytest.mark.parametrize("loss", PAIRWISE)
    def test_gradients_reach_input_and_target(self, loss, reduction, wanted):
        made = agree(lambda x, t: loss(x, t, reduction=reduction), values(3, 4), values(3, 4, seed=1), wanted=wanted)
        assert len(cartograd.trace(made).nodes) == 1

    @pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss"])
    @pytest.mark.parametrize("code", [0, 1, 2])
    def test_the_kernels_spelling_reaches_our_rule(self, name, code):
        agree(lambda x, t: getattr(NN, name)(x, t, code), values(3, 4), values(3, 4, seed=1), wanted=[0])

    @pytest.mark.parametrize("loss", PAIRWISE)
    def test_broadcasting_warns_at_the_callers_line_and_is_undone(self, loss):
        x, t = values(3, 4), values(4, seed=1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            agree(lambda x, t: loss(x, t), x, t)
        assert len(caught) == 2  # torch's own, and ours
        assert all("different to the input size" in str(one.message) for one in caught)
        assert caught[0].filename == caught[1].filename == __file__
        assert caught[0].lineno == caught[1].lineno

    @pytest.mark.parametrize("loss", PAIRWISE)
    def test_kinks_are_torchs(self, loss):
        at_kinks = torch.tensor([0.0, 1.0, -1.0, 0.5], dtype=torch.float64)
        agree(loss, at_kinks, torch.zeros(4, dtype=torch.float64))

    def test_smooth_l1_with_beta_zero_is_l1(self):
        x, t = values(5), values(5, seed=1)
        assert agree(lambda x, t: F.smooth_l1_loss(x, t, beta=0.0), x, t).node.name == "l1_loss"

    @pytest.mark.parametrize("loss", [F.mse_loss, F.l1_loss, F.huber_loss])
    @pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
    def test_weights_get_a_gradient_too(self, loss, reduction):
        x, t, w = values(3, 2), values(3, 2, seed=1), values(3, 2, low=0.5, seed=2)
        agree(lambda x, t, w: loss(x, t, weight=w, reduction=reduction), x, t, w)

    def test_a_weight_of_another_shape_is_refused(self):
        x = cartograd.tensor(values(3, 2), requires_grad=True)
        with pytest.raises(OptionError, match=r"weight has shape \(2,\), and the losses have \(3, 2\)"):
            F.mse_loss(x, values(3, 2), weight=values(2))

    def test_dtypes_are_kept_and_mixed_ones_promoted(self):
        for dtype in (torch.float32, torch.bfloat16):
            x = cartograd.tensor(values(4, dtype=torch.float32).to(dtype), requires_grad=True)
            F.mse_loss(x, torch.zeros(4, dtype=dtype)).backward()
            assert x.grad.dtype is dtype
        x = cartograd.tensor(values(4, dtype=torch.float32), requires_grad=True)
        loss = F.mse_loss(x, torch.zeros(4, dtype=torch.float64))
        loss.backward()
        assert loss.dtype is torch.float64
        assert x.grad.dtype is torch.float32
        torch.testing.assert_close(x.grad.data, x.data / 2)

    def test_layouts_empty_and_zero_dimensional(self):
        agree(F.mse_loss, values(4, 3).t(), values(3, 8, seed=1)[:, ::2])
        agree(F.huber_loss, values(()), values((), seed=1))
        agree(lambda x, t: F.l1_loss(x, t, reduction="sum"), values(0, 3), values(0, 3))

    @pytest.mark.parametrize("legacy", [{"size_average": False}, {"reduce": False}, {"size_average": True}])
    @pytest.mark.filterwarnings("ignore:size_average and reduce args will be deprecated")
    def test_deprecated_arguments_mean_what_they_meant(self, legacy):
        agree(lambda x, t: F.mse_loss(x, t, **legacy), values(3), values(3, seed=1))
        agree(lambda x: F.cross_entropy(x, torch.tensor([0, 1]), **legacy), values(2, 3))

    def test_unknown_reduction_is_refused(self):
        with pytest.raises(ValueError, match="median is not a valid value for reduction"):
            F.mse_loss(cartograd.tensor([1.0], requires_grad=True), torch.zeros(1), reduction="median")

    def test_modules_train_on_them(self):
        layer = torch.nn.Linear(3, 2)
        torch.nn.MSELoss()(layer(cartograd.tensor(torch.ones(4, 3))), torch.zeros(4, 2)).backward()
        assert torch.isfinite(layer.weight.grad).all()
        assert layer.weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    "call",
    [
        lambda x, t: F.mse_loss(x, t, weight=t),
        lambda x, t: F.l1_loss(x, t, weight=t),
        lambda x, t: F.cross_entropy(x, t),
        lambda x, t: F.cross_entropy(x, t.argmax(1), label_smoothing=0.1),
        lambda x, t: F.poisson_nll_loss(x, t),
        lambda x, t: F.gaussian_nll_loss(x, t, t),
        lambda x, t: F.cosine_embedding_loss(x, t, SIGNS[:3]),
        lambda x, t: F.hinge_embedding_loss(x, t),
        lambda x, t: F.margin_ranking_loss(x, t, t),
        lambda x, t: F.triplet_margin_loss(x, t, -t),
        lambda x, t: F.multilabel_soft_margin_loss(x, t),
    ],
)
def test_a_parameter_alone_is_recorded_by_us(call):
    ours, theirs = (torch.nn.Parameter(values(3, 4)) for _ in range(2))
    target = values(3, 4, low=0.1, seed=1)
    with cartograd.recording():
        loss = call(ours, target)
    assert type(loss) is cartograd.Tensor
    loss.backward()
    call(theirs, target).backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-11, atol=1e-12)
