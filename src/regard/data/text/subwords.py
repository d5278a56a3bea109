"""Texts as the sub-words of a pretrained encoder, between the tokens that begin and end its inputs.  No torch here.

    begin a₁ … aₙ end                          one text
    begin a₁ … aₙ middle b₁ … bₘ end           a pair of texts; the token types tell them apart

One interface for the tokenizers of released checkpoints (`PretrainedSubwords`) and for those of runs of masked-lm
(`RunSubwords`).
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, final

from regard.common.panics import failures_as_errors, panics_as_errors
from regard.data.text.library_vocabulary import LibraryVocabulary, library_vocabulary
from regard.data.text.special_tokens import BOS, EOS, PAD, UNK
from regard.data.text.tokenizer import Tokenizer, utf8_errors

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

# the problem and the way out, of a tokenizer that panics
TEXT_FAILURE = ("the tokenizer fails on this text", "give another text, or restore tokenizer.json")
# characters in place of one
_MOST_GROWTH = 1000


class Subwords(NamedTuple):
    """The sub-words of a text, and the characters of each: text[start:end]."""

    ids: list[int]
    offsets: list[tuple[int, int]]


def first_places(words: Sequence[int | None]) -> tuple[int, ...]:
    """The place of the first sub-word of every word, given the word of each sub-word."""
    places: dict[int, int] = {}
    for place, word in enumerate(words):
        if word is not None:
            places.setdefault(word, place)
    return tuple(places.values())


@dataclass(frozen=True)
class EncodedText:
    """A text, or a pair of texts, as an encoder reads it."""

    ids: tuple[int, ...]  # with the tokens at its begin and end
    types: tuple[int, ...]  # the type per token: 0 in the first text, 1 in the second
    texts: tuple[int | None, ...]  # 0 or 1: the text of every token; None for tokens that no text has
    words: tuple[int | None, ...]  # the number of its word, if the text was given as words
    offsets: tuple[tuple[int, int], ...]  # its characters in its text, or in its word
    num_cut: int = 0  # sub-words beyond the longest input
    num_unknown: int = 0  # sub-words that are not in the vocabulary

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def is_empty(self) -> bool:
        """Whether no token is of a text."""
        return all(text is None for text in self.texts)

    @property
    def firsts(self) -> tuple[int, ...]:
        """The place of the first sub-word of every word."""
        return first_places(self.words)


@dataclass(frozen=True)
class Frame:
    """The tokens around one text and around two, and the types of a second text and of the last token behind it."""

    begin: tuple[int, ...]
    end: tuple[int, ...]
    middle: tuple[int, ...]
    last: tuple[int, ...]
    second_type: int = 0

    def size(self, texts: int = 1) -> int:
        """The number of tokens beside those of the texts."""
        return len(self.begin) + (len(self.end) if texts == 1 else len(self.middle) + len(self.last))


class _Part(NamedTuple):
    """The tokens of one text."""

    ids: list[int]
    words: list[int | None]
    offsets: list[tuple[int, int]]


# a token, its type, its text, its word and its characters
_Row = tuple[int, int, int | None, int | None, tuple[int, int]]


class SubwordTokenizer(ABC):
    """Texts, pairs of texts and words to the tokens of an encoder.

    `size` is the number of rows that the encoder's embedding must have; `unknown` the token of characters outside of
    the vocabulary, or None if there are none; `space` the tokens between two words.
    """

    frame: Frame
    size: int
    pad: int
    mask: int | None
    unknown: int | None
    space: tuple[int, ...] = ()

    @abstractmethod
    def subwords(self, texts: Sequence[str]) -> list[Subwords]:
        """The sub-words of every text, without tokens at its begin and end."""

    @abstractmethod
    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The text of each token for display."""

    @abstractmethod
    def to_json(self) -> str:
        """The tokenizer as text, which `read_subwords` restores."""

    @abstractmethod
    def library_vocabulary(self, *, matches_special: bool = False, by_sentence: bool = False) -> LibraryVocabulary:
        """The vocabulary for other programs; a text may spell a mask with `matches_special`.

        `by_sentence`: the sentences of a text are read as texts of their own, one behind the other.
        """

    @property
    def special(self) -> frozenset[int]:
        """The tokens that no text has: those of the frame, and padding."""
        frame = self.frame
        return frozenset((*frame.begin, *frame.end, *frame.middle, *frame.last, self.pad))

    @property
    def dropped(self) -> int:
        """The token in place of one that is dropped: the mask, or where there is none the unknown one or padding."""
        return next(token for token in (self.mask, self.unknown, self.pad) if token is not None)

    def encode(self, texts: Sequence[str], longest: int | None = None) -> list[EncodedText]:
        """Every text in its frame; sub-words beyond `longest` tokens, the frame included, are cut off and counted."""
        parts = [_Part(ids, [None] * len(ids), offsets) for ids, offsets in self.subwords(texts)]
        return [self._framed([part], longest) for part in parts]

    def encode_pairs(self, pairs: Sequence[tuple[str, str]], longest: int | None = None) -> list[EncodedText]:
        """Pairs of texts in one frame each; where they are too long, the longer text is cut first."""
        flat = self.subwords([text for pair in pairs for text in pair])
        parts = [_Part(ids, [None] * len(ids), offsets) for ids, offsets in flat]
        return [self._framed(parts[n : n + 2], longest) for n in range(0, len(parts), 2)]

    def encode_words(self, sentences: Sequence[Sequence[str]], longest: int | None = None) -> list[EncodedText]:
        """Sentences of words; a word without sub-words, such as one of control characters, is read as unknown."""
        distinct = list(dict.fromkeys(word for sentence in sentences for word in sentence))
        subwords = dict(zip(distinct, self.subwords(distinct), strict=True))
        unknown = self.mask if self.unknown is None else self.unknown
        encoded = []
        for sentence in sentences:
            part = _Part([], [], [])
            for number, word in enumerate(sentence):
                ids, offsets = subwords[word]
                if not ids and unknown is not None:
                    ids, offsets = [unknown], [(0, len(word))]
                gap = self.space if number else ()
                part.ids.extend((*gap, *ids))
                part.words.extend((*[None] * len(gap), *[number] * len(ids)))
                part.offsets.extend((*[(0, 0)] * len(gap), *offsets))
            encoded.append(self._framed([part], longest))
        return encoded

    def _framed(self, parts: Sequence[_Part], longest: int | None) -> EncodedText:
        """One text or two between the tokens of the frame."""
        frame, total = self.frame, sum(len(part.ids) for part in parts)
        room = total if longest is None else max(longest - frame.size(len(parts)), 0)
        kept = _truncate([len(part.ids) for part in parts], room)
        marks = [frame.end] if len(parts) == 1 else [frame.middle, frame.last]
        rows: list[_Row] = [_mark(token, 0) for token in frame.begin]
        for number, (part, count, mark) in enumerate(zip(parts, kept, marks, strict=True)):
            kind = frame.second_type if number else 0
            tokens = list(zip(part.ids, part.words, part.offsets, strict=True))[:count]
            rows += [(token, kind, number, word, place) for token, word, place in tokens]
            rows += [_mark(token, kind) for token in mark]
        if not rows:  # a tokenizer without a frame, and a text without tokens
            rows = [_mark(self.pad if self.unknown is None else self.unknown, 0)]
        num_unknown = sum(token == self.unknown and text is not None for token, _, text, *_ in rows)
        ids, types, texts, words, offsets = zip(*rows, strict=True)
        return EncodedText(ids, types, texts, words, offsets, total - sum(kept), num_unknown)


