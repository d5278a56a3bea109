"""The machine and the versions of a measurement."""

import os
import platform
from importlib import metadata
from pathlib import Path

import torch

import regard
from regard.kernels import native_library

PEERS = ["keras", "transformers", "x-transformers", "entmax", "local-attention", "pytorch-crf"]


def machine() -> dict[str, str]:
    native = native_library.instruction_set()
    return {
        "processor": processor(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "instruction set": f"{torch.backends.cpu.get_cpu_capability()} (torch), {native} (regard's native kernels)",
        "system": f"{platform.system()} {platform.machine()}",
        "load before": f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "unknown",
    }


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str]:
    found = {"regard": regard.__version__, "python": platform.python_version(), "torch": torch.__version__}
    return found | {name: version(name) or "not installed" for name in PEERS}
