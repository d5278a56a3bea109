"""DeepAttentionMatching: several turns of a dialogue against a response, by attention at every level."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attn.layer import Attention
from regard.attn.terms.score import Dot
from regard.attn.terms.sequence_masks import Lengths
from regard.common import checks
from regard.layers.dropout import Dropout
from regard.layers.lengths import inside_lengths
from regard.models.matching.pair_matcher import plain_attention


class TurnVectors(NamedTuple):
    """The turns of a dialogue and a response as vectors of their tokens; an empty turn has no tokens."""

    turns: Tensor  # "b s n d"
    response: Tensor  # "b m d"
    turn_lengths: Tensor  # "b s", 0 for an empty turn
    response_lengths: Tensor  # "b"


class AttentiveModule(nn.Module):
    """x = norm(q + softmax(q kᵀ/√d) v); norm(x + W₂ relu(W₁ x))  (Zhou et al. 2018, 3.2): one head without projections.

    A row that may attend to nothing reads zeros. `attention` is a name of MECHANISMS, "paper" the scaled dot product.
    """

    def __init__(self, dim: int, *, attention: str = "paper", dropout: float = 0.0) -> None:
        super().__init__()
        self.attention = Attention(Dot()) if attention == "paper" else plain_attention(attention, dim)
        self.norm, self.out_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.inner, self.outer = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.dropout = Dropout(dropout)

    def forward(self, q: Tensor, k: Tensor, lengths: Tensor) -> Tensor:  # "b n d", "b m d", "b" -> "b n d"
        x = self.norm(q + self.dropout(self.attention(q, k, mask=Lengths(lengths))))
        return self.out_norm(x + self.dropout(self.outer(torch.relu(self.inner(x)))))


class DeepAttentionMatching(nn.Module):
    """score = W conv(maps) + b; maps are U^l R^lᵀ/√d and Ũ^l R̃^lᵀ/√d of levels l = 0 … L  (Zhou et al. 2018).

    U⁰ are the vectors of a turn, R⁰ those of the response, each level attends to itself, U^{l+1} = A_l(U^l, U^l), and
    Ũ^l = A'_l(U^l, R^l), R̃^l = A''_l(R^l, U^l) across. The maps of all turns are an image (turns, words, words) with
    2 (L + 1) channels, read by two 3-D convolutions with elu and max pooling. The image always has `turns` turns of
    `words` words, and what is no word is zero, so that padding changes nothing; texts may be shorter, not longer.
    `attention` is a name of MECHANISMS for every attention; "paper" is the scaled dot product.
    """

    def __init__(
        self,
        dim: int,
        *,
        width: int = 48,
        levels: int = 2,
        turns: int = 5,
        words: int = 30,
        filters: tuple[int, int] = (16, 16),
        attention: str = "paper",
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        checks.positive_ints("DeepAttentionMatching", dim=dim, width=width, levels=levels, turns=turns, words=words)
        self.turns, self.words = turns, words
        self.project = nn.Linear(dim, width, bias=False)

        def modules(count: int) -> nn.ModuleList:
            return nn.ModuleList(AttentiveModule(width, attention=attention, dropout=dropout) for _ in range(count))

        self.within, self.turn_reads, self.response_reads = modules(levels), modules(levels + 1), modules(levels + 1)
        first, second = filters
        self.first = nn.Conv3d(2 * (levels + 1), first, 3, padding=1)
        self.second = nn.Conv3d(first, second, 3, padding=1)
        cells = math.prod(_pooled_size(_pooled_size(size)) for size in (turns, words, words))
        self.output = nn.Linear(second * cells, 1)
        self.dropout = Dropout(dropout)

    def forward(self, inputs: TurnVectors) -> Tensor:  # -> "b"
        x = self.image(inputs)
        for convolution in (self.first, self.second):
            x = nn.functional.max_pool3d(nn.functional.elu(convolution(x)), 3, ceil_mode=True)
        return self.output(self.dropout(x.flatten(1))).squeeze(-1)

    def image(self, inputs: TurnVectors) -> Tensor:  # -> "b c s n m"
        """The maps of every turn, zero where there is no word."""
        b, s, n, _ = inputs.turns.shape
        m = inputs.response.shape[1]
        for name, size, most in (("turns", s, self.turns), ("words", max(n, m), self.words)):
            if size > most:
                raise ValueError(
                    f"inputs must have at most {name}={most}, got {size}; cut them, or build a larger model"
                )
        turn_lengths = inputs.turn_lengths.flatten()  # "b·s"
        response_lengths = inputs.response_lengths.repeat_interleave(s)
        u = self.dropout(self.project(inputs.turns)).flatten(0, 1)  # "b·s n d"
        r = self.dropout(self.project(inputs.response))  # "b m d"
        maps = []
        for level, (turn_read, response_read) in enumerate(zip(self.turn_reads, self.response_reads, strict=True)):
            if level:
                u = self.within[level - 1](u, u, turn_lengths)
                r = self.within[level - 1](r, r, inputs.response_lengths)
            spread = r.repeat_interleave(s, dim=0)  # "b·s m d"
            across = turn_read(u, spread, response_lengths), response_read(spread, u, turn_lengths)
            maps += [x @ y.mT / math.sqrt(u.shape[-1]) for x, y in ((u, spread), across)]
        inside = inside_lengths(turn_lengths, n).unsqueeze(-1) & inside_lengths(response_lengths, m).unsqueeze(-2)
        image = torch.stack(maps, 1).masked_fill(~inside.unsqueeze(1), 0.0).unflatten(0, (b, s)).transpose(1, 2)
        return nn.functional.pad(image, (0, self.words - m, 0, self.words - n, 0, self.turns - s))


def _pooled_size(size: int) -> int:
    """The size behind a max pooling of three."""
    return -(-size // 3)
