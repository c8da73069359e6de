"""Margin losses beyond OpInfo: options, both spellings, restatements, errors."""

import pytest
import torch
import torch.nn.functional as F
from side_by_side import agree, values

import cartograd
from cartograd.errors import OptionError

NN = torch._C._nn
SIGNS = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)


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
        agree(lambda x, y: F.cosine_embedding_loss(x, y, SIGNS, 0.1, reduction=reduction), x, y)
        agree(lambda x: F.hinge_embedding_loss(x, SIGNS, 0.5, reduction=reduction), values(4))
        agree(lambda x, y: F.margin_ranking_loss(x, y, SIGNS, 0.3, reduction=reduction), values(4), values(4, seed=1))

    @pytest.mark.parametrize("swap", [True, False])
    @pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
    def test_triplets(self, reduction, swap):
        three = [values(4, 3, seed=seed) for seed in range(3)]
        agree(lambda a, p, n: F.triplet_margin_loss(a, p, n, 0.8, 3, swap=swap, reduction=reduction), *three)
        agree(
            lambda a, p, n: F.triplet_margin_with_distance_loss(
                a, p, n, distance_function=lambda u, v: ((u - v) ** 2).sum(-1), swap=swap, reduction=reduction
            ),
            *three,
        )

    def test_kernel_spellings(self):
        x, y, z = (values(4, 3, seed=seed) for seed in range(3))
        agree(lambda x, y: torch.cosine_embedding_loss(x, y, SIGNS, 0.1, 2), x, y)
        agree(lambda x: torch.hinge_embedding_loss(x, SIGNS), values(4))
        agree(lambda x, y: torch.margin_ranking_loss(x, y, SIGNS, 0.3, 0), values(4), values(4, seed=1))
        agree(lambda x, y, z: torch.triplet_margin_loss(x, y, z), x, y, z)
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
