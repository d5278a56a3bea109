"""Random attentions, and the equation in explicit Python loops over samples, heads, queries and keys.

`python -m tests.attn.loops 2000` compares that many random attentions with every backend that runs them.
"""

import itertools
import math
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from tests.attn.backends.cases import resolved
from torch import Tensor

import regard
from regard.attn.backends import BACKENDS, flash

Lead = tuple[int, ...]
Index = tuple[int, ...]  # a sample and a head: one entry per leading axis
Row = list[float]
# whether query row and key column, at these positions, form an allowed pair
Rule = Callable[[Index, int, int, int, int], bool]


@dataclass
class Example:
    """One random attention: its arguments, and the rules by which the loops compute it."""

    q: Tensor
    k: Tensor
    v: Tensor
    terms: dict[str, Any]
    rule: Rule | None
    score: Callable[[Row, Row], float]
    bias: "Callable[[Index, int, int, int, int, int], float] | None"
    normalize: Callable[[Row], Row]
    lead: Lead


def entry(t: Tensor, index: Index, *own: int) -> Any:
    """t[index, own], where the leading axes of t are the first axes of the batch, and 1 fits all."""
    return t[at(t.shape[: t.ndim - len(own)], index) + at(t.shape[t.ndim - len(own) :], own)].item()


def last_entry(t: Tensor, index: Index, *own: int) -> Any:
    """The same where the leading axes of t are the last axes of the batch."""
    axes = t.ndim - len(own)
    return t[at(t.shape[:axes], index[len(index) - axes :]) + at(t.shape[axes:], own)].item()


def at(shape: torch.Size, index: Index) -> Index:
    return tuple(0 if size == 1 else n for size, n in zip(shape, index, strict=False))


def some_lead(draw: random.Random, lead: Lead) -> Lead:
    """None or some of the first axes of the batch, each with its size or 1."""
    return tuple(draw.choice((n, n, 1)) for n in lead[: draw.randint(0, len(lead))])


def integers(draw: random.Random, shape: Lead, low: int, high: int) -> Tensor:
    return torch.tensor([draw.randint(low, high) for _ in range(math.prod(shape))]).reshape(shape)


def random_mask(draw: random.Random, lead: Lead, q: int, k: int, depth: int = 3) -> tuple[regard.Mask, Rule]:
    if depth and draw.random() < 0.5:
        kind = draw.choice("&|~")
        a, rule_a = random_mask(draw, lead, q, k, depth - 1)
        if kind == "~":
            return ~a, lambda *pair: not rule_a(*pair)
        b, rule_b = random_mask(draw, lead, q, k, depth - 1)
        if kind == "&":
            return a & b, lambda *pair: rule_a(*pair) and rule_b(*pair)
        return a | b, lambda *pair: rule_a(*pair) or rule_b(*pair)
    return draw.choice((causal, window, prefix, prefixes, lengths, lengths, documents, boolean))(draw, lead, q, k)


def causal(draw: random.Random, lead: Lead, q: int, k: int) -> tuple[regard.Mask, Rule]:
    return regard.Causal(), lambda index, row, column, i, j: j <= i


def window(draw: random.Random, lead: Lead, q: int, k: int) -> tuple[regard.Mask, Rule]:
    left, right = (draw.choice((None, 0, 1, 3)) for _ in range(2))
    return regard.Window(
        left, right
    ), lambda index, row, column, i, j: (left is None or j - i >= -left) and (right is None or j - i <= right)


def prefix(draw: random.Random, lead: Lead, q: int, k: int) -> tuple[regard.Mask, Rule]:
    length = draw.randint(0, k)
    return regard.Prefix(length), lambda index, row, column, i, j: j <= i or j < length


def prefixes(draw: random.Random, lead: Lead, q: int, k: int) -> tuple[regard.Mask, Rule]:
    length = integers(draw, some_lead(draw, lead), 0, k)
    return regard.Prefix(length), lambda index, row, column, i, j: j <= i or j < entry(length, index)


def lengths(draw: random.Random, lead: Lead, q: int, k: int) -> tuple[regard.Mask, Rule]:
    length = integers(draw, some_lead(draw, lead), 0, k)
    return regard.Lengths(length), lambda index, row, column, i, j: j < entry(length, index)


def documents(draw: random.Random, lead: Lead, q: int, k: int) -> tuple[regard.Mask, Rule]:
    ids = integers(draw, (*some_lead(draw, lead), k), 0, 2)
    if q <= k and draw.random() < 0.5:
        return regard.Documents(
            ids
        ), lambda index, row, column, i, j: entry(ids, index, k - q + row) == entry(ids, index, column)
    queries = integers(draw, (*some_lead(draw, lead), q), 0, 2)
    return regard.Documents(
        ids, queries
    ), lambda index, row, column, i, j: entry(queries, index, row) == entry(ids, index, column)


