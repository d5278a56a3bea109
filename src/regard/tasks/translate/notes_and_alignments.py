"""TranslationSession: notes about the lines of `regard translate`, and the alignments it draws."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard.common.wording import plural
from regard.inference.predictor import PredictionSession
from regard.viz.alignment import Alignment, draw_first, file_share, missing_fonts

if TYPE_CHECKING:
    from regard.tasks.shared.text_generation import GeneratedText
    from regard.tasks.translate.options import PredictTranslations
    from regard.tasks.translate.predictor import Translation, Translator


class TranslationSession(PredictionSession):
    """Counts long lines; keeps as many alignments as the file has room for."""

    predictor: "Translator"

    def __init__(self, predictor: "Translator", options: "PredictTranslations", picture: Path | None) -> None:
        super().__init__(predictor, options, picture)
        if picture is not None:
            predictor.check_attends("--picture")
        if options.coverage:
            predictor.check_attends("--coverage")
            if predictor.has_memory:
                raise ValueError(
                    "--coverage needs attention to the source, and this model reads a memory; leave it out"
                )
        self.long: dict[int, int] = {}  # line -> its tokens, of lines longer than any in training
        self.alignments: list[Alignment] = []
        self.num_wanted, self.share = 0, 0.0  # alignments asked for, and the share of the file that they take

    def check(self, count: int) -> None:
        """Any number of alignments can be drawn, and one memory."""
        if self.predictor.has_memory:
            super().check(count)

    def add(self, inputs: Sequence[str], outputs: Sequence["Translation"], first: int) -> None:
        remembered = [line for line in inputs if line.strip()] if self.predictor.has_memory else []
        super().add(remembered, outputs, first)
        for number, ids in enumerate(self.predictor.vocabularies.source.encode(inputs), first + 1):
            if len(ids) > self.predictor.max_length:
                self.long[number] = len(ids)
        if self.picture is not None and not self.predictor.has_memory:
            self._align(inputs, outputs, first, self.picture)

    def _align(self, inputs: Sequence[str], outputs: Sequence["Translation"], first: int, path: Path) -> None:
        drawn: list[tuple[str, GeneratedText, str]] = []
        for number, (line, output) in enumerate(zip(inputs, outputs, strict=True), first + 1):
            tokens = len(self.predictor.vocabularies.source.encode([line])[0])
            for rank, hypothesis in enumerate(output.hypotheses if line.strip() else [], 1):
                self.num_wanted += 1
                self.share += file_share(path, len(hypothesis.with_eos), tokens + 1)
                # the first is always kept: draw_first reports one that alone is too large
                if self.share <= 1 or self.num_wanted == 1:
                    place = f", {_ordinal(rank)}" if output.numbered else ""
                    drawn.append((line, hypothesis, f"line {number}{place}, score {hypothesis.score:.4f}"))
        if not drawn:
            return
        aligned = self.predictor.align([line for line, _, _ in drawn], [each for _, each, _ in drawn])
        for (line, hypothesis, note), tokens_weights in zip(drawn, aligned, strict=True):
            texts = (line, hypothesis.text or "(nothing)")
            weights = (tokens_weights.source, tokens_weights.target, tokens_weights.weights)
            self.alignments.append(Alignment(*weights, note=note, text=texts, hard=self.predictor.hard))

    def notes(self) -> list[str]:
        if not self.long:
            return super().notes()
        number, tokens = max(self.long.items(), key=lambda item: item[1])
        others = f" ({plural(len(self.long) - 1, 'other line')} also too many)" if len(self.long) > 1 else ""
        most = f"training saw no line of more than {self.predictor.max_length:,}"
        return [*super().notes(), f"line {number:,} has {tokens:,} tokens{others}; {most}"]

    def draw(self, path: Path) -> list[str]:
        if not self.alignments and not self.inputs:
            return [f"nothing was translated, so there is nothing to draw into {path}"]
        if self.predictor.has_memory:
            super().draw(path)
            return [f"the memory is drawn in {path}"]
        drawn = draw_first(self.alignments, path)
        notes = [f"the attention is drawn in {path}"]
        if drawn < self.num_wanted:
            notes.append(
                f"it has room for the first {drawn:,} of {self.num_wanted:,} translations; .txt has room for all"
            )
        if note := missing_fonts(self.alignments[:drawn], path):
            notes.append(note)
        return notes


def _ordinal(n: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, 21st."""
    return f"{n}{'th' if n % 100 in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"
