"""The native library: lies beside this file and is loaded at first use; if it is missing, one sentence says why.

It is plain C called by ctypes, so it works with any version of torch and Python. A call costs a few microseconds and
releases the interpreter lock. ``LEVEL`` bounds the instruction set (0 baseline, 1 AVX2, 2 AVX-512); the tests lower it.
"""

import ctypes
import itertools
import sys
from collections.abc import Callable
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

ABI = 10
LEVEL = 2
NAME = "_native" + {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")


class Buffer(NamedTuple):
    """The tensors that a kernel takes in one place; None is always allowed, a bare address never."""

    dtypes: tuple[tuple[torch.dtype, ...], tuple[torch.dtype, ...]]  # in calls of float32, and of float64
    layout: Literal["contiguous", "rows", "strided"] = "contiguous"  # rows: the last axis has stride 1

    def __str__(self) -> str:
        layout = {
            "contiguous": "a contiguous tensor",
            "rows": "a tensor whose last axis has stride 1",
            "strided": "a tensor",
        }
        dtypes = dict.fromkeys(itertools.chain(*self.dtypes))
        return f"{layout[self.layout]} of {' or '.join(map(str, dtypes))} on the cpu"


_INT, _LONG, _DOUBLE = ctypes.c_int, ctypes.c_int64, ctypes.c_double
# a table of addresses that the caller makes with ctypes
_ADDRESS = ctypes.c_void_p
# floats of the call, and integers as wide as they
_REAL, _INDEX = Buffer(((torch.float32,), (torch.float64,))), Buffer(((torch.int32,), (torch.int64,)))
_ROWS = _REAL._replace(layout="rows")
_FLOAT = Buffer(((torch.float32,), ()))  # kernels of 8-bit weights have no double form
_INT64, _INT32, _INT8 = (Buffer(((dtype,), (dtype,))) for dtype in (torch.int64, torch.int32, torch.int8))
_BYTE = Buffer(((torch.bool, torch.uint8),) * 2)
_MASK = _BYTE._replace(layout="strided")

_COMMON: list[Any] = [_INT, _INT, _LONG]  # double or float, highest level, threads
# n q k d, a and its strides, b and its strides, w
_ADDITIVE: list[Any] = [*[_LONG] * 4, *[_ROWS, _LONG, _LONG] * 2, _REAL]
# every function of the library; those that read NULL take None in place of a tensor or a table
_SIGNATURES: dict[str, list[Any]] = {
    "regard_abi": [],
    "regard_level": [_INT],
    "regard_additive_forward": [*_COMMON, *_ADDITIVE, _MASK, *[_LONG] * 3, _REAL, _REAL],
    "regard_additive_backward": [*_COMMON, *_ADDITIVE, *[_REAL] * 4],
    "regard_softmax_backward": [*_COMMON, *[_LONG] * 2, *[_REAL] * 4],
    "regard_sparse": [*_COMMON, _INT, _LONG, _LONG, _REAL, _MASK, *[_LONG] * 4, _REAL, _REAL],
    "regard_sparse_backward": [*_COMMON, _INT, _LONG, _LONG, *[_REAL] * 3],
    "regard_likelihood": [*_COMMON, _LONG, _LONG, _LONG, _DOUBLE, _REAL, _REAL, _INT64, *[_REAL] * 3],
    "regard_simam": [*_COMMON, _LONG, _LONG, _DOUBLE, *[_REAL] * 5],
    "regard_pool": [*_COMMON, _LONG, _LONG, *[_REAL] * 3, _INDEX, _REAL],
    "regard_across": [*_COMMON, *[_LONG] * 3, *[_REAL] * 4, _INDEX, _REAL, _REAL],
    "regard_likeliest": [*_COMMON, *[_LONG] * 4, *[_REAL] * 3, _LONG, _LONG, _ADDRESS, _REAL, _INT64, _REAL],
    "regard_crf": [*_COMMON, *[_LONG] * 3, _REAL, _INT64, _BYTE, *[_REAL] * 5, _BYTE, _REAL],
    "regard_crf_backward": [*_COMMON, *[_LONG] * 4, _REAL, _INT64, _BYTE, *[_REAL] * 5, _BYTE, *[_REAL] * 3],
    "regard_viterbi": [*_COMMON, *[_LONG] * 3, _REAL, _BYTE, *[_REAL] * 3, _INT64, _REAL],
    "regard_heads_step": [*_COMMON, *[_LONG] * 6, _DOUBLE, _ADDRESS, _ADDRESS, _REAL, _REAL],
    "regard_ragged": [*_COMMON, *[_LONG] * 4, _DOUBLE, _INT64, *[_REAL] * 3],
    "regard_continuations": [
        *(*_COMMON, *[_LONG] * 5, _INT, _REAL, _INT64, *[_REAL] * 4),
        *(_INT64, _INT64, _REAL, _ADDRESS),
    ],
    "regard_drop": [*_COMMON, _LONG, _REAL, _LONG, _LONG, _DOUBLE, _REAL],
    "regard_scale": [*_COMMON, *[_LONG] * 3, *[_REAL] * 7],
    "regard_sequence": [*_COMMON, _LONG, _LONG, _INT64, _INT64, *[_REAL] * 9, _INT],
    "regard_sequence_backward": [*_COMMON, _LONG, _LONG, _INT64, _INT64, *[_REAL] * 9],
    "regard_cell": [*_COMMON, _LONG, _LONG, _ROWS, _LONG, _REAL, _REAL, _ROWS, _LONG, *[_REAL] * 5, _LONG],
    "regard_cell_backward": [*_COMMON, _LONG, _LONG, _REAL, _REAL, _ROWS, _LONG, *[_REAL] * 4],
    "regard_padded": [
        *(*_COMMON, *[_LONG] * 6, _DOUBLE, _INT, _INT64, _INT64, *[_ROWS] * 3),
        *(_REAL, _REAL, _ROWS, *[_REAL] * 3),
    ],
    "regard_heads_step_with_parts": [*_COMMON, *[_LONG] * 6, _DOUBLE, _ADDRESS, _ADDRESS, _ADDRESS, _REAL, _REAL],
    "regard_nonfinite": [_INT, _LONG, _ADDRESS],
    "regard_gelu": [*_COMMON, _LONG, *[_REAL] * 3],
    "regard_int8_linear": [*_COMMON, *[_LONG] * 3, _INT, _INT, _FLOAT, _BYTE, *[_FLOAT] * 4],
    "regard_int8_sums": [*_COMMON, *[_LONG] * 3, _INT8, _BYTE, _INT32],
    "regard_int8_likeliest": [
        *(*_COMMON, *[_LONG] * 4, _FLOAT, _BYTE, _FLOAT, _FLOAT, _INT),
        *(_LONG, _LONG, _ADDRESS, _FLOAT, _INT64, _FLOAT),
    ],
    "regard_int8_decoder_step": [
        *(*_COMMON, *[_LONG] * 9, _INT, _DOUBLE, _DOUBLE, _ADDRESS, _ADDRESS, _INT),
        *(_ADDRESS, _INT64, _INT64, _REAL, _REAL),
    ],
    "regard_int8_stack_step": [
        *(*_COMMON, *[_LONG] * 6, _INT, _INT, _DOUBLE, _DOUBLE, _ADDRESS, _ADDRESS, _INT),
        *(_ADDRESS, _BYTE, _REAL, _REAL),
    ],
}
# kernels that a library of the same interface may lack, as it was built before they were added
_NEWEST = frozenset({"regard_heads_step_with_parts"})
# the places of tensors among the arguments of a call
_BUFFERS = {
    name: [(place, kind) for place, kind in enumerate(kinds[len(_COMMON) :]) if isinstance(kind, Buffer)]
    for name, kinds in _SIGNATURES.items()
}


def load_library(folder: Path) -> ctypes.CDLL | str:
    """The library in `folder`, or the sentence that says why there is none."""
    names = (NAME, f"_native{EXTENSION_SUFFIXES[0]}")
    paths = [path for name in names if (path := folder / name).is_file()]
    if not paths:
        return "no native kernels: the package was built without a C compiler; install one and reinstall regard"
    try:
        loaded = ctypes.CDLL(str(paths[0]))
        for name, kinds in _SIGNATURES.items():
            if name in _NEWEST and not hasattr(loaded, name):
                continue
            function = getattr(loaded, name)
            function.argtypes = [_ADDRESS if isinstance(kind, Buffer) else kind for kind in kinds]
            function.restype = _INT
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
        if not tensor.is_cpu:
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


@cache
def nonfinite_kernel() -> Callable[[bool, int, int], int] | None:
    """Whether numbers, given by type, count and address, contain a NaN or inf; None: there is no library."""
    return getattr(library(), "regard_nonfinite", None)


def call_kernel(name: str, like: Tensor, *arguments: Tensor | float | None) -> None:
    """Runs one kernel in the dtype of `like` on as many threads as torch uses; tensors that do not fit it raise."""
    loaded = library()
    assert loaded is not None
    wide, numbers = like.dtype == torch.float64, list(arguments)
    for place, (dtypes, layout) in _BUFFERS[name]:
        tensor = arguments[place]
        if tensor is None:
            continue
        fits = isinstance(tensor, Tensor) and tensor.dtype in dtypes[wide] and tensor.is_cpu
        if not fits or not (tensor.is_contiguous() or _has_layout(tensor, layout)):  # type: ignore[union-attr, arg-type]
            raise TypeError(_misfit(name, place, tensor))
        numbers[place] = tensor.data_ptr()  # type: ignore[union-attr]
    if getattr(loaded, name)(wide, LEVEL, torch.get_num_threads(), *numbers):
        raise MemoryError(f"{name} found no memory for its scratch rows; shorten the keys or free memory")


def contiguous_rows(tensor: Tensor) -> Tensor:
    """The tensor with a last axis of stride 1: itself, or a copy."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _has_layout(tensor: Tensor, layout: str) -> bool:
    """Whether a tensor that is not contiguous has the layout."""
    return layout == "strided" or (layout == "rows" and tensor.stride(-1) == 1)


def _misfit(name: str, place: int, argument: object) -> str:
    """The sentence about an argument that does not fit its place."""
    description = repr(argument)
    if isinstance(argument, Tensor):
        strides = f"shape {tuple(argument.shape)} and strides {argument.stride()}"
        description = f"{argument.dtype} of {strides} on {argument.device}"
    kind = dict(_BUFFERS[name])[place]
    return f"argument {place} of {name} must be {kind}, got {description}; convert it before the call"
