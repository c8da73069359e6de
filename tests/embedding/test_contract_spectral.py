"""scikit-learn's own checks of an estimator, every one of them, on the spectral estimators as they are by default."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from cartograd.embedding.exact_incremental_pca import ExactIncrementalPCA
from cartograd.embedding.incremental_pca import IncrementalPCA
from cartograd.embedding.kernel_pca import KernelPCA
from cartograd.embedding.pca import PCA
from cartograd.embedding.phate import PHATE

# some of the data have fewer rows than PHATE's neighbours: k is clamped, with a warning
pytestmark = pytest.mark.filterwarnings("ignore:k=5 is too large for .* different rows:UserWarning")


@parametrize_with_checks([PCA(), IncrementalPCA(), ExactIncrementalPCA(), KernelPCA(), PHATE()])
def test_check_estimator(estimator, check):
    check(estimator)
