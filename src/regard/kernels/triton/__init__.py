"""Triton kernels for GPUs: attention by a tanh, sparse attention, SimAM. They run only for `backend="triton"`.

Nothing here imports triton before a kernel runs: the modules of kernels and their hosts do. Each host is a custom
operator with fake shapes, so that torch.compile and torch.export see one opaque operation. Their gradients have no
derivative.
"""

import functools
import importlib.util
import sys

import torch

from regard.kernels.dispatch import in_functorch_transform
from regard.kernels.triton.configs import TARGETS

UNMEASURED = "nobody has measured it on this device; run make bench-gpu"
"""The reason why no call chooses these kernels by itself."""


def is_interpreted() -> bool:
    """Whether Triton runs kernels in Python on the CPU, as its variable TRITON_INTERPRET makes it do for tests."""
    # older versions of triton have no knobs
    knobs = getattr(sys.modules.get("triton"), "knobs", None)
    return knobs is not None and bool(knobs.runtime.interpret)


def unavailable_reason(device: torch.device) -> str | None:
    """Why the kernels cannot run on this device, in one sentence; None if they can. Compiled code asks when it runs."""
    if in_functorch_transform():
        return "torch.func cannot look into its kernels"
    if torch.compiler.is_compiling():
        return None
    if device.type == "cpu":
        return None if is_interpreted() else "its kernels are for GPUs, and the tensors are on cpu"
    if device.type != "cuda":
        return f"its kernels are for CUDA and ROCm, and the tensors are on {device.type}"
    if not _is_installed():
        return "triton is not installed; pip install 'regard[gpu]'"
    target = target_of(device)
    return None if target in TARGETS else f"it has tiles for sm_80 and newer and for gfx942, not for {target}"


def check(device: torch.device) -> None:
    """Raises if the kernels cannot run on this device."""
    reason = unavailable_reason(device)
    if reason is not None:
        raise ValueError(f"backend 'triton' cannot run this: {reason}; leave backend out")


@functools.cache
def _is_installed() -> bool:
    return importlib.util.find_spec("triton") is not None


@functools.cache
def target_of(device: torch.device) -> str:
    """The target whose tiles fit the device: the last one that is not newer, or its own name if there is none."""
    if torch.version.hip is not None:
        return torch.cuda.get_device_properties(device).gcnArchName.split(":")[0]
    if torch.version.cuda is None:
        return "a torch without CUDA"
    major, minor = torch.cuda.get_device_capability(device)
    return "sm_90" if major >= 9 else "sm_80" if major == 8 else f"sm_{major}{minor}"
