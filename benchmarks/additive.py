"""Additive attention, compared with the broadcast form that other libraries use."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

import regard
from benchmarks import memory
from benchmarks.table import Case, Row, amount, gain
from benchmarks.timing import Effort, backward, both_ways, compare
from regard.kernels import additive

BROADCAST = "broadcast form"


def broadcast(a: Tensor, b: Tensor, w: Tensor, v: Tensor) -> Tensor:
    """softmax(w · tanh(a + b)) v, with its (q, k, d) tensor."""
    return torch.softmax(torch.tanh(a.unsqueeze(-2) + b.unsqueeze(-3)) @ w, dim=-1) @ v


def projected(batch: int, queries: int, keys: int, hidden: int) -> list[Tensor]:
    """a, b, w, v as they come from the projections; values are as wide as the hidden layer."""
    a, b, v = torch.randn(batch, queries, hidden), torch.randn(batch, keys, hidden), torch.randn(batch, keys, hidden)
    w = torch.randn(hidden) / hidden**0.5
    return [t.requires_grad_() for t in (a, b, w, v)]


# shape: the speed-up that the native form must reach, forward and with backward
SHAPES = {(32, 50, 50, 256): (20, 12), (1, 512, 512, 256): (35, 20)}


def attend(effort: Effort) -> Iterator[Row]:
    """additive attention on projected queries and keys, native kernels"""
    yield from _against_broadcast(effort, "regard.kernels.additive", None)
    if not effort.quick:
        yield from _layer(effort)


def without_compiler(effort: Effort) -> Iterator[Row]:
    """the same without a C compiler: the torch form"""
    yield from _against_broadcast(effort, "regard.kernels.additive(native=False)", False)


def _against_broadcast(effort: Effort, mine: str, native: bool | None) -> Iterator[Row]:
    for shape, native_bounds in SHAPES.items():
        a, b, w, v = projected(*shape)
        bounds = native_bounds if native is None else (7, 1)

        def ours(a: Tensor = a, b: Tensor = b, w: Tensor = w, v: Tensor = v) -> Tensor:
            return additive.attend(a, b, w, v, native=native)[0]

        def theirs(a: Tensor = a, b: Tensor = b, w: Tensor = w, v: Tensor = v) -> Tensor:
            return broadcast(a, b, w, v)

        case = f"Additive {_say(shape)}" + (" without a compiler" if native is False else "")
        pairs = both_ways({mine: ours, BROADCAST: theirs}, [a, b, w, v], effort)
        for bound, (way, timed) in zip(bounds, pairs, strict=True):
            yield gain(f"{case} {way}", timed, mine, BROADCAST, bound)


def _say(shape: tuple[int, ...]) -> str:
    return "(" + ",".join(map(str, shape)) + ")"


def _layer(effort: Effort) -> Iterator[Row]:
    """The whole layer with its projections, on both sides."""
    for batch, queries, keys, hidden in SHAPES:
        layer = regard.Attention(regard.Additive(hidden, hidden, hidden))
        score = layer.score
        assert isinstance(score, regard.Additive)
        q = torch.randn(batch, queries, hidden, requires_grad=True)
        k = torch.randn(batch, keys, hidden, requires_grad=True)

        def ours(layer: regard.Attention = layer, q: Tensor = q, k: Tensor = k) -> Tensor:
            return layer(q, k)

        def theirs(score: regard.Additive = score, q: Tensor = q, k: Tensor = k) -> Tensor:
            return broadcast(score.query(q), score.key(k), score.energy, k)

        mine = "regard.Attention(Additive)"
        pairs = both_ways({mine: ours, BROADCAST: theirs}, [q, k, *layer.parameters()], effort)
        for way, timed in pairs:
            case = f"Additive {_say((batch, queries, keys, hidden))} with projections {way}"
            yield gain(case, timed, mine, BROADCAST)


def decode(effort: Effort) -> Iterator[Row]:
    """one decoding step; both sides keep the keys, projected once"""
    hidden = 256
    layer = regard.Attention(regard.Additive(hidden, hidden, hidden)).eval()
    score = layer.score
    assert isinstance(score, regard.Additive)
    q, k = torch.randn(32, 1, hidden), torch.randn(32, 50, hidden)
    with torch.no_grad():
        kept = layer.project_kv(k)
    mine = "regard.Attention(Additive), kept keys"
    calls = {mine: lambda: layer(q, kept), BROADCAST: lambda: broadcast(score.query(q), kept.keys, score.energy, k)}
    timed = compare(calls, effort, agree=[BROADCAST], threads=1)
    yield gain("Additive decoding step (32,1,50,256)", timed, mine, BROADCAST, 2)


def attend_job(tokens: int, hidden: int) -> Callable[[], object]:
    """Forward and backward of an additive layer."""
    layer = regard.Attention(regard.Additive(hidden, hidden, hidden))
    q, k = (torch.randn(1, tokens, hidden, requires_grad=True) for _ in range(2))
    return backward(lambda: layer(q, k), [q, k, *layer.parameters()])


def peak_memory(effort: Effort) -> Iterator[Row]:
    """peak extra memory of a long additive layer, forward and backward"""
    effort.say("memory")
    taken = memory.extra(attend_job, {"tokens": 2048, "hidden": 128}, {"tokens": 64})
    # the sum, its tanh and one gradient of that size
    naive = 3 * 2048 * 2048 * 128 * 4 / 1e9
    yield amount(
        "Additive (1,2048,2048,128) +backward",
        "regard.Attention(Additive), peak extra memory",
        "MB",
        taken.megabytes,
        100,
        note=f"the broadcast form keeps three (q, k, d) tensors, {naive:.1f} GB, by computation",
    )


CASES: dict[str, Case] = {"attend": attend, "torch": without_compiler, "decode": decode, "memory": peak_memory}
