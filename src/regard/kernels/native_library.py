"""The native library: found beside this file, loaded at first use, told by one sentence why it is not there.

It is plain C behind ctypes, so it works with any version of torch and Python. A call costs a few microseconds and
releases the interpreter lock. ``LEVEL`` bounds the instruction set (0 baseline, 1 AVX2, 2 AVX-512); the tests lower it.
"""

import ctypes
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ABI = 5
LEVEL = 2

_INT, _LONG, _POINTER, _REAL = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_double
_COMMON: list[Any] = [_INT, _INT, _LONG]  # double or float, most level, threads
_ADDITIVE: list[Any] = (
    [_LONG] * 4 + [_POINTER, _LONG, _LONG] * 2 + [_POINTER]
)  # n q k d, a and its strides, b and its strides, w
_SIGNATURES: dict[str, list[Any]] = {
    "regard_abi": [],
    "regard_level": [_INT],
    "regard_additive_forward": _COMMON + _ADDITIVE + [_POINTER] + [_LONG] * 3 + [_POINTER] * 2,
    "regard_additive_backward": _COMMON + _ADDITIVE + [_POINTER] * 4,
    "regard_softmax_backward": _COMMON + [_LONG] * 2 + [_POINTER] * 4,
    "regard_sparse": [*_COMMON, _INT, _LONG, _LONG, _POINTER, _POINTER] + [_LONG] * 4 + [_POINTER] * 2,
    "regard_sparse_backward": [*_COMMON, _INT, _LONG, _LONG] + [_POINTER] * 3,
    "regard_likelihood": [*_COMMON, _LONG, _LONG, _LONG, _REAL] + [_POINTER] * 6,
    "regard_simam": [*_COMMON, _LONG, _LONG, _REAL] + [_POINTER] * 5,
    "regard_pool": [*_COMMON, _LONG, _LONG] + [_POINTER] * 5,
    "regard_across": _COMMON + [_LONG] * 3 + [_POINTER] * 7,
    "regard_likeliest": [*_COMMON] + [_LONG] * 4 + [_POINTER] * 3 + [_LONG] * 2 + [_POINTER] * 4,
    "regard_drop": [*_COMMON, _LONG, _POINTER, _LONG, _LONG, _REAL, _POINTER],
    "regard_scale": _COMMON + [_LONG] * 3 + [_POINTER] * 7,
    "regard_sequence": _COMMON + [_LONG] * 2 + [_POINTER] * 11 + [_INT],
    "regard_sequence_backward": _COMMON + [_LONG] * 2 + [_POINTER] * 11,
    "regard_cell": _COMMON
    + [_LONG, _LONG, _POINTER, _LONG, _POINTER, _POINTER, _POINTER, _LONG]
    + [_POINTER] * 5
    + [_LONG],
    "regard_cell_backward": _COMMON + [_LONG, _LONG] + [_POINTER] * 3 + [_LONG] + [_POINTER] * 4,
}


def load(folder: Path) -> ctypes.CDLL | str:
    """The library in `folder`, or the sentence that says why there is none."""
    found = [
        path for suffix in (*EXTENSION_SUFFIXES, ".dylib", ".dll") if (path := folder / f"_native{suffix}").is_file()
    ]
    if not found:
        return "no native kernels: the package was built without a C compiler; install one and reinstall regard"
    try:
        loaded = ctypes.CDLL(str(found[0]))
        for name, arguments in _SIGNATURES.items():
            function = getattr(loaded, name)
            function.argtypes, function.restype = arguments, _INT
    except (OSError, AttributeError) as error:
        return f"no native kernels: {found[0].name} does not load ({error}); reinstall regard"
    if (version := loaded.regard_abi()) != ABI:
        return f"no native kernels: {found[0].name} has interface {version}, this regard needs {ABI}; reinstall regard"
    return loaded


@cache
def _loaded() -> ctypes.CDLL | str:
    return load(Path(__file__).parent)


def library() -> ctypes.CDLL | None:
    """The native library, or None; then `why_not` tells why."""
    loaded = _loaded()
    return None if isinstance(loaded, str) else loaded


def why_not() -> str | None:
    """One sentence: why there are no native kernels. None if there are."""
    loaded = _loaded()
    return loaded if isinstance(loaded, str) else None


def instruction_set() -> str:
    """What the native kernels run on here: "avx512", "avx2", "baseline" (SSE2, NEON or scalar), or "none"."""
    loaded = library()
    return "none" if loaded is None else ("baseline", "avx2", "avx512")[loaded.regard_level(LEVEL)]


def refusal(*tensors: Tensor) -> str | None:
    """Why the native kernels cannot take these tensors together, by one sentence; None if they can."""
    for tensor in tensors:
        if tensor.device.type != "cpu":
            return f"the native kernels run on the cpu, not on {tensor.device}"
        if tensor.dtype not in (torch.float32, torch.float64):
            return f"the native kernels take float32 and float64, not {tensor.dtype}"
        if tensor.dtype != tensors[0].dtype:
            return f"the native kernels take tensors of one dtype, not {tensors[0].dtype} and {tensor.dtype}"
    return why_not()


def choose(native: bool | None, *tensors: Tensor) -> bool:
    """Native or torch? None takes native where it runs, True insists on it."""
    if native is False:
        return False
    why = refusal(*tensors)
    if native and why is not None:
        raise RuntimeError(f"native=True cannot be had: {why}; native=None takes what runs")
    return why is None


def call(name: str, like: Tensor, *arguments: float | None) -> None:
    """Run one kernel in the dtype of `like` on as many threads as torch uses."""
    loaded = library()
    assert loaded is not None
    if getattr(loaded, name)(like.dtype == torch.float64, LEVEL, torch.get_num_threads(), *arguments):
        raise MemoryError(f"{name} found no memory for its scratch rows; shorten the keys or free memory")
