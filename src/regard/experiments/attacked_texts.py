"""Texts of a run under an attack: the accuracy before and after, and the edits of every text."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from regard.attacks import TextAttackResult
from regard.attacks.attack import attack as run_attack
from regard.common.wording import plural
from regard.experiments.attacked_run import AttackedRun, Report, evenly_spaced
from regard.inference.edited_text import EditedText
from regard.inference.token_predictor import TokenPredictor
from regard.tasks.loading import LoadedRun
from regard.tasks.shared.text_options import AttackTexts
from regard.viz.plots.edited_texts import EditedParagraph, draw_edited_texts

# texts per run, and those that a figure has room for
_COUNT, _DRAWN = 100, 12
TYPED = "the command line"


class _Reading(NamedTuple):
    """The predictions of a text before and after an attack, and the text that the attack made of it."""

    before: str
    edited: EditedText
    after: str


@dataclass(frozen=True, eq=False)
class AttackedTexts(AttackedRun):
    """The accuracy of a predictor of texts before and after an attack; or of typed texts what it makes of each."""

    unit: ClassVar[str] = "text"

    texts: list[str]  # before the attack
    result: TextAttackResult

    def explain(self) -> str:
        return "\n".join(map(self._outcome, range(self.count)) if self.split == TYPED else self._table())

    def _table(self) -> list[str]:
        numbers = self._means()
        clean, attacked = numbers["clean_accuracy"], numbers["accuracy"]
        broken = plural(len(self._newly_broken), "text")
        inserted = Counter(
            each.text[edit.start : edit.end].strip()
            for each in self.result.inputs
            for edit in each.edits
            if not edit.before
        )
        unreachable = f"{numbers['unreachable']:<8}broken by text that is read as other tokens than chosen"
        return [
            f"clean accuracy         {clean:<8.2f}{'█' * round(clean / 4)}".rstrip(),
            f"accuracy under attack  {attacked:<8.2f}{'█' * round(attacked / 4)}".rstrip(),
            f"flips                  {numbers['flips']:<8.2f}mean of the {broken} that the attack broke",
            f"queries                {numbers['queries']:<8.1f}texts that the model read, mean per text",
            f"unreachable            {unreachable}",
            *(
                f"trigger                {words!r} broke {plural(count, 'text')}"
                for words, count in inserted.most_common()
            ),
            self._about(),
        ]

    def _outcome(self, n: int) -> str:
        """The text that the attack made of another, or that it broke none."""
        reading = self._readings[n]
        if self.result.was_broken[n]:
            return f"wrong before the attack: {self.texts[n]}\n  {reading.before}"
        if not self.result.broken[n]:
            return f"resists: {self.texts[n]}\n  {reading.before}"
        return f"{_marked(reading.edited)}\n  {reading.before} -> {reading.after}"

    def numbers(self) -> dict[str, Any]:
        return {**self._means(), "examples": [self._example(n) for n in range(self.count)]}

    def _means(self) -> dict[str, float]:
        """The numbers of the table; flips are those of broken texts."""
        rows = self._newly_broken
        return {
            "clean_accuracy": self.result.clean_accuracy,
            "accuracy": self.accuracy,
            "flips": float(self.result.distance[rows].double().mean()) if rows else 0.0,
            "queries": float(self.result.queries.double().mean()),
            "unreachable": int(self.result.is_reread.sum()),
        }

    def _example(self, n: int) -> dict[str, Any]:
        before, edited, after = self._readings[n]
        return {
            "text": self.texts[n],
            "attacked": edited.text,
            "prediction": before,
            "attacked_prediction": after,
            "was_broken": bool(self.result.was_broken[n]),
            "broken": bool(self.result.broken[n]),
            "edits": [
                {"start": edit.start, "before": edit.before, "after": edited.text[edit.start : edit.end]}
                for edit in edited.edits
            ],
            "queries": int(self.result.queries[n]),
        }

    def draw_examples(self, path: Path) -> bool:
        """Draws the first texts that the attack broke, with old and new words."""
        paragraphs = [_paragraph(self._readings[n]) for n in self._newly_broken[:_DRAWN]]
        if paragraphs:
            draw_edited_texts(paragraphs, path, f"Texts before and after {self.attack}")
        return bool(paragraphs)

    @property
    def _newly_broken(self) -> list[int]:
        """Texts that the model got right before the attack."""
        return (self.result.broken & ~self.result.was_broken).nonzero().flatten().tolist()

    @cached_property
    def _readings(self) -> list[_Reading]:
        predictor = self.loaded.predictor
        before = predictor.predict(self.texts)
        after = predictor.predict([edited.text for edited in self.result.inputs])
        return [
            _Reading(predictor.text(old), edited, predictor.text(new))
            for old, edited, new in zip(before, self.result.inputs, after, strict=True)
        ]


def attack_texts(
    loaded: LoadedRun,
    attack: str,
    options: AttackTexts,
    typed: Sequence[str],
    count: int | None,
    seed: int,
    report: Report,
) -> AttackedTexts:
    """Attacks the typed texts, or at most `count` texts, evenly spaced in the split."""
    predictor: Any = loaded.predictor
    assert isinstance(predictor, TokenPredictor)
    built = options.build(attack)
    targets: list[Any] | None
    if typed:
        texts, split = [loaded.predictor.read(text) for text in typed], TYPED
        targets = options.targets(len(texts))
    else:
        texts, targets, split = _held_out(loaded, options, count or _COUNT, report)
        predictor.attack_targets(texts, targets)  # raises for a target that the model cannot have
        report(f"{attack} on {plural(len(texts), 'text')}")
    start = time.perf_counter()
    result = run_attack(predictor, texts, targets, built, seed)
    about = loaded, attack, split, seed, time.perf_counter() - start, len(texts), result.accuracy
    return AttackedTexts(*about, result.warnings, texts, result)


def _held_out(loaded: LoadedRun, options: AttackTexts, count: int, report: Report) -> tuple[list[str], list[Any], str]:
    """At most `count` texts with tokens, evenly spaced in the split, their targets, and the name of the split."""
    predictor: Any = loaded.predictor
    texts, targets, split = loaded.attack_examples(options)
    readable = [n for n, text in enumerate(texts) if text.strip() and predictor.token_places(text)]
    if left_out := len(texts) - len(readable):
        report(f"{plural(left_out, 'text')} without tokens left out")
    rows = [readable[n] for n in evenly_spaced(len(readable), count)]
    return [texts[n] for n in rows], [targets[n] for n in rows], split


def _marked(edited: EditedText) -> str:
    """The text with [old -> new] at its edits."""
    text = edited.text
    for edit in reversed(edited.edits):
        new = text[edit.start : edit.end]
        space = " " if new.endswith(" ") else ""
        text = f"{text[: edit.start]}[{edit.before or '+'} -> {new.strip()}]{space}{text[edit.end :]}"
    return text


def _paragraph(reading: _Reading) -> EditedParagraph:
    """The text of a reading, word by word."""
    words: list[tuple[str, str | None]] = []
    end, text = 0, reading.edited.text
    for edit in reading.edited.edits:
        words += [(word, None) for word in text[end : edit.start].split()]
        words.append((text[edit.start : edit.end].strip(), edit.before))
        end = edit.end
    words += [(word, None) for word in text[end:].split()]
    return EditedParagraph(f"{reading.before} → {reading.after}".replace("\t", ", "), words)