def boolean(draw: random.Random, lead: Lead, q: int, k: int) -> tuple[regard.Mask, Rule]:
    some = tuple(draw.choice((n, n, 1)) for n in lead) if draw.random() < 0.7 else ()
    shape = (*some, draw.choice((q, 1)), draw.choice((k, k, 1)))
    allowed = integers(draw, shape, 0, 2) > 0
    return regard.BooleanMask(allowed), lambda index, row, column, i, j: entry(allowed, index, row, column)


def dot(a: Row, b: Row) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def elu(x: Row) -> Row:
    """The feature map of linear attention."""
    return [max(number, 0.0) + math.exp(min(number, 0.0)) for number in x]


def linear(weight: Tensor, x: Row) -> Row:
    return [dot(row, x) for row in weight.tolist()]


def random_score(draw: random.Random, d: int) -> tuple[regard.Score, Callable[[Row, Row], float]]:
    kind = draw.choice(("dot", "dot", "dot", "cosine", "distance", "euclid", "additive", "bilinear", "soft-cap"))
    match kind:
        case "dot":
            return regard.Dot(), lambda q, k: dot(q, k) / math.sqrt(d)
        case "cosine":
            return regard.Cosine(4.0), lambda q, k: 4 * dot(q, k) / math.sqrt(dot(q, q) * dot(k, k))
        case "distance":
            return regard.Distance(2, 0.3), lambda q, k: -0.3 * sum((x - y) ** 2 for x, y in zip(q, k, strict=True))
        case "euclid":
            return regard.Distance(1), lambda q, k: -math.dist(q, k)
        case "soft-cap":
            return regard.scores.SoftCap(0.6), lambda q, k: 0.6 * math.tanh(dot(q, k) / math.sqrt(d) / 0.6)
        case "bilinear":
            general = regard.Bilinear(d, d).double()
            return general, lambda q, k: dot(q, linear(general.key.weight, k))
        case _:
            score = regard.Additive(d, d, 3).double()

            def additive(q: Row, k: Row) -> float:
                a, b = linear(score.query.weight, q), linear(score.key.weight, k)
                return dot(score.energy.tolist(), [math.tanh(x + y) for x, y in zip(a, b, strict=True)])

            return score, additive


def random_bias(draw: random.Random, lead: Lead, q: Tensor, k: int) -> tuple[Any, Any]:
    """A bias, and its number for a sample and head, a row and column, their positions, and the number of keys."""
    *_, n, d = q.shape
    heads = lead[-1] if lead else 0
    kinds = ["none", "none", "shaw", "gaussian", "tensor", "hiding"] + (["alibi", "t5", "xl"] if lead else [])
    match draw.choice(kinds):
        case "alibi":
            bias = regard.ALiBi(heads)
            return bias, lambda index, row, column, i, j, total: -bias.slopes[index[-1]].item() * abs(i - j)
        case "t5":
            t5 = regard.T5Buckets(heads, buckets=8, max_distance=12).double()
            table = t5.table.weight.tolist()
            return t5, lambda index, row, column, i, j, total: table[t5_bucket(j - i)][index[-1]]
        case "shaw":
            shaw = regard.Shaw(d, clip=2).double()
            vectors = shaw.table.tolist()
            return (
                shaw,
                lambda index, row, column, i, j, total: (
                    dot(q[(*index, row)].tolist(), vectors[max(-2, min(2, j - i)) + 2]) / math.sqrt(d)
                ),
            )
        case "xl":
            xl = regard.RelativeXL(4, heads, d).double()
            torch.nn.init.zeros_(xl.u)  # it is added to the query of the score, which the loops compute apart

            def relative(index: Index, row: int, column: int, i: int, j: int, total: int) -> float:
                waves = [f((i - j) * w) for f in (math.sin, math.cos) for w in (1.0, 10000.0 ** (-2 / 4))]
                own = slice(index[-1] * d, (index[-1] + 1) * d)
                query = q[(*index, row)] + xl.v[index[-1], 0]
                return dot(query.tolist(), linear(xl.position.weight[own], waves)) / math.sqrt(d)

            return xl, relative
        case "gaussian":
            gaussian = regard.biases.LocalGaussian(d, 3, window=4.0).double()

            def density(index: Index, row: int, column: int, i: int, j: int, total: int) -> float:
                hidden = linear(gaussian.hidden.weight, q[(*index, row)].tolist())
                logit = dot(gaussian.place.weight[0].tolist(), [math.tanh(x) for x in hidden])
                return -((j - total / (1 + math.exp(-logit))) ** 2) / (2 * 2.0**2)

            return gaussian, density
        case "tensor" | "hiding" as kind:
            shape = tuple(draw.choice((size, size, 1)) for size in (*lead[draw.randint(0, len(lead)) :], n, k))
            values = torch.randn(shape, dtype=torch.float64)
            if kind == "hiding":
                values = values.masked_fill(torch.rand(shape) < 0.3, -math.inf)
            return values, lambda index, row, column, i, j, total: last_entry(values, index, row, column)
        case _:
            return None, None


