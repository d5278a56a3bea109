"""TextTokenizer and PromptTokenizer: all that predictors of generated text know of a tokenizer.

regard's own `Tokenizer` has both; tokenizers of released checkpoints are in `models/pretrained`.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from regard.data.text.special_tokens import SpecialTokens


class IncrementalDecoder(Protocol):
    """Running text, id by id; what may still change is held back."""

    def add(self, token: int) -> str:
        """The text that this id completes."""

    def finish(self) -> str:
        """The text that was held back."""


class TextTokenizer(Protocol):
    """Lines of text to ids and back, without begin and end."""

    @property
    def special(self) -> SpecialTokens: ...

    def __len__(self) -> int:
        """The number of ids."""

    def encode(self, lines: Sequence[str]) -> list[list[int]]: ...

    def decode(self, ids: Iterable[int]) -> str: ...

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The text of each id for display."""

    def pieces_of(self, line: str) -> list[str]:
        """The text of each token of a line for display, of an unknown one, too."""


class PromptTokenizer(Protocol):
    """Running text that a language model continues."""

    @property
    def special(self) -> SpecialTokens: ...

    @property
    def kind(self) -> str:
        """The kind of tokens, for people."""

    def __len__(self) -> int:
        """The number of ids."""

    def encode_text(self, text: str) -> list[int]:
        """The ids of running text, line breaks included."""

    def encode_prompt(self, text: str) -> list[int]:
        """The ids of a text to continue, one at least: an empty text begins a document."""

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The text of each id for display."""

    def text_decoder(self, prompt: Sequence[int]) -> IncrementalDecoder:
        """A decoder of the text behind these ids."""
