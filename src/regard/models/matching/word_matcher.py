"""WordMatcher: a matcher above trained vectors of words; and PairModel, the base of models that read pairs of texts."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.common import checks
from regard.data.text.words import WordInputs
from regard.layers.character_convolution import CharacterConvolution
from regard.models.matching.pair_matcher import PairMatcher


class PairModel(nn.Module, ABC):
    """logits = f(inputs), "b k"; the inputs hold b pairs of texts in the form that the model reads."""

    attends: ClassVar[bool] = True

    @abstractmethod
    def forward(self, inputs: Any) -> Tensor: ...  # -> "b k"

    @property
    def embedding(self) -> nn.Module | None:
        """The layer that embeds the tokens of a text, if it is trained here."""
        return None

    @property
    def vector_layers(self) -> tuple[nn.Module, ...]:
        """The layers whose output is the vector of every token, "r t d", before tokens meet: one for both texts, or one
        per text; none if there are no such vectors."""
        return () if self.embedding is None else (self.embedding,)


class WordMatcher(PairModel):
    """matcher(v(a), v(b)), v(w) = [E[w]; max_i conv(characters of w)_i], or E[w] alone without `characters`.

    Row n of the inputs is the first text of a pair and row b + n the second.
    """

    def __init__(self, matcher: PairMatcher, words: nn.Embedding, characters: CharacterConvolution | None) -> None:
        super().__init__()
        self.matcher, self.words, self.characters = matcher, words, characters
        # where hooks find the vectors as the matcher reads them
        self.vectors = nn.Identity()

    def forward(self, inputs: WordInputs) -> Tensor:
        vectors = self.words(inputs.words)
        if self.characters is not None:
            vectors = torch.cat([vectors, self.characters(inputs.characters)[inputs.spellings]], -1)
        return match_rows(self.matcher, self.vectors(vectors), inputs.lengths)

    @property
    def embedding(self) -> nn.Module:
        return self.words

    @property
    def vector_layers(self) -> tuple[nn.Module, ...]:
        return (self.vectors,)


def match_rows(matcher: PairMatcher, vectors: Tensor, lengths: Tensor) -> Tensor:  # "2b t d", "2b" -> "b k"
    """The logits of pairs whose second texts stand below the first ones."""
    (first, second), (of_first, of_second) = vectors.chunk(2), lengths.chunk(2)
    return matcher(first[:, : int(of_first.max())], second[:, : int(of_second.max())], of_first, of_second)


class BagOfPairs(PairModel):
    """logits = b + Σ_f W_f over the features of a pair: logistic regression that ignores the order of words.

    Features are numbers from 1; 0 is padding. Weights start at zero.
    """

    attends: ClassVar[bool] = False

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        checks.positive_ints("BagOfPairs", features=features, classes=classes)
        self.weights = nn.EmbeddingBag(features + 1, classes, mode="sum", padding_idx=0)
        self.bias = nn.Parameter(torch.zeros(classes))
        nn.init.zeros_(self.weights.weight)

    def forward(self, inputs: Tensor) -> Tensor:  # "b f" -> "b k"
        return self.weights(inputs) + self.bias
