"""scikit-learn's own checks of an estimator, for every neighbour embedding with its defaults; none is excused."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from cartograd import InfoTSNE, LargeVis, UMAP

# the data have 10 to 40 rows: perplexity and n_neighbors are clamped, with a warning
pytestmark = pytest.mark.filterwarnings("ignore:.*is too large for .* different rows:UserWarning")


@parametrize_with_checks([UMAP(), LargeVis(), InfoTSNE()])
def test_check_estimator(estimator, check):
    check(estimator)
