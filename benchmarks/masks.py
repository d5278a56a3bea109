"""Masks that exclude most of the work, compared with SDPA and the same mask as a dense tensor."""

import functools
import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor

import regard
from benchmarks import memory
from benchmarks.dot import inputs
from benchmarks.table import Case, Row, absent, amount, cost, gain
from benchmarks.timing import Effort, backward, both_ways, compare
from regard.attn.backends import BACKENDS

BACK = 256
DENSE = "SDPA, dense mask"


def window(effort: Effort) -> Iterator[Row]:
    """256 keys back in 8,192 tokens, against SDPA with the dense mask"""
    tokens = 8192
    q, k, v = inputs(1, 8, tokens, 64)
    mask = regard.Window(BACK, 0)
    at = torch.arange(tokens)
    dense = mask.dense(at, at)
    mine = "regard.attention(Window(256, 0))"
    computations: dict[str, Callable[[], Tensor]] = {
        mine: lambda: regard.attention(q, k, v, mask=mask),
        DENSE: lambda: F.scaled_dot_product_attention(q, k, v, dense),
    }
    case = "window 256, T = 8,192"
    if not effort.quick:
        yield gain(f"{case} forward", compare(computations, effort, agree=[DENSE]), mine, DENSE)
    steps = {name: backward(compute, [q, k, v]) for name, compute in computations.items()}
    yield gain(f"{case} +backward", compare(steps, effort, grad=True, agree=[DENSE]), mine, DENSE, 12)


def window_job(tokens: int) -> Callable[[], object]:
    """Forward and backward of a sliding window."""
    q, k, v = inputs(1, 8, tokens, 64)
    return backward(lambda: regard.attention(q, k, v, mask=regard.Window(BACK, 0)), [q, k, v])


def long_window(effort: Effort) -> Iterator[Row]:
    """the same window in eight times as many tokens: eight times the time and memory"""
    case = "window 256 +backward"
    long, short = "T = 65,536", "T = 8,192"
    timed = compare({long: window_job(65536), short: window_job(8192)}, effort, grad=True)
    yield cost(case, timed, long, short, 9)
    effort.say("memory")
    big, small = (memory.extra(window_job, {"tokens": n}, {"tokens": 512}).megabytes for n in (65536, 8192))
    note = f"{big:,.0f} MB and {small:,.0f} MB"
    yield amount(case, f"peak extra memory, {long} : {short}", "× the memory", big / small, 9, note=note)


# eight documents of unequal length, 2,048 tokens in all
DOCUMENTS = (320, 128, 448, 192, 256, 64, 384, 256)


def documents(effort: Effort) -> Iterator[Row]:
    """eight documents packed into 2,048 tokens, against SDPA with the dense mask"""
    q, k, v = inputs(1, 8, sum(DOCUMENTS), 64)
    ids = torch.repeat_interleave(torch.arange(len(DOCUMENTS)), torch.tensor(DOCUMENTS)).unsqueeze(0)
    dense = (ids.unsqueeze(-1) == ids.unsqueeze(-2)).unsqueeze(1)
    mine = "regard.attention(Documents)"
    computations: dict[str, Callable[[], Tensor]] = {
        mine: lambda: regard.attention(q, k, v, mask=regard.Documents(ids)),
        DENSE: lambda: F.scaled_dot_product_attention(q, k, v, dense),
    }
    for way, timed in both_ways(computations, [q, k, v], effort):
        yield gain(f"8 documents in T = 2,048 {way}", timed, mine, DENSE, 4 if way == "+backward" else None)


def padding(effort: Effort) -> Iterator[Row]:
    """a padded batch whose mean length is 60 % of the longest, against SDPA with the boolean mask"""
    q, k, v = inputs(16, 8, 256, 64)
    lengths = torch.linspace(0.2 * 256, 256, 16).round().long()
    allowed = (torch.arange(256) < lengths.unsqueeze(-1))[:, None, None]  # "b 1 1 k"
    mine, other = "regard.attention(Lengths)", "SDPA, boolean mask"
    computations: dict[str, Callable[[], Tensor]] = {
        mine: lambda: regard.attention(q, k, v, mask=regard.Lengths(lengths)),
        other: lambda: F.scaled_dot_product_attention(q, k, v, allowed),
    }
    for way, timed in both_ways(computations, [q, k, v], effort):
        yield cost(f"padded (16,8,256,64) {way}", timed, mine, other, 0.8 if way == "+backward" else None)


def local(effort: Effort) -> Iterator[Row]:
    """the same window, against the package local-attention"""
    case, mine, other = "window 256, T = 8,192", "regard.attention(Window(256, 0))", "local-attention"
    try:
        from local_attention import LocalAttention  # type: ignore[import-untyped]
    except ImportError:
        yield absent(case, f"{mine} : {other}", "local-attention is not installed: pip install regard[bench]")
        return
    q, k, v = inputs(1, 8, 8192, 64)
    layer = LocalAttention(BACK, causal=True, look_backward=1, exact_windowsize=True, use_rotary_pos_emb=False)
    computations: dict[str, Callable[[], Tensor]] = {
        mine: lambda: regard.attention(q, k, v, mask=regard.Window(BACK, 0)),
        other: lambda: layer(q, k, v),
    }
    for way, timed in both_ways(computations, [q, k, v], effort):
        yield gain(f"{case} {way}", timed, mine, other)


