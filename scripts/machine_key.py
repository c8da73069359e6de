"""What a SHA-256 of floating-point results depends on besides the code: the CPU and the versions of what computes.

python scripts/machine_key.py    prints it
"""

from __future__ import annotations

import hashlib
import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

LIBRARIES = ("torch", "numba", "numpy", "scipy", "scikit-learn")


def machine_key() -> dict[str, str]:
    """Return the CPU's model, a digest of its flags, and the versions of the libraries that compute."""
    fields = _processor()
    flags = " ".join(sorted(fields.get("flags", fields.get("Features", "")).split()))
    return {
        "cpu": fields.get("model name", platform.processor() or platform.machine()),
        "flags": hashlib.sha256(flags.encode()).hexdigest()[:16],
        **{name: _version(name) for name in LIBRARIES},
    }


def _processor() -> dict[str, str]:
    """Return the fields of the first processor in /proc/cpuinfo; empty where that file does not exist."""
    path = Path("/proc/cpuinfo")
    text = path.read_text().split("\n\n")[0] if path.exists() else ""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _version(name: str) -> str:
    try:
        return version(name).partition("+")[0]
    except PackageNotFoundError:
        return "absent"


if __name__ == "__main__":
    print(json.dumps(machine_key(), indent=2))
