"""The least time of the Triton kernels on an A100, by counts of operations and bytes: no measurement.

n samples or heads, q queries, k keys, d hidden units or the width of a key, v the width of a value. Row exponentials
of the additive kernels are computed once per tile. Products of float32 are three of tf32.
"""

from typing import NamedTuple

from benchmarks.gpu.compiled import Variant

# NVIDIA A100 SXM: 108 processors at 1.41 GHz with 16 special functions per cycle, and the data sheet
SPECIAL, PLAIN, BYTES = 108 * 16 * 1.41e9, 1.95e13, 1.56e12
PRODUCTS = {"float32": 1.56e14, "half": 3.12e14}

# steps of the search for a threshold that a row is counted with, and operations of a pair in each pass
STEPS, PER_PAIR = 8, 8


class Work(NamedTuple):
    """The counts of one call."""

    example: str
    special: float  # reciprocals, exponentials
    plain: float  # float32 operations outside of tensor cores
    products: float  # operations of tensor cores
    bytes: float  # from and to memory, each number once

    def times(self, kind: str) -> dict[str, float]:
        """Seconds by each bound."""
        return {
            "special functions": self.special / SPECIAL,
            "float32 operations": self.plain / PLAIN,
            "tensor cores": self.products / PRODUCTS[kind],
            "memory": self.bytes / BYTES,
        }


def work(variant: Variant) -> Work:
    """The counts of the kernel at its example."""
    family, part = variant.kernel.split(".")
    return {"additive": _additive, "sparse": _sparse, "simam": _simam}[family](part, variant)


def _additive(part: str, variant: Variant) -> Work:
    n, q, k, d, tile = 64, 128, 128, variant.width, variant.tile
    assert tile is not None
    v, pairs = d, float(n * q * k)
    example = f"{n} × {q} queries × {k} keys, hidden {d}, values {v}"
    rows = 4.0 * n * (d * (q + k) + v * (q + k))
    if part == "forward":
        special = pairs * (d * (1 + 1 / tile.queries + 1 / tile.keys) + 1)
        return Work(example, special, 4 * pairs * d, 3 * 2 * pairs * v, rows + 4 * n * q)
    special = pairs * (d * (1 + 1 / max(tile.queries, tile.keys)) + 1)
    if part == "backward_queries":
        return Work(example, special, pairs * (10 * d + 2 * v), 0.0, rows + 4 * n * q * (d + 2))
    return Work(example, special, pairs * (8 * d + 4 * v), 0.0, rows + 4 * n * (k * (d + v) + 2 * q))


def _sparse(part: str, variant: Variant) -> Work:
    n, q, k, d = 32, 4096, 4096, variant.width
    v, pairs = d, float(n * q * k)
    size, factor = (2, 1) if variant.kind == "half" else (4, 3)
    products = {
        "threshold": (STEPS + 1) * d,
        "forward": d + v,
        "backward_means": d + v,
        "backward_queries": 2 * d + v,
        "backward_keys": 2 * d + 2 * v,
    }[part]
    passes = STEPS + 1 if part == "threshold" else 1
    rows = {"threshold": 0, "forward": 2 * v, "backward_means": 2 * v, "backward_queries": d + 2 * v}.get(
        part, d + 3 * v
    )
    example = f"{n} × {q:,} queries × {k:,} keys, width {d}"
    traffic = float(size * n * (q * d + k * d + q * rows) + 12 * n * q)
    return Work(example, 0.0, PER_PAIR * passes * pairs, 2.0 * factor * pairs * products, traffic)


def _simam(part: str, variant: Variant) -> Work:
    elements, size = 64 * 64 * 56 * 56, 2 if variant.kind == "half" else 4
    tensors, plain = (2, 8) if part == "forward" else (3, 20)
    passes = 1 if part == "forward" else 2
    return Work(
        "64 × 64 maps of 56 × 56",
        2.0 * passes * elements,
        float(plain * elements),
        0.0,
        float(size * tensors * elements),
    )
