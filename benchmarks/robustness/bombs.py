"""BOMBS: small files that would take much memory or time, or never end, if a reader believed them.

Each is written over a valid file of `benchmarks.robustness.hostile`, whose reader must refuse it in one sentence.
"""

import gzip
import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

_HUGE = 10**12
_ZEROS = 64 << 20  # bytes that a compressed block holds


@dataclass(frozen=True)
class Bomb:
    """A file of a kind of `hostile.KINDS`, and how it is written."""

    kind: str
    write: Callable[[Path], object]


def _content(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def _change_json(**values: Any) -> Callable[[Path], object]:
    return lambda path: path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def _link(target: str) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        path.unlink()
        path.symlink_to(target)

    return write


def _named_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _safetensors(header: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header


def _tensor(shape: list[int], end: int) -> bytes:
    return json.dumps({"transformer.wte.weight": {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}}).encode()


def _repeated_by_strides(path: Path) -> None:
    """Every tensor of the checkpoint as one number with strides of 0."""
    names = torch.load(path, weights_only=True)
    torch.save({name: torch.zeros(1).expand(10**6, 10**6) for name in names}, path)


def _deflated(path: Path) -> None:
    """The archive of torch.save with a compressed block of zeros in each tensor."""
    content, packed = io.BytesIO(path.read_bytes()), io.BytesIO()
    with (
        zipfile.ZipFile(content) as archive,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as out,
    ):
        for number, name in enumerate(archive.namelist()):
            is_first = "/data/0" in name and number
            out.writestr(name, bytes(_ZEROS) if is_first else archive.read(name))
    path.write_bytes(packed.getvalue())


def _npy(shape: str, content: bytes = b"") -> bytes:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


def _hole(path: Path) -> None:
    """An array of 4 TB that takes no space on the disk."""
    with path.open("wb") as file:
        file.write(_npy("(1000000, 1000, 1000)"))
        file.truncate(file.tell() + 4 * _HUGE)


def _archive(path: Path) -> None:
    packed = io.BytesIO()
    np.savez_compressed(packed, a=np.zeros(_ZEROS, np.uint8))
    path.write_bytes(packed.getvalue())


def _png(width: int, height: int, *chunks: tuple[bytes, bytes]) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunk(*each) for each in chunks) + chunk(b"IEND", b"")


def _gif_of_any_size(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[6:10] = struct.pack("<HH", 65535, 65535)
    path.write_bytes(content)


def _wav(rate: int = 8000, channels: int = 1, size: int | None = None, before: bytes = b"") -> bytes:
    samples = bytes(4000)
    layout = struct.pack("<HHIIHH", 1, channels, rate, 0, 0, 16)
    body = b"WAVE" + before + b"fmt " + struct.pack("<I", 16) + layout
    body += b"data" + struct.pack("<I", len(samples) if size is None else size) + samples
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _wide_model(path: Path) -> None:
    """In format 2, which has no checksum."""
    record = json.loads(path.read_text())
    del record["checksum"]
    record["format"] = 2
    record["options"]["model"]["width"] = 10**9
    path.write_text(json.dumps(record))


_REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
_TOKEN = {"content": "zz", "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
_DEEP, _DIGITS = b"[" * 100_000, b"9" * 5000

BOMBS: dict[str, Bomb] = {
    "safetensors: a header of 2^63 bytes": Bomb("safetensors", _content(_safetensors(b"{}", 2**63))),
    "safetensors: a shape of 10^24 numbers": Bomb("safetensors", _content(_safetensors(_tensor([_HUGE, _HUGE], 4)))),
    "safetensors: a tensor of 4 TB": Bomb("safetensors", _content(_safetensors(_tensor([_HUGE], 4 * _HUGE)))),
    "safetensors: a deep header": Bomb("safetensors", _content(_safetensors(b'{"a":' * 50_000))),
    "safetensors: a named pipe": Bomb("safetensors", _named_pipe),
    "safetensors: /dev/zero": Bomb("safetensors", _link("/dev/zero")),
    "pickle: strides of 0": Bomb("pickle", _repeated_by_strides),
    "pickle: a compressed archive": Bomb("pickle", _deflated),
    "pickle: a call": Bomb("pickle", _content(b"cos\nsystem\n(S'true'\ntR.")),
    "config.json: 10^9 layers": Bomb("config.json", _change_json(n_layer=10**9)),
    "config.json: 10^12 positions": Bomb("config.json", _change_json(n_positions=_HUGE)),
    "config.json: a width of 10^12": Bomb("config.json", _change_json(n_embd=_HUGE)),
    "config.json: deep": Bomb("config.json", _content(_DEEP)),
    "config.json: 5,000 digits": Bomb("config.json", _content(b'{"n_layer": ' + _DIGITS + b"}")),
    "config.json: a named pipe": Bomb("config.json", _named_pipe),
    "config.json: a link to itself": Bomb("config.json", _link("config.json")),
    "tokenizer.json: a text grows": Bomb(
        "tokenizer.json", _change_json(normalizer={"type": "Sequence", "normalizers": [_REPLACE] * 3})
    ),
    "tokenizer.json: an id of 10^12": Bomb("tokenizer.json", _change_json(added_tokens=[{"id": _HUGE, **_TOKEN}])),
    "tokenizer.json: deep": Bomb("tokenizer.json", _content(_DEEP)),
    "tokenizer.json: a named pipe": Bomb("tokenizer.json", _named_pipe),
    "WAV: a rate of 2^32 - 1": Bomb("WAV", _content(_wav(rate=2**32 - 1))),
    "WAV: a rate of 1": Bomb("WAV", _content(_wav(rate=1))),
    "WAV: 65,535 channels": Bomb("WAV", _content(_wav(channels=65535))),
    "WAV: 2 GB of sound": Bomb("WAV", _content(_wav(size=2**31 - 2**13))),
    "WAV: 10^5 empty chunks": Bomb("WAV", _content(_wav(before=b"junk\0\0\0\0" * 10**5)[:-4009])),
    "NPY: a shape of 10^24 numbers": Bomb("NPY", _content(_npy("(1000000000000, 1000000000000)"))),
    "NPY: a negative shape": Bomb("NPY", _content(_npy("(-1, 5, 7)"))),
    "NPY: deep parentheses": Bomb("NPY", _content(_npy("(" * 5000))),
    "NPY: a hole of 4 TB": Bomb("NPY", _hole),
    "NPY: a compressed archive": Bomb("NPY", _archive),
    "NPY: an object": Bomb("NPY", lambda path: np.save(path, np.array([{}]), allow_pickle=True)),
    "GIF: 65,535 by 65,535 pixels": Bomb("GIF", _gif_of_any_size),
    "PNG: 60,000 by 60,000 pixels": Bomb("PNG", _content(_png(60_000, 60_000, (b"IDAT", zlib.compress(bytes(10**6)))))),
    "PNG: a text that unpacks": Bomb(
        "PNG",
        _content(_png(8, 8, (b"zTXt", b"a\0\0" + zlib.compress(bytes(_ZEROS))), (b"IDAT", zlib.compress(bytes(72))))),
    ),
    "TOML: deep": Bomb("TOML", _content(b"a = " + _DEEP)),
    "TOML: 5,000 digits": Bomb("TOML", _content(b"batch = " + _DIGITS)),
    "TOML: a name of 10^5 parts": Bomb("TOML", _content(b"a." * 10**5 + b"a = 1")),
    "JSON: deep": Bomb("JSON", _content(_DEEP)),
    "JSON: deep objects": Bomb("JSON", _content(b'{"data":' * 50_000)),
    "JSON: 5,000 digits": Bomb("JSON", _content(b'{"data": ' + _DIGITS + b"}")),
    "lines: a line that unpacks": Bomb("lines", lambda path: path.write_bytes(gzip.compress(bytes(_ZEROS), 1))),
    "run.json: a width of 10^9": Bomb("run.json", _wide_model),
    "run.json: deep": Bomb("run.json", _content(_DEEP)),
    "run.json: 5,000 digits": Bomb("run.json", _content(b'{"format": ' + _DIGITS + b"}")),
    "run.json: a named pipe": Bomb("run.json", _named_pipe),
    "run.json: /dev/zero": Bomb("run.json", _link("/dev/zero")),
    "best.safetensors: a named pipe": Bomb("best.safetensors", _named_pipe),
    "best.safetensors: a folder": Bomb("best.safetensors", _folder),
    "tokens.json: a named pipe": Bomb("tokens.json", _named_pipe),
    "tokens.json: deep": Bomb("tokens.json", _content(_DEEP)),
    "tokens.json: /dev/zero": Bomb("tokens.json", _link("/dev/zero")),
}
