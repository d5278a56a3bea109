"""Llama: the decoder of Touvron et al., with grouped heads, rotary positions, RMS norms and a gated feed-forward."""

import functools

from torch import nn

from regard.attn.multihead import MultiHead
from regard.attn.terms.rotary import Rotary
from regard.common import checks
from regard.layers.head_attention import head_attention
from regard.layers.transformer import Activation, EncoderLayer, GatedFeedForward
from regard.models.causal_decoder import CausalDecoder, head_width


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
        feed = 4 * width if feed is None else feed
        checks.positive_ints("Llama", layers=layers, feed=feed)
        dim = head_width("Llama", width, heads, head_dim)
        rotate = Rotary(dim) if rotate is None else rotate
        norm = functools.partial(nn.RMSNorm, eps=eps)

        def layer() -> EncoderLayer:
            heads_layer = MultiHead(
                width,
                heads,
                kv_heads=kv_heads,
                head_dim=dim,
                attention=head_attention(attention, dim),
                rotate=rotate,
                bias=bias,
            )
            return EncoderLayer(
                width,
                feed,
                heads_layer,
                residual="pre",
                dropout=dropout,
                norm=norm,
                activation=activation,
                feed=functools.partial(GatedFeedForward, bias=feed_bias),
            )

        stack = [layer() for _ in range(layers)]
        super().__init__(vocabulary, stack, norm(width), window=window, tied=tied, dropout=dropout)
