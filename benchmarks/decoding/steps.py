"""One step of MultiHead with a cache against a lean loop in torch, and the cost of a small call."""

import statistics
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

import regard
from benchmarks.heads import Lean
from benchmarks.table import Case, Row, amount, cost
from benchmarks.timing import Effort, compare, spread

KEYS, LONG = 128, 8192
# consecutive steps per call, around the length that the row names
STEPS = 64
# width: heads, and the bound on the time of a step
WIDTHS = {64: (4, 2.0), 256: (4, 1.4), 768: (12, 1.15)}
GROWTH = 20.0  # µs
CALL = 2.5


def layers(width: int, heads: int) -> tuple[regard.MultiHead, Lean]:
    """Both with the same weights."""
    mine, lean = regard.MultiHead(width, heads).eval(), Lean(width, heads).eval()
    with torch.no_grad():
        for part in ("weight", "bias"):
            packed = [getattr(linear, part) for linear in (mine.query, mine.key, mine.value)]
            getattr(lean.qkv, part).copy_(torch.cat(packed))
            getattr(lean.out, part).copy_(getattr(mine.out, part))
    return mine, lean


def lean_steps(layer: Lean, x: Tensor, start: int, steps: int) -> Callable[[], Tensor]:
    """A bare loop: joined q, k, v, a cache of the full length, SDPA."""
    width = x.shape[-1]
    heads, end = layer.heads, start + steps
    with torch.no_grad():
        qkv = layer.qkv(x[:, :end]).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        keys, values = qkv[1].contiguous(), qkv[2].contiguous()

    def run() -> Tensor:
        for n in range(start, end):
            qkv = layer.qkv(x[:, n : n + 1]).view(1, 1, 3, heads, -1).permute(2, 0, 3, 1, 4)
            keys[:, :, n : n + 1], values[:, :, n : n + 1] = qkv[1], qkv[2]
            out = F.scaled_dot_product_attention(qkv[0], keys[:, :, : n + 1], values[:, :, : n + 1])
            out = layer.out(out.transpose(1, 2).reshape(1, 1, width))
        return out

    return run


def regard_steps(
    layer: regard.MultiHead, x: Tensor, start: int, steps: int, mask: regard.Causal | None
) -> Callable[[], Tensor]:
    with torch.no_grad():
        first = layer.project_kv(x[:, :start])

    def run() -> Tensor:
        past = first
        for n in range(start, start + steps):
            out, past = layer.step(x[:, n : n + 1], past, mask=mask)
        return out

    return run


def multi_head(effort: Effort) -> Iterator[Row]:
    """a step of MultiHead with a cache of 128 keys, with Causal and without a mask"""
    for width, (heads, bound) in WIDTHS.items():
        mine, lean = layers(width, heads)
        x = torch.randn(1, KEYS + STEPS, width)
        start = KEYS - STEPS // 2
        calls = {
            "regard.MultiHead, Causal": regard_steps(mine, x, start, STEPS, regard.Causal()),
            "lean loop": lean_steps(lean, x, start, STEPS),
            "regard.MultiHead": regard_steps(mine, x, start, STEPS, None),
        }
        timed = compare(calls, effort, agree=["lean loop", "regard.MultiHead"], threads=1)
        case = f"{STEPS} steps around {KEYS} keys, width {width}, {heads} heads"
        yield cost(case, timed, "regard.MultiHead, Causal", "lean loop", bound)
        yield cost(case, timed, "regard.MultiHead", "lean loop")


def growth(effort: Effort) -> Iterator[Row]:
    """growth of a step's own cost, beyond that of the lean loop, from 128 to 8,192 keys"""
    width, steps = 64, 16
    heads = WIDTHS[width][0]
    mine, lean = layers(width, heads)
    x = torch.randn(1, LONG + STEPS, width)
    calls = {}
    for keys in (KEYS, LONG):
        start = keys - steps // 2
        calls[f"regard {keys}"] = regard_steps(mine, x, start, steps, regard.Causal())
        calls[f"lean {keys}"] = lean_steps(lean, x, start, steps)
    timed = compare(calls, effort, threads=1)
    per_step = {name: [1e6 * t / steps for t in seconds] for name, seconds in timed.seconds.items()}
    columns = [per_step[name] for name in calls]
    extra = [(far - far_lean) - (near - near_lean) for near, near_lean, far, far_lean in zip(*columns, strict=True)]
    medians = ", ".join(f"{name} {statistics.median(values):.0f} µs" for name, values in per_step.items())
    yield amount(
        f"growth of a step from {KEYS} to {LONG:,} keys, width {width}, Causal",
        "regard.MultiHead beyond the lean loop",
        "µs",
        spread(extra),
        GROWTH,
        clock=timed.clock,
        note=medians,
    )


def call(effort: Effort) -> Iterator[Row]:
    """a call of regard.attention with a term on (1,1,8,8), against SDPA"""
    q, k, v = (torch.randn(1, 1, 8, 8) for _ in range(3))
    dot = regard.Dot()
    mine, bare = "regard.attention(score=Dot())", "SDPA"
    calls = {mine: lambda: regard.attention(q, k, v, score=dot), bare: lambda: F.scaled_dot_product_attention(q, k, v)}
    timed = compare(calls, effort, agree=[bare], threads=1)
    yield cost("call on (1,1,8,8)", timed, mine, bare, CALL)


CASES: dict[str, Case] = {"multi-head": multi_head, "growth": growth, "call": call}
