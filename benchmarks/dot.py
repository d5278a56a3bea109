"""Scores that are dot products, compared with torch's scaled_dot_product_attention."""

import functools
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

import regard
from benchmarks import memory
from benchmarks.table import Case, Row, amount, cost, gain
from benchmarks.timing import Effort, backward, both_ways, compare
from regard.attn.terms.score import Score

WIDTH = 64
SCORES: dict[str, Callable[[], Score]] = {
    "Dot": regard.Dot,
    "Bilinear": lambda: regard.Bilinear(WIDTH, WIDTH),
    "Cosine": regard.Cosine,
    "Distance": regard.Distance,
    "Trilinear": lambda: regard.scores.Trilinear(WIDTH),
}


def inputs(*shape: int, count: int = 3) -> list[Tensor]:
    return [torch.randn(shape, requires_grad=True) for _ in range(count)]


def prepared(score: Score, q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """The inputs of the kernel, as leaves: projected queries and keys, and values of their width."""
    with torch.no_grad():
        queries, keys = score.operands(score.queries(q), score.keys(k))
        values = F.pad(v, (0, queries.shape[-1] - v.shape[-1]))
    return [t.detach().clone().requires_grad_() for t in (queries, keys, values)]


def scores(effort: Effort) -> Iterator[Row]:
    """every dot-like score through regard.attention, against SDPA on q, k, v that are already prepared"""
    q, k, v = inputs(1, 8, 2048, WIDTH)
    for name, make in SCORES.items():
        score = make()
        a, b, c = prepared(score, q, k, v)
        mine, bare, raw = f"regard.attention({name})", "SDPA, prepared q, k, v", "SDPA, plain q, k, v"

        def ours(score: Score = score) -> Tensor:
            return regard.attention(q, k, v, score=score)

        def theirs(a: Tensor = a, b: Tensor = b, c: Tensor = c, scale: float = score.scale_of(a.shape[-1])) -> Tensor:
            return F.scaled_dot_product_attention(a, b, c, scale=scale)

        def plain() -> Tensor:
            return F.scaled_dot_product_attention(q, k, v)

        torch.testing.assert_close(ours(), theirs()[..., :WIDTH], rtol=1e-2, atol=1e-3)
        shape = f"{name} (1,8,2048,64)"
        if not effort.quick:
            forward = compare({mine: ours, bare: theirs, raw: plain}, effort)
            yield cost(f"{shape} forward", forward, mine, bare, 1.10)
            yield cost(f"{shape} forward", forward, mine, raw)
        both = compare(
            {
                mine: backward(ours, [q, k, v, *score.parameters()]),
                bare: backward(theirs, [a, b, c]),
                raw: backward(plain, [q, k, v]),
            },
            effort,
            grad=True,
        )
        yield cost(f"{shape} +backward", both, mine, bare, 1.10)
        yield cost(f"{shape} +backward", both, mine, raw)


def attend_job(score: str, tokens: int, bare: bool) -> Callable[[], object]:
    """Forward and backward of one score, through regard or as bare SDPA on prepared q, k, v."""
    made = SCORES[score]()
    q, k, v = inputs(1, 8, tokens, WIDTH)
    if not bare:
        return backward(lambda: regard.attention(q, k, v, score=made), [q, k, v, *made.parameters()])
    a, b, c = prepared(made, q, k, v)
    return backward(lambda: F.scaled_dot_product_attention(a, b, c), [a, b, c])


def linear_memory(effort: Effort) -> Iterator[Row]:
    """peak extra memory, forward and backward: linear in the length, not quadratic"""
    for name in ["Trilinear"] if effort.quick else SCORES:
        effort.say(f"memory of {name}")
        warm = {"tokens": 64}
        short, long, bare = (
            memory.extra(attend_job, {"score": name, "tokens": tokens, "bare": bare}, warm).megabytes
            for tokens, bare in ((2048, False), (4096, False), (2048, True))
        )
        yield amount(
            f"{name} (1,8,T,64) +backward",
            "peak extra memory, T = 4,096 : 2,048",
            "× the memory",
            long / short,
            2.5,
            note=f"{short:.0f} MB at 2,048 (SDPA on prepared q, k, v: {bare:.0f} MB); quadratic would be 4×",
        )


def overhead(effort: Effort) -> Iterator[Row]:
    """the overhead of a call on tiny inputs"""
    q, k, v = (t.detach() for t in inputs(1, 1, 8, 8))
    dot, lengths = regard.Dot(), regard.Lengths(torch.tensor([5]))
    bounds = {
        "regard.attention": 2.5,
        "regard.attention(score=Dot())": 2.2,
        "regard.Attention()": 2.7,
        "regard.Attention(mask=Causal())": 3.7,
        "regard.Attention(), mask=Lengths": 8.0,
        "regard.Attention(normalize=Sparsemax())": 8.0,
        "regard.Attention(bias=ALiBi(1))": 8.0,
    }
    plain = regard.Attention().eval()
    layers = [
        regard.Attention(mask=regard.Causal()),
        plain,
        regard.Attention(normalize=regard.Sparsemax()),
        regard.Attention(bias=regard.ALiBi(1)),
    ]
    computations: dict[str, Callable[[], Tensor]] = {
        "regard.attention": lambda: regard.attention(q, k, v),
        "regard.attention(score=Dot())": lambda: regard.attention(q, k, v, score=dot),
        "regard.Attention()": lambda: plain(q, k, v),
    }
    for name, layer in zip(list(bounds)[3:], layers, strict=True):
        mask = lengths if "Lengths" in name else None
        computations[name] = functools.partial(layer.eval(), q, k, v, mask=mask)
    bare = "SDPA"
    computations[bare] = lambda: F.scaled_dot_product_attention(q, k, v)
    with torch.no_grad():
        timed = compare(computations, effort, agree=[*list(bounds)[1:3], bare], threads=1)
    for name, bound in bounds.items():
        yield cost("call overhead (1,1,8,8) forward", timed, name, bare, bound)


def value_width(effort: Effort) -> Iterator[Row]:
    """values narrower than keys, for which torch uses its slow kernel"""
    q, k = inputs(1, 8, 1024, 64, count=2)
    v = inputs(1, 8, 1024, 32, count=1)[0]
    mine, bare = "regard.attention", "SDPA, given unequal widths"

    def ours() -> Tensor:
        return regard.attention(q, k, v)

    def theirs() -> Tensor:
        return F.scaled_dot_product_attention(q, k, v)

    for name, timed in both_ways({mine: ours, bare: theirs}, [q, k, v], effort):
        yield gain(f"values 32 wide, keys 64, T = 1,024 {name}", timed, mine, bare, 2.5)


def causal(effort: Effort) -> Iterator[Row]:
    """causal attention, against that of SDPA"""
    q, k, v = inputs(1, 8, 2048, WIDTH)
    mine, bare = "regard.attention(Causal)", "SDPA(is_causal=True)"

    def ours() -> Tensor:
        return regard.attention(q, k, v, mask=regard.Causal())

    def theirs() -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    for name, timed in both_ways({mine: ours, bare: theirs}, [q, k, v], effort):
        yield cost(f"causal (1,8,2048,64) {name}", timed, mine, bare)


def sink(effort: Effort) -> Iterator[Row]:
    """a null slot that takes the weight of queries without a match, against the plain causal softmax"""
    q, k, v = inputs(1, 8, 1024, WIDTH)
    normalize = regard.normalizers.WithNullSlot()
    mine, plain = "regard.attention(Causal, WithNullSlot())", "regard.attention(Causal)"
    computations: dict[str, Callable[[], Tensor]] = {
        mine: lambda: regard.attention(q, k, v, mask=regard.Causal(), normalize=normalize),
        plain: lambda: regard.attention(q, k, v, mask=regard.Causal()),
    }
    for way, timed in both_ways(computations, [q, k, v], effort, agree=[]):
        yield cost(f"null slot (1,8,1024,64) {way}", timed, mine, plain, 1.1)


CASES: dict[str, Case] = {
    "scores": scores,
    "memory": linear_memory,
    "overhead": overhead,
    "widths": value_width,
    "causal": causal,
    "sink": sink,
}
