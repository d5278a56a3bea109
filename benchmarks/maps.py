"""AttentionMap: reading weights without computing the whole matrix."""

from collections.abc import Callable, Iterator

import torch

import regard
from benchmarks import memory
from benchmarks.table import Case, Row, amount
from benchmarks.timing import Effort

TOKENS = 32768


def look_job(tokens: int, look: str) -> Callable[[], object]:
    """Attends with a map, and reads it."""
    q, k, v = (torch.randn(1, 1, tokens, 64) for _ in range(3))

    def call() -> object:
        seen = regard.attend(q, k, v, need=regard.Need(map=True)).map
        assert isinstance(seen, regard.attn.AttentionMap)
        if look == "topk":
            return seen.topk(5, rows=list(range(0, tokens, tokens // 100))[:100])
        return seen.pooled(256, 256)

    return call


def look(effort: Effort) -> Iterator[Row]:
    """a map of 32,768 by 32,768 weights, read without computing all of it"""
    dense = TOKENS * TOKENS * 4 / 1e9
    for name, said in {"topk": "topk(5) of 100 rows", "coarse": "pooled(256, 256)"}.items():
        effort.say(said)
        taken = memory.extra(look_job, {"tokens": TOKENS, "look": name}, {"tokens": 512})
        yield amount(
            f"AttentionMap, T = {TOKENS:,}, 1 head",
            f"attend and {said}, peak extra memory",
            "MB",
            taken.megabytes,
            300,
            note=f"{taken.seconds:.1f} s; the dense map is {dense:.1f} GB, by computation",
        )


CASES: dict[str, Case] = {"look": look}
