"""Losses beyond OpInfo: spellings, options, kinks, dtypes, layouts, errors, and which inputs get a gradient."""

import warnings

import pytest
import torch
import torch.nn.functional as F

import cartograd
from cartograd.engine.fallback import TorchPlan
from cartograd.errors import NotTwiceDifferentiableError, OptionError, UnsupportedError

NN = torch._C._nn


def values(*shape, low=-1.0, high=1.0, seed=0, dtype=torch.float64):
    print("seed", seed)
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, dtype=dtype, generator=generator) * (high - low) + low


def agree(call, *inputs, wanted=None, own=True):
    """Values and gradients of ``call(*inputs)`` are torch's; `wanted` lists the inputs that require grad."""
    floats = [i for i, one in enumerate(inputs) if isinstance(one, torch.Tensor) and one.is_floating_point()]
    wanted = floats if wanted is None else wanted
    theirs = [one.clone().requires_grad_() if i in wanted else one for i, one in enumerate(inputs)]
    ours = [cartograd.tensor(one.clone(), requires_grad=True) if i in wanted else one for i, one in enumerate(inputs)]
    expected, result = call(*theirs), call(*ours)
    assert type(result) is cartograd.Tensor
    torch.testing.assert_close(result.data, expected.detach(), rtol=1e-12, atol=1e-13)
    if own:
        foreign = [node.name for node in cartograd.trace(result).nodes if isinstance(node.plan, TorchPlan)]
        assert not foreign
    seed = torch.randn(expected.shape, dtype=expected.dtype, generator=torch.Generator().manual_seed(1))
    expected.backward(seed)
    result.backward(seed)
    for i in wanted:
        assert ours[i].grad is not None, f"input {i} has no gradient"
        torch.testing.assert_close(ours[i].grad.data, theirs[i].grad, rtol=1e-11, atol=1e-12)
    return result


PAIRWISE = [F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss]
BITS = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
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

    @pytest.mark.parametrize("loss", [F.mse_loss, F.huber_loss])
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


