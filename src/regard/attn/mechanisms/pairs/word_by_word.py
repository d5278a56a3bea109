"""WordByWord: a reader of one text whose attention to another remembers what it has read."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn.base import AttentionModule
from regard.attn.call import NOTHING, Attended, AttentionCall, AttentionInputs, Need
from regard.attn.functional import set_rows_nan
from regard.attn.kv_cache import KVCache
from regard.attn.mechanisms.explicit_weights import (
    build_bare_call,
    check_one_step,
    no_values,
    read_by_weights,
    score_pairs,
    whole_mask,
)
from regard.attn.terms.mask import Mask
from regard.attn.terms.normalizer import Normalizer, Softmax
from regard.attn.terms.position import Positions
from regard.attn.terms.score import Additive
from regard.common import checks


class WordByWord(AttentionModule):
    """r_t = Σ_j α_tj y_j + tanh(V r_{t−1}), α_t = softmax(w · tanh(W y + U h_t + R r_{t−1}))
    (Rocktäschel et al. 2016, eq. 11-14, word by word).

    q holds the words h_t of a hypothesis, in order, k the premise y; the last row of the output has read with all of
    them. Without V and R it is plain additive attention. The state between steps is r, zeros at first:

        cache = layer.project_kv(y)
        r = layer.start(cache)
        attended, r = layer.step(h, cache, r)     "*b 1 d" -> "*b 1 e"
    """

    def __init__(self, query_dim: int, key_dim: int, hidden: int, *, normalize: Normalizer | None = None) -> None:
        super().__init__()
        self.score = Additive(query_dim, key_dim, hidden)
        self.state = nn.Linear(key_dim, hidden, bias=False)
        self.carry = nn.Linear(key_dim, key_dim, bias=False)
        self.normalize = Softmax() if normalize is None else normalize

    def project_kv(self, k: Tensor, v: Tensor | None = None) -> KVCache:  # "*b k e"
        """Projects the premise once, for many steps."""
        no_values(v, "WordByWord")
        self.score.check(None, k)
        return KVCache(self.score.keys(k), k)

    def start(self, memory: KVCache) -> Tensor:  # "*b e"
        """The state before the first step."""
        shape = (*memory.values.shape[:-2], self.carry.in_features)
        return memory.values.new_zeros(shape, dtype=checks.accumulate_dtype(memory.values.dtype))

    def step(
        self,
        q: Tensor,
        memory: KVCache,
        state: Tensor,
        *,
        mask: Mask | Tensor | None = None,
        positions: Positions | None = None,
        need: Need = NOTHING,
    ) -> tuple[Attended, Tensor]:  # "*b 1 d" -> "*b 1 e"
        """One step, and the state after it."""
        check_one_step(q)
        call, nonfinite_rows = build_bare_call(q, memory, None, mask, positions)
        return self._run(call, nonfinite_rows, True, state, need)

    def attend_inputs(self, inputs: AttentionInputs) -> Attended:
        no_values(inputs.v, "WordByWord")
        call, nonfinite_rows = build_bare_call(inputs.q, inputs.k, None, inputs.mask, inputs.positions)
        first = call.v.new_zeros((*call.batch, self.carry.in_features), dtype=checks.accumulate_dtype(call.v.dtype))
        return self._run(call, nonfinite_rows, isinstance(inputs.k, KVCache), first, inputs.need)[0]

    def _run(
        self, call: AttentionCall, nonfinite_rows: Tensor | None, is_cached: bool, state: Tensor, need: Need
    ) -> tuple[Attended, Tensor]:
        self.score.check(call.q, None if is_cached else call.keys)
        keys = call.keys if is_cached else self.score.keys(call.keys)
        queries, allowed, rows, carried = self.score.queries(call.q), whole_mask(call), [], []
        for t in range(call.q.shape[-2]):
            here = slice(t, t + 1)
            query = queries[..., here, :] + _apply(self.state, state).unsqueeze(-2)
            weights = self.normalize.weights(
                score_pairs(self.score, query, keys), None if allowed is None else allowed[..., here, :]
            )
            rows.append(weights)
            carried.append(torch.tanh(_apply(self.carry, state)))
            state = (weights.to(state.dtype) @ call.v.to(state.dtype)).squeeze(-2) + carried[-1]
        nothing = call.v.new_zeros(*call.batch, 0, call.keys.shape[-2])
        result = read_by_weights(call, torch.cat(rows, -2) if rows else nothing, None, need, self)
        if carried:
            result = result._replace(out=result.out + torch.stack(carried, -2).to(result.out.dtype))
        if nonfinite_rows is not None:  # a later step remembers what an earlier one has read
            result = set_rows_nan(result, nonfinite_rows.cummax(-1).values)
        return result, state

    def extra_repr(self) -> str:
        return f"normalize={self.normalize!r}"


def _apply(linear: nn.Linear, state: Tensor) -> Tensor:
    """linear(state) in the type of the state, float32 at least."""
    return F.linear(state, linear.weight.to(state.dtype))