def t5_bucket(ahead: int) -> int:
    """Of 8 buckets, 4 in each direction: distances 0 and 1 one by one, up to 12 by their logarithm."""
    back = abs(ahead)
    near = back if back < 2 else min(3, 2 + int(math.log(back / 2) / math.log(12 / 2) * 2))
    return near + (4 if ahead > 0 else 0)


def softmax(scores: Row) -> Row:
    powers = [math.exp(s - max(scores)) for s in scores]
    return [p / sum(powers) for p in powers]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def entmax(scores: Row, alpha: float) -> Row:
    """By bisection of the threshold."""
    z = [(alpha - 1) * (s - max(scores)) for s in scores]
    low, high = -1.0, 0.0
    for _ in range(100):
        tau = (low + high) / 2
        weights = [max(x - tau, 0.0) ** (1 / (alpha - 1)) for x in z]
        low, high = (tau, high) if sum(weights) > 1 else (low, tau)
    return [w / sum(weights) for w in weights]


def top(scores: Row, n: int) -> Row:
    best = sorted(range(len(scores)), key=lambda column: -scores[column])[:n]
    weights = dict(zip(best, softmax([scores[column] for column in best]), strict=True))
    return [weights.get(column, 0.0) for column in range(len(scores))]


def share(numbers: Row) -> Row:
    return [n / sum(numbers) for n in numbers]


NORMALIZERS: dict[str, tuple[Callable[[], regard.Normalizer], Callable[[Row], Row]]] = {
    "softmax": (regard.Softmax, softmax),
    "cool": (lambda: regard.Softmax(0.6), lambda s: softmax([x / 0.6 for x in s])),
    "sigmoid": (lambda: regard.Sigmoid(-1.0), lambda s: [sigmoid(x - 1) for x in s]),
    "normalized": (regard.normalizers.NormalizedSigmoid, lambda s: share([sigmoid(x) for x in s])),
    "sparsemax": (regard.Sparsemax, lambda s: entmax(s, 2.0)),
    "entmax": (lambda: regard.Entmax(1.5), lambda s: entmax(s, 1.5)),
    "entmax13": (lambda: regard.Entmax(1.3), lambda s: entmax(s, 1.3)),
    "topk": (lambda: regard.TopK(2), lambda s: top(s, 2)),
    "null": (regard.normalizers.WithNullSlot, lambda s: softmax([*s, 0.0])[:-1]),
    "identity": (regard.normalizers.Identity, lambda s: s),
}


def random_positions(draw: random.Random, lead: Lead, q: int, k: int) -> tuple[Tensor, Tensor] | None:
    if draw.random() < 0.3:
        return None
    i, j = (integers(draw, (*some_lead(draw, lead), n), -2, k + 2) for n in (q, k))
    return (i, j) if draw.random() < 0.5 else (i.sort().values, j.sort().values)


