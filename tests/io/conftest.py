import os
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def iris():
    """Iris as scikit-learn gives it: measurements (150, 4), names of the species (150,)."""
    from sklearn.datasets import load_iris

    found = load_iris()
    return found.data, found.target_names[found.target]


@pytest.fixture
def scratch():
    """A folder for thousands of files, in memory where the system has such a place."""
    shared = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as folder:
        yield Path(folder)
