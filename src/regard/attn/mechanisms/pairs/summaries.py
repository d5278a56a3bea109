"""Coarse co-attention: summaries of two or three texts, each read by a summary of another.

A summary is a vector; the weights of an `Attended` are "*b k", one per token of the text that it summarizes.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Attended, Need
from regard.attn.layer import Attention
from regard.attn.mechanisms.bidaf import AttentionFlow
from regard.attn.terms.mask import Mask
from regard.attn.terms.read import weighted_sum
from regard.attn.terms.score import Additive
from regard.attn.terms.scores.general import Activated
from regard.attn.terms.uniform import Uniform
from regard.common import checks


class PairSummary(NamedTuple):
    """The summaries of both texts."""

    of_q: Attended  # out "*b d", weights "*b q"
    of_k: Attended  # out "*b e", weights "*b k"


class RotatorySummary(NamedTuple):
    """The summaries of both contexts, read by the target, and of the target, read by each of them."""

    left: Attended  # out "*b d", weights "*b l"
    right: Attended
    target_by_left: Attended  # out "*b d", weights "*b t"
    target_by_right: Attended

    def joined(self) -> Tensor:  # "*b 4d"
        """All four, as the classifier of the paper reads them."""
        return torch.cat([each.out for each in self], dim=-1)


def _read(
    attention: Attention, query: Tensor, text: Tensor, mask: Mask | Tensor | None, need: Need
) -> Attended:  # "*b d", "*b k e" -> "*b e"
    attended = attention.attend(query.unsqueeze(-2), text, mask=mask, need=need)
    return attended.transform(lambda t: t.squeeze(-2), lambda t: t.squeeze(-1))


class _TokenMean(nn.Module):
    """The mean of the tokens that a mask allows."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention(Uniform())

    def forward(self, text: Tensor, mask: Mask | Tensor | None) -> Tensor:  # "*b k e" -> "*b e"
        checks.floating("text", text)
        return _read(self.attention, text.new_zeros(*text.shape[:-2], 1), text, mask, NOTHING).out


class _Pairing(nn.Module, ABC):
    """The summaries of two texts; `mask` hides tokens of k, `back` those of q, usually the Lengths of each."""

    def forward(
        self, q: Tensor, k: Tensor, *, mask: Mask | Tensor | None = None, back: Mask | Tensor | None = None
    ) -> tuple[Tensor, Tensor]:  # "*b q d", "*b k e" -> "*b d", "*b e"
        summary = self.attend(q, k, mask=mask, back=back)
        return summary.of_q.out, summary.of_k.out

    @abstractmethod
    def attend(
        self,
        q: Tensor,
        k: Tensor,
        *,
        mask: Mask | Tensor | None = None,
        back: Mask | Tensor | None = None,
        need: Need = NOTHING,
    ) -> PairSummary:
        """Like `forward`, and returns the results that `need` requests beside either summary."""


class AlternatingCoAttention(_Pairing):
    """k̂₀ = A(k; 0), q̂ = A(q; k̂₀), k̂ = A(k; q̂), A(x; g) = softmax(w · tanh(W x + U g)) x  (Lu et al. 2016, 3.3).

    A summary of k guides attention to q, whose summary guides attention to k. Both readings of k share their weights.
    """

    def __init__(self, query_dim: int, key_dim: int, hidden: int) -> None:
        super().__init__()
        self.to_k = Attention(Additive(query_dim, key_dim, hidden))
        self.to_q = Attention(Additive(key_dim, query_dim, hidden))

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        *,
        mask: Mask | Tensor | None = None,
        back: Mask | Tensor | None = None,
        need: Need = NOTHING,
    ) -> PairSummary:
        for name, text in (("q", q), ("k", k)):
            checks.floating(name, text)
        first = _read(self.to_k, q.new_zeros(*q.shape[:-2], q.shape[-1]), k, mask, NOTHING)
        of_q = _read(self.to_q, first.out, q, back, need)
        return PairSummary(of_q, _read(self.to_k, of_q.out, k, mask, need))


