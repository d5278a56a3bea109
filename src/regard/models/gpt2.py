"""GPT2: the generative pre-norm Transformer of Radford et al., with any attention in its heads and any positions."""

import math
from collections.abc import Callable, Sequence

from torch import Tensor, nn

from regard.attn.mechanisms.latent import Latent
from regard.attn.multihead import MultiHead
from regard.common import checks
from regard.layers.causal_stack import CausalStack
from regard.layers.dropout import Dropout
from regard.layers.gelu import TanhGELU
from regard.layers.position_choices import ADDED, PositionChoice
from regard.layers.transformer import Activation, EncoderLayer
from regard.models.language_model import TransformerLanguageModel, init_weights


def gpt2_stack(
    width: int,
    feed: int,
    layers: int,
    multi_head: Callable[[int], MultiHead | Latent],
    *,
    activation: Activation | None = None,
    eps: float = 1e-5,
    dropout: float = 0.0,
    memory: int = 0,
    same_length: bool = False,
) -> CausalStack:
    """The blocks of GPT-2: x += attention(norm x); x += W₂ gelu(W₁ norm x); a norm behind the last.

    `multi_head` takes the number of a layer, from 1.
    """
    activation = TanhGELU() if activation is None else activation

    def norm(dim: int) -> nn.LayerNorm:
        return nn.LayerNorm(dim, eps)

    blocks = [
        EncoderLayer(width, feed, multi_head(n), residual="pre", dropout=dropout, norm=norm, activation=activation)
        for n in range(1, layers + 1)
    ]
    return CausalStack(blocks, norm(width), memory=memory, same_length=same_length)


class GPT2(TransformerLanguageModel):
    """x = E[w] + P; x += attention(norm x); x += W₂ gelu(W₁ norm x); p = softmax(E norm x)  (Radford et al. 2019).

    `positions`: "learned" and "sinusoidal" are added to the embeddings; "transformer-xl", "alibi" and "t5"
    to the scores; "rotary" rotates queries and keys; "none". With `memory` every layer also attends to its inputs at
    the last `memory` tokens of the segments before, which needs positions that are no part of the embeddings. None is
    "learned", or "transformer-xl" with a memory. `attention` is a name of MECHANISMS for all heads, or a list with one
    per head; None is the scaled dot product. gelu is the form with tanh.
    """

    output: nn.Linear

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int = 128,
        layers: int = 4,
        heads: int = 4,
        feed: int | None = None,
        longest: int = 1024,
        positions: str | None = None,
        memory: int = 0,
        same_length: bool = False,
        attention: str | Sequence[str] | None = None,
        activation: Activation | None = None,
        eps: float = 1e-5,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        feed = 4 * width if feed is None else feed
        positions = ("transformer-xl" if memory else "learned") if positions is None else positions
        choice = PositionChoice(positions, width, heads, longest, True, "GPT2")
        checks.positive_ints("GPT2", vocabulary=vocabulary, layers=layers, feed=feed)
        if memory and positions in ADDED:
            raise ValueError(
                f"positions={positions!r} cannot be used with memory={memory}: positions in the embeddings begin again "
                "in every segment; try positions='transformer-xl', 'rotary', 'alibi' or 't5'"
            )
        self.positions = choice
        self.embedding = nn.Embedding(vocabulary, width)
        self.place = choice.added()
        self.dropout = Dropout(dropout)
        self.stack = gpt2_stack(
            width,
            feed,
            layers,
            lambda layer: choice.multi_head(attention, layer),
            activation=activation,
            eps=eps,
            dropout=dropout,
            memory=memory,
            same_length=same_length,
        )
        self.output = nn.Linear(width, vocabulary, bias=False)
        self.output.weight = self.embedding.weight
        init_weights(self, residual_std=0.02 / math.sqrt(2 * layers))

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return self.dropout(self.positions.add(self.place, self.embedding(tokens), positions))
