"""Files that are whole or not there: written under another name, forced to the disk, then renamed over the old one."""

import contextlib
import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

UNFINISHED = ".unfinished"

_CAUSES = {
    errno.ENOSPC: "the disk is full; free some space and resume",
    errno.EDQUOT: "the quota of the disk is used up; free some space and resume",
    errno.EFBIG: "the file would be larger than this system allows; raise the limit and resume",
    errno.EROFS: "the folder cannot be written to; make it writable, or take another one",
    errno.EACCES: "the folder cannot be written to; make it writable, or take another one",
    errno.EPERM: "the folder cannot be written to; make it writable, or take another one",
    errno.ENOTDIR: "a part of that path is a file, not a folder; take another one",
}

# torch's types as safetensors calls them
TYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}


def write(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """The chunks as one file. On any failure the file that was there before stays as it was."""
    unfinished = path.with_name(f".{path.name}{UNFINISHED}")
    try:
        with open(unfinished, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
        _settle(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise named(error, path) from error
        raise


def read_safetensors(path: Path, key: str, what: str) -> "tuple[dict[str, Tensor], Any]":
    """The tensors of a safetensors file, and what its metadata says in JSON under this key, or None.

    ValueError if it is none; `what` names what is read, for who has not installed the format's library.
    """
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise ImportError(f"{what} need safetensors; install it with: pip install 'regard[train]'") from error
    try:
        with safe_open(path, framework="pt") as file:
            told = json.loads((file.metadata() or {}).get(key, "null"))
            return {name: file.get_tensor(name) for name in file.keys()}, told  # noqa: SIM118
    except (SafetensorError, OSError, RecursionError) as error:
        raise ValueError(str(error)) from error


def safetensors(tensors: "Mapping[str, Tensor]", metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """The chunks of a safetensors file, as its specification has it: length of the header, header in JSON, the bytes.

    Tensors are whole, contiguous and on the CPU. Not by the format's library, which makes a temporary file under a name
    of its own: a killed process would leave it behind.
    """
    import torch

    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, t in tensors.items():
        kind = TYPES[str(t.dtype).removeprefix("torch.")]
        header[name] = {"dtype": kind, "shape": list(t.shape), "data_offsets": [end, end + t.nbytes]}
        end += t.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little")
    yield text
    for t in tensors.values():
        yield t.reshape(-1).view(torch.uint8).numpy().data


def named(error: OSError, path: Path) -> OSError:
    """The same error as one sentence: which file, why, and the way out."""
    cause = _CAUSES.get(error.errno or 0, f"{error.strerror or error}; mend that and resume")
    return OSError(error.errno, f"cannot write {path}: {cause}; what was saved before is untouched")


def folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if isinstance(error, FileExistsError):
            raise NotADirectoryError(errno.ENOTDIR, f"{path} is a file, not a folder; take another one") from error
        cause = _CAUSES.get(error.errno or 0, f"{error.strerror or error}; take another one")
        raise OSError(error.errno, f"cannot make the folder {path}: {cause}") from error


def sweep(path: Path) -> None:
    """Removes what a killed process left unfinished."""
    for left in path.glob(f".*{UNFINISHED}"):
        left.unlink(missing_ok=True)


def _settle(path: Path) -> None:
    """Forces a folder's list of names to the disk, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
