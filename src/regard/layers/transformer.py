"""Transformer layers: multi-head attention and a feed-forward network, each with a residual connection and a norm.

Models choose the parts: `norm` builds a norm for a width (`functools.partial(nn.LayerNorm, eps=1e-12)`), `residual`
places it around the sublayers, `activation` is that of the feed-forward network, which `feed` builds (`FeedForward` or
`GatedFeedForward`). Caches are values: a layer takes the cache of the earlier tokens and returns a longer one.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Attended, Need
from regard.attn.kv_cache import KVCache
from regard.attn.mechanisms.latent import Latent
from regard.attn.module_snapshot import has_hooks
from regard.attn.multihead import MultiHead
from regard.attn.terms.mask import Mask
from regard.attn.terms.position import Positions
from regard.common import checks
from regard.kernels.feed_forward import can_fuse_feed_forward, gelu_feed_forward
from regard.layers.dropout import Dropout
from regard.layers.gelu import is_tanh_gelu

Activation = Callable[[Tensor], Tensor]
Norm = Callable[[int], nn.Module]
Feed = Callable[..., nn.Module]  # called as FeedForward is


class Sublayer(nn.Module):
    """norm(x + f(x)) (Vaswani et al. 2017, 3.1), or x + f(norm(x)) (Xiong et al. 2020); dropout on f's output."""

    def __init__(self, dim: int, *, norm_first: bool, dropout: float, norm: Norm = nn.LayerNorm) -> None:
        super().__init__()
        self.norm = norm(dim)
        self.norm_first = norm_first
        self.dropout = Dropout(dropout)

    def enter(self, x: Tensor) -> Tensor:
        """The input of f."""
        return self.norm(x) if self.norm_first else x

    def leave(self, x: Tensor, out: Tensor) -> Tensor:
        """The output of f, added to x."""
        x = x + self.dropout(out)
        return x if self.norm_first else self.norm(x)


class SandwichSublayer(nn.Module):
    """x + norm₂(f(norm₁(x))): a norm before f and one on its output, with dropout behind it  (Gemma Team 2024)."""

    norm_first = True

    def __init__(self, dim: int, *, dropout: float, norm: Norm = nn.LayerNorm) -> None:
        super().__init__()
        self.norm, self.out_norm = norm(dim), norm(dim)
        self.dropout = Dropout(dropout)

    def enter(self, x: Tensor) -> Tensor:
        """The input of f."""
        return self.norm(x)

    def leave(self, x: Tensor, out: Tensor) -> Tensor:
        """The output of f, normed and added to x."""
        return x + self.dropout(self.out_norm(out))


class FeedForward(nn.Module):
    """W₂ max(0, W₁ x + b₁) + b₂  (Vaswani et al. 2017, 3.3), with `activation` instead of max(0, ·)."""

    def __init__(
        self, dim: int, hidden: int, *, dropout: float, activation: Activation = torch.relu_, bias: bool = True
    ) -> None:
        super().__init__()
        self.inner = nn.Linear(dim, hidden, bias)
        self.outer = nn.Linear(hidden, dim, bias)
        self.activation = activation
        self.dropout = Dropout(dropout)
        _init_linears(self.inner, self.outer)

    def forward(self, x: Tensor) -> Tensor:
        if self._is_fused(x):
            return gelu_feed_forward(x, self.inner.weight, self.inner.bias, self.outer.weight, self.outer.bias)
        return self.outer(self.dropout(self._activate(self.inner(x))))

    def _activate(self, hidden: Tensor) -> Tensor:
        """The activation, in place only if nobody but this layer has seen the output of `inner`."""
        is_private = (
            type(self.inner) is nn.Linear and not has_hooks(self.inner) and "forward" not in self.inner.__dict__
        )
        return torch.relu(hidden) if self.activation is torch.relu_ and not is_private else self.activation(hidden)

    def _is_fused(self, x: Tensor) -> bool:
        """Whether one function computes both products and the gelu between them: in training, without dropout."""
        if not isinstance(self.activation, nn.GELU) or not is_tanh_gelu(self.activation):
            return False
        if self.dropout.training and self.dropout.p:
            return False
        if any(has_hooks(module) or "forward" in module.__dict__ for module in self.children()):
            return False
        linears = self.inner, self.outer
        if any(type(linear) is not nn.Linear or linear.bias is None for linear in linears):
            return False
        return can_fuse_feed_forward(x, *(p for linear in linears for p in (linear.weight, linear.bias)))


class GatedFeedForward(nn.Module):
    """W₂ (silu(W_g x) ∘ W₁ x)  (Shazeer 2020, SwiGLU), with any `activation` instead of silu."""

    def __init__(
        self, dim: int, hidden: int, *, dropout: float, activation: Activation = nn.functional.silu, bias: bool = False
    ) -> None:
        super().__init__()
        self.gate, self.inner = nn.Linear(dim, hidden, bias), nn.Linear(dim, hidden, bias)
        self.outer = nn.Linear(hidden, dim, bias)
        self.activation = activation
        self.dropout = Dropout(dropout)
        _init_linears(self.gate, self.inner, self.outer)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(self.activation(self.gate(x)) * self.inner(x)))


def _init_linears(*linears: nn.Linear) -> None:
    for linear in linears:
        nn.init.xavier_uniform_(linear.weight)
        if linear.bias is not None:
            nn.init.zeros_(linear.bias)


# forms of the residual connections of an EncoderLayer
RESIDUALS = ("post", "pre", "sandwich", "parallel")


