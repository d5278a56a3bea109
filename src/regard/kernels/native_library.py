"""The native library: lies beside this file and is loaded at first use; if it is missing, one sentence says why.

It is plain C called by ctypes, so it works with any version of torch and Python. A call costs a few microseconds and
releases the interpreter lock. ``LEVEL`` bounds the instruction set (0 baseline, 1 AVX2, 2 AVX-512); the tests lower it.
"""

import ctypes
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ABI = 10
LEVEL = 2

_INT, _LONG, _POINTER, _REAL = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_double
_COMMON: list[Any] = [_INT, _INT, _LONG]  # double or float, highest level, threads
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
    "regard_crf": _COMMON + [_LONG] * 3 + [_POINTER] * 10,
    "regard_crf_backward": _COMMON + [_LONG] * 4 + [_POINTER] * 12,
    "regard_viterbi": _COMMON + [_LONG] * 3 + [_POINTER] * 7,
    "regard_decoder_step": [*_COMMON] + [_LONG] * 9 + [_INT, _REAL, _REAL] + [_POINTER] * 6,
    "regard_heads_step": [*_COMMON] + [_LONG] * 6 + [_REAL] + [_POINTER] * 4,
    "regard_ragged": [*_COMMON] + [_LONG] * 4 + [_REAL] + [_POINTER] * 4,
    "regard_continuations": [*_COMMON] + [_LONG] * 5 + [_INT] + [_POINTER] * 10,
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


# kernels that a library of the same interface may lack, as it was built before they were added
_LATER: dict[str, list[Any]] = {
    "regard_padded": [*_COMMON] + [_LONG] * 6 + [_REAL, _INT] + [_POINTER] * 11,
    "regard_gelu": [*_COMMON, _LONG] + [_POINTER] * 3,
    "regard_stack_step": [*_COMMON] + [_LONG] * 6 + [_INT, _INT, _REAL, _REAL] + [_POINTER] * 4,
    "regard_gapped_stack_step": [*_COMMON] + [_LONG] * 6 + [_INT, _INT, _REAL, _REAL] + [_POINTER] * 5,
    "regard_int8_linear": [*_COMMON] + [_LONG] * 3 + [_INT, _INT] + [_POINTER] * 6,
    "regard_int8_sums": [*_COMMON] + [_LONG] * 3 + [_POINTER] * 3,
    "regard_int8_likeliest": [*_COMMON] + [_LONG] * 4 + [_POINTER] * 4 + [_INT] + [_LONG] * 2 + [_POINTER] * 4,
    "regard_int8_decoder_step": [*_COMMON]
    + [_LONG] * 9
    + [_INT, _REAL, _REAL, _POINTER, _POINTER, _INT]
    + [_POINTER] * 5,
    "regard_int8_stack_step": [*_COMMON]
    + [_LONG] * 6
    + [_INT, _INT, _REAL, _REAL, _POINTER, _POINTER, _INT]
    + [_POINTER] * 4,
}


def load_library(folder: Path) -> ctypes.CDLL | str:
    """The library in `folder`, or the sentence that says why there is none."""
    paths = [
        path for suffix in (*EXTENSION_SUFFIXES, ".dylib", ".dll") if (path := folder / f"_native{suffix}").is_file()
    ]
    if not paths:
        return "no native kernels: the package was built without a C compiler; install one and reinstall regard"
    try:
        loaded = ctypes.CDLL(str(paths[0]))
        for name, arguments in _SIGNATURES.items():
            function = getattr(loaded, name)
            function.argtypes, function.restype = arguments, _INT
        for name, arguments in _LATER.items():
            if hasattr(loaded, name):
                function = getattr(loaded, name)
                function.argtypes, function.restype = arguments, _INT
    except (OSError, AttributeError) as error:
        return f"no native kernels: {paths[0].name} does not load ({error}); reinstall regard"
    if (version := loaded.regard_abi()) != ABI:
        return f"no native kernels: {paths[0].name} has interface {version}, this regard needs {ABI}; reinstall regard"
    return loaded


@cache
def _library_or_reason() -> ctypes.CDLL | str:
    return load_library(Path(__file__).parent)


def library() -> ctypes.CDLL | None:
    """The native library, or None; then `unavailable_reason` says why."""
    loaded = _library_or_reason()
    return None if isinstance(loaded, str) else loaded


def unavailable_reason() -> str | None:
    """Why there are no native kernels, in one sentence; None if there are."""
    loaded = _library_or_reason()
    return loaded if isinstance(loaded, str) else None


def has_kernel(name: str) -> bool:
    """Whether the library was built with this kernel."""
    return hasattr(library(), name)


def instruction_set() -> str:
    """The instruction set of the native kernels: "avx512", "avx2", "baseline" (SSE2, NEON or scalar), or "none"."""
    loaded = library()
    return "none" if loaded is None else ("baseline", "avx2", "avx512")[loaded.regard_level(LEVEL)]


def unsupported_reason(*tensors: Tensor) -> str | None:
    """Why the native kernels cannot take these tensors together, in one sentence; None if they can."""
    for tensor in tensors:
        if tensor.device.type != "cpu":
            return f"the native kernels run on the cpu, not on {tensor.device}"
        if tensor.dtype not in (torch.float32, torch.float64):
            return f"the native kernels take float32 and float64, not {tensor.dtype}"
        if tensor.dtype != tensors[0].dtype:
            return f"the native kernels take tensors of one dtype, not {tensors[0].dtype} and {tensor.dtype}"
    return unavailable_reason()


def resolve_native(native: bool | None, *tensors: Tensor) -> bool:
    """Whether a call runs native. None uses the native kernels where they run, True requires them, False uses torch."""
    if native is False:
        return False
    reason = unsupported_reason(*tensors)
    if native and reason is not None:
        raise RuntimeError(f"native=True is not possible: {reason}; native=None falls back to torch")
    return reason is None


def call_kernel(name: str, like: Tensor, *arguments: float | None) -> None:
    """Runs one kernel in the dtype of `like` on as many threads as torch uses."""
    loaded = library()
    assert loaded is not None
    if getattr(loaded, name)(like.dtype == torch.float64, LEVEL, torch.get_num_threads(), *arguments):
        raise MemoryError(f"{name} found no memory for its scratch rows; shorten the keys or free memory")
