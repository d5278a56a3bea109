"""LocationAttention: every step sees where the steps before it looked."""

from typing import NamedTuple

import torch
from torch import Tensor

from regard.attn import checks
from regard.attn.base import AttentionModule
from regard.attn.call import NOTHING, Attended, AttentionInputs, Need
from regard.attn.explicit_weights import attended, compared, looked, one_step, whole_mask
from regard.attn.kv_cache import KVCache
from regard.attn.terms.mask import Mask
from regard.attn.terms.normalizer import Normalizer, Softmax
from regard.attn.terms.position import Positions
from regard.attn.terms.score import LocationSensitive


class AlignmentHistory(NamedTuple):
    """Where the steps so far have looked."""

    previous: Tensor  # "*b k", the last step's weights
    cumulative: Tensor  # "*b k", the sum of all steps' weights

    def after(self, weights: Tensor) -> "AlignmentHistory":  # "*b k"
        """The trace with one more step."""
        return AlignmentHistory(weights, self.cumulative + weights)

    def reorder(self, index: Tensor) -> "AlignmentHistory":
        """The samples `index` of the first batch axis: what a beam keeps."""
        return AlignmentHistory(self.previous.index_select(0, index), self.cumulative.index_select(0, index))


class LocationAttention(AttentionModule):
    """α_i = normalize(v · tanh(W s_i + V h + U f + b)), f = F ∗ [α_{i−1}; Σα]  (Chorowski et al. 2015).

    `normalize=Softmax(temperature)` below one sharpens, `NormalizedSigmoid()` smooths (the paper's 2.3).
    One step at a time:

        memory = layer.project_kv(h)                    keys are projected once
        trace = layer.start(memory)                   nothing was looked at yet
        got, trace = layer.step(s, memory, trace)     "*b 1 d" -> "*b 1 v"

    `layer(q, h)` takes all steps in turn.
    """

    def __init__(self, score: LocationSensitive, *, normalize: Normalizer | None = None) -> None:
        super().__init__()
        self.score = score
        self.normalize = Softmax() if normalize is None else normalize

    def project_kv(self, k: Tensor, v: Tensor | None = None) -> KVCache:  # "*b k e", "*b k v"
        """Keys projected once, to be looked at by many steps."""
        return KVCache(self.score.keys(k), k if v is None else v)

    def start(self, memory: KVCache) -> AlignmentHistory:
        """The trace before the first step."""
        v = memory.values
        nothing = v.new_zeros(v.shape[:-1], dtype=checks.widened(v.dtype))  # a sum over all steps stays wide
        return AlignmentHistory(nothing, nothing)

    def step(
        self,
        q: Tensor,
        memory: KVCache,
        trace: AlignmentHistory,
        *,
        mask: Mask | Tensor | None = None,
        positions: Positions | None = None,
        need: Need = NOTHING,
    ) -> tuple[Attended, AlignmentHistory]:  # "*b 1 d" -> "*b 1 v"
        """One step, and the trace with it."""
        one_step(q)
        self.score.check(q, None)
        call, felt = looked(q, memory, None, mask, positions)
        weights = self._weights(self.score.queries(q), call.keys, whole_mask(call), trace)
        after = trace.after(weights.squeeze(-2).to(trace.cumulative.dtype))
        return attended(call, weights, felt, need, self), after

    def attend_inputs(self, inputs: AttentionInputs) -> Attended:
        q, k, v, mask, positions, need = inputs
        call, felt = looked(q, k, v, mask, positions)
        self.score.check(q, None if isinstance(k, KVCache) else call.keys)
        keys = call.keys if isinstance(k, KVCache) else self.score.keys(call.keys)
        queries, allowed = self.score.queries(q), whole_mask(call)
        nothing = keys.new_zeros(*call.batch, keys.shape[-2], dtype=checks.widened(keys.dtype))
        trace, steps = AlignmentHistory(nothing, nothing), [nothing.unsqueeze(-2)[..., :0, :]]
        for n in range(q.shape[-2]):
            here = slice(n, n + 1)
            seen = None if allowed is None else allowed[..., here, :]
            weights = self._weights(queries[..., here, :], keys, seen, trace)
            trace = trace.after(weights.squeeze(-2).to(nothing.dtype))
            steps.append(weights)
        return attended(call, torch.cat(steps, dim=-2), felt, need, self)

    def _weights(self, queries: Tensor, keys: Tensor, allowed: Tensor | None, trace: AlignmentHistory) -> Tensor:
        """The weights of one step: to the kernel, keys with their place added are just keys."""
        placed = self.score.at(keys, *trace)
        return self.normalize.weights(compared(self.score, queries, placed), allowed)
