"""GPT2: the generative pre-norm Transformer of Radford et al., with any attention in its heads and any positions."""

import math
from collections.abc import Callable, Sequence

from torch import Tensor, nn

from regard.attn import checks
from regard.attn.multihead import MultiHead
from regard.attn.terms.bias import ALiBi, Bias, RelativeXL, T5Buckets
from regard.attn.terms.position import LearnedPositions, Rotary, Sinusoidal
from regard.layers.causal_stack import CausalStack, check_heads, check_length
from regard.layers.dropout import Dropout
from regard.layers.head_attention import head_attention
from regard.layers.transformer import Activation, EncoderLayer
from regard.models.language_model import TransformerLanguageModel, init_weights

# added to the embeddings; added to the scores by a bias of each layer; a rotation of queries and keys; none at all
ADDED: dict[str, Callable[[int, int], nn.Module]] = {
    "learned": LearnedPositions,
    "sinusoidal": lambda longest, width: Sinusoidal(width),
}
BIASES: dict[str, Callable[[int, int], Bias]] = {
    "relative": lambda width, heads: RelativeXL(width, heads, width // heads),
    "alibi": lambda width, heads: ALiBi(heads),
    "t5": lambda width, heads: T5Buckets(heads, bidirectional=False),
}
POSITIONS = (*ADDED, *BIASES, "rotary", "none")


class GPT2(TransformerLanguageModel):
    """x = E[w] + P; x += attention(norm x); x += W₂ gelu(W₁ norm x); p = softmax(E norm x)  (Radford et al. 2019).

    `positions`: "learned" and "sinusoidal" are added to the embeddings; "relative" (Transformer-XL), "alibi" and "t5"
    to the scores; "rotary" rotates queries and keys; "none". With `memory` every layer also attends to its inputs at
    the last `memory` tokens of the segments before, which needs positions that are no part of the embeddings. None is
    "learned", or "relative" with a memory. `attention` is a name of MECHANISMS for all heads, or a list with one per
    head; None is the scaled dot product. gelu is the form with tanh.
    """

    output: nn.Linear

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int = 256,
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
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        feed = 4 * width if feed is None else feed
        positions = ("relative" if memory else "learned") if positions is None else positions
        checks.known("positions", positions, POSITIONS)
        checks.positive_ints("GPT2", vocabulary=vocabulary, layers=layers, feed=feed, longest=longest)
        check_heads("GPT2", width, heads)
        if memory and positions in ADDED:
            raise ValueError(
                f"positions={positions!r} cannot be used with memory={memory}: positions in the embeddings begin again "
                "in every segment; try positions='relative', 'rotary', 'alibi' or 't5'"
            )
        self.width = width
        self.longest = longest if positions == "learned" else None
        self.embedding = nn.Embedding(vocabulary, width)
        self.place = ADDED[positions](longest, width) if positions in ADDED else None
        self.dropout = Dropout(dropout)

        def multi_head() -> MultiHead:
            bias = BIASES[positions](width, heads) if positions in BIASES else None
            rotate = Rotary(width // heads) if positions == "rotary" else None
            return MultiHead(
                width, heads, attention=head_attention(attention, heads, width // heads, bias), rotate=rotate
            )

        def norm(dim: int) -> nn.LayerNorm:
            return nn.LayerNorm(dim, eps)

        activation = nn.GELU("tanh") if activation is None else activation
        self.stack = CausalStack(
            [
                EncoderLayer(
                    width, feed, multi_head(), norm_first=True, dropout=dropout, norm=norm, activation=activation
                )
                for _ in range(layers)
            ],
            norm(width),
            memory=memory,
            same_length=same_length,
        )
        self.output = nn.Linear(width, vocabulary, bias=False)
        self.output.weight = self.embedding.weight
        init_weights(self, residual_std=0.02 / math.sqrt(2 * layers))

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        if self.longest is not None and positions.numel():
            check_length(int(positions.max()) + 1, self.longest, "GPT2")
        x = self.embedding(tokens)
        return self.dropout(x if self.place is None else self.place(x, positions))
