"""LocationAttention: location-sensitive attention, in which every step depends on the weights of the previous steps."""

from typing import NamedTuple

from torch import Tensor

from regard.attn.call import AttentionCall
from regard.attn.kv_cache import KVCache
from regard.attn.mechanisms.explicit_weights import score_pairs, whole_mask
from regard.attn.mechanisms.recurrent import RecurrentAttention, run_rows
from regard.attn.terms.normalizer import Normalizer, Softmax
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


class LocationAttention(RecurrentAttention[AlignmentHistory]):
    """α_i = normalize(v · tanh(W s_i + V h + U f + b)), f = F ∗ [α_{i−1}; Σα]  (Chorowski et al. 2015).

    `normalize=Softmax(temperature)` below one sharpens, `NormalizedSigmoid()` smooths (the paper's 2.3). The state
    between steps are the weights of the steps before, zeros at first:

        cache = layer.project_kv(h)                          keys are projected once
        history = layer.start(cache)
        attended, history = layer.step(s, cache, history)    "*b 1 d" -> "*b 1 v"

    `layer(q, h)` runs all steps in order.
    """

    def __init__(self, score: LocationSensitive, *, normalize: Normalizer | None = None) -> None:
        super().__init__()
        self.score = score
        self.normalize = Softmax() if normalize is None else normalize

    def project_kv(self, k: Tensor, v: Tensor | None = None) -> KVCache:  # "*b k e", "*b k v"
        return KVCache(self.score.keys(k), k if v is None else v)

    def first_state(self, shape: tuple[int, ...], like: Tensor) -> AlignmentHistory:
        # the sum over all steps stays in float32
        zeros = like.new_zeros(shape, dtype=checks.accumulate_dtype(like.dtype))
        return AlignmentHistory(zeros, zeros)

    def run_steps(
        self, call: AttentionCall, is_cached: bool, state: AlignmentHistory
    ) -> tuple[Tensor, AlignmentHistory]:
        self.score.check(call.q, None if is_cached else call.keys)
        keys = call.keys if is_cached else self.score.keys(call.keys)
        queries, allowed = self.score.queries(call.q), whole_mask(call)

        def step(
            history: AlignmentHistory, query: Tensor, mask: Tensor | None = None
        ) -> tuple[AlignmentHistory, Tensor]:
            # the location term is added to the keys, which the kernel then takes as keys
            scores = score_pairs(self.score, query.unsqueeze(-2), self.score.at(keys, *history))
            weights = self.normalize.weights(scores, None if mask is None else mask.unsqueeze(-2)).squeeze(-2)
            return history.after(weights.to(history.cumulative.dtype)), weights

        rows = [queries] if allowed is None else [queries, allowed]
        return run_rows(step, state, rows, state.previous.unsqueeze(-2)[..., :0, :])