class EncoderLayerOutput(NamedTuple):
    """The output of a layer of self-attention."""

    out: Tensor  # "b s d"
    cache: KVCache | None  # keys and values of the tokens so far, with use_cache
    weights: Tensor | None  # "b h s s", if requested


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network: a layer of an encoder or, with a causal mask, of a language model.

    `residual` is the form of both sublayers f: "post" norm(x + f(x)); "pre" x + f(norm(x)); "sandwich"
    x + norm₂(f(norm(x))); "parallel" x + f₁(norm₁(x)) + f₂(norm₂(x)), both of the same x  (Wang & Komatsuzaki 2021).
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        attention: MultiHead | Latent,
        *,
        residual: str,
        dropout: float,
        norm: Norm = nn.LayerNorm,
        activation: Activation = torch.relu_,
        feed: Feed = FeedForward,
    ) -> None:
        super().__init__()
        self.attention = attention
        checks.known("residual", residual, RESIDUALS)
        self.feed = feed(dim, hidden, dropout=dropout, activation=activation)
        self.residual = residual
        self.around_attention, self.around_feed = (
            SandwichSublayer(dim, dropout=dropout, norm=norm)
            if residual == "sandwich"
            else Sublayer(dim, norm_first=residual != "post", dropout=dropout, norm=norm)
            for _ in range(2)
        )

    def forward(
        self,
        x: Tensor,
        mask: Mask | Tensor | None = None,
        *,
        positions: Positions | None = None,
        memory: Tensor | None = None,
        cache: KVCache | None = None,
        use_cache: bool = False,
        need: Need = NOTHING,
    ) -> EncoderLayerOutput:  # "b s d", memory "b m d"
        """Runs a whole sequence or, with `use_cache`, the tokens behind `cache`.

        `memory` are inputs of this layer that stood before x: keys without queries  (Dai et al. 2019). `positions` are
        those of x and of all keys, including memory or cache; None: x are the last keys.
        """
        if memory is not None and use_cache:
            raise ValueError("memory and use_cache=True both hold the tokens before x; pass one of them")
        entered = self.around_attention.enter(x if memory is None else torch.cat([memory, x], dim=-2))
        queries = entered if memory is None else entered[..., memory.shape[-2] :, :]
        keys = None if memory is None else entered
        attended, cache = _self_attend(self.attention, queries, mask, positions, cache, use_cache, need, keys)
        attended_x = self.around_attention.leave(x, attended.out)
        fed = self.feed(self.around_feed.enter(x if self.residual == "parallel" else attended_x))
        return EncoderLayerOutput(self.around_feed.leave(attended_x, fed), cache, attended.weights)


class DecoderLayerOutput(NamedTuple):
    """The output of a decoder layer."""

    out: Tensor  # "b t d"
    cache: KVCache | None  # keys and values of the target's tokens so far, with use_cache
    weights: Tensor | None  # "b h t s", of the attention to the source, if requested
    self_weights: Tensor | None  # "b h t t", of the self-attention, if requested


class DecoderLayer(nn.Module):
    """Self-attention over the target so far, attention to the source, a feed-forward network."""

    def __init__(
        self,
        dim: int,
        hidden: int,
        self_attention: MultiHead,
        cross_attention: MultiHead,
        *,
        norm_first: bool,
        dropout: float,
        norm: Norm = nn.LayerNorm,
        activation: Activation = torch.relu_,
    ) -> None:
        super().__init__()
        self.self_attention, self.cross_attention = self_attention, cross_attention
        self.feed = FeedForward(dim, hidden, dropout=dropout, activation=activation)
        self.around_self, self.around_cross, self.around_feed = (
            Sublayer(dim, norm_first=norm_first, dropout=dropout, norm=norm) for _ in range(3)
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
        cache: KVCache | None = None,
        use_cache: bool = False,
        need: Need = NOTHING,
        self_need: Need = NOTHING,
    ) -> DecoderLayerOutput:  # "b t d", "b s d"
        """Runs a whole target or, with `use_cache`, the tokens behind `cache`.

        `positions` are those of x and of all keys, including the cache; None: x are the last keys. `need` applies to
        the attention to the source, `self_need` to the self-attention.
        """
        self_attended, cache = _self_attend(
            self.self_attention, self.around_self.enter(x), mask, positions, cache, use_cache, self_need
        )
        x = self.around_self.leave(x, self_attended.out)
        cross_attended = self.cross_attention.attend(
            self.around_cross.enter(x), source, mask=source_mask, positions=source_positions, need=need
        )
        x = self.around_cross.leave(x, cross_attended.out)
        x = self.around_feed.leave(x, self.feed(self.around_feed.enter(x)))
        return DecoderLayerOutput(x, cache, cross_attended.weights, self_attended.weights)


def _self_attend(
    attention: MultiHead | Latent,
    x: Tensor,
    mask: Mask | Tensor | None,
    positions: Positions | None,
    cache: KVCache | None,
    use_cache: bool,
    need: Need,
    keys: Tensor | KVCache | None = None,
) -> tuple[Attended, KVCache | None]:  # "b t d", keys "b k d"
    """Attention of x over itself, over `keys`, or over `cache` with x appended; returns the longer cache, too."""
    if cache is not None and not use_cache:
        raise ValueError(f"cache={cache!r} is only read and extended with use_cache=True; pass both or neither")
    if use_cache and need == NOTHING:
        out, cache = attention.step(x, cache, mask=mask, positions=positions)
        return Attended(out), cache
    if use_cache:
        keys = cache = attention.step_cache(x, cache, mask, positions)
    if need == NOTHING:  # call its forward, so that forward hooks fire
        return Attended(attention(x, keys, mask=mask, positions=positions)), cache
    return attention.attend(x, keys, mask=mask, positions=positions, need=need), cache
