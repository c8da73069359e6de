"""scikit-learn's own checks of an estimator, for every neighbour embedding; none is excused.

The ordinary run takes fewer steps, everything else being the default; ``-m slow`` takes all of them.
"""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from cartograd import COSNE, PACMAP, SNE, TSNE, UMAP, InfoTSNE, LargeVis, TSNEkhorn

METHODS = (UMAP, LargeVis, InfoTSNE, TSNE, SNE, PACMAP, TSNEkhorn, COSNE)

# the data have 10 to 40 rows: perplexity and n_neighbors are clamped, with a warning
pytestmark = pytest.mark.filterwarnings("ignore:.*is too large for .* different rows:UserWarning")


@parametrize_with_checks([kind(max_iter=30) for kind in METHODS])
def test_check_estimator(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([kind() for kind in METHODS])
def test_check_estimator_with_all_defaults(estimator, check):
    check(estimator)