def _mark(token: int, kind: int) -> _Row:
    """A token that no text has."""
    return token, kind, None, None, (0, 0)


def _truncate(lengths: Sequence[int], room: int) -> list[int]:
    """The tokens that are kept of each text: of two texts that are too long, the longer one loses tokens first."""
    if len(lengths) == 1 or sum(lengths) <= room:
        return [min(length, room) for length in lengths]
    first, second = lengths
    half = room // 2
    if min(lengths) <= half:
        return [first, room - first] if first <= second else [room - second, second]
    return [room - half, half]


@final
class PretrainedSubwords(SubwordTokenizer):
    """The tokenizer of a released checkpoint; its own template says which tokens begin and end a text."""

    def __init__(self, library: "Library") -> None:
        library.no_truncation()
        library.no_padding()
        self._library = library
        numbers = library.get_vocab(with_added_tokens=True)
        self.size = max(numbers.values(), default=-1) + 1
        with failures_as_errors("the tokenizer fails on a text", "restore its tokenizer.json"):
            self.frame = _frame_of(library)
        unknown = json.loads(library.to_str())["model"].get("unk_token")
        self.unknown = None if unknown is None else numbers.get(unknown)
        self.mask = numbers.get("[MASK]", numbers.get("<mask>"))
        self.pad = numbers.get("[PAD]", numbers.get("<pad>", 0))
        # a text that spells "[SEP]" is no end of a text
        self._library.encode_special_tokens = True

    def subwords(self, texts: Sequence[str]) -> list[Subwords]:
        with utf8_errors(texts), panics_as_errors(*TEXT_FAILURE):
            encodings = self._library.encode_batch(list(texts), add_special_tokens=False)
        return [Subwords(list(each.ids), list(each.offsets)) for each in encodings]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        return [str(self._library.id_to_token(n)) for n in ids]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, special ones included."""
        with panics_as_errors(*TEXT_FAILURE):
            return str(self._library.decode(list(ids), skip_special_tokens=False))

    def to_json(self) -> str:
        return json.dumps({"kind": "pretrained", "tokenizer": json.loads(self._library.to_str())}, ensure_ascii=False)

    def library_vocabulary(self, *, matches_special: bool = False, by_sentence: bool = False) -> LibraryVocabulary:
        special = {"pad": self.pad, "unk": self.unknown, "mask": self.mask}
        return LibraryVocabulary.of_library(self._library, special, matches_special=matches_special)


def _frame_of(library: "Library") -> Frame:
    """The tokens that the template of a tokenizer puts around a text and around two."""
    # any text: that of a token of the vocabulary has at least one sub-word
    text = next((piece for piece in sorted(library.get_vocab()) if piece.isalnum()), "a")
    single, pair = library.encode(text), library.encode(text, text)
    inside = [n for n, sequence in enumerate(single.sequence_ids) if sequence == 0] or [0, -1]
    begin, end = single.ids[: inside[0]], single.ids[inside[-1] + 1 :]
    firsts = [n for n, sequence in enumerate(pair.sequence_ids) if sequence == 0]
    seconds = [n for n, sequence in enumerate(pair.sequence_ids) if sequence == 1]
    if not firsts or not seconds:
        return Frame(tuple(begin), tuple(end), tuple(end), tuple(end))
    middle, last = pair.ids[firsts[-1] + 1 : seconds[0]], pair.ids[seconds[-1] + 1 :]
    return Frame(tuple(begin), tuple(end), tuple(middle), tuple(last), pair.type_ids[seconds[0]])


@final
class RunSubwords(SubwordTokenizer):
    """The tokenizer of a run of masked-lm, whose rows stand between BOS and EOS; its mask has the number behind it."""

    frame = Frame((BOS,), (EOS,), (EOS,), (EOS,))
    pad, unknown = PAD, UNK

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.size, self.mask = len(tokenizer) + 1, len(tokenizer)
        # a word of bpe has the space before it; characters have one of their own
        blank = [] if tokenizer.kind == "bpe" else tokenizer.encode([" "])[0]
        self.space = tuple(token for token in blank if token != UNK)

    def subwords(self, texts: Sequence[str]) -> list[Subwords]:
        return [Subwords(ids, offsets) for ids, offsets in self._tokenizer.encode_with_offsets(texts)]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        return ["[MASK]" if n == self.mask else self._tokenizer.pieces([n])[0] for n in ids]

    def to_json(self) -> str:
        return json.dumps({"kind": "run", "tokenizer": json.loads(self._tokenizer.to_json())}, ensure_ascii=False)

    def library_vocabulary(self, *, matches_special: bool = False, by_sentence: bool = False) -> LibraryVocabulary:
        return library_vocabulary(
            self._tokenizer,
            spaced=True,
            begin=(BOS,),
            end=(EOS,),
            mask=True,
            matches_special=matches_special,
            by_sentence=by_sentence,
        )


def read_subwords(text: str) -> SubwordTokenizer:
    """The tokenizer that `to_json` wrote; raises ValueError if the text is none."""
    try:
        content: dict[str, Any] = json.loads(text)
        kind, tokenizer = content["kind"], json.dumps(content["tokenizer"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"text must be a tokenizer of sub-words, got {text[:40]!r}; write it again") from error
    if kind == "run":
        return RunSubwords(Tokenizer.from_json(tokenizer))
    from tokenizers import Tokenizer as Library

    check_growth(content["tokenizer"], "the tokenizer")
    with failures_as_errors("text must be a tokenizer of sub-words", "write it again"):
        return PretrainedSubwords(Library.from_str(tokenizer))


def check_growth(tokenizer: Any, name: str) -> None:
    """Raises if the replacements of a tokenizer, as JSON, could make thousands of characters of each one."""
    parts = tokenizer if isinstance(tokenizer, dict) else {}
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        growth = 1
        for content in _replacements(parts.get(part)):
            growth *= max(len(content), 1)
        if growth > _MOST_GROWTH:
            raise ValueError(
                f"the {part} of {name} makes up to {growth:,} characters of one, and {_MOST_GROWTH:,} are read; "
                "restore the file"
            )


def _replacements(part: Any) -> Iterator[str]:
    """The texts that the steps of a part put in the place of others."""
    if isinstance(part, dict):
        content = part.get("content")
        if part.get("type") == "Replace" and isinstance(content, str):
            yield content
        for steps in part.values():
            if isinstance(steps, list):
                for step in steps:
                    yield from _replacements(step)
