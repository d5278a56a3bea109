"""CausalDecoder: the base class of Llama and its kin, built of layers, a norm and an embedding."""

import math
from collections.abc import Sequence

from torch import Tensor, nn

from regard.common import checks
from regard.layers.causal_stack import CausalStack
from regard.layers.dropout import Dropout
from regard.layers.position_choices import check_heads
from regard.layers.transformer import EncoderLayer
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
        width = layers[0].attention.query.in_features
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


def head_width(owner: str, width: int, heads: int, head_dim: int | None) -> int:
    """The width per head, which is an even part of the width unless given."""
    if head_dim is None:
        check_heads(owner, width, heads)
        return width // heads
    return head_dim
