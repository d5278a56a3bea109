"""The tokens of a text by their places in it, and the texts of all tokens of a vocabulary."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from regard.common.word_splitting import WordSplitter, split_words
from regard.data.text.special_tokens import SPECIAL
from regard.data.text.subwords import SubwordTokenizer
from regard.data.text.text_tokenizer import TextTokenizer
from regard.data.text.tokenizer import Tokenizer
from regard.data.text.words import WordEncoder

# marks of sub-word vocabularies before a piece that begins a word, and before one that continues it
_BEGINS, _CONTINUES = ("▁", "Ġ"), "##"


class TokenPlace(NamedTuple):
    """A token of a text: its characters, text[start:end], and its number."""

    start: int
    end: int
    token: int

    def moved(self, distance: int) -> "TokenPlace":
        return TokenPlace(self.start + distance, self.end + distance, self.token)


@dataclass(frozen=True, eq=False)
class VocabularyTexts:
    """The text of every token of a vocabulary, as it stands in a text, and whether it continues a word.

    The text is None for tokens that no text is written with: special ones, spaces, parts of a character.
    """

    texts: tuple[str | None, ...]
    continues: tuple[bool, ...]

    @staticmethod
    def of_words(encoder: WordEncoder) -> "VocabularyTexts":
        texts = (*[None] * SPECIAL, *encoder.words)
        return VocabularyTexts(texts, (False,) * len(texts))

    @staticmethod
    def of_pieces(pieces: Iterable[str], special: Collection[int | None]) -> "VocabularyTexts":
        """The texts behind the pieces that a tokenizer displays."""
        names = ["" if n in special else piece for n, piece in enumerate(pieces)]
        begins = next((mark for mark in _BEGINS if any(len(name) > 1 and name[0] == mark for name in names)), None)
        texts, continues = [], []
        for name in names:
            text = name.removeprefix(_CONTINUES) if len(name) > len(_CONTINUES) else name
            continues.append(text != name or (begins is not None and not name.startswith(begins)))
            text = text if begins is None else text.removeprefix(begins)
            is_marked = text[:1] + text[-1:] in ("[]", "<>") and len(text) > 2
            texts.append(None if not text or is_marked or any(c in text for c in "␣�") or text.isspace() else text)
        return VocabularyTexts(tuple(texts), tuple(continues))

    @staticmethod
    def of_tokenizer(tokenizer: TextTokenizer | SubwordTokenizer) -> "VocabularyTexts":
        if isinstance(tokenizer, SubwordTokenizer):
            special = {*tokenizer.special, tokenizer.mask, tokenizer.unknown}
            return VocabularyTexts.of_pieces(tokenizer.pieces(range(tokenizer.size)), special)
        marks = tokenizer.special
        return VocabularyTexts.of_pieces(
            tokenizer.pieces(range(len(tokenizer))), {marks.pad, marks.bos, marks.eos, marks.unk, *marks.forbidden}
        )

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The token that begins a word, by its text."""
        return {text: n for n, text in enumerate(self.texts) if text is not None and not self.continues[n]}


def token_places(tokenizer: TextTokenizer | SubwordTokenizer, texts: Sequence[str]) -> list[list[TokenPlace]]:
    """The tokens of every text, without those that begin and end an input."""
    if isinstance(tokenizer, SubwordTokenizer):
        read = [(each.ids, each.offsets) for each in tokenizer.subwords(texts)]
    elif isinstance(tokenizer, Tokenizer):
        read = tokenizer.encode_with_offsets(texts)
    else:
        read = [
            (ids, _piece_spans(text, tokenizer.pieces(ids)))
            for text, ids in zip(texts, tokenizer.encode(texts), strict=True)
        ]
    return [[TokenPlace(*span, n) for n, span in zip(ids, spans, strict=True)] for ids, spans in read]


def word_places(encoder: WordEncoder, text: str, splitter: WordSplitter = split_words) -> list[TokenPlace]:
    """The words of a text by their numbers; unknown ones have that of UNK."""
    words, spans = splitter(text)
    return [TokenPlace(*span, encoder.number(word)) for word, span in zip(words, spans, strict=True)]


def parts_in(text: str, parts: Sequence[str]) -> list[int]:
    """The beginnings of the parts of a text in it, one behind the other."""
    starts, end = [], 0
    for part in parts:
        starts.append(text.index(part, end))
        end = starts[-1] + len(part)
    return starts


def _piece_spans(text: str, pieces: Sequence[str]) -> list[tuple[int, int]]:
    """The places of the pieces of a tokenizer without places; a piece that the text does not hold has an empty one."""
    spans, end = [], 0
    for piece in pieces:
        written = piece.lstrip("".join(_BEGINS))
        start = text.find(written, end)
        span = (start, start + len(written)) if start >= 0 else (end, end)
        spans.append(span)
        end = span[1]
    return spans
