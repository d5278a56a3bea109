"""MaskedTexts: texts with masks as the tokens of a model, and tokens in their place; of runs and released models."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

from regard.common.wording import shortened
from regard.data.text.library_vocabulary import LibraryVocabulary, library_vocabulary
from regard.data.text.masking import mask_token
from regard.data.text.special_tokens import BOS, EOS, PAD, SPECIAL, UNK
from regard.data.text.subwords import PretrainedSubwords
from regard.data.text.tokenizer import Tokenizer

# the mask as a user types it
MASK = "[MASK]"
# before a token that continues a word
_INSIDE = "##"


@dataclass(frozen=True)
class EncodedMasks:
    """The tokens of a text between begin and end, and its masks among them.

    With bpe a space before a mask belongs to the masked token, as it does to the tokens of words.
    """

    tokens: tuple[int, ...]
    places: tuple[int, ...]
    has_space: tuple[bool, ...]
    num_unknown: int = 0


class MaskedTexts(ABC):
    """`pad` is the token behind shorter texts, `mask` that of a mask, `candidates` the tokens that may stand there."""

    pad: int
    mask: int
    candidates: Sequence[int]

    def parts(self, text: str) -> list[str]:
        """The text before, between and behind its masks; raises if it has none."""
        parts = text.split(MASK)
        if len(parts) == 1:
            raise ValueError(f'the text {shortened(text, 40)} has no {MASK}; mark the token to guess: "the {MASK} sat"')
        return parts

    @abstractmethod
    def encode(self, text: str) -> EncodedMasks:
        """The tokens of a text; raises if it has no mask."""

    @abstractmethod
    def word_tokens(self, word: str, has_space: bool) -> list[int]:
        """The tokens of a word in place of a mask."""

    @abstractmethod
    def pieces(self, tokens: Iterable[int]) -> list[str]:
        """The text of each token for display."""

    @abstractmethod
    def display(self, token: int, has_space: bool) -> str:
        """A token as it reads in place of a mask."""

    @abstractmethod
    def fill(self, text: str, encoded: EncodedMasks, tokens: Sequence[int]) -> str:
        """The text with these tokens in place of its masks."""

    @abstractmethod
    def library_vocabulary(self) -> LibraryVocabulary:
        """The vocabulary for other programs, which reads the masks of a text."""


@final
class RunMaskedTexts(MaskedTexts):
    """Texts of a run, whose tokenizer keeps every character."""

    pad = PAD

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.mask = tokenizer, mask_token(tokenizer)
        self.candidates = range(SPECIAL, len(tokenizer))

    def encode(self, text: str) -> EncodedMasks:
        parts = self.parts(text)
        tokens, places, spaces = [BOS], [], []
        for n, part in enumerate(parts):
            if n:
                places.append(len(tokens))
                tokens.append(self.mask)
            is_last = n == len(parts) - 1
            has_space = not is_last and self.tokenizer.kind == "bpe" and part.endswith(" ")
            if not is_last:
                spaces.append(has_space)
            tokens += self.tokenizer.encode_text(part[:-1] if has_space else part)
        tokens.append(EOS)
        return EncodedMasks(tuple(tokens), tuple(places), tuple(spaces), tokens.count(UNK))

    def word_tokens(self, word: str, has_space: bool) -> list[int]:
        return self.tokenizer.encode_text(f" {word}" if has_space else word)

    def pieces(self, tokens: Iterable[int]) -> list[str]:
        return [MASK if token == self.mask else self.tokenizer.pieces([token])[0] for token in tokens]

    def display(self, token: int, has_space: bool) -> str:
        """## joins a letter to the word before the space."""
        (piece,) = self.tokenizer.pieces([token])
        if not has_space:
            return piece
        return (
            piece.removeprefix("▁") if piece.startswith("▁") else f"{_INSIDE}{piece}" if piece[0].isalnum() else piece
        )

    def fill(self, text: str, encoded: EncodedMasks, tokens: Sequence[int]) -> str:
        filled, *others = text.split(MASK)
        for token, has_space, part in zip(tokens, encoded.has_space, others, strict=True):
            filled = (filled[:-1] if has_space else filled) + self.tokenizer.token_text(token) + part
        return filled

    def library_vocabulary(self) -> LibraryVocabulary:
        return library_vocabulary(
            self.tokenizer, spaced=False, begin=(BOS,), end=(EOS,), mask=True, matches_special=True
        )


@final
class ReleasedMaskedTexts(MaskedTexts):
    """Texts of a released model, whose tokenizer has a mask of its own, such as [MASK] or <mask>."""

    def __init__(self, tokenizer: PretrainedSubwords) -> None:
        if tokenizer.mask is None:
            raise ValueError("the tokenizer has no mask token, [MASK] or <mask>; restore the tokenizer of the model")
        self.tokenizer, self.mask, self.pad = tokenizer, tokenizer.mask, tokenizer.pad
        hidden = tokenizer.special | {tokenizer.mask, tokenizer.unknown}
        self.candidates = [token for token in range(tokenizer.size) if token not in hidden]

    def encode(self, text: str) -> EncodedMasks:
        first, *others = self.tokenizer.subwords(self.parts(self._with_masks(text)))
        tokens, places = [*self.tokenizer.frame.begin, *first.ids], []
        for part in others:
            places.append(len(tokens))
            tokens += [self.mask, *part.ids]
        tokens += self.tokenizer.frame.end
        unknown = 0 if self.tokenizer.unknown is None else tokens.count(self.tokenizer.unknown)
        return EncodedMasks(tuple(tokens), tuple(places), (False,) * len(places), unknown)

    def word_tokens(self, word: str, has_space: bool) -> list[int]:
        numbers = [n for n in self.candidates if self.tokenizer.pieces([n]) == [word]]
        return numbers or self.tokenizer.subwords([word])[0].ids

    def pieces(self, tokens: Iterable[int]) -> list[str]:
        return self.tokenizer.pieces(tokens)

    def display(self, token: int, has_space: bool) -> str:
        return self.tokenizer.decode([token])

    def fill(self, text: str, encoded: EncodedMasks, tokens: Sequence[int]) -> str:
        """## joins a token to the word before it."""
        filled, *others = self.parts(self._with_masks(text))
        for token, part in zip(tokens, others, strict=True):
            piece = self.display(token, False)
            is_inside = piece.startswith(_INSIDE)
            filled = (filled.rstrip() if is_inside else filled) + piece.removeprefix(_INSIDE) + part
        return filled

    def library_vocabulary(self) -> LibraryVocabulary:
        return self.tokenizer.library_vocabulary(matches_special=True)

    def _with_masks(self, text: str) -> str:
        """The text with the mask that a user types in place of the model's."""
        return text.replace(self.tokenizer.pieces([self.mask])[0], MASK)