class InteractiveCoAttention(_Pairing):
    """q̂ = Σ softmax(tanh(qᵀ W mean(k) + b)) q, and k̂ alike by mean(q)  (Ma et al. 2017, IAN, eq. 3-6)."""

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        self.to_k = Attention(Activated.general(query_dim, key_dim))
        self.to_q = Attention(Activated.general(key_dim, query_dim))
        self.mean = _TokenMean()

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        *,
        mask: Mask | Tensor | None = None,
        back: Mask | Tensor | None = None,
        need: Need = NOTHING,
    ) -> PairSummary:
        of_q = _read(self.to_q, self.mean(k, mask), q, back, need)
        return PairSummary(of_q, _read(self.to_k, self.mean(q, back), k, mask, need))


class MultiGrainedCoAttention(_Pairing):
    """[coarse; fine] of both texts: IAN's summaries beside those of every pair of words  (Fan et al. 2018, MGAN).

    The fine scores are S_ij = w · [q_i; k_j; q_i∘k_j], as in BiDAF: q̂ = Σ softmax_i(max_j S) q_i, and k̂ is the mean
    over q of what each word of q reads of k. Both texts have one width; the outputs are twice as wide. Weights are
    those of the coarse summaries.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.coarse = InteractiveCoAttention(dim, dim)
        self.fine = AttentionFlow(dim)
        self.mean = _TokenMean()

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        *,
        mask: Mask | Tensor | None = None,
        back: Mask | Tensor | None = None,
        need: Need = NOTHING,
    ) -> PairSummary:
        coarse = self.coarse.attend(q, k, mask=mask, back=back, need=need)
        flow = self.fine.flow(q, k, mask=mask, back=back)
        read = flow.out.chunk(4, dim=-1)[1]  # what each word of q reads of k
        seen = q.masked_fill((flow.back == 0).unsqueeze(-1), 0.0)  # a masked token may hold NaN
        pooled = weighted_sum(flow.back.unsqueeze(-2), seen).squeeze(-2)
        return PairSummary(
            coarse.of_q._replace(out=torch.cat([coarse.of_q.out, pooled], dim=-1)),
            coarse.of_k._replace(out=torch.cat([coarse.of_k.out, self.mean(read, back)], dim=-1)),
        )


class RotatoryAttention(nn.Module):
    """l̂ = A(left; mean(target)), t̂_l = A(target; l̂), and r̂, t̂_r alike  (Zheng and Xia 2018, LCR-Rot, eq. 4-11).

    A(x; g) = softmax(tanh(xᵀ W g + b)) x: both contexts are read by the mean of the target, and the target by either.
    All texts have one width. `joined()` of the result is [l̂; r̂; t̂_l; t̂_r].
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        names = RotatorySummary._fields
        self.reads = nn.ModuleDict({name: Attention(Activated.general(dim, dim)) for name in names})
        self.mean = _TokenMean()

    def forward(
        self,
        target: Tensor,
        left: Tensor,
        right: Tensor,
        *,
        mask: Mask | Tensor | None = None,
        left_mask: Mask | Tensor | None = None,
        right_mask: Mask | Tensor | None = None,
    ) -> Tensor:  # "*b t d", "*b l d", "*b r d" -> "*b 4d"
        return self.attend(target, left, right, mask=mask, left_mask=left_mask, right_mask=right_mask).joined()

    def attend(
        self,
        target: Tensor,
        left: Tensor,
        right: Tensor,
        *,
        mask: Mask | Tensor | None = None,
        left_mask: Mask | Tensor | None = None,
        right_mask: Mask | Tensor | None = None,
        need: Need = NOTHING,
    ) -> RotatorySummary:
        """Like `forward`, with the four summaries apart; `mask` hides tokens of the target."""
        mean = self.mean(target, mask)
        of_left = self._by("left", mean, left, left_mask, need)
        of_right = self._by("right", mean, right, right_mask, need)
        return RotatorySummary(
            of_left,
            of_right,
            self._by("target_by_left", of_left.out, target, mask, need),
            self._by("target_by_right", of_right.out, target, mask, need),
        )

    def _by(self, name: str, query: Tensor, text: Tensor, mask: Mask | Tensor | None, need: Need) -> Attended:
        attention = self.reads[name]
        assert isinstance(attention, Attention)
        return _read(attention, query, text, mask, need)
