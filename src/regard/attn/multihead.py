"""MultiHead: multi-head, grouped-query and multi-query attention."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.attn import fused_heads, native_heads, observer
from regard.attn.backends import LayerPath
from regard.attn.base import AttentionModule
from regard.attn.call import Attended, AttentionInputs, Need, scores
from regard.attn.call_builder import build_call, check_positions
from regard.attn.functional import set_projected_rows_nan
from regard.attn.heads.differential import Differential
from regard.attn.heads.forget_gate import ForgetGate
from regard.attn.heads.output_gate import OutputGate
from regard.attn.heads.qk_norm import QKNorm
from regard.attn.kv_cache import KVCache, check_cache
from regard.attn.layer import Attention
from regard.attn.nonfinite import hide_nonfinite_inputs
from regard.attn.terms.bias import is_score_mask
from regard.attn.terms.mask import BooleanMask, Mask, Or, as_mask
from regard.attn.terms.position import Positions, check_pair, default_positions
from regard.attn.terms.rotary import Rotary, RotaryPositions, token_positions
from regard.attn.terms.score_bias import Selective, are_side_by_side
from regard.attn.terms.sequence_masks import Window
from regard.attn.terms.tiles import insert_head_axes
from regard.common import checks
from regard.kernels.dispatch import is_autocasting


class MultiHead(AttentionModule):
    """[head₁; …; head_h] W_O, head_n = attention(q W_Q, k W_K, v W_V)  (Vaswani et al. 2017, 3.2.2).

    With `kv_heads` below `heads`, each key head serves a group of neighbouring query heads (grouped, Ainslie et al.
    2023; 1 is multi-query, Shazeer 2019). `head_dim` is the width of queries and keys per head, d_k of the paper, and
    `head_value_dim` that of values, d_v: the same unless given. `attention` is one layer for all heads, or a list with
    one per head. `qk_norm` normalizes queries and keys, then `rotate` rotates them by their positions; `difference`
    subtracts the maps of paired heads, and `gate` weights their output; `forget` lets tokens discount the keys before
    them. A query that may attend to no key gives the bias of W_O.

        heads(x)                      self-attention
        heads(x, source)              cross-attention
        heads(q, k, v)                queries, keys and values from three tensors
        out, past = heads.step(x, past)   a decoding step; `past` is a value, None at first
        heads(y, heads.project_kv(source))   attention to keys and values that were projected once
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        head_value_dim: int | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
        attention: Attention | Sequence[Attention] | None = None,
        qk_norm: QKNorm | None = None,
        rotate: Rotary | None = None,
        difference: Differential | None = None,
        gate: OutputGate | None = None,
        forget: ForgetGate | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if not isinstance(bias, bool):
            raise TypeError(
                f"bias says whether the projections add one, True or False, got {bias!r}; "
                "what position adds to the scores goes into attention=Attention(bias=...)"
            )
        for name, part, kind, example in (
            ("qk_norm", qk_norm, QKNorm, "RMSQKNorm(head_dim)"),
            ("rotate", rotate, Rotary, "Rotary(head_dim)"),
            ("difference", difference, Differential, "Differential(head_dim)"),
            ("gate", gate, OutputGate, "OutputGate(dim, heads)"),
            ("forget", forget, ForgetGate, "ForgetGate(dim, heads)"),
        ):
            if part is not None:
                checks.instance_of(name, part, kind, example)
        self.head_dim = checks.head_width("MultiHead", dim, heads, head_dim)
        kv_heads = checks.key_heads("MultiHead", heads, kv_heads)
        self.heads, self.kv_heads = heads, kv_heads
        self.head_value_dim = self.head_dim if head_value_dim is None else head_value_dim
        checks.positive_ints("MultiHead", head_value_dim=self.head_value_dim)
        key_dim = dim if key_dim is None else key_dim
        value_dim = key_dim if value_dim is None else value_dim
        self.query = nn.Linear(dim, heads * self.head_dim, bias=bias)
        self.key = nn.Linear(key_dim, kv_heads * self.head_dim, bias=bias)
        self.value = nn.Linear(value_dim, kv_heads * self.head_value_dim, bias=bias)
        self.out = nn.Linear(heads * self.head_value_dim, dim, bias=bias)
        self.qk_norm, self.rotate, self.forget = qk_norm, rotate, forget
        self.difference, self.gate = difference, gate
        if isinstance(attention, Attention) or attention is None:
            self.attention: nn.Module = Attention(dropout=dropout) if attention is None else attention
        else:
            for layer in attention if isinstance(attention, list | tuple) else [attention]:
                checks.instance_of("attention", layer, Attention, "Attention(...), or a list with one per head")
            if len(attention) != heads:
                raise ValueError(
                    f"attention must be one layer, or one per head for {heads} heads, "
                    f"got {len(attention)}; add or drop some"
                )
            self.attention = nn.ModuleList(attention)
        if attention is not None and dropout:
            raise ValueError(
                f"dropout={dropout} belongs to the attention that is passed; write Attention(..., dropout={dropout})"
            )
        self._check_parts()
        for linear in (self.query, self.key, self.value):
            nn.init.xavier_uniform_(linear.weight)

    def _check_parts(self) -> None:
        """Raises if a part was built for heads of another number or width."""
        if self.qk_norm is not None:
            self.qk_norm.check(self.heads, self.kv_heads, self.head_dim)
        if self.difference is not None:
            self.difference.check(self.heads, self.kv_heads, self.head_dim, self.head_value_dim)
        if self.gate is not None:
            pairs = 1 if self.difference is None else 2
            self.gate.check(self.query.in_features, self.heads // pairs, self.head_value_dim * pairs)
        if self.forget is not None:
            self.forget.check(self.key.in_features, self.kv_heads, self.attention)
        if self.rotate is not None and self.rotate.dim != self.head_dim:
            raise ValueError(
                f"rotate must turn heads of width {self.head_dim}, got {self.rotate!r}; try Rotary({self.head_dim})"
            )

    @staticmethod
    def from_torch(heads: nn.MultiheadAttention) -> "MultiHead":
        """The layer that computes what a module of torch computes, with copies of its weights; batch first."""
        from regard.attn.torch_heads import from_torch

        return from_torch(heads)

    def to_torch(self) -> nn.MultiheadAttention:
        """The module of torch that computes what this layer computes, batch first; raises if torch has none."""
        from regard.attn.torch_heads import to_torch

        return to_torch(self)

    @property
    def extra_parts(self) -> list[nn.Module]:
        """The parts beside projections and attention: paths for plain heads compute none of them."""
        parts = self.qk_norm, self.rotate, self.forget, self.difference, self.gate
        return [part for part in parts if part is not None]

    def _split(self, x: Tensor, width: int) -> Tensor:  # "*b n h·d" -> "*b n h d"
        # split by the width: under tensor parallelism a process has some of the heads
        if x.shape[-1] % width:
            raise ValueError(
                f"a projection of width {x.shape[-1]} is no multiple of the head width {width}: a process of a "
                f"tensor-parallel layer needs whole heads; use as many processes as divide kv_heads={self.kv_heads}"
            )
        return x.unflatten(-1, (-1, width))

    def project_kv(
        self,
        k: Tensor,
        v: Tensor | None = None,
        *,
        past: KVCache | None = None,
        positions: RotaryPositions | None = None,
        allowed: Tensor | None = None,
    ) -> KVCache:  # "*b k e", "*b k v"
        """The heads' keys and values of k, appended to `past`: the input of a decoding step or a cross-attention.

        `allowed` are the keys that each of them may attend to, bool "*b h k past+k", by which a forget gate continues
        the past of hypotheses that share a cache; None: all before it.
        """
        if isinstance(v, KVCache):
            raise TypeError("v must be a tensor, got a KVCache; pass a cache by name, project_kv(k, past=cache)")
        self._check_kv(k, v)
        check_cache(past)
        start = 0 if past is None else past.values.shape[-2]
        keys = self._split(self.key(k), self.head_dim)
        keys = (keys if self.qk_norm is None else self.qk_norm.keys(keys)).transpose(-2, -3)  # "*b h k d"
        values = self._split(self.value(k if v is None else v), self.head_value_dim).transpose(-2, -3)
        if self.rotate is not None:
            keys = self.rotate(keys, positions, start=start)
        # positions on several axes rotate; all other terms count tokens
        positions = positions if isinstance(positions, Tensor) else None
        if isinstance(self.attention, Attention):  # per-head attentions project their keys at every call
            self.attention.score.check(None, keys)
            keys = self.attention.score.shift_keys(self.attention.score.keys(keys), start)
            if self.forget is not None:
                keys = self.forget.extend_keys(keys, k, past, allowed, self.attention)
        if past is None:
            return KVCache(keys, values, positions)
        return past.extend(keys, values, positions)

    def step(
        self,
        x: Tensor,
        past: KVCache | None = None,
        *,
        mask: Mask | Tensor | None = None,
        positions: Positions | None = None,
    ) -> tuple[Tensor, KVCache]:  # "*b n d" -> "*b n d"
        """Self-attention of x to `past` and itself, and `past` with the keys and values of x appended.

        The same as `past = heads.project_kv(x, past=past)` and `heads(x, past)`. Without gradients, a single token per
        sequence on a CPU is computed by one native kernel. `positions` are those of x and of all keys.
        """
        trace = observer.current_trace()
        if trace is not None:
            with trace.explained(self, self.explain_step(x, past, mask=mask, positions=positions)):
                return self.step(x, past, mask=mask, positions=positions)
        check_pair(positions)
        check_cache(past)
        stepped = native_heads.step(self, x, past, mask, positions) if type(self) is MultiHead else None
        if stepped is not None:
            return stepped
        cache = self.step_cache(x, past, mask, positions)
        out = self(x, cache, mask=mask, positions=positions)
        return out, cache if self._selective is None else self._count_votes(x, cache, mask, positions)

    def step_cache(
        self, x: Tensor, past: KVCache | None, mask: Mask | Tensor | None, positions: Positions | None
    ) -> KVCache:
        """`past` with the keys and values of x, as a step attends to them."""
        self._check(x, x, None)
        if past is not None and past.votes is None and self._selective is not None:
            raise ValueError(
                f"past={past!r} has no scores of earlier queries, which {self._selective!r} reads; take that of step"
            )
        # a cache stores positions for rotary alone: all other terms get theirs at every call
        rotated = positions[0] if positions is not None and self.rotate is not None else None
        cache = self.project_kv(x, past=past, positions=rotated, allowed=self._allowed_keys(x, past, mask, positions))
        if past is None or past.votes is None:
            return cache
        return replace(cache, votes=nn.functional.pad(past.votes, (0, x.shape[-2])))

    @property
    def reads_rows(self) -> bool:
        """Whether a query depends on the scores of those before it."""
        return self._selective is not None

    @property
    def _selective(self) -> Selective | None:
        """The bias by which queries mask keys for those behind them, if there is one."""
        bias = self.attention.bias if isinstance(self.attention, Attention) else None
        return bias if isinstance(bias, Selective) else None

    def _count_votes(
        self, x: Tensor, cache: KVCache, mask: Mask | Tensor | None, positions: Positions | None
    ) -> KVCache:
        """The cache of a step with the votes of its queries: together, or each for itself as hypotheses."""
        assert isinstance(self.attention, Attention)
        assert self._selective is not None
        queries, _ = self._project(x, cache, None, positions)
        inputs = AttentionInputs(queries, cache, None, over_heads(mask, x), token_positions(positions))
        call, _ = build_call(*self.attention.combine_terms(inputs))
        i, j = call.positions()
        votes = self._selective.votes(scores(replace(call, bias=None)), call.allowed(), i, j).squeeze(-3)
        votes = votes if are_side_by_side(i) else votes.sum(-2, keepdim=True)
        return replace(cache, votes=votes if cache.votes is None else cache.votes + votes)

    def _allowed_keys(
        self, x: Tensor, past: KVCache | None, mask: Mask | Tensor | None, positions: Positions | None
    ) -> Tensor | None:  # bool "*b 1 n past+n"
        """The keys that tokens behind `past` may attend to in some head, if a forget gate continues from them.

        Under a window, and without a mask, the past of a token are all tokens before it.
        """
        if self.forget is None or past is None or mask is None or isinstance(mask, Window):
            return None
        mask = over_heads(mask > -torch.inf if is_score_mask(mask) else mask, x)
        assert mask is not None
        count = len(past) + x.shape[-2]
        fitted = as_mask(mask).fit((*x.shape[:-2], self.heads), x.shape[-2], count, x.device)
        i, j = token_positions(positions) or default_positions(x.shape[-2], count, x.device)
        allowed = insert_head_axes(fitted.dense(i, j), x.ndim + 1)
        return allowed.any(-3, keepdim=True) if allowed.ndim > 2 else allowed

    def explain_step(
        self,
        x: Tensor,
        past: KVCache | None = None,
        *,
        mask: Mask | Tensor | None = None,
        positions: Positions | None = None,
    ) -> str:
        """Like `explain`, of a `step`: names the kernel or the backend that runs."""
        path = native_heads.layer_path(self, x, past, mask, positions)
        # a cache without the storage of `past`, which the next step continues
        copied = None if past is None else replace(past, _store=None)
        inputs = AttentionInputs(x, self.step_cache(x, copied, mask, positions), None, mask, positions)
        return self._explain_heads(inputs, path)

    def attend_inputs(self, inputs: AttentionInputs) -> Attended:  # weights are "*b h q k"
        attention_observer = observer.observer_or_trace()
        if isinstance(attention_observer, observer.Trace):
            with attention_observer.explained(self, self.explain_inputs(inputs)):
                return self.attend_inputs(inputs)
        if attention_observer is None:
            out = fused_heads.self_attention(self, inputs) if type(self) is MultiHead else None
            return self._attend_heads(inputs) if out is None else Attended(out)
        with attention_observer.muted():  # the inner attention is observed by itself
            return self._attend_heads(inputs)

    def _attend_heads(self, inputs: AttentionInputs) -> Attended:
        q, k, v, mask, positions, need, generator = inputs
        self._check(q, k, v)
        mask = over_heads(mask, q)
        union = None if isinstance(k, KVCache) else self._union_mask(mask)
        if union is not None and not isinstance(k, KVCache):
            q, k, v, nan_rows = hide_nonfinite_inputs(q, k, v, union, token_positions(positions), self.heads)
        else:
            nan_rows = None
        queries, memory = self._project(q, k, v, positions)
        positions = token_positions(positions)
        if isinstance(self.attention, Attention):
            result = self.attention.attend_inputs(
                AttentionInputs(queries, memory, None, mask, positions, need, generator)
            )
        else:
            result = self._attend_per_head(queries, memory, mask, positions, need, generator)
        out = result.out if self.difference is None else self.difference(result.out)
        out = out.transpose(-2, -3)  # "*b q h v"
        out = self.out((out if self.gate is None else self.gate(out, q)).flatten(-2))
        return set_projected_rows_nan(result, out, nan_rows)

    def explain_inputs(self, inputs: AttentionInputs) -> str:
        return self._explain_heads(inputs, fused_heads.layer_path(self, inputs))

    def _explain_heads(self, inputs: AttentionInputs, path: LayerPath) -> str:
        q, k, v, mask, positions, need, generator = inputs
        self._check(q, k, v)
        mask = over_heads(mask, q)
        queries, memory = self._project(q, k, v, positions)
        positions = token_positions(positions)
        if isinstance(self.attention, Attention):
            return self.attention.explain_inputs(
                AttentionInputs(queries, memory, None, mask, positions, need, generator), path
            )
        return "\n".join(
            f"head {n}: "
            + layer.explain_inputs(
                AttentionInputs(head_q, head_k, head_v, _mask_of(mask, n, head_q.ndim), positions, need, generator)
            )
            for n, (layer, head_q, head_k, head_v) in enumerate(self._per_head(queries, memory))
        )

    def _check(self, q: Tensor, k: Tensor | KVCache, v: Tensor | None) -> None:
        checks.floating("q", q)
        checks.width("q", q, self.query.in_features, self)
        if not is_autocasting(q):
            checks.same_dtype_and_device(self, q, self.query.weight)
        if isinstance(k, KVCache):
            if v is not None:
                raise ValueError(
                    "v must be None when k is a KVCache, which has its own values, "
                    f"got v {checks.shape(v)}; leave v out"
                )
            return
        self._check_kv(k, v)

    def _check_kv(self, k: Tensor, v: Tensor | None) -> None:
        for name, t, linear in (("k", k, self.key), ("v", v, self.value)):
            if t is not None:
                checks.floating(name, t)
            checks.width(name, t, linear.in_features, self)

    def _project(
        self, q: Tensor, k: Tensor | KVCache, v: Tensor | None, positions: Positions | None
    ) -> tuple[Tensor, KVCache]:
        check_pair(positions)
        i, j = (None, None) if positions is None else positions
        tokens = token_positions(positions)
        if positions is not None and tokens is None and self.rotate is None:
            raise ValueError(
                f"positions on {len(positions[0])} axes rotate queries and keys, but these heads have no rotation; "
                "build MultiHead(..., rotate=Rotary(head_dim, axes=AxialSections(...)))"
            )
        if tokens is not None:
            keys = len(k) if isinstance(k, KVCache) else k.shape[-2]
            check_positions(tokens, tuple(q.shape[:-2]), q.shape[-2], keys, q.device)
        if isinstance(k, KVCache):
            memory = k if is_autocasting(q) else k.widen(q.dtype)
        else:
            memory = self.project_kv(k, v=v, positions=j if self.rotate is not None else None)
        queries = self._split(self.query(q), self.head_dim)
        queries = (queries if self.qk_norm is None else self.qk_norm.queries(queries)).transpose(-2, -3)  # "*b h q d"
        if self.rotate is not None:
            start = memory.values.shape[-2] - q.shape[-2]
            if i is None and memory.positions is not None:
                i = memory.positions[..., start:]
            queries = self.rotate(queries, i, start=start)
        if self.forget is not None:
            assert isinstance(self.attention, Attention)
            queries = self.forget.extend_queries(queries, self.attention)
        if queries.shape[-3] != self.heads or memory.keys.shape[-3] != self.kv_heads:
            self._check_local_heads(queries.shape[-3], memory.keys.shape[-3])
        return queries, memory if self.difference is None else self.difference.pair(memory)

    def _check_local_heads(self, heads: int, kv_heads: int) -> None:
        """Raises if the heads of this process, some of those of a tensor-parallel layer, cannot be computed alone."""
        if heads * self.kv_heads != kv_heads * self.heads:
            raise ValueError(
                f"this process has {heads} of {self.heads} query heads, but {kv_heads} of {self.kv_heads} key heads; "
                "split query, key and value alike, over a number of processes that divides kv_heads"
            )

    def _union_mask(self, mask: Mask | Tensor | None) -> Mask | Tensor | None:
        """The union of the heads' masks, each with the mask of its own attention."""
        if is_score_mask(mask):
            mask = mask > -torch.inf
        if isinstance(self.attention, Attention):
            return self.attention.combine_masks(mask)
        masks = [layer.combine_masks(mask) for layer in self._layers()]
        return None if any(m is None for m in masks) else Or(*[as_mask(m) for m in masks if m is not None])

    def _layers(self) -> list[Attention]:
        assert isinstance(self.attention, nn.ModuleList)
        return [layer for layer in self.attention if isinstance(layer, Attention)]

    def _per_head(self, queries: Tensor, memory: KVCache) -> list[tuple[Attention, Tensor, Tensor, Tensor]]:
        if queries.shape[-3] != self.heads:
            raise ValueError(
                f"attention is a list of {self.heads} layers, one per head, but there are {queries.shape[-3]} heads; "
                "a tensor-parallel layer takes one attention for all heads"
            )
        group = self.heads // self.kv_heads
        return [
            (layer, _head(queries, n), _head(memory.keys, n // group), _head(memory.values, n // group))
            for n, layer in enumerate(self._layers())
        ]

    def _attend_per_head(
        self,
        queries: Tensor,
        memory: KVCache,
        mask: Mask | Tensor | None,
        positions: Positions | None,
        need: Need,
        generator: torch.Generator | None,
    ) -> Attended:
        """Runs each head with its own attention."""
        if positions is None and memory.positions is not None:
            positions = (memory.positions[..., len(memory) - queries.shape[-2] :], memory.positions)
        results = [
            layer.attend_inputs(AttentionInputs(q, k, v, _mask_of(mask, n, q.ndim), positions, need, generator))
            for n, (layer, q, k, v) in enumerate(self._per_head(queries, memory))
        ]
        fields: dict[str, Any] = {}
        for name, first in results[0]._asdict().items():
            values = [getattr(result, name) for result in results]
            if name == "map" and need.map:
                fields[name] = tuple(result.pick(*[slice(None)] * (queries.ndim - 3), 0) for result in values)
            elif isinstance(first, Tensor):
                fields[name] = torch.cat(values, dim=-2 if name in ("log_prob", "lse", "entropy", "key_index") else -3)
        return Attended(**fields)

    def __repr__(self) -> str:
        shared = f", kv_heads={self.kv_heads}" if self.kv_heads != self.heads else ""
        parts = {"qk_norm": self.qk_norm, "difference": self.difference, "gate": self.gate, "forget": self.forget}
        extra = "".join(f", {name}={part!r}" for name, part in parts.items() if part is not None)
        return f"MultiHead({self.query.in_features}, {self.heads}{shared}{extra}, attention={self.attention!r})"


def over_heads(mask: Mask | Tensor | None, x: Tensor) -> Mask | Tensor | None:
    """The mask of a call with x "*b q d" for all heads: a tensor "*b q k" gets their axis."""
    if isinstance(mask, Mask):
        return mask.over_heads(x.ndim + 1)
    return mask.unsqueeze(-3) if isinstance(mask, Tensor) and 2 < mask.ndim == x.ndim else mask


def _head(t: Tensor, n: int) -> Tensor:  # "*b h n d" -> "*b 1 n d"
    return t[..., n : n + 1, :, :]


def _mask_of(mask: Mask | Tensor | None, n: int, axes: int) -> Mask | Tensor | None:
    """The mask of head n: a tensor with a head axis is sliced, every other mask serves all heads."""
    allowed = mask.allowed if isinstance(mask, BooleanMask) else mask
    has_head_axis = isinstance(allowed, Tensor) and allowed.ndim == axes and allowed.shape[-3] > 1
    return _head(allowed, n) if has_head_axis and isinstance(allowed, Tensor) else mask
