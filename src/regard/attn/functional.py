"""attention, attend, explain: the equation as functions."""

from dataclasses import replace

import torch
from torch import Tensor

from regard.attn import backends, checks, observer
from regard.attn.backends import fused
from regard.attn.call import NOTHING, Attended, AttentionCall, AttentionInputs, Need, Terms
from regard.attn.kv_cache import KVCache
from regard.attn.maps.attention_map import LazyMap
from regard.attn.resolve import resolve
from regard.attn.terms.bias import Bias
from regard.attn.terms.mask import Mask
from regard.attn.terms.normalizer import Normalizer, Softmax
from regard.attn.terms.position import Positions
from regard.attn.terms.read import Read
from regard.attn.terms.score import Score


def attention(
    q: Tensor,
    k: Tensor | KVCache,
    v: Tensor | None = None,
    *,
    score: Score | None = None,
    bias: Bias | Tensor | None = None,
    mask: Mask | Tensor | None = None,
    normalize: Normalizer | None = None,
    read: Read | None = None,
    dropout: float = 0.0,
    positions: Positions | None = None,
    backend: str | None = None,
) -> Tensor:  # "*b q d", "*b k e", "*b k v" -> "*b q v"
    """weights = normalize(score(q, k) + bias, mask); out = read(weights, v).

    Without choices: softmax(q kᵀ/√d) v. v=None means v = k. Where k and v have fewer heads than q (axis -3), each
    serves as many neighbouring heads of q as it takes. Queries are taken to be the last of the keys, unless
    `positions=(i, j)` says where both stand.
    """
    bare = score is None and bias is None and mask is None and normalize is None and read is None and dropout == 0.0
    bare = bare and observer.listener() is None
    if bare and positions is None and backend is None and isinstance(k, Tensor) and isinstance(v, Tensor):
        out = fused.plain(q, k, v)
        if out is not None:
            return out
    return attend(
        q,
        k,
        v,
        score=score,
        bias=bias,
        mask=mask,
        normalize=normalize,
        read=read,
        dropout=dropout,
        positions=positions,
        backend=backend,
    ).out


def attend(
    q: Tensor,
    k: Tensor | KVCache,
    v: Tensor | None = None,
    *,
    score: Score | None = None,
    bias: Bias | Tensor | None = None,
    mask: Mask | Tensor | None = None,
    normalize: Normalizer | None = None,
    read: Read | None = None,
    dropout: float = 0.0,
    positions: Positions | None = None,
    backend: str | None = None,
    need: Need = NOTHING,
) -> Attended:
    """The same, with what `need` asks for beside the output."""
    checks.term("need", need, Need, "Need(weights=True)")
    inputs = AttentionInputs(q, k, v, mask, positions, need)
    return attend_inputs(inputs, Terms.with_defaults(score, bias, normalize, read, dropout), backend)


def attend_inputs(inputs: AttentionInputs, terms: Terms, backend: str | None) -> Attended:
    """`attend` with its arguments in two values."""
    ear = observer.listener()
    if ear is None:
        call, felt = resolve(inputs, terms)
    else:
        with ear.quiet():
            call, felt = resolve(inputs, terms)
    need = inputs.need
    if need is not NOTHING:
        _check_need(call)
    got = backends.choose(call, backend).run(call) if ear is None else _overheard(call, backend, ear)
    if felt is not None:
        got = poisoned(got, felt)
    return got._replace(map=LazyMap(call)) if need.map else got


def _overheard(call: AttentionCall, backend: str | None, ear: observer.AttentionObserver) -> Attended:
    """The same while somebody listens, to whom dropout is told apart."""
    with ear.quiet():
        got = backends.choose(call, backend).run(call)
        plain: Tensor | None = got.out
        if call.dropout:
            # a read that draws would draw again, and what comes after it would not be what it is unheard
            still = replace(call, dropout=0.0, need=NOTHING)
            with torch.no_grad():
                plain = None if call.read.draws else backends.choose(still, backend).run(still).out
    ear.heard(call, got.out, plain)
    return got


def explain(
    q: Tensor,
    k: Tensor | KVCache,
    v: Tensor | None = None,
    *,
    score: Score | None = None,
    bias: Bias | Tensor | None = None,
    mask: Mask | Tensor | None = None,
    normalize: Normalizer | None = None,
    read: Read | None = None,
    dropout: float = 0.0,
    positions: Positions | None = None,
    backend: str | None = None,
    need: Need = NOTHING,
) -> str:
    """Which backend runs this call and, for each one passed over, why."""
    inputs = AttentionInputs(q, k, v, mask, positions, need)
    return explain_inputs(inputs, Terms.with_defaults(score, bias, normalize, read, dropout), backend)


def explain_inputs(inputs: AttentionInputs, terms: Terms, backend: str | None) -> str:
    """`explain` with its arguments in two values."""
    call, _ = resolve(inputs, terms, read_values=False)
    q = inputs.q
    parts = [repr(call.score), repr(call.normalize), repr(call.read)]
    if call.bias is not None:
        parts.insert(1, repr(call.bias))
    if call.mask is not None:
        parts.insert(-2, repr(call.mask))
    shapes = f"q {checks.shape(q)}, k {checks.shape(call.keys)}, v {checks.shape(call.v)}, {call.v.dtype} on {q.device}"
    return f"{', '.join(parts)}\n  {shapes}\n{backends.explain(call, backend)}"


def _check_need(call: AttentionCall) -> None:
    need = call.need
    if (need.log_prob or need.place) and not call.read.hard:
        raise ValueError(
            f"log_prob and place are those of a hard read, but read={call.read!r}; "
            "use Sample(), Argmax(), Gumbel() or StraightThrough()"
        )
    if need.lse and type(call.normalize) is not Softmax:
        raise ValueError(
            f"lse is the constant of a softmax, but normalize={call.normalize!r}; use Softmax() or ask for weights"
        )


def poisoned(got: Attended, felt: Tensor) -> Attended:
    """NaN in the rows that look at something that is not a number."""
    rows = {
        name: value.masked_fill(felt, torch.nan)
        for name in ("log_prob", "lse", "entropy")
        if (value := getattr(got, name)) is not None
    }
    whole = {
        name: value.masked_fill(felt.unsqueeze(-1), torch.nan)
        for name in ("out", "weights")
        if (value := getattr(got, name)) is not None
    }
    return got._replace(**rows, **whole)
