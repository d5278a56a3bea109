"""BERT: the bidirectional encoder of Devlin et al., its masked-LM head and its classifier."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Need
from regard.attn.terms.mask import Mask
from regard.common import checks
from regard.layers.dropout import Dropout
from regard.layers.position_choices import PositionChoice
from regard.layers.transformer import Activation, EncoderLayer
from regard.losses.vocabulary import vocabulary_loss
from regard.models.language_model import init_weights

NORMS = ("pre", "post")


class Pooler(nn.Module):
    """tanh(W x + b), x the state of the first token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:  # "… d" -> "… d"
        return torch.tanh(self.linear(x))


class BERT(nn.Module):
    """x = norm(E[w] + P + S[type]); x = norm(x + attention(x)); x = norm(x + W₂ gelu(W₁ x))  (Devlin et al. 2019).

    `types` is the number of token types; a text without types has type 0, whose vector is added, too. `positions` and
    `attention` are those of GPT2, in both directions. `norm` stands behind each sublayer ("post", as in the paper) or
    before it. gelu is the exact form. With `pooler` the model has `pooler(states[:, 0])`, trained with a classifier.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int = 256,
        layers: int = 4,
        heads: int = 4,
        feed: int | None = None,
        longest: int = 512,
        types: int = 2,
        positions: str = "learned",
        norm: str = "post",
        attention: str | Sequence[str] | None = None,
        activation: Activation | None = None,
        eps: float = 1e-12,
        pooler: bool = False,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        feed = 4 * width if feed is None else feed
        checks.known("norm", norm, NORMS)
        checks.positive_ints("BERT", vocabulary=vocabulary, layers=layers, feed=feed, types=types)
        self.positions = PositionChoice(positions, width, heads, longest, False, "BERT")
        self.width = width
        self.embedding = nn.Embedding(vocabulary, width)
        self.place = self.positions.added()
        self.types = nn.Embedding(types, width)
        self.embedding_norm = nn.LayerNorm(width, eps)
        self.dropout = Dropout(dropout)

        def layer(number: int) -> EncoderLayer:
            return EncoderLayer(
                width,
                feed,
                self.positions.multi_head(attention, number),
                residual=norm,
                dropout=dropout,
                norm=lambda dim: nn.LayerNorm(dim, eps),
                activation=nn.GELU() if activation is None else activation,
            )

        self.layers = nn.ModuleList(layer(n) for n in range(1, layers + 1))
        self.norm = nn.LayerNorm(width, eps) if norm == "pre" else nn.Identity()
        self.pooler = Pooler(width) if pooler else None
        init_weights(self, residual_std=0.02)

    def embed(
        self, tokens: Tensor, *, types: Tensor | None = None, positions: Tensor | None = None
    ) -> Tensor:  # "*b t", types "*b t", positions "t" or "*b t" -> "*b t d"
        """norm(E[w] + P + S[type]), the input of the first layer."""
        here = torch.arange(tokens.shape[-1], device=tokens.device) if positions is None else positions
        x = self.positions.add(self.place, self.embedding(tokens), here)
        x = x + self.types(torch.zeros_like(tokens) if types is None else types)
        embedded: Tensor = self.dropout(self.embedding_norm(x))
        return embedded

    def forward(
        self,
        tokens: Tensor,
        mask: Mask | Tensor | None = None,
        *,
        types: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:  # "b t", types "b t", positions "t" or "b t" -> "b t d"
        """`mask` hides padding, Lengths(lengths), or separates packed texts, Documents(ids) with their `positions`."""
        return self.attend(tokens, mask, types=types, positions=positions)[0]

    def attend(
        self,
        tokens: Tensor,
        mask: Mask | Tensor | None = None,
        *,
        types: Tensor | None = None,
        positions: Tensor | None = None,
        need: Need = NOTHING,
    ) -> tuple[Tensor, Tensor | None]:  # "b t" -> "b t d", "b h t t"
        """The states, and the weights of the last layer if they are requested."""
        x = self.embed(tokens, types=types, positions=positions)
        both = None if positions is None else (positions, positions)
        weights = None
        for n, layer in enumerate(self.layers, 1):
            wanted = need if n == len(self.layers) else NOTHING
            x, _, weights = layer(x, mask, positions=both, need=wanted)
        return self.norm(x), weights

    def levels(
        self, tokens: Tensor, mask: Mask | Tensor | None = None, *, types: Tensor | None = None
    ) -> list[Tensor]:  # "b t" -> "b t d" each
        """The embedded tokens and the states behind every layer; the last are those of `forward`."""
        states = [self.embed(tokens, types=types)]
        for layer in self.layers:
            states.append(layer(states[-1], mask)[0])
        return [*states[:-1], self.norm(states[-1])]


class BERTMaskedLM(nn.Module):
    """p(w | text) = softmax(E norm(gelu(W x)) + b) at every token; E is the embedding of the encoder."""

    def __init__(self, encoder: BERT, *, activation: Activation | None = None, eps: float = 1e-12) -> None:
        super().__init__()
        self.encoder = encoder
        self.transform = nn.Linear(encoder.width, encoder.width)
        self.activation = nn.GELU() if activation is None else activation
        self.norm = nn.LayerNorm(encoder.width, eps)
        self.output = nn.Linear(encoder.width, encoder.embedding.num_embeddings)
        self.output.weight = encoder.embedding.weight
        nn.init.normal_(self.transform.weight, std=0.02)
        for linear in (self.transform, self.output):
            nn.init.zeros_(linear.bias)

    def head(self, x: Tensor) -> Tensor:  # "… d" -> "… d"
        """The inputs of the vocabulary layer, from states of the encoder: select the masked tokens before."""
        return self.norm(self.activation(self.transform(x)))

    def token_loss(self, x: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:  # "n d", "n" -> scalar, "n"
        """Σ −log p(target), to be trained, and −log p of each target, from states of the encoder."""
        return vocabulary_loss(self.output, self.head(x), targets)

    def forward(
        self, tokens: Tensor, mask: Mask | Tensor | None = None, *, types: Tensor | None = None
    ) -> Tensor:  # "b t" -> "b t v"
        return self.output(self.head(self.encoder(tokens, mask, types=types)))


class BERTClassifier(nn.Module):
    """W tanh(W_p x + b_p) + b, x the state of the first token."""

    def __init__(self, encoder: BERT, classes: int, *, dropout: float = 0.1) -> None:
        super().__init__()
        checks.positive_ints("BERTClassifier", classes=classes)
        if encoder.pooler is None:
            raise ValueError(
                "encoder has no pooler, which a BERTClassifier reads; build it with BERT(..., pooler=True)"
            )
        self.encoder = encoder
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(encoder.width, classes)
        nn.init.normal_(self.output.weight, std=0.02)
        nn.init.zeros_(self.output.bias)

    def forward(
        self, tokens: Tensor, mask: Mask | Tensor | None = None, *, types: Tensor | None = None
    ) -> Tensor:  # "b t" -> "b c"
        return self.head(self.encoder(tokens, mask, types=types))

    def head(self, states: Tensor) -> Tensor:  # "b t d" -> "b c"
        """The logits, from states of the encoder."""
        assert self.encoder.pooler is not None
        return self.output(self.dropout(self.encoder.pooler(states[:, 0])))
