"""Qwen3: Llama with norms of the queries and keys of every head."""

import functools

from torch import nn

from regard.attn.heads.qk_norm import RMSQKNorm
from regard.attn.terms.rotary import Rotary
from regard.layers.transformer import Activation
from regard.models.decoders.causal_decoder import CausalDecoder, llama_layers


class Qwen3(CausalDecoder):
    """Llama, with q ← rms(q) and k ← rms(k) in every head before the rotation  (Yang et al. 2025).

    The arguments are those of `Llama`; `bias` is that of all projections of the attention.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int = 256,
        layers: int = 4,
        heads: int = 4,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        feed: int | None = None,
        rotate: Rotary | None = None,
        bias: bool = False,
        tied: bool = False,
        activation: Activation = nn.functional.silu,
        eps: float = 1e-6,
        dropout: float = 0.0,
    ) -> None:
        stack = llama_layers(
            "Qwen3",
            width=width,
            layers=layers,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            feed=feed,
            rotate=rotate,
            activation=activation,
            eps=eps,
            dropout=dropout,
            qk_norm=functools.partial(RMSQKNorm, eps=eps),
            bias=bias,
        )
        super().__init__(vocabulary, stack, nn.RMSNorm(width, eps=eps), tied=tied, dropout=dropout)