class TestClasses:
    SHAPES = [
        ((4,), ()),
        ((3, 4), (3,)),
        ((2, 4, 3), (2, 3)),
        ((2, 4, 2, 3), (2, 2, 3)),
        ((2, 4, 2, 1, 2), (2, 2, 1, 2)),
    ]

    @pytest.mark.parametrize(("shape", "target_shape"), SHAPES)
    @pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
    @pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
    def test_every_shape_weight_and_ignored_class(self, loss, reduction, shape, target_shape):
        target = torch.arange(max(1, torch.Size(target_shape).numel())).remainder(4).reshape(target_shape)
        weight = values(4, low=0.5, high=2.0, seed=1)
        for options in ({}, {"weight": weight}, {"ignore_index": 1}, {"weight": weight, "ignore_index": 3}):
            made = agree(lambda x: loss(x, target, reduction=reduction, **options), values(*shape))
            assert len(cartograd.trace(made).nodes) == 1

    def test_only_the_logits_are_saved(self):
        logits = cartograd.tensor(values(3, 4), requires_grad=True)
        node = F.cross_entropy(logits, torch.tensor([0, 1, 2])).node
        saved = [one for one in node.saved if isinstance(one, torch.Tensor) and one.numel() > 3]
        assert [one.data_ptr() for one in saved] == [logits.data.data_ptr()]

    @pytest.mark.parametrize("weight", [None, values(4, low=0.5, seed=1)])
    @pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
    @pytest.mark.parametrize("smoothing", [0.1, 1.0])
    def test_label_smoothing(self, smoothing, reduction, weight):
        target = torch.tensor([[0, 3], [1, 2]])
        agree(
            lambda x: F.cross_entropy(
                x, target, weight=weight, reduction=reduction, label_smoothing=smoothing, ignore_index=3
            ),
            values(2, 4, 2),
            own=False,
        )

    @pytest.mark.parametrize("smoothing", [0.0, 0.2])
    @pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
    def test_probabilities_and_weights_get_gradients(self, smoothing, reduction):
        agree(
            lambda x, p, w: F.cross_entropy(x, p, weight=w, reduction=reduction, label_smoothing=smoothing),
            values(2, 4, 2),
            values(2, 4, 2, low=0.0, seed=1),
            values(4, low=0.5, seed=2),
            own=False,
        )

    def test_the_gradient_is_softmax_minus_onehot(self):
        x = cartograd.tensor(values(3, 4), requires_grad=True)
        F.cross_entropy(x, torch.tensor([2, 0, 3]), reduction="sum").backward()
        onehot = F.one_hot(torch.tensor([2, 0, 3]), 4)
        torch.testing.assert_close(x.grad.data, torch.softmax(x.data, 1) - onehot)

    def test_large_logits_stay_exact(self):
        x = cartograd.tensor([[1000.0, 0.0], [0.0, -1000.0]], requires_grad=True)
        loss = F.cross_entropy(x, torch.tensor([1, 1]), reduction="none")
        assert loss.tolist() == [1000.0, 1000.0]  # not cut off at log(1e-12)
        loss.sum().backward()
        assert x.grad.tolist() == [[1.0, -1.0], [1.0, -1.0]]

    def test_all_ignored_is_nan_as_in_torch(self):
        x = cartograd.tensor(values(2, 3), requires_grad=True)
        loss = F.cross_entropy(x, torch.tensor([-100, -100]))
        loss.backward()
        assert loss.isnan().item()
        assert x.grad.isnan().all().item()

    def test_kernel_spellings(self):
        target = torch.tensor([1, 0])
        image = torch.tensor([[[1, 0]], [[2, 2]]])
        agree(lambda x: NN.cross_entropy_loss(x, target, None, 2, 0, 0.0), values(2, 3))
        agree(lambda x: NN.nll_loss_nd(x, target), values(2, 3))
        agree(lambda x: NN.nll_loss(x, target, None, 0), values(2, 3))
        agree(lambda x: NN.nll_loss2d(x, image, None, 2), values(2, 3, 1, 2))

    def test_index_target_may_be_ours(self):
        x = cartograd.tensor(values(2, 3), requires_grad=True)
        loss = F.cross_entropy(x, cartograd.tensor([1, 0]), label_smoothing=0.1)
        assert loss.item() == F.cross_entropy(x.data, torch.tensor([1, 0]), label_smoothing=0.1).item()

    def test_wrong_targets_are_refused(self):
        x = cartograd.tensor(values(3, 4), requires_grad=True)
        with pytest.raises(IndexError, match="Target 7 is out of bounds"):
            F.cross_entropy(x, torch.tensor([0, 7, 1]))
        with pytest.raises(OptionError, match=r"needs a target of class indices of shape \(3,\), got \(2,\)"):
            F.cross_entropy(x, torch.tensor([0, 1]))
        with pytest.raises(OptionError, match="floating point"):
            F.cross_entropy(x, torch.ones(3, 4, dtype=torch.long))
        with pytest.raises(OptionError, match="ignore_index"):
            F.cross_entropy(x, torch.ones(3, 4), ignore_index=1)
        with pytest.raises(OptionError, match="label_smoothing"):
            F.cross_entropy(x, torch.tensor([0, 1, 2]), label_smoothing=1.5)
        with pytest.raises(OptionError, match=r"one element a class, 4, got \(3,\)"):
            F.cross_entropy(x, torch.ones(3, 4).double(), weight=torch.ones(3))

    def test_a_weight_that_requires_grad_is_never_ignored(self):
        x = cartograd.tensor(values(3, 4), requires_grad=True)
        weight = cartograd.tensor(torch.ones(4).double(), requires_grad=True)
        with pytest.raises(UnsupportedError, match="no gradient rule for its input 'weight'"):
            F.cross_entropy(x, torch.tensor([0, 1, 2]), weight=weight)
        with pytest.raises(RuntimeError, match="weight"):
            F.nll_loss(x, torch.tensor([0, 1, 2]), weight=weight)

    def test_hessian_of_cross_entropy(self):
        target = torch.tensor([2])
        hessian = cartograd.hessian(lambda x: F.cross_entropy(x, target), cartograd.tensor(values(1, 3)))
        p = torch.softmax(values(1, 3)[0], 0)
        torch.testing.assert_close(hessian.data.reshape(3, 3), torch.diag(p) - torch.outer(p, p))


