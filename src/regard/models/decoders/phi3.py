"""Phi3: Llama with a window and a rotation of its own, stored with joined projections."""

from torch import nn

from regard.attn.terms.rotary import Rotary
from regard.layers.transformer import Activation
from regard.models.decoders.causal_decoder import CausalDecoder, llama_layers


class Phi3(CausalDecoder):
    """x += attention(rms x); x += W₂ (silu(W_g rms x) ∘ W₁ rms x), without biases  (Abdin et al. 2024).

    It computes what `Llama` does. `rotate` is often that of a text longer than those of the training,
    `Rotary(head_dim, scaling=LongRoPEScaling(...))`, or of part of a head, `Rotary(head_dim, rotary_dim=...)`.
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
        window: int | None = None,
        rotate: Rotary | None = None,
        tied: bool = False,
        activation: Activation = nn.functional.silu,
        eps: float = 1e-5,
        dropout: float = 0.0,
    ) -> None:
        stack = llama_layers(
            "Phi3",
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
        )
        super().__init__(vocabulary, stack, nn.RMSNorm(width, eps=eps), window=window, tied=tied, dropout=dropout)
