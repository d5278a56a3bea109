"""Llama: the decoder of Touvron et al., with grouped heads, rotary positions, RMS norms and a gated feed-forward."""

from torch import nn

from regard.attn.terms.rotary import Rotary
from regard.layers.transformer import Activation
from regard.models.decoders.causal_decoder import CausalDecoder, llama_layers


class Llama(CausalDecoder):
    """x += attention(rms x), rotary; x += W₂ (silu(W_g rms x) ∘ W₁ rms x); p = softmax(W rms x)  (Touvron et al. 2023).

    Each of the `kv_heads` serves a group of heads (Ainslie et al. 2023). With `window` every token attends to that many
    tokens, itself included, as in Mistral (Jiang et al. 2023). `tied` shares the embedding with the vocabulary layer.
    `rotate` is the rotation in all layers, such as `Rotary(head_dim, scaling=...)` for texts longer than those of the
    training; None: `Rotary(head_dim)`.
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
        bias: bool = False,
        feed_bias: bool = False,
        tied: bool = False,
        attention: str | None = None,
        activation: Activation = nn.functional.silu,
        eps: float = 1e-6,
        dropout: float = 0.0,
    ) -> None:
        stack = llama_layers(
            "Llama",
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
            attention=attention,
            bias=bias,
            feed_bias=feed_bias,
        )
        super().__init__(vocabulary, stack, nn.RMSNorm(width, eps=eps), window=window, tied=tied, dropout=dropout)