def example(seed: int) -> Example:
    """The random attention of this seed."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    # b == h in many cases: a wrong broadcast is an error of shape otherwise
    lead = draw.choice(((), (2,), (3,), (2, 2), (2, 2), (3, 1), (2, 3), (1, 4), (2, 4), (2, 2, 2), (2, 1, 3)))
    n, k = draw.choice(((5, 7), (4, 4), (3, 5), (6, 3), (1, 6), (18, 9)))
    d, kv = 4, lead
    if len(lead) > 1 and lead[-1] == 4 and draw.random() < 0.7:
        kv = (*lead[:-1], 2)
    q, keys, v = (
        torch.randn(*shape, dtype=torch.float64)
        for shape in ((*lead, n, d), (*kv, k, d), (*kv, k, draw.choice((3, 4))))
    )
    if draw.random() < 0.15:  # linear attention
        score, score_loop = regard.scores.Kernel("elu"), lambda q, k: dot(elu(q), elu(k))
        bias, bias_loop = None, None
        normalize, normalize_loop = regard.normalizers.Sum(), share
    else:
        score, score_loop = random_score(draw, d)
        bias, bias_loop = random_bias(draw, lead, q, k)
        make, normalize_loop = NORMALIZERS["softmax" if draw.random() < 0.2 else draw.choice(list(NORMALIZERS))]
        normalize = make()
    mask, rule = (None, None) if draw.random() < 0.1 else random_mask(draw, lead, n, k)
    terms = {
        "score": score,
        "bias": bias,
        "mask": mask,
        "normalize": normalize,
        "positions": random_positions(draw, lead, n, k),
    }
    return Example(q, keys, v, terms, rule, score_loop, bias_loop, normalize_loop, lead)


def by_loops(x: Example) -> tuple[Tensor, Tensor]:
    """Output and weights, pair by pair."""
    n, keys = x.q.shape[-2], x.k.shape[-2]
    i, j = x.terms["positions"] or (torch.arange(keys - n, keys), torch.arange(keys))
    out, weights = torch.zeros(*x.lead, n, x.v.shape[-1]).double(), torch.zeros(*x.lead, n, keys).double()
    for index in itertools.product(*map(range, x.lead)):
        key_index = (*index[:-1], index[-1] * x.k.shape[-3] // x.lead[-1]) if index else ()
        queries, k, v = x.q[index].tolist(), x.k[key_index].tolist(), x.v[key_index].tolist()
        at_i = [entry(i, index, row) for row in range(n)]
        at_j = [entry(j, index, column) for column in range(keys)]
        rule = x.rule or (lambda *pair: True)
        allowed = [[rule(index, row, c, at_i[row], at_j[c]) for c in range(keys)] for row in range(n)]
        total = keys
        if x.rule is not None:
            is_visible = [any(row[c] for row in allowed) for c in range(keys)]
            total = max(at_j[c] + 1 if is_visible[c] else 0 for c in range(keys))
        for row in range(n):
            scores = {}
            for c in range(keys):
                if allowed[row][c]:
                    added = 0.0 if x.bias is None else x.bias(index, row, c, at_i[row], at_j[c], total)
                    if added > -math.inf:
                        scores[c] = x.score(queries[row], k[c]) + added
            if scores:
                for c, weight in zip(scores, x.normalize(list(scores.values())), strict=True):
                    weights[(*index, row, c)] = weight
                    for channel, number in enumerate(v[c]):
                        out[(*index, row, channel)] += weight * number
    return out, weights


def mismatches(x: Example) -> Iterator[tuple[str, str]]:
    """The results that differ from the loops, by name, with the reason."""
    out, weights = by_loops(x)
    picked = tuple(slice(n // 2, None) for n in x.lead)
    wanted = {"weights": weights, "map": weights, "picked map": weights[picked]}
    for name, compute in results(x, picked).items():
        want = wanted.get(name, out)
        try:
            torch.testing.assert_close(compute(), want, rtol=1e-7, atol=1e-9)
        except Exception as error:  # an error is a mismatch, too
            yield name, f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"


def results(x: Example, picked: tuple[slice, ...]) -> dict[str, Callable[[], Any]]:
    """The output of every backend that runs the attention, its weights, and its map."""
    arguments = (x.q, x.k, x.v)

    @torch.no_grad()
    def attend(backend: str | None = None, **need: bool) -> Any:
        # blocks of few queries, so that there are several
        with mock.patch.object(flash, "_ROWS", 2):
            return regard.attend(*arguments, **x.terms, backend=backend, need=regard.Need(**need))

    with torch.no_grad():
        call = resolved(*arguments, **x.terms)
        backends = [name for name, backend in BACKENDS.items() if backend.unsupported_reason(call) is None]
    return {
        "default": lambda: attend().out,
        **{name: lambda name=name: attend(name).out for name in backends},  # type: ignore[misc]
        "weights": lambda: attend(weights=True).weights,
        "map": lambda: attend(map=True).map.dense(),
        "picked map": lambda: attend(map=True).map.pick(*picked).dense(),
    }


def main(count: int) -> int:
    """Compares `count` random attentions and prints those that differ."""
    failures = 0
    for seed in range(count):
        x = example(seed)
        for name, reason in mismatches(x):
            failures += 1
            print(f"seed {seed}, {name}: batch {x.lead}, {x.terms['mask']!r}, {x.terms['bias']!r}: {reason}")
    print(f"{count} random attentions against loops: {failures} mismatches")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