def neighbourhood(effort: Effort) -> Iterator[Row]:
    """7 by 7 neighbours in a grid of 64 by 64, against SDPA with the dense mask; then a grid of 128 by 128"""
    q, k, v = inputs(1, 4, 64 * 64, 32)
    mask, at = regard.masks.Neighbourhood((64, 64), 7), torch.arange(64 * 64)
    dense = mask.dense(at, at)
    mine = "regard.attention(Neighbourhood)"
    computations: dict[str, Callable[[], Tensor]] = {
        mine: lambda: regard.attention(q, k, v, mask=mask),
        DENSE: lambda: F.scaled_dot_product_attention(q, k, v, dense),
    }
    for way, timed in both_ways(computations, [q, k, v], effort):
        yield gain(f"Neighbourhood 7², 64² {way}", timed, mine, DENSE, 8 if way == "+backward" else None)
    sides = {}
    for side in (64, 128):
        leaves = inputs(1, 4, side * side, 32)
        near = regard.masks.Neighbourhood((side, side), 7)
        sides[f"{side}²"] = backward(functools.partial(regard.attention, *leaves, mask=near), leaves)
    timed = compare({name: sides[name] for name in ("128²", "64²")}, effort, grad=True)
    yield cost("Neighbourhood 7² +backward", timed, "128²", "64²", 4.8)


def selected(effort: Effort) -> Iterator[Row]:
    """MoBA's mask (3 of all blocks of 512 keys) and NSA's layer, against dense causal attention; forward"""
    for tokens in (8192,) if effort.quick else (8192, 32768):
        q, k, v = (t.detach() for t in inputs(1, 4, tokens, 64))
        mask = regard.masks.TopBlocks(512, 3) & regard.Causal()
        mine, dense = "TopBlocks(512, 3)", "SDPA, causal"
        computations: dict[str, Callable[[], Tensor]] = {
            mine: lambda q=q, k=k, v=v, mask=mask: regard.attention(q, k, v, mask=mask),
            dense: lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        }
        yield gain(f"T = {tokens:,} forward", compare(computations, effort), mine, dense)
        torch.manual_seed(0)
        x = torch.randn(1, tokens, 256)
        layers = {
            "NativeSparseAttention": regard.layers.NativeSparseAttention(256, 4, kv_heads=1),
            "MultiHead": regard.MultiHead(256, 4, kv_heads=1),
        }
        calls = {name: functools.partial(layer, x, mask=regard.Causal()) for name, layer in layers.items()}
        yield gain(f"layer, T = {tokens:,} forward", compare(calls, effort), *layers)


SPAN_ROWS = (32, 64, 128, 256, 512)


def biased(effort: Effort) -> Iterator[Row]:
    """a bias with a mask at 256 to 8,192 keys, against the best of five sizes of spans, SDPA and the whole matrix"""
    masks: dict[str, regard.Mask] = {"Window(64, 0)": regard.Window(64, 0), "Causal()": regard.Causal()}
    normalizers = {"softmax": (regard.Softmax(), "flash"), "entmax": (regard.Entmax(1.5), "blocked")}
    lengths = (256, 1024) if effort.quick else (256, 512, 1024, 2048, 4096, 8192)
    for tokens, (label, mask), (kind, (normalize, loop)) in itertools.product(
        lengths, masks.items(), normalizers.items()
    ):
        heads = 8 if tokens <= 2048 else 2
        q, k, v = inputs(1, heads, tokens, 64)
        terms = {"bias": regard.ALiBi(heads), "mask": mask, "normalize": normalize}

        def attend(
            backend: str | None, rows: int = 0, terms: dict[str, Any] = terms, leaves: Any = (q, k, v)
        ) -> Tensor:
            module, setting = (
                BACKENDS[backend or "flash"],
                ("_ROWS", rows) if backend == "flash" else ("_rows", lambda _: rows),
            )
            with mock.patch.object(module, *setting) if rows else nullcontext():
                return regard.attention(*leaves, **terms, backend=backend)

        computations: dict[str, Callable[[], Tensor]] = {"chosen": functools.partial(attend, None)}
        if tokens <= 2048:
            whole = "fused" if kind == "softmax" else "eager"
            computations[whole] = functools.partial(attend, whole)
        computations |= {f"spans of {rows}": functools.partial(attend, loop, rows) for rows in SPAN_ROWS}
        for way, timed in both_ways(computations, [q, k, v], effort):
            best = min(list(computations)[1:], key=lambda name: timed.of(name).median)
            yield cost(f"ALiBi, {label}, {kind}, T = {tokens:,} {way}", timed, "chosen", best, 1.25)


CASES: dict[str, Case] = {
    "biased": biased,
    "window": window,
    "long": long_window,
    "documents": documents,
    "padding": padding,
    "local": local,
    "neighbourhood": neighbourhood,
    "selected": selected,
}
