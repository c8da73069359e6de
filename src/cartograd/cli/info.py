"""`cartograd info`: versions, devices, threads, memory, kernels: what a report of a problem should say."""

from __future__ import annotations

import os
import platform
import sys
import time
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
    "Tells versions, devices, threads, free memory and compiled kernels of this machine.",
    [
        ("cartograd info", "for people; put it into a report of a problem"),
        ("cartograd info --json", "for programs"),
        ("cartograd info --compile", "compile all kernels, so that the first large map need not"),
    ],
)


@command("info", HELP)
@click.option("--compile", "compile_kernels", is_flag=True, help="Compile all kernels now, and keep them on disk.")
def info(console: Console, compile_kernels: bool) -> None:
    """Collect and print."""
    seconds = _compile(console) if compile_kernels else {}
    kernels = _kernels(seconds)
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
        "cached_kernels": [f"{one['module']}.{name}" for one in kernels["modules"] for name in one["cached"]],
        "kernels": kernels,
    }
    console.say(*_lines(found))
    console.result(found | {"notes": console.notes})


def _compile(console: Console) -> dict[str, float]:
    """Load every module of kernels, which compiles those that are not on disk; the seconds that each took."""
    from cartograd.kernels import cpu

    seconds = {}
    for name in cpu.names():
        console.step(f"compiling {name}")
        start = time.perf_counter()
        cpu.load(name)
        seconds[name] = round(time.perf_counter() - start, 3)
    return seconds


def _kernels(seconds: dict[str, float]) -> dict[str, Any]:
    """Where compiled kernels are kept, and which of each module are there."""
    from cartograd.kernels import cache, cpu

    folder = cache.expected_folder()
    modules: list[dict[str, Any]] = []
    for name in cpu.names():
        entry = {"module": name, "kernels": cpu.kernels_of(name), "cached": cache.kernels_in(folder, name)}
        modules.append(entry | ({"seconds": seconds[name]} if name in seconds else {}))
    return {"folder": None if folder is None else str(folder), "modules": modules}


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
        ("kernels", _kept(found["kernels"])),
    ]
    for extra, names in PACKAGES.items():
        rows += [
            (name, found["packages"][name] or f'not installed: pip install "cartograd[{extra}]"') for name in names
        ]
    modules = [(one["module"], _state(one)) for one in found["kernels"]["modules"]]
    return table_lines(rows, indent="") + (["", "Kernels:", *table_lines(modules)] if modules else [])


def _kept(kernels: dict[str, Any]) -> str:
    present, declared = (sum(len(one[key]) for one in kernels["modules"]) for key in ("cached", "kernels"))
    kept = f"{present} of {declared} compiled"
    if kernels["folder"] is None:
        return f"{kept}; no folder can be written to, so each process compiles: set NUMBA_CACHE_DIR to one that can"
    return f"{kept}, in {kernels['folder']}"


def _state(module: dict[str, Any]) -> str:
    kernels = [name if name in module["cached"] else f"{name} (not yet)" for name in module["kernels"]]
    return ", ".join(kernels) + (f": {module['seconds']:.1f} s" if "seconds" in module else "")
