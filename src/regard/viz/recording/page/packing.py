"""What a Scan found, as text that a page unpacks: chunks of base64(deflate(bytes)), with a blank between them.

The first chunk of a head holds, one after the other: the exact values of the greatest weights of each row, then their
columns; the mean weight of each column and the entropy of each row, as bytes of their greatest; what each row gives to
the sinks. The others are tiles of 256 by 256 cells, level by level from the coarsest, each level row by row. Numbers of
several bytes are little-endian and stored plane by plane, all first bytes first: so they pack better.
"""

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap
from regard.viz.recording.page.pyramid import TILE, Bytes, MapPyramid


@dataclass(frozen=True)
class Head:
    """The map of one sample and one head, "q k", what kind of attention it is, and whether it is a difference."""

    weights: AttentionMap
    kind: str
    signed: bool = False


@dataclass(frozen=True)
class PackedHead:
    """A head as the page holds it: `facts` stand in the header, `chunks` in a block of their own."""

    facts: dict[str, object]
    chunks: tuple[str, ...]
    finest: int

    @property
    def block(self) -> str:
        return " ".join(self.chunks)

    @property
    def size(self) -> int:
        """Bytes of the page: the block, its element, and a line of the header."""
        return len(self.block) + 300


def chunk(data: bytes) -> str:
    """base64(deflate(data)); "-" is nothing."""
    return base64.b64encode(zlib.compress(data, 6)).decode("ascii") if data else "-"


def planes(numbers: NDArray[np.generic]) -> bytes:
    """All first bytes, all second bytes, …"""
    return numbers.reshape(-1, 1).view(np.uint8).T.tobytes()


def tiles(cells: Bytes) -> list[str]:
    """One level, cut into tiles."""
    return [
        chunk(np.ascontiguousarray(cells[y : y + TILE, x : x + TILE]).tobytes())
        for y in range(0, cells.shape[0], TILE)
        for x in range(0, cells.shape[1], TILE)
    ]


def facts(scan: MapPyramid, top: int, levels: Sequence[int]) -> dict[str, object]:
    """What the page must know of a head to unpack it, and to sort by."""
    # differences have no entropy, nor have the weights of a gate, which are no shares of anything
    spread = {} if scan.signed or scan.kind == "gate" else {"entropy": round(scan.entropy, 4)}
    return {
        "top": min(top, scan.top),
        "levels": list(levels),
        **spread,
        "scale": float(f"{scan.scale:.7g}"),
        "signed": scan.signed,
        "sinks": list(scan.sinks),
        "sums": [round(n, 4) for n in scan.sums],
        "received": float(f"{max(scan.received.max(initial=0.0), 1e-9):.7g}"),
        "spread": float(f"{max(scan.spread.max(initial=0.0), 1e-9):.7g}"),
    }


def known(scan: MapPyramid, top: int) -> str:
    """The chunk that comes before the tiles."""
    top = min(top, scan.top)
    wide = "<u2" if scan.k <= 1 << 16 else "<u4"
    parts = [
        planes(np.ascontiguousarray(scan.values[:, :top]).astype("<f4")),
        planes(np.ascontiguousarray(scan.columns[:, :top]).astype(wide)),
        b"".join(
            np.round(255 * (n / max(n.max(initial=0.0), 1e-9)).clip(0, 1)).astype(np.uint8).tobytes()
            for n in (scan.received, scan.spread)
        ),
        planes(np.ascontiguousarray(scan.drained.T).astype("<f4")),
    ]
    return chunk(b"".join(parts))


def packed(scan: MapPyramid, top: int, level: int) -> PackedHead:
    """A head with its overview alone, one level of it."""
    return PackedHead(facts(scan, top, [level]), (known(scan, top), *tiles(scan.levels[level])), level)


def finer(pack: PackedHead, scan: MapPyramid) -> PackedHead:
    """The same head with all finer levels, down to the single weight."""
    levels = list(range(pack.finest - 1, -1, -1))
    more = tuple(tile for level in levels for tile in tiles(scan.levels[level]))
    return replace(pack, facts=pack.facts | {"levels": [pack.finest, *levels]}, chunks=(*pack.chunks, *more), finest=0)


def thumbs(scans: Sequence[MapPyramid], heads: Sequence[Sequence[object]]) -> dict[str, object]:
    """Small pictures of all heads, a chunk a layer; `bare` is without the sinks, where a layer has any."""
    found: dict[str, list[str]] = {"thumbs": [], "bare": []}
    start = 0
    for some in heads:
        layer = scans[start : start + len(some)]
        start += len(some)
        pictures = [scan.thumbs() for scan in layer]
        found["thumbs"].append(chunk(b"".join(whole.tobytes() for whole, _ in pictures)))
        bare = b"".join(bare.tobytes() for _, bare in pictures)
        found["bare"].append(chunk(bare) if any(scan.sinks for scan in layer) else "-")
    return dict(found)


def picture(image: Tensor) -> str:  # "c h w" or "h w"
    """The image as a PNG in an address: 1 or 3 channels from 0 to 1, eight bits each."""
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[0] not in (1, 3)) or not image.numel():
        raise ValueError(
            f"image must be (height, width), (1, height, width) or (3, height, width), got {tuple(image.shape)}; "
            "pick one of a batch, image[0]"
        )
    if image.is_floating_point():
        image = image.detach().cpu().float()
        if not bool(((image >= -1e-3) & (image <= 1 + 1e-3)).all()):
            raise ValueError(
                f"image must lie between 0 and 1, got {float(image.min()):.3g} to {float(image.max()):.3g}; "
                "undo its normalisation, (image - image.min()) / (image.max() - image.min())"
            )
        image = (image.clamp(0, 1) * 255).round().to(torch.uint8)
    elif image.dtype != torch.uint8:
        raise TypeError(f"image must be floating from 0 to 1, or uint8, got {image.dtype}; try image.float() / 255")
    pixels = image.cpu().reshape(-1, *image.shape[-2:]).permute(1, 2, 0).contiguous().numpy()  # h w c
    height, width, channels = pixels.shape
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)
    kind = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    parts = (b"IHDR", kind), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in parts
    )
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
