"""TextVictim: a predictor of texts under attack; its scores, its gradients by tokens, and the count of its passes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.inference.edited_text import EditedText
from regard.inference.embedding_gradient import embedding_gradient
from regard.inference.token_places import TokenPlace, VocabularyTexts
from regard.inference.token_predictor import TextScores, TokenPredictor


class PlaceGradient(NamedTuple):
    """The tokens of a text, and the gradient of its loss by the vector of each."""

    places: list[TokenPlace]
    gradient: Tensor  # "n d"


class TextVictim:
    """A predictor in evaluation mode. `batch` texts are scored per pass; `queries` counts texts, not passes."""

    def __init__(self, predictor: TokenPredictor, batch: int) -> None:
        self.predictor, self._batch = predictor, batch
        self.queries = 0
        self.texts_without_gradient: set[str] = set()
        self._vocabulary: VocabularyTexts | None = None

    @property
    def vocabulary(self) -> VocabularyTexts:
        if self._vocabulary is None:
            self._vocabulary = self.predictor.token_texts()
        return self._vocabulary

    def vectors(self, attack: str) -> Tensor:  # -> "v d"
        """The vectors of all tokens; raises if the model has none, in the name of the attack that asks."""
        embedding = self.predictor.embedding
        if not isinstance(embedding, nn.Embedding):
            raise ValueError(
                f"{attack} compares vectors of tokens, and {type(self.predictor.model).__name__} has no embedding of "
                "tokens; use CharacterEdits(), the attack characters, which needs none"
            )
        # an embedding may have more rows than there are tokens
        return embedding.weight.detach()[: len(self.vocabulary.texts)]

    @torch.no_grad()
    def scores(self, texts: Sequence[EditedText], targets: Sequence[Any]) -> TextScores:
        """An edited text that is too long for the model has the lowest loss, and is not wrong."""
        readable = [n for n, text in enumerate(texts) if self.predictor.can_read(text.text)]
        loss = torch.full((len(texts),), -torch.inf, dtype=torch.float64)
        is_wrong = torch.zeros(len(texts), dtype=torch.bool)
        for start in range(0, len(readable), self._batch):
            rows = readable[start : start + self._batch]
            scores = self.predictor.attack_scores([texts[n] for n in rows], [targets[n] for n in rows])
            loss[rows], is_wrong[rows] = scores.loss.cpu().double(), scores.is_wrong.cpu()
        self.queries += len(readable)
        return TextScores(loss, is_wrong)

    def gradient(self, text: EditedText, target: Any) -> PlaceGradient:
        """The gradient of the loss by the vectors of the tokens of one text."""
        embedding = self.predictor.embedding
        assert embedding is not None
        self.queries += 1
        read = embedding_gradient(embedding, lambda: self.predictor.attack_scores([text], [target]).loss)
        places = self.predictor.token_places(text.text)
        gradient = read.gradient[_rows(read.tokens.tolist(), [place.token for place in places])]
        if not gradient.any():
            self.texts_without_gradient.add(text.original)
        return PlaceGradient(places, gradient)


def _rows(embedded: Sequence[int], tokens: Sequence[int]) -> list[int]:
    """The places of a text's tokens among those that the model embedded, which begin, end and pad it as well."""
    rows, row = [], 0
    for token in tokens:
        row = embedded.index(token, row)
        rows.append(row)
        row += 1
    return rows
