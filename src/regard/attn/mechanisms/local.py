"""Local: attention inside a window whose centre is fixed or predicted."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attn.base import AttentionModule
from regard.attn.call import Attended, AttentionInputs, Terms
from regard.attn.functional import attend_inputs, explain_inputs
from regard.attn.kv_cache import KVCache
from regard.attn.mechanisms.explicit_weights import build_bare_call, read_by_weights, score_matrix, whole_mask
from regard.attn.terms.bias import LocalGaussian
from regard.attn.terms.mask import Mask
from regard.attn.terms.normalizer import Normalizer, Softmax
from regard.attn.terms.position import Positions
from regard.attn.terms.score import Score
from regard.attn.terms.sequence_masks import Window
from regard.attn.terms.tiles import insert_head_axes
from regard.common import checks


@dataclass(frozen=True)
class Diagonal:
    """p = t: the window is centred at the key with the query's own number  (Luong et al. 2015, local-m)."""

    window: int = 10

    def __post_init__(self) -> None:
        checks.positive("window", self.window, "Diagonal")


class Local(AttentionModule):
    """softmax(score) over |j − p| ≤ D, times exp(−(j − p)² / 2(D/2)²) where p is predicted  (Luong et al. 2015, 3.2).

    `place` defines p: `Diagonal(window=D)`, local-m, p = t without the Gaussian; `LocalGaussian(dim, hidden,
    window=D)`, local-p, p = S σ(v · tanh(W q)). S is the position behind the last key that may be attended to, so that
    padding does not move p. Weights of local-p are not normalized again and sum to less than one; p is trained through
    the Gaussian alone. Queries count from 0: a step t passes positions=([t], [0, …, S − 1]).
    """

    def __init__(
        self, score: Score, place: Diagonal | LocalGaussian = Diagonal(), *, normalize: Normalizer | None = None
    ) -> None:
        super().__init__()
        self.score = score
        self.place = place
        self.normalize = Softmax() if normalize is None else normalize

    def project_kv(self, k: Tensor, v: Tensor | None = None) -> KVCache:  # "*b k e", "*b k v"
        """Projects the keys once, for many calls."""
        return KVCache(self.score.keys(k), k if v is None else v)

    def attend_inputs(self, inputs: AttentionInputs) -> Attended:
        if isinstance(self.place, Diagonal):
            return attend_inputs(self._in_window(inputs, self.place), self._terms, None)
        q, k, v, mask, positions, need, _ = inputs
        i, j = _default_positions(q, k) if positions is None else positions
        call, nonfinite_rows = build_bare_call(q, k, v, mask, (i, j))
        allowed = whole_mask(call)
        key_positions = insert_head_axes(j.unsqueeze(-2), len(call.batch) + 2)  # (*b, 1, k)
        centre = self.place.centre(q, _end(key_positions, allowed))  # (*b, q, 1)
        is_inside = (key_positions - centre).abs() <= self.place.window
        scores = score_matrix(self.score, call, isinstance(k, KVCache))
        weights = self.normalize.weights(scores, is_inside if allowed is None else is_inside & allowed)
        weights = weights * self.place.log_density(centre, j).exp()
        return read_by_weights(call, weights, nonfinite_rows, need, self)

    def explain_inputs(self, inputs: AttentionInputs) -> str:
        if not isinstance(self.place, Diagonal):
            return super().explain_inputs(inputs)
        return explain_inputs(self._in_window(inputs, self.place), self._terms, None)

    @property
    def _terms(self) -> Terms:
        return Terms.with_defaults(self.score, normalize=self.normalize)

    def _in_window(self, inputs: AttentionInputs, place: Diagonal) -> AttentionInputs:
        window: Mask = Window(place.window, place.window)
        positions = _default_positions(inputs.q, inputs.k) if inputs.positions is None else inputs.positions
        return inputs._replace(mask=window if inputs.mask is None else window & inputs.mask, positions=positions)

    def extra_repr(self) -> str:
        return f"place={self.place!r}" if isinstance(self.place, Diagonal) else ""


def _default_positions(q: Tensor, k: Tensor | KVCache) -> Positions:
    if isinstance(k, KVCache):
        j = torch.arange(len(k), device=q.device) if k.positions is None else k.positions
    else:
        j = torch.arange(k.shape[-2], device=q.device)
    return torch.arange(q.shape[-2], device=q.device), j


def _end(key_positions: Tensor, allowed: Tensor | None) -> Tensor:  # "*b 1 k", bool "*b q k" -> "*b q 1"
    """The position behind the last key that may be attended to; 0 if there is none."""
    ends = key_positions + 1 if allowed is None else (key_positions + 1).where(allowed, 0)
    return torch.nn.functional.pad(ends, (1, 0)).amax(-1, keepdim=True)
