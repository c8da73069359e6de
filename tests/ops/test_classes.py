"""Losses of classes beyond OpInfo: every shape, smoothing, probabilities, what is saved, errors; and CTC."""

import pytest
import torch
import torch.nn.functional as F
from side_by_side import agree, values

import cartograd
from cartograd.errors import NotTwiceDifferentiableError, OptionError, UnsupportedError

NN = torch._C._nn


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

    def test_of_large_logits_only_the_log_probabilities_are_saved(self):
        logits, target = values(2, 70_000, dtype=torch.float32), torch.tensor([5, 69_999])
        made = agree(lambda x: F.cross_entropy(x, target), logits)
        nodes = cartograd.trace(F.cross_entropy(cartograd.tensor(logits, requires_grad=True), target)).nodes
        saved = [one for node in nodes for one in node.saved if isinstance(one, torch.Tensor) and one.numel() > 2]
        assert len({one.data_ptr() for one in saved}) == 1
        torch.testing.assert_close(saved[0], torch.log_softmax(logits, 1))
        assert made.dtype is torch.float32

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
        )

    @pytest.mark.parametrize("smoothing", [0.0, 0.2])
    @pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
    def test_probabilities_and_weights_get_gradients(self, smoothing, reduction):
        agree(
            lambda x, p, w: F.cross_entropy(x, p, weight=w, reduction=reduction, label_smoothing=smoothing),
            values(2, 4, 2),
            values(2, 4, 2, low=0.0, seed=1),
            values(4, low=0.5, seed=2),
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

    def test_the_mean_of_none_is_nan_and_its_gradient_zero_as_in_torch(self):
        x = cartograd.tensor(values(2, 3), requires_grad=True)
        loss = F.cross_entropy(x, torch.tensor([-100, -100]))
        loss.backward()
        assert loss.isnan().item()
        assert not x.grad.data.any()

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
        agree(lambda x: F.ctc_loss(torch.log_softmax(x, 2), *self.ARGS, reduction=reduction), values(6, 2, 4))

    def test_unbatched_concatenated_and_other_blank(self):
        agree(
            lambda x: F.ctc_loss(torch.log_softmax(x, 1), torch.tensor([1, 2]), torch.tensor(5), torch.tensor(2)),
            values(5, 3),
        )
        agree(
            lambda x: torch.ctc_loss(torch.log_softmax(x, 2), torch.tensor([0, 1, 1]), (6, 4), (2, 1), 2, 2),
            values(6, 2, 3),
        )

    @pytest.mark.parametrize("zero_infinity", [True, False])
    def test_impossible_targets(self, zero_infinity):
        # Six labels do not fit into two steps: the loss of that sequence is infinite.
        log_probs = cartograd.tensor(torch.log_softmax(values(6, 2, 4), 2), requires_grad=True)
        targets, lengths = torch.ones(2, 6, dtype=torch.long), (6, 1)
        loss = F.ctc_loss(log_probs, targets, (6, 2), lengths, reduction="none", zero_infinity=zero_infinity)
        assert loss.isinf().tolist() == [not zero_infinity, False]
        loss[0 if zero_infinity else 1].backward()
        if zero_infinity:
            assert loss[0].item() == 0
            assert not log_probs.grad.data.any()

    def test_the_gradient_is_that_of_the_scores_behind_a_log_softmax(self):
        scores = cartograd.tensor(values(6, 2, 4), requires_grad=True)
        assert cartograd.gradcheck(lambda x: F.ctc_loss(torch.log_softmax(x, 2), *self.ARGS), scores)

    def test_second_derivative_is_refused(self):
        log_probs = cartograd.tensor(torch.log_softmax(values(6, 2, 4), 2), requires_grad=True)
        with pytest.raises(NotTwiceDifferentiableError, match="twice"):
            cartograd.grad(F.ctc_loss(log_probs, *self.ARGS), log_probs, create_graph=True)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("loss", [F.nll_loss, F.cross_entropy])
def test_classes_of_images_whose_channels_are_last(loss, reduction):
    target = torch.randint(0, 3, (2, 4, 5), generator=torch.Generator().manual_seed(0))
    weight = torch.tensor([0.5, 9, 1, 9, 2, 9], dtype=torch.float64)[::2]

    def call(x):
        image = x.permute(0, 3, 1, 2)
        image = image if isinstance(x, cartograd.Tensor) else image.contiguous()  # torch's nll_loss refuses these
        return loss(image, target, weight, reduction=reduction)

    agree(call, values(2, 4, 5, 3))
