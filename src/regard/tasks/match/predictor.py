"""MatchPredictor: two texts in, the probabilities of their classes out."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from regard.attn.maps.attention_map import AttentionMap, DenseMap
from regard.common.eval_mode import eval_mode
from regard.inference.embedded_classifier import TokenInput, TokenLayer
from regard.inference.token_places import TokenPlace, VocabularyTexts, parts_in
from regard.models.matching.word_matcher import PairModel
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.tasks.match.data import PAIR_PATTERN, parse_pair
from regard.tasks.match.options import Match
from regard.tasks.match.readers import PairReader
from regard.tasks.shared.pair_maps import joined_recording, numbered_texts
from regard.tasks.shared.text_class_predictor import TextClasses, TextClassPredictor, TokenizedText
from regard.viz.recording.figures import draw_recording


def _between(recorded_map: RecordedMap, places: list[int]) -> RecordedMap:
    """The part of a map over all texts that is between these places."""

    def part(weights: AttentionMap) -> AttentionMap:
        return DenseMap(weights.dense()[..., places, :][..., places])

    gradient = None if recorded_map.gradient is None else part(recorded_map.gradient)
    return replace(recorded_map, weights=part(recorded_map.weights), gradient=gradient)


class MatchPredictor(TextClassPredictor):
    """two texts -> tokens -> classes, in batches of pairs of similar length.

    An input is both texts with a tab between them, or on two lines.
    """

    served_as = Match.name
    page_title = "Match two texts, one per line, with {run}"
    page_example = "A man is playing a guitar.\nA person plays an instrument."
    text_schema = MappingProxyType({"pattern": PAIR_PATTERN})

    model: PairModel

    def __init__(
        self, model: PairModel, reader: PairReader[Any], classes: Sequence[str], *, max_length: int, batch: int = 64
    ) -> None:
        self.model, self.reader, self.classes = model, reader, list(classes)
        self.max_length, self.batch = max_length, batch

    # Prediction

    def read(self, argument: str) -> str:
        parse_pair(argument, self.max_length)
        return argument

    def tokenize(self, inputs: Sequence[str]) -> list[TokenizedText]:
        return [*map(TokenizedText, self._tokens(inputs))]

    def _tokens(self, inputs: Sequence[str]) -> list[Any]:
        pairs = [parse_pair(text, self.max_length) for text in inputs]
        return self.reader.tokenize([first for first, _ in pairs], [second for _, second in pairs])

    def length(self, tokens: Any) -> tuple[int, ...]:
        return tuple(self.reader.lengths(tokens))

    def logits(self, tokens: Sequence[Any]) -> Tensor:  # -> "b k"
        return self.model(self.reader.inputs(tokens).to(self.device))

    @property
    def embedding(self) -> nn.Module | None:
        return self.model.embedding

    def embeddings(self, inputs: Sequence[str]) -> Tensor:  # -> "2b t d"
        """The vectors of the words of the first texts, and below them those of the second texts.

        Those of a pretrained encoder are "b t d": of both texts as one; with an encoder per text, of the first ones.
        """
        if self.embedding is None:
            return super().embeddings(inputs)
        read = self.reader.inputs(self._tokens(inputs)).to(self.device)
        vectors: Tensor = self.embedding(read[0])
        return vectors

    # Tokens

    def encode_tokens(self, inputs: Sequence[str]) -> list[TokenInput]:
        return [self.reader.token_input(*parse_pair(text, self.max_length)) for text in inputs]

    def token_logits(self, tokens: Sequence[TokenInput]) -> Tensor:  # -> "b k"
        with eval_mode(self.model):
            return self.logits([*map(self.reader.from_tokens, tokens)])

    @property
    def token_layers(self) -> tuple[TokenLayer, ...]:
        layers = self.model.vector_layers
        return tuple(TokenLayer(*pair) for pair in zip(layers, self.reader.paddings, strict=False))

    def vector_places(self, tokens: Sequence[TokenInput]) -> list[Tensor]:  # -> "n 3" each
        return [torch.tensor(cells, device=self.device).reshape(-1, 3) for cells in self.reader.vector_places(tokens)]

    def token_recording(self, recording: Recording, tokens: TokenInput) -> Recording:
        first, second, *_ = (*tokens.parts(tokens.names), [])
        joined = joined_recording(recording, first, second)
        # a null token before either text is no token of the input
        nulls = (0, len(first) + 1)
        inside = [n for n in range(len(tokens) + 2) if n not in nulls]
        maps = (_between(m, inside) if m.shape[-1] > len(tokens) else m for m in joined)
        # all of this is self-attention of the input, whose tokens are those of both texts
        maps = (replace(m, kind="self") for m in maps)
        # an encoder of each text alone attends to a part of the tokens
        return replace(joined, maps=tuple(m for m in maps if m.shape[-1] == len(tokens)))

    # Attacks

    def token_texts(self) -> VocabularyTexts:
        return self.reader.token_texts()

    def token_places(self, text: str) -> list[TokenPlace]:
        """The tokens of both texts; those of the first alone, if each text has an encoder of its own."""
        pair = parse_pair(text, self.max_length)
        read = zip(parts_in(text, pair), self.reader.token_places(*pair), strict=False)
        return [place.moved(start) for start, part in read for place in part]

    def can_read(self, text: str) -> bool:
        try:
            self._tokens([text])
        except ValueError:
            return False
        return True

    # The attention behind a class

    def label(self, recording: Recording, example: str, output: TextClasses) -> Recording:
        """Rows and columns are the tokens of both texts, one behind the other."""
        (tokens,) = self._tokens([example])
        named = joined_recording(recording, *self.reader.names(tokens))
        first, second = parse_pair(example, self.max_length)
        return replace(named, about={**named.about, "text": f"{first}\n{second}", "said": self.said(output)})

    def draw_figure(self, recording: Recording, example: str, output: TextClasses, path: Path) -> Path:
        """Both texts on the left and on the right, with lines from every token to those of the other text."""
        (tokens,) = self._tokens([example])
        first, second = self.reader.names(tokens)
        if second:
            recording = numbered_texts(recording, len(first), len(second))
        return draw_recording(recording, path, what="lines", layer=len(recording) - 1)

    # Services

    def example(self) -> str:
        return "a b\tc"
