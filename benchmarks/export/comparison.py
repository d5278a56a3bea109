"""compare: one model in one format, read by its library, against regard."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.export.answers import Answer
from benchmarks.export.readers import READERS
from regard.export import export
from regard.inference.predictor import Predictor

BATCHES = (16, 1)
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Comparison:
    """One pair of a model and a library; `refusal` is the error of an export that the format cannot represent."""

    model: str
    library: str
    inputs: int = 0
    distinct: int = 0  # different outputs of regard
    equal: int = 0  # inputs that are tokenized the same and have the same output tokens, in every batch size
    difference: float = 0.0  # of the scores, at most
    refusal: str = ""

    @property
    def holds(self) -> bool:
        return bool(self.refusal) or (self.equal == self.inputs and self.difference <= TOLERANCE)


def compare(
    name: str,
    library: str,
    predictor: Predictor[Any, Any],
    texts: Sequence[str],
    own: Sequence[Answer],
    folder: Path | None = None,
) -> Comparison:
    """Exports the model, unless `folder` is in the format already, and answers all texts in batches and one by one."""
    reader_class = READERS[library]
    with tempfile.TemporaryDirectory() as temporary:
        if folder is None:
            folder = Path(temporary, "exported")
            try:
                export(predictor.exportable(), folder, reader_class.to)
            except ValueError as error:
                return Comparison(name, library, refusal=str(error))
        reader = reader_class(folder, predictor)
        equal, difference = [True] * len(texts), 0.0
        for batch in BATCHES:
            for at in range(0, len(texts), batch):
                several = slice(at, at + batch)
                for n, answer in enumerate(reader.answers(texts[several], own[several]), at):
                    equal[n] &= (answer.read, answer.written) == (own[n].read, own[n].written)
                    if answer.scores.shape == own[n].scores.shape:
                        difference = max(difference, float((answer.scores - own[n].scores).abs().max()))
    return Comparison(name, library, len(texts), num_distinct(own), sum(equal), difference)


def num_distinct(own: Sequence[Answer]) -> int:
    """How many outputs differ: tokens, or of encoders vectors."""
    return len({answer.written or tuple(answer.scores.tolist()) for answer in own})
