"""Checks the arguments of an attention and combines them into one AttentionCall."""

import warnings

import torch
from torch import Tensor

from regard.attn.call import AttentionCall, AttentionInputs, Terms
from regard.attn.kv_cache import KVCache
from regard.attn.nonfinite import hide_nonfinite
from regard.attn.terms.bias import Bias, TensorBias
from regard.attn.terms.mask import Mask, as_mask
from regard.attn.terms.normalizer import Normalizer
from regard.attn.terms.position import Positions, check_pair, default_positions
from regard.attn.terms.read import Read
from regard.attn.terms.score import Score
from regard.attn.terms.tiles import insert_head_axes
from regard.common import checks
from regard.kernels.dispatch import is_autocasting, values_are_readable


def build_call(inputs: AttentionInputs, terms: Terms, read_values: bool = True) -> tuple[AttentionCall, Tensor | None]:
    """The checked call, and the rows that see a NaN or inf (None: no row; unknown with read_values=False).

    Every attention runs this function. It is kept short because the checks can take longer than a small attention.
    """
    q, k, v, mask, positions, need, generator = inputs
    score, bias, normalize, read, dropout = terms
    checks.instance_of("score", score, Score, "Dot()")
    checks.instance_of("normalize", normalize, Normalizer, "Softmax()")
    checks.instance_of("read", read, Read, "WeightedSum()")
    if generator is not None:
        checks.instance_of("generator", generator, torch.Generator, "torch.Generator().manual_seed(0)")
    cache = k if isinstance(k, KVCache) else None
    is_cached = cache is not None
    if isinstance(k, KVCache):
        k, v, positions = _from_cache(k, v, q, positions)
    elif v is None:
        v = k
    check_tensors(q, k, v, is_cached)
    if dropout:
        checks.dropout(dropout, "attention")
    score.check(q, None if is_cached else k)
    if not is_autocasting(q):
        checks.same_dtype_and_device(score, q)
    count = v.shape[-2]
    batch, group = batch_of(q, k, v, is_cached)
    if positions is not None:
        check_positions(positions, batch, q.shape[-2], count, q.device)
    nonfinite_rows = None
    total: int | Tensor = count
    if mask is not None:
        mask = as_mask(mask)
        if positions is None:
            mask.check_keys(count)
            if not torch.compiler.is_compiling() and q.shape[-2] > count:
                _warn_of_empty_rows(mask, q.shape[-2], count)
        mask = mask.fit(batch, q.shape[-2], count, q.device)
        if mask.reads_keys:
            resolved = mask.resolve(q, k, positions or default_positions(q.shape[-2], count, q.device), None)
            mask = resolved.fit(batch, q.shape[-2], count, q.device)
        # compiled code would hold for this number of keys alone
        if positions is None and not torch.compiler.is_compiling() and mask.hides_nothing(q.shape[-2], count):
            mask = None  # a NaN in a visible key reaches the output by itself
        elif read_values:
            is_known_finite = cache is not None and values_are_readable(q) and cache.finite
            q, k, v, nonfinite_rows = hide_nonfinite(q, k, v, mask, positions, batch, is_known_finite)
    if isinstance(bias, Tensor):
        bias = _tensor_bias(bias, batch, q, count)
    elif bias is not None:
        checks.instance_of("bias", bias, Bias, "ALiBi(heads) or a tensor")
    if bias is not None and bias.reads_total and mask is not None and count:
        total = _keys_per_sample(mask, positions or default_positions(q.shape[-2], count, q.device), len(batch) + 2)
    q, queries, keys, v = project_tensors(q, k, v, score, bias, batch, is_cached)
    terms_and_mask, shapes = (score, bias, mask, normalize, read, dropout), (batch, group, total)
    votes = None if cache is None else cache.votes
    call = AttentionCall(q, queries, keys, v, *terms_and_mask, need, *shapes, positions, generator, votes)
    return call, nonfinite_rows


