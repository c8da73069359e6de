"""`cartograd info`: versions, devices, threads, memory: what a report of a problem should say."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from typing import Any

import click

from cartograd.cli.command import command
from cartograd.cli.console import Console
from cartograd.cli.wording import help_text, table_lines

PACKAGES = {
    "": ("torch", "numpy", "scipy", "scikit-learn", "numba", "safetensors", "click", "tqdm"),
    "ann": ("faiss-cpu", "pynndescent"),
    "tables": ("pyarrow",),
    "anndata": ("anndata",),
    "plot": ("matplotlib",),
    "gpu": ("triton",),
}
"""Packages that cartograd uses, by the extra that brings them."""
HELP = help_text(
    "Tells versions, devices, threads and free memory of this machine.",
    [
        ("cartograd info", "for people; put it into a report of a problem"),
        ("cartograd info --json", "for programs"),
    ],
)


@command("info", HELP)
@click.option("--compile", "compile_kernels", is_flag=True, help="Compile all kernels now. (There are none yet.)")
def info(console: Console, compile_kernels: bool) -> None:
    """Collect and print."""
    found = {
        "command": "info",
        "cartograd": _version("cartograd"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for names in PACKAGES.values() for name in names},
        "devices": _devices(),
        "threads": _threads(),
        "cores": _cores(),
        "memory": _memory(),
        "cached_kernels": [],
    }
    if compile_kernels:
        console.note("this version has no kernels to compile: nothing was done")
    console.say(*_lines(found))
    console.result(found | {"notes": console.notes})


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _threads() -> int:
    import torch

    return torch.get_num_threads()


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _devices() -> list[dict[str, Any]]:
    import torch

    from cartograd.embedding.memory import free_bytes

    found: list[dict[str, Any]] = [{"device": "cpu", "name": platform.processor() or platform.machine()}]
    for place in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        device = torch.device("cuda", place)
        size = torch.cuda.get_device_properties(device).total_memory
        name = torch.cuda.get_device_name(device)
        found.append({"device": str(device), "name": name, "memory": size, "free": int(free_bytes(device))})
    return found


def _memory() -> dict[str, int | None]:
    """Bytes of main memory: all, and those that can still be taken; None where the system does not say."""
    import torch

    from cartograd.embedding.memory import free_bytes

    free = free_bytes(torch.device("cpu"))
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        total = None
    return {"total": total, "free": None if free == float("inf") else int(free)}


def _gib(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 2**30:.1f} GiB"


def _lines(found: dict[str, Any]) -> list[str]:
    devices = [
        f"{one['device']} ({one['name']}"
        + (f", {_gib(one['free'])} of {_gib(one['memory'])} free)" if "free" in one else ")")
        for one in found["devices"]
    ]
    memory = found["memory"]
    rows = [
        ("cartograd", str(found["cartograd"])),
        ("python", f"{found['python']}, {sys.executable}"),
        ("system", found["platform"]),
        ("devices", ", ".join(devices)),
        ("threads", f"{found['threads']} of {found['cores']} cores"),
        ("memory", f"{_gib(memory['free'])} of {_gib(memory['total'])} free"),
        ("kernels", "none cached: this version compiles none"),
    ]
    for extra, names in PACKAGES.items():
        rows += [
            (name, found["packages"][name] or f'not installed: pip install "cartograd[{extra}]"') for name in names
        ]
    return table_lines(rows, indent="")
