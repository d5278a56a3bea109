"""EmbedPredictor: text in, its vector or its nearest neighbours among the lines of a file out."""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.common.eval_mode import eval_mode
from regard.common.wording import plural, shortened
from regard.data.text.pairs import read_lines
from regard.data.text.subwords import EncodedText, SubwordTokenizer
from regard.inference.counted_note import UNKNOWN_TOKENS, CountedNote
from regard.inference.exportable import Exportable
from regard.inference.margins import ranking_margin
from regard.inference.predictor import Observe, PredictionSession
from regard.inference.text_predictor import TextPredictor
from regard.layers.packed_texts import PackedTexts
from regard.models.transfer.text_embedder import TextEmbedder
from regard.recording.recording import Recording
from regard.tasks.embed.options import Embed, PredictVectors
from regard.viz.plots.ranking import draw_ranking

_VECTOR = "that of the tokens which begin and end every text"
EMPTY_VECTORS = CountedNote("text", f"is empty; its vector is {_VECTOR}", f"are empty; their vectors are {_VECTOR}")
_DECIMALS = 6
# lines that are compared with a text at once
_ROWS = 4096


@dataclass(frozen=True)
class Neighbour:
    """A line of a file, and the cosine of its vector with that of a text."""

    line: int  # 1 is the first
    text: str
    cosine: float


@dataclass(frozen=True)
class TextVector:
    """The vector of one text, and its neighbours where a file was given."""

    vector: NDArray[np.float32] = field(repr=False)  # "d"
    neighbours: tuple[Neighbour, ...] | None = None
    num_unknown: int = 0  # sub-words that are not in the vocabulary
    is_empty: bool = False
    margin: float = field(default=math.inf, compare=False)  # margin of the order of its neighbours


@dataclass(frozen=True, eq=False)
class LineIndex:
    """The lines of a file that have text, and their vectors."""

    path: Path
    lines: list[tuple[int, str]]
    vectors: Tensor  # "n d", in double precision on the CPU

    @cached_property
    def norms(self) -> Tensor:  # "n"
        return self.vectors.norm(dim=-1)


