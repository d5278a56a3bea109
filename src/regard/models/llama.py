"""Llama: the decoder of Touvron et al., with grouped heads, rotary positions, RMS norms and a gated feed-forward."""

import functools
import math

from torch import Tensor, nn

from regard.attn.multihead import MultiHead
from regard.attn.terms.rotary import Rotary
from regard.attn.terms.rotary_scaling import RotaryScaling
from regard.common import checks
from regard.layers.causal_stack import CausalStack
from regard.layers.dropout import Dropout
from regard.layers.head_attention import head_attention
from regard.layers.position_choices import check_heads
from regard.layers.transformer import Activation, EncoderLayer, GatedFeedForward
from regard.models.language_model import TransformerLanguageModel, init_weights


class Llama(TransformerLanguageModel):
    """x += attention(rms x), rotary; x += W₂ (silu(W_g rms x) ∘ W₁ rms x); p = softmax(W rms x)  (Touvron et al. 2023).

    Each of the `kv_heads` serves a group of heads (Ainslie et al. 2023). With `window` every token attends to that many
    tokens, itself included, as in Mistral (Jiang et al. 2023). `tied` shares the embedding with the vocabulary layer.
    `scaling` slows the rotations down for texts longer than those of the training, as in Llama 3.1.
    """

    output: nn.Linear

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
        base: float = 10000.0,
        scaling: RotaryScaling | None = None,
        bias: bool = False,
        feed_bias: bool = False,
        tied: bool = False,
        attention: str | None = None,
        activation: Activation = nn.functional.silu,
        eps: float = 1e-6,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        feed = 4 * width if feed is None else feed
        checks.positive_ints("Llama", vocabulary=vocabulary, layers=layers, feed=feed)
        if head_dim is None:
            check_heads("Llama", width, heads)
        if window is not None:
            checks.positive_ints("Llama", window=window)
        dim = width // heads if head_dim is None else head_dim
        norm = functools.partial(nn.RMSNorm, eps=eps)
        self.embedding = nn.Embedding(vocabulary, width)
        self.dropout = Dropout(dropout)

        def layer() -> EncoderLayer:
            heads_layer = MultiHead(
                width,
                heads,
                kv_heads=kv_heads,
                head_dim=dim,
                attention=head_attention(attention, dim),
                rotate=Rotary(dim, base=base, scaling=scaling),
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

        self.stack = CausalStack(
            [layer() for _ in range(layers)], norm(width), memory=window or 0, same_length=window is not None
        )
        self.output = nn.Linear(width, vocabulary, bias=False)
        init_weights(self, residual_std=0.02 / math.sqrt(2 * layers))
        nn.init.normal_(self.output.weight, std=0.02)
        if tied:
            self.output.weight = self.embedding.weight

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return self.dropout(self.embedding(tokens))
