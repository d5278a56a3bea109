"""Flows: the words of a passage with the vectors that they and a question read from each other."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.attn.catalogue import MECHANISMS, width
from regard.attn.mechanisms.bidaf import AttentionFlow
from regard.attn.mechanisms.coattention import CoAttention, DynamicCoAttention
from regard.attn.terms.sequence_masks import Lengths
from regard.common import checks
from regard.layers.text_pooling import pool_texts

# the first weights of h∘u in the score of the attention flow
_AGREEMENT = 4.0
# mechanisms by name that relate two texts: not those that compare positions, ignore the query, or read a sampled key
FLOWS = (
    "bidaf",
    "co-attention",
    *("dot", "scaled-dot", "general", "additive", "concat", "cosine", "distance", "euclid", "trilinear", "linear"),
    *("temperature", "sparsemax", "entmax", "entmax-learned", "sigmoid", "topk", "null", "straight-through"),
    *("key-value", "multi-head", "grouped", "multi-query"),
)


class PassageFlow(nn.Module, ABC):
    """The words h of a passage with the vectors that they and the question u read from each other."""

    width: ClassVar[int]  # width of the output, in widths of h

    @abstractmethod
    def forward(
        self, h: Tensor, u: Tensor, summary: Tensor, h_lengths: Tensor, u_lengths: Tensor
    ) -> Tensor:  # "b t d", "b j d", "b d", "b", "b" -> "b t width·d"
        """`summary` is the last state of the question."""


class BidirectionalFlow(PassageFlow):
    """[h; ũ; h∘ũ; h∘h̃], the attention flow of the paper.

    The weights of h∘u in its score begin at a positive number instead of random ones, so that equal words attend to
    each other from the first step on; from random signs a reader first has to learn that.
    """

    width: ClassVar[int] = 4

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.attention = AttentionFlow(dim)
        nn.init.constant_(self.attention.score.both, _AGREEMENT)

    def forward(self, h: Tensor, u: Tensor, summary: Tensor, h_lengths: Tensor, u_lengths: Tensor) -> Tensor:
        return self.attention(h, u, mask=Lengths(u_lengths), back=Lengths(h_lengths))


class MechanismFlow(PassageFlow):
    """[h; ũ; h∘ũ; h∘h̃], ũ = V attention(h, u), h̃ = mean_j V' attention'(u, h)_j.

    Two attentions of one kind, from the passage to the question and back; h̃ is the mean over the question's words.
    V and V' are there where the mechanism returns another width than d.
    """

    width: ClassVar[int] = 4

    def __init__(self, name: str, dim: int) -> None:
        super().__init__()
        self.to_question, self.to_passage = MECHANISMS[name](dim, dim), MECHANISMS[name](dim, dim)
        widths = [width(each, dim, dim) for each in (self.to_question, self.to_passage)]
        self.mix_question, self.mix_passage = (nn.Identity() if n == dim else nn.Linear(n, dim) for n in widths)

    def forward(self, h: Tensor, u: Tensor, summary: Tensor, h_lengths: Tensor, u_lengths: Tensor) -> Tensor:
        read = self.mix_question(self.to_question(h, u, mask=Lengths(u_lengths)))
        back = self.mix_passage(self.to_passage(u, h, mask=Lengths(h_lengths)))
        return combine(h, read, back, u_lengths)


class CoAttentionFlow(PassageFlow):
    """[h; ũ; h∘ũ; h∘h̃], ũ = softmax(S) u, h̃ = mean_j (softmax(Sᵀ) h)_j of one matrix S  (Xiong et al. 2017)."""

    width: ClassVar[int] = 4

    def __init__(self, both: CoAttention) -> None:
        super().__init__()
        self.attention = both

    def forward(self, h: Tensor, u: Tensor, summary: Tensor, h_lengths: Tensor, u_lengths: Tensor) -> Tensor:
        read, back = self.attention(h, u, mask=Lengths(u_lengths), back=Lengths(h_lengths))
        return combine(h, read, back, u_lengths)


class QuestionSummary(PassageFlow):
    """[h; s; h∘s], s the last state of the question: no attention, for comparisons."""

    width: ClassVar[int] = 3

    def forward(self, h: Tensor, u: Tensor, summary: Tensor, h_lengths: Tensor, u_lengths: Tensor) -> Tensor:
        repeated = summary.unsqueeze(1).expand_as(h)
        return torch.cat([h, repeated, h * repeated], -1)


def combine(h: Tensor, read: Tensor, back: Tensor, u_lengths: Tensor) -> Tensor:
    """[h; ũ; h∘ũ; h∘h̃] of ũ, "b t d", and of the vectors that the question's words read, "b j d"."""
    pooled = pool_texts(back, u_lengths, "mean").unsqueeze(1)
    return torch.cat([h, read, h * read, h * pooled], -1)


def build_flow(name: str, dim: int) -> PassageFlow:
    """The flow of a mechanism by its name."""
    if name in MECHANISMS and name not in FLOWS:
        raise ValueError(
            f"attention={name!r} compares positions, ignores the question or reads a sampled word, so it relates no "
            "question to a passage; try attention='bidaf', 'additive' or 'multi-head'"
        )
    checks.known("attention", name, FLOWS)
    if name == "bidaf":
        return BidirectionalFlow(dim)
    if name == "co-attention":
        mechanism = MECHANISMS[name](dim, dim)
        assert isinstance(mechanism, DynamicCoAttention)
        return CoAttentionFlow(mechanism.both)
    return MechanismFlow(name, dim)
