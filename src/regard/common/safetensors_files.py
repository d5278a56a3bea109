"""Tensors and JSON in safetensors files. Nothing is ever unpickled.

The JSON is the value of one key of the file's metadata. A tagged file (checkpoint, recording) has a format number in
this JSON, so that a file of another version of regard is told apart from a damaged one. The first entry of the metadata
is the checksum: the CRC-32 of the whole file with this checksum as zeros.
"""

import json
import mmap
import reprlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.common import checksums, json_files

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = {
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
"""The dtypes of torch by name, and their names in safetensors files."""


def encode(tensors: "Mapping[str, Tensor]", metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """The chunks of a safetensors file: the length of the header, the header in JSON, the bytes of the tensors.

    The checksum costs one pass over the tensors, a small share of the time that writing takes.
    Tensors must be whole, contiguous and on the CPU. The chunks are for `write_atomically`: the library's `save` would
    hold a second copy of all tensors in memory, and its `save_file` leaves a temporary file if the process is killed.
    """
    import torch

    header: dict[str, Any] = {"__metadata__": {checksums.NAME: checksums.ZEROS, **metadata}}
    end = 0
    for name, t in tensors.items():
        dtype = DTYPES[str(t.dtype).removeprefix("torch.")]
        header[name] = {"dtype": dtype, "shape": list(t.shape), "data_offsets": [end, end + t.nbytes]}
        end += t.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    length = len(text).to_bytes(8, "little")
    # a tensor without elements may have a stride of 0, and no view as bytes
    full = [t for t in tensors.values() if t.numel()]
    chunks: list[memoryview] = [t.reshape(-1).view(torch.uint8).numpy().data for t in full]
    yield length
    yield checksums.fill_in(text, length, chunks)
    yield from chunks


def read_tagged(path: Path, key: str, format: int, kind: str) -> "tuple[dict[str, Tensor], dict[str, Any]]":
    """The tensors and the facts of a tagged file of this format.

    Raises ValueError in one printable sentence if the file is damaged, of another program or of another version.
    """
    tensors, facts, has_checksum = _read(path, key, kind)
    if not isinstance(facts, dict) or "format" not in facts:
        raise ValueError(f"{path} is no {kind} of regard: its metadata has no {key!r} entry; take another {kind}")
    version = facts["format"]
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError(f"{path} has format {reprlib.repr(version)}, which is no whole number; take another {kind}")
    json_files.check_format(path, version, format)
    if not has_checksum:
        raise ValueError(f"{path} has no checksum, so it is damaged; take another {kind}")
    return tensors, facts


def has_tag(path: Path, key: str) -> bool:
    """Whether a file is a safetensors file with metadata under this key; its tensors are not read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return key in (file.metadata() or {})
    except (SafetensorError, OSError):
        return False


def read_tensors(path: Path, kind: str) -> "dict[str, Tensor]":
    """The tensors of any safetensors file; raises ValueError in one printable sentence if it is damaged."""
    return _read(path, "", kind)[0]


def _read(path: Path, key: str, kind: str) -> "tuple[dict[str, Tensor], Any, bool]":
    """The tensors of a safetensors file, the JSON of its metadata under this key, and whether it has a checksum.

    Raises ValueError if it is no safetensors file, or if its checksum does not match. `kind` names the content.
    """
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise ImportError(f"{kind}s need safetensors; install it with: pip install 'regard[train]'") from error
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if (checksum := metadata.get(checksums.NAME)) is not None:
                with open(path, "rb") as raw, mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ) as content:
                    checksums.check(content, checksum)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, json_files.parse(metadata.get(key, "null")), checksum is not None
    except (SafetensorError, OSError, ValueError) as error:
        # quoted: the sentence may contain names of the file
        raise ValueError(f"{path} is damaged or no safetensors file ({str(error)!r}); take another {kind}") from error
