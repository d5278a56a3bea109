"""MatchPredictor: two texts in, the probabilities of their classes out."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.attn.maps.attention_map import AttentionMap, DenseMap
from regard.common.eval_mode import eval_mode
from regard.common.options.checks import check_top
from regard.inference.edited_text import EditedText
from regard.inference.embedded_classifier import TokenInput, TokenLayer
from regard.inference.endpoint import Endpoint
from regard.inference.limits import Limits
from regard.inference.margins import ranking_margin
from regard.inference.predictor import Observe, PictureSession, PredictionSession, Predictor, check_texts
from regard.inference.token_places import TokenPlace, VocabularyTexts, parts_in
from regard.inference.token_predictor import TextScores, class_numbers, margin_scores
from regard.models.matching.word_matcher import PairModel
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.tasks.match.data import PAIR_PATTERN, parse_pair
from regard.tasks.match.options import Match
from regard.tasks.match.readers import PairReader
from regard.tasks.shared.pair_maps import joined_recording, numbered_texts
from regard.tasks.shared.text_options import PredictTextClasses
from regard.viz.plots.figure_file import SUFFIXES
from regard.viz.recording.figures import draw_recording
from regard.viz.show import show


@dataclass(frozen=True)
class PairClasses:
    """The classes of a pair with their probabilities, the likeliest first; `top` of them are printed."""

    probabilities: tuple[tuple[str, float], ...]
    top: int = 1


def _between(recorded_map: RecordedMap, places: list[int]) -> RecordedMap:
    """The part of a map over all texts that is between these places."""

    def part(weights: AttentionMap) -> AttentionMap:
        return DenseMap(weights.dense()[..., places, :][..., places])

    gradient = None if recorded_map.gradient is None else part(recorded_map.gradient)
    return replace(recorded_map, weights=part(recorded_map.weights), gradient=gradient)


class MatchPredictor(Predictor[str, PairClasses]):
    """two texts -> tokens -> classes, in batches of pairs of similar length.

    An input is both texts with a tab between them, or on two lines.
    """

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

    def _tokens(self, inputs: Sequence[str]) -> list[Any]:
        pairs = [parse_pair(text, self.max_length) for text in inputs]
        return self.reader.tokenize([first for first, _ in pairs], [second for _, second in pairs])

    def predict(
        self, inputs: Sequence[str], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[PairClasses]:
        check_texts(inputs)
        options = PredictTextClasses() if options is None else options
        check_top(options, len(self.classes))
        tokens = self._tokens(inputs)
        with observe():
            probabilities = self.probabilities(tokens)
        outputs = []
        for row in probabilities:
            order = np.argsort(-row, kind="stable").tolist()
            outputs.append(PairClasses(tuple((self.classes[k], float(row[k])) for k in order), options.top))
        return outputs

    @torch.no_grad()
    def probabilities(
        self,
        tokens: Sequence[Any],
        done: Callable[[int], object] | None = None,
        prepare: Callable[[Any], Any] = lambda inputs: inputs,
    ) -> NDArray[np.float64]:  # -> "n k"
        """p(class | pair) of pairs as tokens; `done` is called with the number of pairs that are classified.

        `prepare` is called with the inputs of every batch, and returns what the model reads.
        """
        rows = np.empty((len(tokens), len(self.classes)))
        order = sorted(range(len(tokens)), key=lambda n: (*self.reader.lengths(tokens[n]), n))
        with eval_mode(self.model):
            for start in range(0, len(order), self.batch):
                index = order[start : start + self.batch]
                logits = self.model(prepare(self.reader.inputs([tokens[n] for n in index]).to(self.device)))
                rows[index] = logits.cpu().double().softmax(-1).numpy()
                if done is not None:
                    done(start + len(index))
        return rows

    def text(self, output: PairClasses) -> str:
        return "\t".join(f"{name} {100 * p:.1f} %" for name, p in output.probabilities[: output.top])

    def json(self, output: PairClasses) -> dict[str, Any]:
        return {"classes": dict(output.probabilities)}

    def margin(self, output: PairClasses) -> float:
        return ranking_margin([probability for _, probability in output.probabilities], len(self.classes))

    # Gradients

    def loss(self, inputs: Sequence[str], targets: Sequence[str]) -> Tensor:  # -> "b"
        """−log p(target | pair), of the names of classes."""
        labels = torch.tensor(class_numbers(targets, self.classes), device=self.device)
        with eval_mode(self.model):
            logits = self.model(self.reader.inputs(self._tokens(inputs)).to(self.device))
        return F.cross_entropy(logits, labels, reduction="none")

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
            return self.model(self.reader.inputs([*map(self.reader.from_tokens, tokens)]).to(self.device))

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

    @property
    def reading_row(self) -> int | None:
        return 0 if getattr(self.model, "pooling", "") == "first" else None

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

    def attack_targets(self, texts: Sequence[str], targets: Sequence[str] | None) -> list[int]:
        """The numbers of classes, given by their names."""
        if targets is None:
            return self.probabilities(self._tokens(texts)).argmax(-1).tolist()
        return class_numbers(targets, self.classes)

    def target_group(self, target: int) -> int:
        return target

    def attack_scores(self, texts: Sequence[EditedText], targets: Sequence[int]) -> TextScores:
        read = self.reader.inputs(self._tokens([each.text for each in texts])).to(self.device)
        return margin_scores(self.model(read), targets)

    # The attention behind a class

    def check_attends(self, what: str) -> None:
        if not self.model.attends:
            raise ValueError(f"{what} needs attention, and a bag of words has none; leave {what} out")

    def label(self, recording: Recording, given: str, output: PairClasses) -> Recording:
        """Rows and columns are the tokens of both texts, one behind the other."""
        (tokens,) = self._tokens([given])
        named = joined_recording(recording, *self.reader.names(tokens))
        first, second = parse_pair(given, self.max_length)
        about = {
            **named.about,
            "text": f"{first}\n{second}",
            "said": self.text(replace(output, top=3)).replace("\t", ", "),
        }
        return replace(named, about=about)

    def draw(self, recording: Recording, given: str, output: PairClasses, path: Path) -> Path:
        """Both texts on the left and on the right, with lines from every token to those of the other text."""
        if path.suffix not in SUFFIXES:
            return show(recording).save(path)
        (tokens,) = self._tokens([given])
        first, second = self.reader.names(tokens)
        if second:
            recording = numbered_texts(recording, len(first), len(second))
        return draw_recording(recording, path, what="lines", layer=len(recording) - 1)

    # Services

    def session(self, options: Any, picture: Path | None) -> PredictionSession:
        if picture is not None:
            self.check_attends("--picture")
        return PictureSession(self, options, picture)

    def endpoint(self, limits: Limits, *, run: str, step: int) -> Endpoint:
        # pydantic, which this module needs, is installed with the extra "serve"
        from regard.serve.text_endpoint import TextEndpoint

        about = {"run": run, "step": step, "classes": self.classes, "max_length": self.max_length}
        return TextEndpoint(
            self,
            limits,
            name=Match.name,
            title=f"Match two texts, one per line, with {run}",
            options=PredictTextClasses,
            maxima={"top": len(self.classes)},
            about=about,
            example="a b\tc",
            text_schema={"pattern": PAIR_PATTERN},
        )
