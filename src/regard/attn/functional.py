"""attention, attend, explain: the equation as functions."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Never, overload

import torch
from torch import Tensor, nn

from regard.attn import backends, foreign_arguments, observer
from regard.attn.backends import fused
from regard.attn.call import NOTHING, Attended, AttentionCall, AttentionInputs, Need, Terms, split_score_mask
from regard.attn.call_builder import build_call
from regard.attn.call_plan import prepare_call, run_kept, signature_of
from regard.attn.kv_cache import KVCache
from regard.attn.maps.attention_map import LazyMap
from regard.attn.terms.bias import Bias
from regard.attn.terms.mask import Mask
from regard.attn.terms.normalizer import Normalizer, Softmax
from regard.attn.terms.position import Positions
from regard.attn.terms.read import Read
from regard.attn.terms.score import Score
from regard.common import checks


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
    generator: torch.Generator | None = None,
    backend: str | None = None,
    **refused: Never,
) -> Tensor:  # "*b q d", "*b k e", "*b k v" -> "*b q v"
    """weights = normalize(score(q, k) + bias, mask); out = read(weights, v).

    The defaults compute softmax(q kᵀ/√d) v. v=None means v = k. If k and v have fewer heads than q (axis -3), each of
    their heads serves a group of neighbouring heads of q. A mask of numbers is added to
    the scores. Queries are the last of the keys, unless `positions=(i, j)` gives the positions of both. Dropout and
    reads that sample take their random numbers from `generator`; None: torch's own.
    """
    if refused:
        foreign_arguments.refuse_arguments("attention", refused)
    if bias is None and mask is None and positions is None and backend is None and dropout == 0.0:
        out = fused.plain_attention(q, k, v, score, normalize, read)
        if out is not None:
            return out
    bias, mask = split_score_mask(mask, bias, q, k, v)
    terms = Terms.with_defaults(score, bias, normalize, read, dropout)
    return attend_inputs(AttentionInputs(q, k, v, mask, positions, NOTHING, generator), terms, backend).out


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
    generator: torch.Generator | None = None,
    backend: str | None = None,
    need: Need = NOTHING,
    **refused: Never,
) -> Attended:
    """Like `attention`, and returns the results that `need` requests beside the output."""
    if refused:
        foreign_arguments.refuse_arguments("attend", refused)
    checks.instance_of("need", need, Need, "Need(weights=True)")
    bias, mask = split_score_mask(mask, bias, q, k, v)
    inputs = AttentionInputs(q, k, v, mask, positions, need, generator)
    return attend_inputs(inputs, Terms.with_defaults(score, bias, normalize, read, dropout), backend)


def attend_inputs(inputs: AttentionInputs, terms: Terms, backend: str | None) -> Attended:
    """`attend` with its arguments in two values."""
    q, k, v, mask, positions, need, _ = inputs
    is_plain = positions is None and need is NOTHING and terms.bias is None and backend is None
    if is_plain and terms.dropout == 0.0:
        out = fused.plain_attention(q, k, v, terms.score, terms.normalize, terms.read, mask)
        if out is not None:
            return Attended(out)
    attention_observer = observer.observer_or_trace()
    if attention_observer is None:
        signature = signature_of(inputs, terms, backend)
        kept = None if signature is None else run_kept(signature, inputs, terms)
        if kept is not None:
            return Attended(kept)
        call, chosen, nonfinite_rows = prepare_call(signature, inputs, terms, backend)
        if need is not NOTHING:
            _check_need(call)
        result = chosen.run(call)
    elif isinstance(attention_observer, observer.Trace):
        with attention_observer.explained(terms.score, explain_inputs(inputs, terms, backend)):
            return attend_inputs(inputs, terms, backend)
    else:
        with attention_observer.muted():
            call, nonfinite_rows = build_call(inputs, terms)
        _check_need(call)
        result = _observed_run(call, backend, attention_observer)
    if nonfinite_rows is not None:
        result = set_rows_nan(result, nonfinite_rows)
    # an observer that replaces weights has their map
    return result._replace(map=LazyMap(call)) if need.map and result.map is None else result


def _observed_run(call: AttentionCall, backend: str | None, attention_observer: observer.AttentionObserver) -> Attended:
    """The same while an observer is installed. It also gets the output without dropout, unless the read is random."""
    replaced = attention_observer.replace_result(call)
    if replaced is not None:
        return replaced
    with attention_observer.muted():
        result = backends.choose(call, backend).run(call)
        plain: Tensor | None = result.out
        if call.dropout:
            # a random read would sample again and advance the generator, so that recording would change later results
            without_dropout = replace(call, dropout=0.0, need=NOTHING)
            with torch.no_grad():
                plain = (
                    None
                    if call.read.is_stochastic
                    else backends.choose(without_dropout, backend).run(without_dropout).out
                )
    attention_observer.on_attention(call, result.out, plain)
    return result


@overload
def explain(q: Callable[..., object], /, *arguments: Any, **keywords: Any) -> str: ...


@overload
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
    generator: torch.Generator | None = None,
    backend: str | None = None,
    need: Need = NOTHING,
) -> str: ...


def explain(q: Any, *arguments: Any, **keywords: Any) -> str:
    """Names the backend that runs this call and gives, for every other backend, the reason why it does not.

    A model, or a function such as `model.step`, is called once with the other arguments, as it is and with all that a
    call changes; every attention in it is explained, and every path that computes several layers as one.
    """
    if callable(q):
        return _explain_entries(q, trace_function(q, *arguments, **keywords))
    return _explain_tensors(q, *arguments, **keywords)


def trace_function(function: Callable[..., object], *arguments: Any, **keywords: Any) -> list[tuple[object, str]]:
    """The explanations of the attentions in one call, in their order, each with its module."""
    trace = observer.Trace()
    before = observer.set_observer(trace)
    try:
        function(*arguments, **keywords)
    finally:
        observer.set_observer(before)
    return trace.entries


def _explain_entries(function: Callable[..., object], entries: list[tuple[object, str]]) -> str:
    """Equal explanations once, behind the names of their modules."""
    model = getattr(function, "__self__", function)
    modules = model.named_modules() if isinstance(model, nn.Module) else ()
    names = {id(module): name for name, module in modules}
    owners: dict[str, dict[str, None]] = {}
    for owner, text in entries:
        # an attention without a module is known by its score
        name = names.get(id(owner), "").removesuffix("score").removesuffix(".")
        owners.setdefault(text, {})[name or type(model).__name__] = None
    return "\n".join(f"{', '.join(each)}:\n{text}" for text, each in owners.items())


def _explain_tensors(
    q: Tensor,
    k: Tensor | KVCache,
    v: Tensor | None = None,
    *,
    mask: Mask | Tensor | None = None,
    positions: Positions | None = None,
    generator: torch.Generator | None = None,
    backend: str | None = None,
    need: Need = NOTHING,
    **terms: Any,
) -> str:
    refused = [name for name in terms if name not in Terms._fields]
    if refused:
        foreign_arguments.refuse_arguments("explain", refused)
    terms["bias"], mask = split_score_mask(mask, terms.get("bias"), q, k, v)
    return explain_inputs(
        AttentionInputs(q, k, v, mask, positions, need, generator), Terms.with_defaults(**terms), backend
    )


def explain_inputs(
    inputs: AttentionInputs, terms: Terms, backend: str | None, path: backends.LayerPath | None = None
) -> str:
    """`explain` with its arguments in two values; `path` may compute the layer that makes this call as a whole."""
    call, _ = build_call(inputs, terms, read_values=False)
    q = inputs.q
    parts = [repr(call.score), repr(call.normalize), repr(call.read)]
    if call.bias is not None:
        parts.insert(1, repr(call.bias))
    if call.mask is not None:
        parts.insert(-2, repr(call.mask))
    shapes = f"q {checks.shape(q)}, k {checks.shape(call.keys)}, v {checks.shape(call.v)}, {call.v.dtype} on {q.device}"
    return f"{', '.join(parts)}\n  {shapes}\n{backends.explain(call, backend, path)}"


def _check_need(call: AttentionCall) -> None:
    need = call.need
    if (need.log_prob or need.key_index) and not call.read.hard:
        raise ValueError(
            f"log_prob and key_index are those of a hard read, but read={call.read!r}; "
            "use Sample(), Argmax(), Gumbel() or StraightThrough()"
        )
    if need.lse and type(call.normalize) is not Softmax:
        raise ValueError(
            f"lse is the constant of a softmax, but normalize={call.normalize!r}; use Softmax() or ask for weights"
        )


def set_rows_nan(attended: Attended, nonfinite_rows: Tensor) -> Attended:
    """Sets the rows that see a NaN or inf to NaN."""

    def fill(t: Tensor, rows: Tensor) -> Tensor:
        return t.masked_fill(rows, torch.nan) if t.is_floating_point() else t

    return attended.transform(lambda t: fill(t, nonfinite_rows.unsqueeze(-1)), lambda t: fill(t, nonfinite_rows))


def set_projected_rows_nan(attended: Attended, out: Tensor, rows: Tensor | None) -> Attended:
    """The result of all heads with their projected output; in both, the given rows become NaN.

    NaN is filled in after the projection, so that its gradient does not see it.
    """
    if rows is None:
        return attended._replace(out=out)
    return set_rows_nan(attended, rows.unsqueeze(-2))._replace(out=out.masked_fill(rows.unsqueeze(-1), torch.nan))
