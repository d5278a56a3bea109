"""LocationAttention: location-sensitive attention, in which every step depends on the weights of the previous steps."""

from typing import NamedTuple

import torch
from torch import Tensor

from regard.attn.base import AttentionModule
from regard.attn.call import NOTHING, Attended, AttentionInputs, Need
from regard.attn.kv_cache import KVCache
from regard.attn.mechanisms.explicit_weights import (
    build_bare_call,
    check_one_step,
    read_by_weights,
    score_pairs,
    whole_mask,
)
from regard.attn.terms.mask import Mask
from regard.attn.terms.normalizer import Normalizer, Softmax
from regard.attn.terms.position import Positions
from regard.attn.terms.score import LocationSensitive
from regard.common import checks


class AlignmentHistory(NamedTuple):
    """The weights of the previous steps."""

    previous: Tensor  # "*b k", the last step's weights
    cumulative: Tensor  # "*b k", the sum of all steps' weights

    def after(self, weights: Tensor) -> "AlignmentHistory":  # "*b k"
        """The history with one more step."""
        return AlignmentHistory(weights, self.cumulative + weights)

    def reorder(self, index: Tensor) -> "AlignmentHistory":
        """The samples `index` of the first batch axis, as a beam search selects them."""
        return AlignmentHistory(self.previous.index_select(0, index), self.cumulative.index_select(0, index))


class LocationAttention(AttentionModule):
    """α_i = normalize(v · tanh(W s_i + V h + U f + b)), f = F ∗ [α_{i−1}; Σα]  (Chorowski et al. 2015).

    `normalize=Softmax(temperature)` below one sharpens, `NormalizedSigmoid()` smooths (the paper's 2.3). One step at a
    time:

        cache = layer.project_kv(h)                          keys are projected once
        history = layer.start(cache)                         zero weights
        attended, history = layer.step(s, cache, history)    "*b 1 d" -> "*b 1 v"

    `layer(q, h)` runs all steps in order.
    """

    def __init__(self, score: LocationSensitive, *, normalize: Normalizer | None = None) -> None:
        super().__init__()
        self.score = score
        self.normalize = Softmax() if normalize is None else normalize

    def project_kv(self, k: Tensor, v: Tensor | None = None) -> KVCache:  # "*b k e", "*b k v"
        """Projects the keys once, for many steps."""
        return KVCache(self.score.keys(k), k if v is None else v)

    def start(self, memory: KVCache) -> AlignmentHistory:
        """The history before the first step."""
        v = memory.values
        zeros = v.new_zeros(
            v.shape[:-1], dtype=checks.accumulate_dtype(v.dtype)
        )  # the sum over all steps stays in float32
        return AlignmentHistory(zeros, zeros)

    def step(
        self,
        q: Tensor,
        memory: KVCache,
        history: AlignmentHistory,
        *,
        mask: Mask | Tensor | None = None,
        positions: Positions | None = None,
        need: Need = NOTHING,
    ) -> tuple[Attended, AlignmentHistory]:  # "*b 1 d" -> "*b 1 v"
        """One step, and the history with it."""
        check_one_step(q)
        self.score.check(q, None)
        call, nonfinite_rows = build_bare_call(q, memory, None, mask, positions)
        weights = self._weights(self.score.queries(q), call.keys, whole_mask(call), history)
        after = history.after(weights.squeeze(-2).to(history.cumulative.dtype))
        return read_by_weights(call, weights, nonfinite_rows, need, self), after

    def attend_inputs(self, inputs: AttentionInputs) -> Attended:
        q, k, v, mask, positions, need = inputs
        call, nonfinite_rows = build_bare_call(q, k, v, mask, positions)
        self.score.check(q, None if isinstance(k, KVCache) else call.keys)
        keys = call.keys if isinstance(k, KVCache) else self.score.keys(call.keys)
        queries, allowed = self.score.queries(q), whole_mask(call)
        zeros = keys.new_zeros(*call.batch, keys.shape[-2], dtype=checks.accumulate_dtype(keys.dtype))
        history, steps = AlignmentHistory(zeros, zeros), [zeros.unsqueeze(-2)[..., :0, :]]
        for n in range(q.shape[-2]):
            step = slice(n, n + 1)
            step_allowed = None if allowed is None else allowed[..., step, :]
            weights = self._weights(queries[..., step, :], keys, step_allowed, history)
            history = history.after(weights.squeeze(-2).to(zeros.dtype))
            steps.append(weights)
        return read_by_weights(call, torch.cat(steps, dim=-2), nonfinite_rows, need, self)

    def _weights(self, queries: Tensor, keys: Tensor, allowed: Tensor | None, history: AlignmentHistory) -> Tensor:
        """The weights of one step: the location term is added to the keys, which the kernel then takes as keys."""
        located_keys = self.score.at(keys, *history)
        return self.normalize.weights(score_pairs(self.score, queries, located_keys), allowed)
