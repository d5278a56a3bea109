"""Transformer layers: multi-head attention and a feed-forward net, each added to what came in, and normed."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attn import checks
from regard.attn.call import NOTHING, Need
from regard.attn.functional import Positions
from regard.attn.kv_cache import KVCache
from regard.attn.multihead import MultiHead
from regard.attn.terms.mask import Mask
from regard.layers.dropout import Dropout

NORMS = ("pre", "post")


class Sublayer(nn.Module):
    """norm(x + f(x)) (Vaswani et al. 2017, 3.1), or x + f(norm(x)) (Xiong et al. 2020); dropout on what f gives."""

    def __init__(self, dim: int, *, norm: str, dropout: float) -> None:
        super().__init__()
        checks.known("norm", norm, NORMS)
        self.norm = nn.LayerNorm(dim)
        self.before = norm == "pre"
        self.dropout = Dropout(dropout)

    def enter(self, x: Tensor) -> Tensor:
        """What f sees."""
        return self.norm(x) if self.before else x

    def leave(self, x: Tensor, made: Tensor) -> Tensor:
        """What f made, added to x."""
        x = x + self.dropout(made)
        return x if self.before else self.norm(x)


class FeedForward(nn.Module):
    """W₂ max(0, W₁ x + b₁) + b₂  (Vaswani et al. 2017, 3.3)."""

    def __init__(self, dim: int, hidden: int, *, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(dim, hidden)
        self.outer = nn.Linear(hidden, dim)
        self.dropout = Dropout(dropout)
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(torch.relu_(self.inner(x))))


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward net."""

    def __init__(self, dim: int, hidden: int, attention: MultiHead, *, norm: str, dropout: float) -> None:
        super().__init__()
        self.attention = attention
        self.feed = FeedForward(dim, hidden, dropout=dropout)
        self.around_attention, self.around_feed = (Sublayer(dim, norm=norm, dropout=dropout) for _ in range(2))

    def forward(self, x: Tensor, mask: Mask | None) -> Tensor:  # "b s d"
        x = self.around_attention.leave(x, self.attention(self.around_attention.enter(x), mask=mask))
        return self.around_feed.leave(x, self.feed(self.around_feed.enter(x)))


class DecoderLayerOutput(NamedTuple):
    """What a decoder layer gives: its output, its own keys with the new ones, and where it looked in the source."""

    out: Tensor  # "b t d"
    past: KVCache | None
    weights: Tensor | None  # "b h t s", if they were asked for


class DecoderLayer(nn.Module):
    """Self-attention on what was said, attention to the source, a feed-forward net."""

    def __init__(
        self,
        dim: int,
        hidden: int,
        self_attention: MultiHead,
        cross_attention: MultiHead,
        *,
        norm: str,
        dropout: float,
    ) -> None:
        super().__init__()
        self.self_attention, self.cross_attention = self_attention, cross_attention
        self.feed = FeedForward(dim, hidden, dropout=dropout)
        self.around_self, self.around_cross, self.around_feed = (
            Sublayer(dim, norm=norm, dropout=dropout) for _ in range(3)
        )

    def forward(
        self,
        x: Tensor,
        source: Tensor | KVCache,
        *,
        mask: Mask | Tensor | None,
        source_mask: Mask | None,
        positions: Positions | None = None,
        source_positions: Positions | None = None,
        past: KVCache | None = None,
        need: Need = NOTHING,
    ) -> DecoderLayerOutput:  # "b t d", "b s d"
        """All of a target, with `past` None, or what comes behind `past`, at `positions` among all its keys."""
        said = self.around_self.enter(x)
        keys: Tensor | KVCache = said
        if positions is not None:
            there = positions[0] if self.self_attention.rotate is not None else None
            keys = past = self.self_attention.project_kv(said, past, positions=there)
        x = self.around_self.leave(x, self.self_attention(said, keys, mask=mask, positions=positions))
        asked = self.around_cross.enter(x)
        got = self.cross_attention.attend(asked, source, mask=source_mask, positions=source_positions, need=need)
        x = self.around_cross.leave(x, got.out)
        return DecoderLayerOutput(self.around_feed.leave(x, self.feed(self.around_feed.enter(x))), past, got.weights)
