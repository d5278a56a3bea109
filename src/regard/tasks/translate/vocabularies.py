"""The vocabularies of source and target, saved with a run."""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from regard.common import atomic_files
from regard.data.embedded import EMBEDDED
from regard.data.text.pairs import Pairs
from regard.data.text.text_tokenizer import TextTokenizer
from regard.data.text.tokenizer import Kind, Tokenizer
from regard.tasks.shared.text_generation import read_tokenizer, write_tokenizer
from regard.tasks.translate.options import Translate

SHARED, SOURCE, TARGET = "tokens.json", "tokens.source.json", "tokens.target.json"


@dataclass(frozen=True)
class Vocabularies:
    """The tokenizers of both sides; one may serve both. Only those of regard can be saved."""

    source: TextTokenizer
    target: TextTokenizer

    @property
    def shared(self) -> bool:
        return self.source is self.target

    @staticmethod
    def train(config: Translate, pairs: Pairs) -> "Vocabularies":
        """Trained on the training pairs alone."""
        of_source, of_target = kinds(config)
        size = config.vocabulary
        if not config.shared:
            sides = (of_source, pairs.source), (of_target, pairs.target)
            return Vocabularies(*(Tokenizer.train(kind, lines, size) for kind, lines in sides))
        if of_source != of_target:
            raise ValueError(
                f"shared=True needs one kind of tokens, this data has {of_source} and {of_target}; give tokens as well"
            )
        both = Tokenizer.train(of_source, chain(pairs.source, pairs.target), size)
        return Vocabularies(both, both)

    def save(self, folder: Path) -> None:
        """Replaces the vocabularies of the folder."""
        atomic_files.make_folder(folder)
        for name in (SHARED, SOURCE, TARGET):
            (folder / name).unlink(missing_ok=True)
        for name, tokens in ((SHARED, self.source),) if self.shared else ((SOURCE, self.source), (TARGET, self.target)):
            assert isinstance(tokens, Tokenizer)
            write_tokenizer(tokens, folder / name)

    @staticmethod
    def saved(folder: Path) -> bool:
        return (folder / SHARED).exists() or ((folder / SOURCE).exists() and (folder / TARGET).exists())

    @staticmethod
    def load(folder: Path) -> "Vocabularies":
        if not Vocabularies.saved(folder):
            raise FileNotFoundError(f"{folder} holds no vocabulary ({SHARED}); name the folder of a training run")
        names = (SHARED,) if (folder / SHARED).exists() else (SOURCE, TARGET)
        sides = [read_tokenizer(folder / name) for name in names]
        return Vocabularies(sides[0], sides[-1])


def kinds(config: Translate) -> tuple[Kind, Kind]:
    """The kinds of tokens of source and target."""
    if config.tokens is not None:
        return config.tokens, config.tokens
    if config.dataset == "files":
        return "bpe", "bpe"
    return EMBEDDED[config.dataset].source, EMBEDDED[config.dataset].target
