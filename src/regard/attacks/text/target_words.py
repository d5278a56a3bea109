"""Targets of attacks on translators: a word that must appear in the output, or must not."""

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class OutputWord(ABC):
    """A word of the output, compared as it is written."""

    word: str
    appears: ClassVar[bool]

    def __post_init__(self) -> None:
        if not isinstance(self.word, str) or len(self.word.split()) != 1:
            raise ValueError(
                f"word must be one word for {type(self).__name__}, got {self.word!r}; give one without spaces"
            )


@dataclass(frozen=True)
class TargetWord(OutputWord):
    """An attack succeeds when the output has the word."""

    appears: ClassVar[bool] = True


@dataclass(frozen=True)
class ForbiddenWord(OutputWord):
    """An attack succeeds when the output does not have the word."""

    appears: ClassVar[bool] = False