class EmbedPredictor(TextPredictor[TextVector]):
    """text -> tokens -> vector, in packs without padding.

    `longest` is the number of positions of the encoder, None if it reads texts of any length. A text that is longer is
    refused; the texts of pairs are cut off after `max_length` tokens where they are evaluated.
    """

    served_as = Embed.name
    page_title = "Vectors of texts with {run}"
    page_example = "Where can I renew my passport?"

    model: TextEmbedder

    def __init__(
        self,
        model: TextEmbedder,
        tokenizer: SubwordTokenizer,
        *,
        longest: int | None = None,
        max_length: int | None = None,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.longest = longest
        self.max_length = longest if max_length is None else max_length
        self._index: LineIndex | None = None

    # Prediction

    def encode(self, texts: Sequence[str]) -> list[EncodedText]:
        """The tokens of texts; raises for one that has more than the encoder has positions."""
        encoded = self.tokenizer.encode(texts)
        for text, each in zip(texts, encoded, strict=True):
            if self.longest is not None and len(each) > self.longest:
                raise ValueError(
                    f"the text {shortened(text, 30)} has {len(each):,} tokens, more than the {self.longest:,} "
                    "positions of the encoder; split it into sentences, one per line"
                )
        return encoded

    def predict(
        self, inputs: Sequence[str], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[TextVector]:
        options = PredictVectors() if options is None else options
        encoded = self.encode(inputs)
        index = None if options.neighbours is None else self.index(options.neighbours)
        if index is not None and options.top > len(index.lines):
            raise ValueError(
                f"--top {options.top} exceeds the {plural(len(index.lines), 'line')} with text of {index.path}; "
                f"try --top {len(index.lines)}"
            )
        with eval_mode(self.model), observe():
            vectors = self.model.vectors([each.ids for each in encoded])
        outputs = []
        for each, vector in zip(encoded, vectors, strict=True):
            output = TextVector(vector.cpu().float().numpy(), None, each.num_unknown, each.is_empty)
            outputs.append(output if index is None else _with_neighbours(output, vector, index, options.top))
        return outputs

    def index(self, path: Path) -> LineIndex:
        """The vectors of the lines of a file, which are kept until another file is asked for."""
        if self._index is not None and self._index.path == path:
            return self._index
        lines = list(enumerate(read_lines(path), 1))
        filled = [(number, line) for number, line in lines if line.strip()]
        if not filled:
            raise ValueError(f"{path} has {plural(len(lines), 'line')} without text; name a file of sentences")
        with eval_mode(self.model):
            vectors = self.model.vectors([each.ids for each in self.encode([line for _, line in filled])])
        self._index = LineIndex(path, filled, vectors.cpu().double())
        return self._index

    def vectors(self, texts: Sequence[str], done: Callable[[int], object] | None = None) -> Tensor:  # -> "n d"
        """The vectors of texts, each cut off after `max_length` tokens."""
        with eval_mode(self.model):
            return self.model.vectors([each.ids for each in self.tokenizer.encode(texts, self.max_length)], done)

    def num_cut(self, texts: Sequence[str]) -> int:
        """The number of texts that have more than `max_length` tokens."""
        return sum(each.num_cut > 0 for each in self.tokenizer.encode(texts, self.max_length))

    def text(self, output: TextVector) -> str:
        if output.neighbours is None:
            return " ".join(f"{number:.{_DECIMALS}f}" for number in output.vector.tolist())
        return "\t".join(f"{each.cosine:.3f} {each.text}" for each in output.neighbours)

    def summary(self, output: TextVector) -> str:
        return self.text(output) if output.neighbours is not None else f"a vector of {len(output.vector)} numbers"

    def json(self, output: TextVector) -> dict[str, Any]:
        if output.neighbours is None:
            return {"vector": output.vector.tolist()}
        named = [{"line": each.line, "text": each.text, "cosine": each.cosine} for each in output.neighbours]
        return {"neighbours": named}

    def margin(self, output: TextVector) -> float:
        return output.margin

    # Gradients

    def loss(self, inputs: Sequence[str], targets: Sequence[str]) -> Tensor:  # -> "b"
        """1 − cos(v(input), v(target)): the part of the contrastive loss that depends on no other pair."""
        packs = [self._pack(texts) for texts in (inputs, targets)]
        with eval_mode(self.model):
            a, b = (self.model(pack) for pack in packs)
        return 1 - nn.functional.cosine_similarity(a, b, dim=-1)

    def _pack(self, texts: Sequence[str]) -> PackedTexts:
        return PackedTexts.of([each.ids for each in self.encode(texts)]).to(self.device)

    @property
    def embedding(self) -> nn.Module:
        return self.model.encoder.embedding

    def embeddings(self, inputs: Sequence[str]) -> Tensor:  # -> "b t d"
        encoded = self.encode(inputs)
        longest = max(map(len, encoded))
        rows = [[*each.ids, *[self.tokenizer.pad] * (longest - len(each))] for each in encoded]
        embedded: Tensor = self.embedding(torch.tensor(rows, device=self.device))
        return embedded

    # The attention behind a vector

    def label(self, recording: Recording, example: str, output: TextVector) -> Recording:
        """Rows and columns are the tokens of the text."""
        (encoded,) = self.encode([example])
        pieces = self.tokenizer.pieces(encoded.ids)
        return self.labelled(recording, example, self.summary(output), pieces, pieces, {"keys": "tokens"})

    # Services

    def exportable(self) -> Exportable:
        return Exportable(self.model, self.tokenizer.library_vocabulary(), longest=self.longest)

    def notes(self, output: TextVector) -> dict[CountedNote, int]:
        return {UNKNOWN_TOKENS: output.num_unknown, EMPTY_VECTORS: output.is_empty}

    def session(self, options: Any, picture: Path | None) -> PredictionSession:
        return EmbeddingSession(self, options, picture)

    def about(self) -> dict[str, object]:
        return {"width": self.model.width, "longest": self.longest}


def _with_neighbours(output: TextVector, vector: Tensor, index: LineIndex, top: int) -> TextVector:
    """The nearest lines; of equal cosines the earlier line comes first."""
    query = vector.cpu().double()
    # sums of products, row by row: a product of matrices may round equal rows differently
    products = torch.cat([(rows * query).sum(-1) for rows in index.vectors.split(_ROWS)])
    cosines = products / (index.norms * query.norm()).clamp_min(1e-300)
    order = cosines.argsort(descending=True, stable=True)[: top + 1].tolist()
    neighbours = tuple(Neighbour(index.lines[n][0], index.lines[n][1], float(cosines[n])) for n in order[:top])
    return replace(output, neighbours=neighbours, margin=ranking_margin([float(cosines[n]) for n in order], top))


class EmbeddingSession(PredictionSession):
    """Draws the neighbours of a text, or the attention behind its vector."""

    neighbours: tuple[Neighbour, ...] | None = None  # neighbours of the first text

    def add(self, inputs: Sequence[str], outputs: Sequence[TextVector], first: int) -> None:
        super().add(inputs, outputs, first)
        if first == 0 and outputs:
            self.neighbours = outputs[0].neighbours

    def draw(self, path: Path) -> list[str]:
        if self.neighbours is None:
            return super().draw(path)
        draw_ranking([(each.text, each.cosine) for each in self.neighbours], path, self.inputs[0], "cosine")
        return [f"the neighbours are drawn in {path}"]
