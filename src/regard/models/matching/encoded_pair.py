"""Pairs of texts above pretrained encoders: two texts in one encoder, or one encoder per text and attention between."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attn.mechanisms.coattention import CoAttention
from regard.attn.terms.learnable import Learnable
from regard.attn.terms.score import Cosine, Dot
from regard.common import checks
from regard.layers.dropout import Dropout
from regard.layers.text_pooling import pool_texts
from regard.models.matching.pair_matcher import PairMatcher, cross_attend, named_coattention, pool_both
from regard.models.matching.word_matcher import PairModel
from regard.models.transfer.fine_tuned_encoder import fine_tuning_rates
from regard.models.transfer.text_encoder import TextEncoder


class TokenizedPairs(NamedTuple):
    """The tokens of the first and of the second texts."""

    first: Tensor  # "b n"
    second: Tensor  # "b m"
    first_lengths: Tensor  # "b"
    second_lengths: Tensor  # "b"

    def to(self, device: torch.device) -> "TokenizedPairs":
        return TokenizedPairs(*(t.to(device) for t in self))


class VectorPairs(NamedTuple):
    """The states of an encoder for the first and the second texts."""

    first: Tensor  # "b n d"
    second: Tensor  # "b m e"
    first_lengths: Tensor  # "b"
    second_lengths: Tensor  # "b"


class EncodedPairModel(PairModel):
    """matcher(encoder(a), encoder(b)), or matcher(encoder(a), second(b)): token vectors of pretrained encoders.

    `layer_decay` and `head_rate` are those of `fine_tuning_rates`.
    """

    def __init__(
        self,
        encoder: TextEncoder,
        matcher: PairMatcher,
        *,
        second: TextEncoder | None = None,
        layer_decay: float = 0.9,
        head_rate: float = 10.0,
    ) -> None:
        super().__init__()
        self.encoder, self.matcher, self.second = encoder, matcher, second
        self.lr_multipliers = fine_tuning_rates(self, layer_decay, head_rate)
        if second is not None:
            del self.lr_multipliers["second"]
            self.lr_multipliers |= second.lr_multipliers("second", layer_decay)

    @property
    def encoders(self) -> tuple[TextEncoder, TextEncoder]:
        """The encoder of the first texts and that of the second texts."""
        return self.encoder, self.encoder if self.second is None else self.second

    def forward(self, inputs: TokenizedPairs | VectorPairs) -> Tensor:  # -> "b k"
        if isinstance(inputs, TokenizedPairs):
            first, second = self.encoders
            inputs = VectorPairs(
                first(inputs.first, inputs.first_lengths),
                second(inputs.second, inputs.second_lengths),
                inputs.first_lengths,
                inputs.second_lengths,
            )
        return self.matcher(*inputs)

    @property
    def embedding(self) -> nn.Module:
        return self.encoder.embedding

    @property
    def vector_layers(self) -> tuple[nn.Module, ...]:
        return tuple(encoder.embedding for encoder in self.encoders)


class CoMatcher(PairMatcher):
    """y = W tanh(V [p_a; p_b; |ā − b̄|; ā∘b̄]), p_a = mean and max of relu(C [a; ã; a − ã; a∘ã]), ā = mean a, a = P x.

    x and z are the states of the texts. If one encoder reads both, ã = P Σ_j softmax_j(β cos(x_i, z_j)) z_j: such
    states are comparable before any training. With another encoder of states of the width `second_dim`,
    ã = softmax(a bᵀ/√d) b, and b has a map of its own. `joint_attention` is a name of MECHANISMS whose score and
    normalizer compare a and b instead; "paper" is the attention above.
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        *,
        second_dim: int | None = None,
        width: int = 200,
        joint_attention: str = "paper",
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        checks.positive_ints("CoMatcher", dim=dim, classes=classes, width=width)
        self.first = nn.Linear(dim, width)
        self.second = None if second_dim is None else nn.Linear(second_dim, width)
        self.compares_states = joint_attention == "paper" and second_dim is None
        if self.compares_states:
            self.attention = CoAttention(Cosine(Learnable(10.0)))
        else:
            self.attention = (
                CoAttention(Dot()) if joint_attention == "paper" else named_coattention(joint_attention, width)
            )
        self.compare = nn.Linear(4 * width, width)
        self.feed = nn.Linear(6 * width, width)
        self.output = nn.Linear(width, classes)
        self.dropout = Dropout(dropout)

    def forward(
        self, first: Tensor, second: Tensor, first_lengths: Tensor, second_lengths: Tensor
    ) -> Tensor:  # "b n d", "b m e", "b", "b" -> "b k"
        lengths = first_lengths, second_lengths
        a = self.first(self.dropout(first))
        b = (self.first if self.second is None else self.second)(self.dropout(second))
        if self.compares_states:
            states = cross_attend(self.attention, first, second, *lengths)
            read = tuple(self.first(self.dropout(x)) for x in states)
        else:
            read = cross_attend(self.attention, a, b, *lengths)
        pooled = [
            pool_both(torch.relu(self.compare(torch.cat([x, other, x - other, x * other], -1))), count)
            for x, other, count in zip((a, b), read, lengths, strict=True)
        ]
        means = [pool_texts(x, count, "mean") for x, count in zip((a, b), lengths, strict=True)]
        features = torch.cat([*pooled, (means[0] - means[1]).abs(), means[0] * means[1]], -1)
        hidden = torch.tanh(self.feed(self.dropout(features)))
        return self.output(self.dropout(hidden))


class JoinedTexts(NamedTuple):
    """Pairs as one row of tokens each; `types` tells the texts apart."""

    tokens: Tensor  # "b t"
    lengths: Tensor  # "b"
    types: Tensor  # "b t"

    def to(self, device: torch.device) -> "JoinedTexts":
        return JoinedTexts(*(t.to(device) for t in self))


class PairEncoder(PairModel):
    """W tanh(V pool(encoder([a; b]))): both texts as one, told apart by token types  (Devlin et al. 2019)."""

    def __init__(
        self,
        encoder: TextEncoder,
        classes: int,
        *,
        pooling: str = "mean",
        dropout: float = 0.1,
        layer_decay: float = 0.9,
        head_rate: float = 10.0,
    ) -> None:
        super().__init__()
        checks.positive_ints("PairEncoder", classes=classes)
        self.encoder, self.pooling = encoder, pooling
        self.feed = nn.Linear(encoder.width, encoder.width)
        self.output = nn.Linear(encoder.width, classes)
        self.dropout = Dropout(dropout)
        self.lr_multipliers = fine_tuning_rates(self, layer_decay, head_rate)

    def forward(self, inputs: JoinedTexts) -> Tensor:  # -> "b k"
        states = self.encoder(inputs.tokens, inputs.lengths, inputs.types)
        pooled = pool_texts(states, inputs.lengths, self.pooling)
        return self.output(self.dropout(torch.tanh(self.feed(self.dropout(pooled)))))

    @property
    def embedding(self) -> nn.Module:
        return self.encoder.embedding
