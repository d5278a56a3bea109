"""TransformerXL: the language model of Dai et al., with segment memory, relative positions and an adaptive softmax."""

import itertools
import math
from collections.abc import Sequence

from torch import Tensor, nn

from regard.attn.multihead import MultiHead
from regard.attn.terms.bias import RelativeXL
from regard.common import checks
from regard.layers.adaptive_embedding import AdaptiveEmbedding
from regard.layers.causal_stack import CausalStack
from regard.layers.dropout import Dropout
from regard.layers.head_attention import head_parts
from regard.layers.position_choices import check_heads
from regard.layers.transformer import EncoderLayer
from regard.losses.vocabulary import AdaptiveSoftmax, cluster_bounds, cluster_widths
from regard.models.language_model import TransformerLanguageModel, init_weights

NORMS = ("pre", "post")


class TransformerXL(TransformerLanguageModel):
    """h_n = layer_n(h_{n−1}), keys and values from [stop-gradient memory of h_{n−1}; h_{n−1}]  (Dai et al. 2019).

    Scores are ((q_i + u)·k_j + (q_i + v)·W R_{i−j}) / √d, with u and v shared by all layers unless `shared_uv` is
    false; distances beyond `clamp` count as `clamp`. A segment attends to the last `memory` tokens before it, which are
    a value: `hidden_states(tokens, memory)` returns the next one, and `init_memory(keep)` an empty one of any length.
    With `same_length` every token attends to `memory` tokens, itself included. `cutoffs` divide a vocabulary sorted by
    frequency into clusters with vectors of width d, d/div, d/div², … for input and output, which share their tables;
    without them the output is a plain layer. `norm` stands behind each sublayer ("post", as in the paper) or before it.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int = 128,
        layers: int = 4,
        heads: int = 4,
        feed: int | None = None,
        memory: int = 128,
        same_length: bool = False,
        clamp: int | None = None,
        shared_uv: bool = True,
        cutoffs: Sequence[int] = (),
        div: int = 4,
        norm: str = "post",
        attention: str | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        feed = 4 * width if feed is None else feed
        checks.known("norm", norm, NORMS)
        checks.positive_ints("TransformerXL", layers=layers, feed=feed, div=div)
        check_heads("TransformerXL", width, heads)
        bounds = cluster_bounds(vocabulary, cutoffs, "TransformerXL")
        sizes = [high - low for low, high in itertools.pairwise(bounds)]
        self.width = width
        self.embedding = AdaptiveEmbedding(sizes, cluster_widths(width, len(cutoffs), div))
        self.dropout = Dropout(dropout)
        biases = [RelativeXL(width, heads, width // heads, clamp=clamp) for _ in range(layers)]
        for bias in biases[1:] if shared_uv else ():
            bias.u, bias.v = biases[0].u, biases[0].v

        def layer(bias: RelativeXL, number: int) -> EncoderLayer:
            parts = head_parts(attention, width, heads, width // heads, bias, number)
            heads_layer = MultiHead(width, heads, bias=False, **parts)
            return EncoderLayer(width, feed, heads_layer, residual=norm, dropout=dropout)

        self.stack = CausalStack(
            [layer(bias, number) for number, bias in enumerate(biases, 1)],
            nn.LayerNorm(width) if norm == "pre" else nn.Identity(),
            memory=memory,
            same_length=same_length,
        )
        self.output = AdaptiveSoftmax(width, vocabulary, cutoffs, div=div) if cutoffs else nn.Linear(width, vocabulary)
        init_weights(self, residual_std=0.02)
        # shared with the input  (Press & Wolf 2017)
        linears = [self.output]
        if isinstance(self.output, AdaptiveSoftmax):
            linears = [self.output.shortlist, *self.output.tails]
            self.output.projections = self.embedding.projections
        for linear, table in zip(linears, self.embedding.tables, strict=True):
            linear.weight = table.weight
            nn.init.zeros_(linear.bias)  # type: ignore[arg-type]

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return self.dropout(math.sqrt(self.width) * self.embedding(tokens))
