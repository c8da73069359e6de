"""Start two processes that fit the shared cases."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROCESSES = 2


def digests_of_two_processes(folder: Path) -> list[dict[str, Any]]:
    """Return the digests that each of two processes found: by "plain" and "resumed", then by case."""
    variables = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "MASTER_PORT")}
    variables |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "CARTOGRAD_DIST_TIMEOUT": "60"}
    variables["PYTHONPATH"] = os.pathsep.join([str(HERE.parents[1] / "src"), variables.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={PROCESSES}"]
    command += ["--monitor-interval=0.1", str(HERE / "shared.py"), str(folder)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=400, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(PROCESSES)]
