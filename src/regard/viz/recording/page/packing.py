"""A MapPyramid as text that a page unpacks: chunks of base64(deflate(bytes)), separated by blanks.

The first chunk of a head holds, in this order: the exact values of the greatest weights of each row and their columns;
the mean weight of each column and the entropy of each row, as bytes relative to their maximum; the weights of the sinks
in each row. The others are tiles of 256 by 256 cells, from the coarsest level to the finest, each level row by row.
Numbers of several bytes are little-endian and stored in byte planes, all first bytes first, which compress better.
"""

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap
from regard.recording.recorded_map import KINDS, Kind
from regard.viz.plots.image_grid import png_bytes
from regard.viz.recording.page.pyramid import TILE, Bytes, MapPyramid


@dataclass(frozen=True)
class Head:
    """The map of one sample and one head, "q k", its kind of attention, and whether it is a difference."""

    weights: AttentionMap
    kind: Kind
    signed: bool = False


@dataclass(frozen=True)
class PackedHead:
    """A head in the page: `facts` stand in the header, `chunks` in a block of their own."""

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
    """base64(deflate(data)), or "-" for no data."""
    return base64.b64encode(zlib.compress(data, 6)).decode("ascii") if data else "-"


def byte_planes(numbers: NDArray[np.generic]) -> bytes:
    """All first bytes, all second bytes, …"""
    return numbers.reshape(-1, 1).view(np.uint8).T.tobytes()


def tile_chunks(cells: Bytes) -> list[str]:
    """One level as tiles."""
    return [
        chunk(np.ascontiguousarray(cells[y : y + TILE, x : x + TILE]).tobytes())
        for y in range(0, cells.shape[0], TILE)
        for x in range(0, cells.shape[1], TILE)
    ]


def head_facts(pyramid: MapPyramid, top: int, levels: Sequence[int]) -> dict[str, object]:
    """The numbers that the page needs to unpack a head, and to sort heads by."""
    # differences have no entropy, nor do the weights of a gate, which are no distribution
    has_entropy = not pyramid.signed and KINDS[pyramid.kind].has_entropy
    return {
        "top": min(top, pyramid.top),
        "levels": list(levels),
        **({"entropy": round(pyramid.entropy, 4)} if has_entropy else {}),
        "scale": float(f"{pyramid.scale:.7g}"),
        "most": float(f"{np.abs(pyramid.top_weights).max(initial=0.0):.7g}"),
        "signed": pyramid.signed,
        "sinks": list(pyramid.sinks),
        "sums": [round(n, 4) for n in pyramid.sums],
        "received": float(f"{max(pyramid.column_means.max(initial=0.0), 1e-9):.7g}"),
        "spread": float(f"{max(pyramid.entropies.max(initial=0.0), 1e-9):.7g}"),
    }


def row_chunk(pyramid: MapPyramid, top: int) -> str:
    """The first chunk of a head, before its tiles."""
    top = min(top, pyramid.top)
    column_type = "<u2" if pyramid.k <= 1 << 16 else "<u4"
    parts = [
        byte_planes(np.ascontiguousarray(pyramid.top_weights[:, :top]).astype("<f4")),
        byte_planes(np.ascontiguousarray(pyramid.top_columns[:, :top]).astype(column_type)),
        b"".join(
            np.round(255 * (n / max(n.max(initial=0.0), 1e-9)).clip(0, 1)).astype(np.uint8).tobytes()
            for n in (pyramid.column_means, pyramid.entropies)
        ),
        byte_planes(np.ascontiguousarray(pyramid.sink_weights.T).astype("<f4")),
    ]
    return chunk(b"".join(parts))


def pack_overview(pyramid: MapPyramid, top: int, level: int) -> PackedHead:
    """A head with one level of its pyramid."""
    tiles = tile_chunks(pyramid.levels[level])
    return PackedHead(head_facts(pyramid, top, [level]), (row_chunk(pyramid, top), *tiles), level)


def with_finer_levels(head: PackedHead, pyramid: MapPyramid) -> PackedHead:
    """The same head with all finer levels, down to single weights."""
    levels = list(range(head.finest - 1, -1, -1))
    tiles = tuple(tile for level in levels for tile in tile_chunks(pyramid.levels[level]))
    return replace(head, facts=head.facts | {"levels": [head.finest, *levels]}, chunks=(*head.chunks, *tiles), finest=0)


def pack_thumbnails(pyramids: Sequence[MapPyramid], heads: Sequence[Sequence[object]]) -> dict[str, object]:
    """Thumbnails of all heads, one chunk per layer; `bare` are those without sinks, if the layer has any."""
    chunks: dict[str, list[str]] = {"thumbs": [], "bare": []}
    start = 0
    for layer_heads in heads:
        layer = pyramids[start : start + len(layer_heads)]
        start += len(layer_heads)
        thumbnails = [pyramid.thumbnails() for pyramid in layer]
        chunks["thumbs"].append(chunk(b"".join(thumbnail.tobytes() for thumbnail, _ in thumbnails)))
        bare = b"".join(bare.tobytes() for _, bare in thumbnails)
        chunks["bare"].append(chunk(bare) if any(pyramid.sinks for pyramid in layer) else "-")
    return dict(chunks)


def png_data_url(image: Tensor) -> str:  # "c h w" or "h w"
    """The image, 1 or 3 channels from 0 to 1, as a data URL of a PNG with eight bits per channel."""
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
    return "data:image/png;base64," + base64.b64encode(png_bytes(pixels)).decode("ascii")