class TestCTC:
    ARGS = (torch.tensor([[1, 2, 2], [3, 1, 0]]), torch.tensor([6, 5]), torch.tensor([3, 2]))

    @pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
    def test_behind_log_softmax_it_is_torchs(self, reduction):
        agree(
            lambda x: F.ctc_loss(torch.log_softmax(x, 2), *self.ARGS, reduction=reduction), values(6, 2, 4), own=False
        )

    def test_unbatched_concatenated_and_other_blank(self):
        agree(
            lambda x: F.ctc_loss(torch.log_softmax(x, 1), torch.tensor([1, 2]), torch.tensor(5), torch.tensor(2)),
            values(5, 3),
            own=False,
        )
        agree(
            lambda x: torch.ctc_loss(torch.log_softmax(x, 2), torch.tensor([0, 1, 1]), (6, 4), (2, 1), 2, 2),
            values(6, 2, 3),
            own=False,
        )

    @pytest.mark.parametrize("zero_infinity", [True, False])
    def test_impossible_targets(self, zero_infinity):
        # Six labels do not fit into two steps: the loss of that sequence is infinite.
        log_probs = cartograd.tensor(torch.log_softmax(values(6, 2, 4), 2), requires_grad=True)
        targets, lengths = torch.ones(2, 6, dtype=torch.long), torch.tensor([6, 1])
        loss = F.ctc_loss(log_probs, targets, (6, 2), lengths, reduction="none", zero_infinity=zero_infinity)
        assert loss.isinf().tolist() == [not zero_infinity, False]
        loss[0 if zero_infinity else 1].backward()
        if zero_infinity:
            assert loss[0].item() == 0
            assert not log_probs.grad.data.any()

    def test_the_gradient_is_that_of_the_log_probabilities_themselves(self):
        log_probs = cartograd.tensor(torch.log_softmax(values(6, 2, 4), 2), requires_grad=True)
        assert cartograd.gradcheck(lambda x: F.ctc_loss(x, *self.ARGS), log_probs)

    def test_second_derivative_is_refused(self):
        log_probs = cartograd.tensor(torch.log_softmax(values(6, 2, 4), 2), requires_grad=True)
        with pytest.raises(NotTwiceDifferentiableError, match="twice"):
            cartograd.grad(F.ctc_loss(log_probs, *self.ARGS), log_probs, create_graph=True)


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
        agree(
            lambda x, t: torch.binary_cross_entropy_with_logits(x, t, None, None, 1), values(3), values(2, 3, low=0.0)
        )

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
            own=False,
        )


