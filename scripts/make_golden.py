"""Write the bits that tests/golden keeps, for this machine: `make golden`.

python scripts/make_golden.py             the digests of this machine, in tests/golden/machines/
python scripts/make_golden.py --steps     also the stored neighbors and the maps after ten steps, for all machines
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path

import torch

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden"
sys.path.insert(0, str(GOLDEN))

import near  # noqa: E402
from cases import CASES, all_digests  # noqa: E402
from launching import digests_of_two_processes  # noqa: E402
from machine_key import machine_key  # noqa: E402


def main() -> None:
    """Fit every case and write the digests."""
    torch.set_num_threads(1)
    if "--steps" in sys.argv[1:]:
        near.write()
    with tempfile.TemporaryDirectory() as folder:
        first, second = digests_of_two_processes(Path(folder))
    if first != second:
        raise SystemExit("two processes that share a fit found different bits")
    key = machine_key()
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]
    kept = {"machine": key, "digests": {"alone": all_digests(list(CASES)), "two processes": first}}
    path = GOLDEN / "machines" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(kept, indent=1) + "\n")
    print(f"{path}: {len(CASES)} cases")


if __name__ == "__main__":
    main()
