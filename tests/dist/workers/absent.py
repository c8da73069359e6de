"""A script in which one process does not find its file, while the others have begun to fit."""

import numpy
from common import FOLDER, RANK, rows

import cartograd

if RANK == 0:
    numpy.save(FOLDER / "rows-0.npy", rows(300))
cartograd.UMAP(max_iter=5).fit(numpy.load(FOLDER / f"rows-{RANK}.npy"))
