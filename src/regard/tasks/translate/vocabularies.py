"""The vocabularies of source and target, saved with a run."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.common import atomic_files
from regard.data.embedded import EMBEDDED
from regard.data.text.pairs import Pairs
from regard.data.text.tokenizer import Kind, Tokenizer
from regard.tasks.translate.options import Translate

SHARED, SOURCE, TARGET = "tokens.json", "tokens.source.json", "tokens.target.json"


@dataclass(frozen=True)
class Vocabularies:
    """How both sides are cut into tokens; one vocabulary may serve both."""

    source: Tokenizer
    target: Tokenizer

    @property
    def shared(self) -> bool:
        return self.source is self.target

    @staticmethod
    def train(task: Translate, pairs: Pairs) -> "Vocabularies":
        """Learned from the training pairs alone."""
        of_source, of_target = kinds(task)
        shared = of_source == of_target == "bpe" if task.shared is None else task.shared
        if not shared:
            return Vocabularies(
                Tokenizer.train(of_source, pairs.source, task.vocabulary),
                Tokenizer.train(of_target, pairs.target, task.vocabulary),
            )
        if of_source != of_target:
            raise ValueError(
                f"shared=True needs one kind of tokens, this data has {of_source} and {of_target}; give tokens as well"
            )
        both = Tokenizer.train(of_source, _chained(pairs.source, pairs.target), task.vocabulary)
        return Vocabularies(both, both)

    def save(self, folder: Path) -> None:
        """In place of whatever vocabularies the folder had."""
        atomic_files.make_folder(folder)
        for name in (SHARED, SOURCE, TARGET):
            (folder / name).unlink(missing_ok=True)
        for name, tokens in ((SHARED, self.source),) if self.shared else ((SOURCE, self.source), (TARGET, self.target)):
            atomic_files.write_atomically(folder / name, [tokens.to_json().encode()])

    @staticmethod
    def saved(folder: Path) -> bool:
        return (folder / SHARED).exists() or ((folder / SOURCE).exists() and (folder / TARGET).exists())

    @staticmethod
    def load(folder: Path) -> "Vocabularies":
        if not Vocabularies.saved(folder):
            raise FileNotFoundError(f"{folder} holds no vocabulary ({SHARED}); name the folder of a training run")
        names = (SHARED,) if (folder / SHARED).exists() else (SOURCE, TARGET)
        sides = [read_vocabulary(folder / name) for name in names]
        return Vocabularies(sides[0], sides[-1])


def kinds(task: Translate) -> tuple[Kind, Kind]:
    """What source and target are cut into."""
    if task.tokens is not None:
        return task.tokens, task.tokens
    if task.kind == "files":
        return "bpe", "bpe"
    return EMBEDDED[task.kind].source, EMBEDDED[task.kind].target


def _chained(*sides: Iterable[str]) -> Iterator[str]:
    for side in sides:
        yield from side


def read_vocabulary(path: Path) -> Tokenizer:
    """One that a run saved."""
    try:
        return Tokenizer.from_json(path.read_text(encoding="utf-8"))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no vocabulary ({error}); restore it, or train in another folder") from error
