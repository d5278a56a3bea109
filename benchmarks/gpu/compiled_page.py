"""docs/gpu-kernels.md: python -m benchmarks.gpu.compiled_page compiles every kernel for every target and writes it."""

import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from benchmarks.gpu.compiled import MOST_SHARED, Facts, Variant, facts, variants
from benchmarks.gpu.rooflines import PER_PAIR, STEPS, work
from benchmarks.measured import today
from regard.kernels.triton.configs import PRECISION, TARGETS

PAGE = Path(__file__).parents[2] / "docs" / "gpu-kernels.md"

TEXT = """\
# Triton kernels

`make gpu-report` writes this page, without a GPU: on {date}, by triton {triton}. Nobody has measured these kernels on
a device, so no call chooses them: `explain` says "could, but nobody has measured it on this device".
`backend="triton"` runs them; [GPUs](gpu.md) says how to measure yours.

<!-- not run: needs a GPU -->
```python
regard.attention(q, k, v, normalize=regard.Entmax(1.5), backend="triton")  # pip install "regard[gpu]"
layer = regard.Attention(regard.Additive(512, 512, 256), backend="triton")
gate = regard.gates.SimAM(backend="triton")
```

| kernels | compute | memory |
|---|---|---|
| additive | softmax of tanh scores, lse, all gradients; hidden and values up to 512 wide | linear in queries + keys |
| sparse | sparsemax and entmax 1.5 of dot products, all gradients; rows up to 128 wide | linear in queries + keys |
| simam | the gate and its gradient | one map more |

Masks of every kind are read as booleans. A mask of keys, as `Lengths` is, takes a row per sample, and keys behind the
last allowed one of a sample cost nothing. No kernel takes a bias or dropout, or returns weights; sums are those of
float32, and half types are multiplied as they are. Gradients have no derivative. A call that a kernel does not take
is refused with its reason. The CRF and the pools of gates have no Triton kernel.

## Checked without a GPU

- Results: in Triton's interpreter, output, lse and gradients equal the equation in float64 to 10<sup>-5</sup>, at odd,
  single and empty sizes, under all masks, in rows without a key, with infinite numbers
  (`pytest tests/gpu/test_interpreted_kernels.py`).
- Code: every kernel below is compiled for {targets}. None spills a register, none needs more than
  99 KB of shared memory. On NVIDIA's GPUs none divides exactly (`div.rn`) or uses local memory. Products of tiles are
  instructions of tensor cores on all of them (`pytest tests/gpu/test_compiled_kernels.py --whole`).

Not checked, as it takes a device: speed, races, the rounding of bfloat16 and tf32 on tensor cores, CUDA graphs. The
interpreter multiplies the bits of bfloat16, so that half types are compared in float16.

## Resources

Registers of a thread · shared memory of a program · instructions of tensor cores. A tile is queries × keys.
{precision}

| kernel | numbers | width | tile | warps | {heads} |
|---|---|---|---|---|{bars}
{resources}

Widths are padded to a power of two. These kernels have a mask, and sparse weights are those of entmax 1.5; the code
without a mask and of sparsemax is checked, too.

## Rooflines

The least time on an A100, by counts of operations and bytes: a bound, not a measurement. Special functions are
reciprocals and exponentials, 2.4 · 10<sup>12</sup> per second; float32 operations run at 19.5 · 10<sup>12</sup>,
tensor cores at 156 (tf32) and 312 (half types) · 10<sup>12</sup>, memory at 1.56 · 10<sup>12</sup> bytes. A product of
float32 is three of tf32. The search for a threshold is counted with {steps} steps, a pass over the pairs with
{per_pair} operations per pair.

| kernel | numbers | example | special functions | operations | tensor cores | bytes | least time | bound |
|---|---|---|---|---|---|---|---|---|
{rooflines}
"""


def violations(variant: Variant, target: str, found: Facts) -> list[str]:
    """What the code must not have, and has."""
    wrong = []
    if found.spilled:
        wrong.append(f"spills {found.spilled}")
    if found.shared > MOST_SHARED:
        wrong.append(f"needs {found.shared} bytes of shared memory")
    if found.exact_divisions or found.local_loads:
        wrong.append(f"has {found.exact_divisions} exact divisions and {found.local_loads} accesses of local memory")
    if variant.multiplies() and not found.products:
        wrong.append("multiplies without tensor cores")
    if not variant.kernel.startswith("sparse") and not found.reciprocals:
        wrong.append("has no fast reciprocal")
    return [f"{variant.kernel}, {variant.kind}, width {variant.width}, on {target}: it {what}" for what in wrong]


def resource_row(variant: Variant, found: dict[str, Facts]) -> str:
    """A line of the table of resources."""
    tile = variant.tile
    cells = [f"{f.registers} · {_bytes(f.shared)} · {f.products}" for f in found.values()]
    shape = ["–", "–", "4"] if tile is None else [str(variant.width), f"{tile.queries} × {tile.keys}", str(tile.warps)]
    return _line([variant.kernel, variant.kind, *shape, *cells])


def roofline_row(variant: Variant) -> str:
    counts = work(variant)
    times = counts.times(variant.kind)
    bound = max(times, key=lambda name: times[name])
    numbers = [f"{count:.2g}" if count else "–" for count in (counts.special, counts.plain, counts.products)]
    size = f"{counts.bytes / 1e6:,.0f} MB"
    return _line([variant.kernel, variant.kind, counts.example, *numbers, size, _time(times[bound]), bound])


def _shown() -> Iterator[Variant]:
    """The variants whose rooflines are shown: width 64 of each kernel, and 512 of the additive ones."""
    yield from (v for v in variants() if v.width in (0, 64) or (v.width == 512 and v.kernel.startswith("additive")))


def _bytes(number: int) -> str:
    return f"{number / 1024:.0f} KB" if number >= 1024 else f"{number} B"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def page() -> str:
    """The page; raises if the code of a kernel has what it must not have."""
    rows, wrong = [], []
    for variant in variants():
        print(f"{variant.kernel} {variant.kind} {variant.width}", file=sys.stderr)
        found = {target: facts(variant, target) for target in TARGETS}
        rows.append(resource_row(variant, found))
        wrong += [line for target, what in found.items() for line in violations(variant, target, what)]
    if wrong:
        raise SystemExit("\n".join(wrong))
    kinds = {target: kind["float32"] for target, kind in PRECISION.items()}
    precision = ", ".join(f"`{how}` on {target}" for target, how in kinds.items())
    return TEXT.format(
        date=today(),
        triton=version("triton"),
        targets=", ".join(TARGETS),
        precision=f"Products of float32 are {precision}.",
        heads=" | ".join(TARGETS),
        bars="---|" * len(TARGETS),
        resources="\n".join(rows),
        steps=STEPS,
        per_pair=PER_PAIR,
        rooflines="\n".join(map(roofline_row, _shown())),
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
