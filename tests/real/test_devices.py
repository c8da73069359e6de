"""Maps of real data on a GPU are as good as on the CPU: same seed, same method, same settings."""

import os
from pathlib import Path

import numpy
import pytest
import torch

import cartograd
from cartograd.metrics import trustworthiness

DATA = Path(os.environ.get("CARTOGRAD_DATA", Path(__file__).parents[3] / "shared" / "data"))
METHODS = {
    "UMAP": {"n_neighbors": 15, "max_iter": 500},
    "TSNE": {"max_iter": 750},
    "LargeVis": {"max_iter": 750},
    "InfoTSNE": {"max_iter": 500, "n_negatives": 100},
    "PACMAP": {},
}
SETS = ["pbmc68k_reduced_pca50", "coil20", "zeisel_brain_pca50", "cbmc_citeseq_pca50"]

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("data", SETS)
def test_trustworthiness_is_the_cpus(data, name):
    path = DATA / f"{data}.npz"
    if not path.exists():
        pytest.skip(f"no {path}; set CARTOGRAD_DATA to the folder of the data")
    X = numpy.load(path)["X"].astype("float32")
    made = [getattr(cartograd, name)(**METHODS[name], random_state=0, device=device) for device in ("cuda", "cpu")]
    found = [trustworthiness(X, model.fit_transform(X), 15) for model in made]
    print(f"{data} {name}: {found[0]:.4f} on the GPU, {found[1]:.4f} on the CPU")
    assert abs(found[0] - found[1]) < 0.005