def project_tensors(
    q: Tensor, k: Tensor, v: Tensor, score: Score, bias: Bias | None, batch: tuple[int, ...], is_cached: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The checked q as a bias reads it; the operands of the score; and v."""
    if bias is not None:
        q = q.expand(*batch, *q.shape[-2:])  # a bias identifies heads and samples by the axes of q
    queries = score.queries(q if bias is None else bias.content(q))
    keys = k if is_cached else score.keys(k)
    if is_cached:
        _check_cached_width(score, queries, keys)
    if is_autocasting(q):
        dtype = torch.get_autocast_dtype(q.device.type)
        queries, keys, v = queries.to(dtype), keys.to(dtype) if keys.is_floating_point() else keys, v.to(dtype)
    return q, *score.operands(queries, keys), v


def _check_cached_width(score: Score, queries: Tensor, keys: Tensor) -> None:
    """Raises if keys that another score projected are not as wide as the queries."""
    if score.comparison != "own" and queries.shape[-1] != keys.shape[-1]:
        raise ValueError(
            f"the cached keys {checks.shape(keys)} are not as wide as the queries {checks.shape(queries)} "
            f"of {score!r}; project them with project_kv of the layer that reads them"
        )


def _warn_of_empty_rows(mask: Mask, queries: int, keys: int) -> None:
    """Warns of queries before the first key, which a mask that hides later keys leaves without any."""
    first = mask.first_query
    if keys and first is not None and first > keys - queries:
        warnings.warn(
            f"{mask!r} leaves the first {first + queries - keys} of {queries} queries without a key, because the "
            f"queries are the last of the {keys} keys; pass positions=(i, j) if they are others",
            UserWarning,
            stacklevel=4,
        )


def _keys_per_sample(mask: Mask, positions: Positions, axes: int) -> Tensor:  # -> "*b 1 1"
    """The number of keys per sample: one more than the last position that one of its queries may attend to."""
    allowed = insert_head_axes(mask.dense(*positions), axes).any(-2, keepdim=True)
    ends = insert_head_axes(positions[1].unsqueeze(-2), axes) + 1
    return (allowed * ends).amax(-1, keepdim=True)


def _from_cache(
    cache: KVCache, v: Tensor | None, q: Tensor, positions: Positions | None
) -> tuple[Tensor, Tensor, Positions | None]:
    if v is not None:
        raise ValueError(
            f"v must be None when k is a KVCache, which has its own values, got v {checks.shape(v)}; leave v out"
        )
    if not is_autocasting(q):
        cache = cache.widen(q.dtype)
    if positions is None and cache.positions is not None:
        count = q.shape[-2]
        if len(cache) < count:
            raise ValueError(f"positions must be given: {count} queries cannot be the last of {len(cache)} cached keys")
        positions = (cache.positions[..., len(cache) - count :], cache.positions)
    return cache.keys, cache.values, positions


def check_tensors(q: Tensor, k: Tensor, v: Tensor, is_cached: bool) -> None:
    checks.floating("q", q)
    if not is_cached:
        checks.floating("k", k)
    checks.floating("v", v)
    if q.device != k.device or q.device != v.device:
        raise ValueError(
            f"q, k and v must be on one device, got {q.device}, {k.device} and {v.device}; "
            f"move them with .to({str(q.device)!r})"
        )
    has_mixed_dtypes = (q.dtype != k.dtype and not is_cached) or q.dtype != v.dtype
    if has_mixed_dtypes and is_cached and not is_autocasting(q):
        raise TypeError(
            f"the cache holds values of {v.dtype}, more than the {q.dtype} of q; make it again in {q.dtype}, or cast q "
            f"with .to({v.dtype})"
        )
    if has_mixed_dtypes and not is_autocasting(q):
        raise TypeError(
            f"q, k and v must have one dtype, got {q.dtype}, {k.dtype} and {v.dtype}; cast them with .to({q.dtype})"
        )
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"k and v must have as many positions, got k {checks.shape(k)} and v {checks.shape(v)}; axis -2 counts them"
        )


def batch_of(q: Tensor, k: Tensor, v: Tensor, is_cached: bool = False) -> tuple[tuple[int, ...], int]:
    """The leading axes of the scores, and the number of query heads per key head.

    Tensors with one leading axis share no heads, because it may count samples; those of a cache come from a layer.
    """
    lead_q, lead_k, lead_v = tuple(q.shape[:-2]), tuple(k.shape[:-2]), tuple(v.shape[:-2])
    if lead_q == lead_k == lead_v:
        return lead_q, 1
    heads, kv_heads = lead_q[-1:], lead_k[-1:]
    group = 1
    has_heads = len(lead_q) > 1 or is_cached
    if has_heads and heads and kv_heads == lead_v[-1:] and 1 < sum(kv_heads) < heads[0] and heads[0] % kv_heads[0] == 0:
        group = heads[0] // kv_heads[0]
        lead_k, lead_v = lead_k[:-1] + heads, lead_v[:-1] + heads
    try:
        return tuple(torch.broadcast_shapes(lead_q, lead_k, lead_v)), group
    except RuntimeError:
        raise ValueError(
            f"the leading axes of q {checks.shape(q)}, k {checks.shape(k)} and v {checks.shape(v)} do not agree; "
            "make them equal or 1, or let the heads of q, behind an axis of samples, be a multiple of the heads of k, v"
        ) from None


def check_positions(
    positions: Positions, batch: tuple[int, ...], queries: int, keys: int, device: torch.device
) -> None:
    check_pair(positions)
    i, j = positions
    fits = all(
        t.ndim - 1 <= len(batch) and all(n in (1, m) for n, m in zip(t.shape[:-1], batch, strict=False)) for t in (i, j)
    )
    if not fits or i.shape[-1] != queries or j.shape[-1] != keys:
        raise ValueError(
            f"positions must be those of {queries} queries and {keys} keys, "
            f"got {checks.shape(i)} and {checks.shape(j)}; "
            f"pass (i, j) with one position each, and before them the first axes of the batch {batch} or none"
        )
    for t in positions:
        if t.is_floating_point():
            raise TypeError(f"positions must be integers, got {t.dtype}; call .long() on them")
        checks.same_device("positions", t, device)


def _tensor_bias(bias: Tensor, batch: tuple[int, ...], q: Tensor, keys: int) -> TensorBias:
    shape = (*batch, q.shape[-2], keys)
    fits = bias.ndim <= len(shape) and all(
        n in (1, m) for n, m in zip(reversed(bias.shape), reversed(shape), strict=False)
    )
    checks.same_device("bias", bias, q.device)
    if not bias.is_floating_point():
        raise TypeError(f"bias must be a floating tensor, got {bias.dtype}; a boolean mask is passed as mask=")
    if not fits:
        raise ValueError(
            f"bias of shape {checks.shape(bias)} does not broadcast to the scores {shape}; "
            "its last axes are (heads, queries, keys)"
        )
    return TensorBias(bias)
