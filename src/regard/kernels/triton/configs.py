"""The tile, the warps and the precision of each Triton kernel: one entry per kernel, kind of numbers and width.

Widths are padded to a power of two. Nothing is tuned on a device: these are the largest tiles that were compiled for
every target without spills (docs/gpu-kernels.md), and `make gpu-report` checks each of them.
"""

from typing import Literal, NamedTuple

Kind = Literal["float32", "half"]


class Tile(NamedTuple):
    """Queries and keys of a tile, and the warps of a program."""

    queries: int
    keys: int
    warps: int


# by kernel and kind: the tile of each padded width, the greater one of the two widths that a kernel has
TILES: dict[str, dict[Kind, dict[int, Tile]]] = {
    "additive.forward": {
        "float32": {
            32: Tile(32, 32, 4),
            64: Tile(32, 64, 8),
            128: Tile(32, 32, 8),
            256: Tile(16, 32, 8),
            512: Tile(16, 16, 8),
        },
    },
    # one axis is a single row
    "additive.backward_queries": {
        "float32": {
            32: Tile(32, 1, 4),
            64: Tile(32, 1, 8),
            128: Tile(16, 1, 8),
            256: Tile(8, 1, 8),
            512: Tile(8, 1, 8),
        },
    },
    "additive.backward_keys": {
        "float32": {
            32: Tile(1, 32, 4),
            64: Tile(1, 32, 8),
            128: Tile(1, 16, 8),
            256: Tile(1, 8, 8),
            512: Tile(1, 8, 8),
        },
    },
    "sparse.threshold": {
        "float32": {32: Tile(64, 32, 8), 64: Tile(32, 32, 8), 128: Tile(32, 16, 8)},
        "half": {32: Tile(32, 32, 4), 64: Tile(64, 32, 4), 128: Tile(64, 32, 8)},
    },
    "sparse.forward": {
        "float32": {32: Tile(32, 32, 8), 64: Tile(32, 32, 8), 128: Tile(32, 16, 8)},
        "half": {32: Tile(32, 32, 4), 64: Tile(64, 64, 8), 128: Tile(64, 32, 8)},
    },
    "sparse.backward_means": {
        "float32": {32: Tile(32, 32, 8), 64: Tile(32, 32, 8), 128: Tile(16, 32, 8)},
        "half": {32: Tile(32, 32, 4), 64: Tile(64, 64, 8), 128: Tile(64, 32, 8)},
    },
    "sparse.backward_queries": {
        "float32": {32: Tile(32, 32, 8), 64: Tile(32, 32, 8), 128: Tile(16, 32, 4)},
        "half": {32: Tile(32, 32, 4), 64: Tile(64, 32, 4), 128: Tile(64, 32, 8)},
    },
    "sparse.backward_keys": {
        "float32": {32: Tile(32, 16, 4), 64: Tile(32, 32, 8), 128: Tile(16, 32, 8)},
        "half": {32: Tile(32, 32, 4), 64: Tile(32, 32, 4), 128: Tile(32, 32, 8)},
    },
}

# float32 products: three of tf32 on tensor cores that have them, plain ones elsewhere; half types stay as they are
PRECISION: dict[str, dict[Kind, str]] = {
    "sm_80": {"float32": "tf32x3", "half": "ieee"},
    "sm_90": {"float32": "tf32x3", "half": "ieee"},
    "gfx942": {"float32": "ieee", "half": "ieee"},
}
TARGETS = tuple(PRECISION)

SIMAM_BLOCK, SIMAM_WARPS = 1024, 4


def padded_width(width: int) -> int:
    """The power of two that rows of this width are padded to."""
    return max(32, 1 << (width - 1).bit_length())


def most_width(family: str) -> int:
    """The greatest width that every kernel of the family, such as "sparse", has a tile for."""
    return min(max(tiles) for name, kinds in TILES.items() if name.startswith(family) for tiles in kinds.values())
