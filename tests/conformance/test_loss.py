"""OpInfo parity of the losses: ops/loss.py, ops/classes.py, ops/likelihood.py and ops/ranking.py."""

import pytest
from harness import check_entry, entries

NAMES = [
    "nn.functional.ctc_loss",
    "nn.functional.mse_loss",
    "nn.functional.l1_loss",
    "nn.functional.smooth_l1_loss",
    "nn.functional.huber_loss",
    "nn.functional.nll_loss",
    "nn.functional.cross_entropy",
    "nn.functional.binary_cross_entropy",
    "nn.functional.binary_cross_entropy_with_logits",
    "nn.functional.kl_div",
    "nn.functional.poisson_nll_loss",
    "nn.functional.gaussian_nll_loss",
    "nn.functional.multi_margin_loss",
    "nn.functional.multilabel_margin_loss",
    "nn.functional.multilabel_soft_margin_loss",
    "nn.functional.soft_margin_loss",
    "nn.functional.hinge_embedding_loss",
    "nn.functional.margin_ranking_loss",
    "nn.functional.cosine_embedding_loss",
    "nn.functional.triplet_margin_loss",
    "nn.functional.triplet_margin_with_distance_loss",
]


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("entry", entries(NAMES))
def test_matches_torch(entry):
    check_entry(entry)
