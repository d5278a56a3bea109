"""CausalDecoder: the base class of Llama and its kin, built of layers, a norm and an embedding."""

import functools
import math
from collections.abc import Callable, Sequence

from torch import Tensor, nn

from regard.attn.heads.qk_norm import QKNorm
from regard.attn.multihead import MultiHead
from regard.attn.terms.rotary import Rotary
from regard.common import checks
from regard.layers.causal_stack import CausalStack
from regard.layers.dropout import Dropout
from regard.layers.head_attention import head_parts
from regard.layers.position_choices import check_heads
from regard.layers.transformer import Activation, EncoderLayer, GatedFeedForward
from regard.models.language_model import TransformerLanguageModel, init_weights


class CausalDecoder(TransformerLanguageModel):
    """x = scale · E[w]; layers; p = softmax(W norm x), with positions inside the heads of the layers.

    A model gives the layers, whose parts it chooses: heads with norms and rotations, feed-forward networks, norms and
    the form of the residual connections. `window` limits all layers to that many tokens; a layer may have a mask of its
    own. `tied` shares the embedding with the vocabulary layer.
    """

    output: nn.Linear

    def __init__(
        self,
        vocabulary: int,
        layers: Sequence[EncoderLayer],
        norm: nn.Module,
        *,
        window: int | None = None,
        scale: float = 1.0,
        tied: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        checks.positive_ints(name, vocabulary=vocabulary, window=1 if window is None else window)
        width = layers[0].attention.out.out_features
        self.scale = scale
        self.embedding = nn.Embedding(vocabulary, width)
        self.dropout = Dropout(dropout)
        self.stack = CausalStack(layers, norm, memory=window or 0, same_length=window is not None)
        self.output = nn.Linear(width, vocabulary, bias=False)
        init_weights(self, residual_std=0.02 / math.sqrt(2 * len(layers)))
        nn.init.normal_(self.output.weight, std=0.02)
        if tied:
            self.output.weight = self.embedding.weight

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x = self.embedding(tokens)
        return self.dropout(x if self.scale == 1.0 else x * self.scale)


def llama_layers(
    owner: str,
    *,
    width: int,
    layers: int,
    heads: int,
    kv_heads: int | None,
    head_dim: int | None,
    feed: int | None,
    rotate: Rotary | None,
    activation: Activation,
    eps: float,
    dropout: float,
    attention: str | None = None,
    qk_norm: Callable[[int], QKNorm] | None = None,
    bias: bool = False,
    feed_bias: bool = False,
) -> list[EncoderLayer]:
    """x += attention(rms x); x += W₂ (activation(W_g rms x) ∘ W₁ rms x), with one rotation in all layers.

    `qk_norm` builds the norms of queries and keys for the width of a head.
    """
    feed = 4 * width if feed is None else feed
    checks.positive_ints(owner, layers=layers, feed=feed)
    dim = head_width(owner, width, heads, head_dim)
    rotate = Rotary(dim) if rotate is None else rotate

    def layer(number: int) -> EncoderLayer:
        parts = head_parts(attention, width, heads, dim, layer=number)
        norm_of_model = {} if qk_norm is None else {"qk_norm": qk_norm(dim)}
        multi_head = MultiHead(
            width, heads, kv_heads=kv_heads, head_dim=dim, rotate=rotate, bias=bias, **(parts | norm_of_model)
        )
        return EncoderLayer(
            width,
            feed,
            multi_head,
            residual="pre",
            dropout=dropout,
            norm=functools.partial(nn.RMSNorm, eps=eps),
            activation=activation,
            feed=functools.partial(GatedFeedForward, bias=feed_bias),
        )

    return [layer(n) for n in range(1, layers + 1)]


def head_width(owner: str, width: int, heads: int, head_dim: int | None) -> int:
    """The width per head, which is an even part of the width unless given."""
    if head_dim is None:
        check_heads(owner, width, heads)
        return width // heads
    return head_dim
