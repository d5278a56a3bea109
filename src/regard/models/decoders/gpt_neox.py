"""GPTNeoX: a decoder whose attention and feed-forward network read the same input, as in the Pythia models."""

from torch import nn

from regard.attn.multihead import MultiHead
from regard.attn.terms.rotary import Rotary
from regard.common import checks
from regard.layers.position_choices import check_heads
from regard.layers.transformer import Activation, EncoderLayer
from regard.models.decoders.causal_decoder import CausalDecoder


class GPTNeoX(CausalDecoder):
    """x += attention(norm₁ x) + W₂ gelu(W₁ norm₂ x), a quarter of each head rotated  (Black et al. 2022, 2.1).

    `residual="pre"` runs the two sublayers one behind the other. `rotate` is the rotation in all layers; None: that of
    the first quarter of the channels, rounded down to pairs, and of two at least. `bias` is that of the attention.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int = 256,
        layers: int = 4,
        heads: int = 4,
        feed: int | None = None,
        rotate: Rotary | None = None,
        residual: str = "parallel",
        bias: bool = True,
        tied: bool = False,
        activation: Activation | None = None,
        eps: float = 1e-5,
        dropout: float = 0.0,
    ) -> None:
        feed = 4 * width if feed is None else feed
        checks.positive_ints("GPTNeoX", layers=layers, feed=feed)
        checks.known("residual", residual, ("parallel", "pre"))
        check_heads("GPTNeoX", width, heads)
        dim = width // heads
        rotate = Rotary(dim, rotary_dim=max(dim // 8 * 2, 2)) if rotate is None else rotate
        activation = nn.GELU() if activation is None else activation

        def norm(dim: int) -> nn.LayerNorm:
            return nn.LayerNorm(dim, eps)

        stack = [
            EncoderLayer(
                width,
                feed,
                MultiHead(width, heads, rotate=rotate, bias=bias),
                residual=residual,
                dropout=dropout,
                norm=norm,
                activation=activation,
            )
            for _ in range(layers)
        ]
        super().__init__(vocabulary, stack, norm(width), tied=tied, dropout=dropout)
