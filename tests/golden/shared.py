"""Fit the shared cases as one of several processes, and write their digests: shared.py FOLDER, under torchrun."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

from cases import CASES, all_digests, fitted, fitted_in_two_parts

if __name__ == "__main__":
    torch.set_num_threads(1)
    names = [name for name, case in CASES.items() if case.distributed]
    found = {"plain": all_digests(names, fitted), "resumed": all_digests(names, fitted_in_two_parts)}
    (Path(sys.argv[1]) / f"{os.environ['RANK']}.json").write_text(json.dumps(found))