class TestRanking:
    @pytest.mark.parametrize("p", [1, 2])
    @pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
    def test_multi_margin(self, p, reduction):
        weight = values(4, low=0.5, seed=1)
        target = torch.tensor([0, 3, 2])
        agree(lambda x: F.multi_margin_loss(x, target, p, 0.7, weight, reduction=reduction), values(3, 4))

    @pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
    def test_multilabel_margin(self, reduction):
        target = torch.tensor([[3, 0, -1, 1], [-1, 2, 0, 0]])
        agree(lambda x: F.multilabel_margin_loss(x, target, reduction=reduction), values(2, 4))

    @pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
    def test_restatements_are_the_same_function(self, reduction):
        code = {"none": 0, "mean": 1, "sum": 2}[reduction]
        x, target = values(3, 4), torch.tensor([0, 3, 2])
        ops = cartograd.ops.ranking
        many = torch.tensor([[3, 0, -1, 1], [-1, 2, 0, 0], [1, 1, 2, -1]])
        for op, args in (
            (ops.multi_margin_loss, (x, target, 2, 0.7, values(4, low=0.5), code)),
            (ops.multilabel_margin_loss, (x, many, code)),
            (ops.soft_margin_loss, (x, x.sign(), code)),
        ):
            torch.testing.assert_close(op.restated(*args), op(*args).data)

    @pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
    def test_embedding_losses(self, reduction):
        x, y = values(4, 3), values(4, 3, seed=1)
        agree(lambda x, y: F.cosine_embedding_loss(x, y, SIGNS, 0.1, reduction=reduction), x, y, own=False)
        agree(lambda x: F.hinge_embedding_loss(x, SIGNS, 0.5, reduction=reduction), values(4), own=False)
        agree(lambda x, y: F.margin_ranking_loss(x, y, SIGNS, 0.3, reduction=reduction), values(4), values(4, seed=1))

    @pytest.mark.parametrize("swap", [True, False])
    @pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
    def test_triplets(self, reduction, swap):
        three = [values(4, 3, seed=seed) for seed in range(3)]
        agree(lambda a, p, n: F.triplet_margin_loss(a, p, n, 0.8, 3, swap=swap, reduction=reduction), *three, own=False)
        agree(
            lambda a, p, n: F.triplet_margin_with_distance_loss(
                a, p, n, distance_function=lambda u, v: ((u - v) ** 2).sum(-1), swap=swap, reduction=reduction
            ),
            *three,
        )

    def test_kernel_spellings(self):
        x, y, z = (values(4, 3, seed=seed) for seed in range(3))
        agree(lambda x, y: torch.cosine_embedding_loss(x, y, SIGNS, 0.1, 2), x, y, own=False)
        agree(lambda x: torch.hinge_embedding_loss(x, SIGNS), values(4), own=False)
        agree(lambda x, y: torch.margin_ranking_loss(x, y, SIGNS, 0.3, 0), values(4), values(4, seed=1))
        agree(lambda x, y, z: torch.triplet_margin_loss(x, y, z), x, y, z, own=False)
        agree(lambda x: NN.multi_margin_loss(x, torch.tensor([0, 1, 2, 0]), 2), x)
        agree(lambda x: NN.multilabel_margin_loss(x, torch.tensor([[0, -1, 1]] * 4), 2), x)

    def test_soft_margins(self):
        agree(lambda x: F.soft_margin_loss(x, SIGNS), values(4, low=-40, high=40))
        agree(
            lambda x, t, w: F.multilabel_soft_margin_loss(x, t, w),
            values(2, 3),
            values(2, 3, low=0.0, seed=1),
            values(3, low=0.5, seed=2),
        )

    def test_refusals(self):
        x = cartograd.tensor(values(4, 3), requires_grad=True)
        with pytest.raises(OptionError, match="p == 2"):
            F.multi_margin_loss(x, torch.tensor([0, 1, 2, 0]), p=3)
        with pytest.raises(OptionError, match="one-dimensional"):
            F.multi_margin_loss(x, torch.tensor([0, 1, 2, 0]), weight=torch.ones(1, 3))
        with pytest.raises(OptionError, match="margin must be greater than 0, got -1"):
            F.triplet_margin_loss(x, x, x, margin=-1.0)
        with pytest.raises(OptionError, match="same number of axes"):
            F.triplet_margin_with_distance_loss(x, x, values(3))
        with pytest.raises(OptionError, match="same number of axes"):
            F.margin_ranking_loss(x, x, SIGNS)
        with pytest.raises(OptionError, match=r"\(n, d\) inputs"):
            F.cosine_embedding_loss(x, x, torch.ones(4, 3))
