"""Tokenizers: text to ids and back, such that decode(encode(x)) == x, including white space, for all but folded words.

    bpe            byte pairs merged by frequency (Sennrich et al. 2016, Radford et al. 2019): any text
    characters     one id per character: any text of characters seen in training
    words          one id per word, split at single spaces: any text of words seen in training
    folded-words   one id per word or mark in lower case: "Great." and "great ." are the same

PAD, BOS, EOS and UNK are 0, 1, 2, 3, and no text is ever encoded as one of the first three, whatever it looks like. One
vocabulary for two languages is trained on the lines of both.
"""

import codecs
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, final, get_args

from regard.common.word_splitting import split_words
from regard.data.text.special_tokens import BOS, EOS, OWN_TOKENS, PAD, SPECIAL, UNK, UNKNOWN

if TYPE_CHECKING:
    from tokenizers import Tokenizer as BPE

Kind = Literal["bpe", "characters", "words", "folded-words"]

_LABELS = {PAD: "<pad>", BOS: "<bos>", EOS: "<eos>", UNK: UNKNOWN}
# Merges stay inside these: an English suffix, a word with its marks, a digit, a run of signs, white space. A word
# includes the space before it; digits are separate, so that a number never seen has known tokens.
_SPLIT_PATTERN = (
    r"'(?:s|t|d|m|ll|re|ve)(?![\p{L}\p{M}])"
    r"| ?\p{L}[\p{L}\p{M}]*"
    r"| ?\p{N}"
    r"| ?[^\s\p{L}\p{N}]+"
    r"|\s+(?!\S)|\s+"
)

# running text is encoded in pieces: the library's memory grows with the longest
_CHUNK = 1 << 16
_LINE_STARTS = re.compile(r"(?<=\S\n)(?=\S)")


@final
class Tokenizer:
    """A vocabulary: built by `train`, stored by `to_json`, restored by `from_json`."""

    special = OWN_TOKENS

    def __init__(self, kind: Kind, written: Sequence[str | bytes], bpe: "BPE | None") -> None:
        """`written` is the text of every id after the special ones; bytes for bpe, which alone has a `bpe`."""
        self.kind: Kind = kind
        self._id_texts = written
        self._bpe = bpe
        self._numbers = {} if bpe else {text: n for n, text in enumerate(written, SPECIAL)}

    @classmethod
    def train(cls, tokens: Kind, lines: Iterable[str], vocabulary: int) -> "Tokenizer":
        """Trains a vocabulary of at most `vocabulary` ids, including the special ones; deterministic.

        bpe needs at least 256 bytes, characters all characters of the lines; words keeps the most frequent ones.
        """
        _known(tokens)
        if isinstance(lines, str):
            raise TypeError(f"lines must be lines of text, got one string {lines[:20]!r}; put it into a list")
        if isinstance(vocabulary, bool) or not isinstance(vocabulary, int):
            raise TypeError(f"vocabulary must be a whole number, got {vocabulary!r}; try vocabulary=8000")
        if tokens == "bpe":
            return _from_bpe(_train_bpe(lines, vocabulary))
        if tokens == "characters":
            counts = Counter[str]()
            for line in lines:
                counts.update(line)
            if len(counts) > vocabulary - SPECIAL:
                raise ValueError(
                    f"vocabulary must hold {len(counts)} characters and {SPECIAL} special numbers, got {vocabulary}; "
                    f"try vocabulary={len(counts) + SPECIAL}, or tokens='bpe', which spells rare characters in bytes"
                )
            texts = sorted(counts)
        else:
            counts = Counter(word for line in lines for word in _words(tokens, line))
            if vocabulary <= SPECIAL + 1:
                raise ValueError(
                    f"vocabulary must be more than {SPECIAL + 1} for words, got {vocabulary}; try vocabulary=8000"
                )
            # a word of no letters stands between two spaces, so that white space is restored exactly
            counts.pop("", None)
            texts = ["", *sorted(counts, key=lambda word: (-counts[word], word))[: vocabulary - SPECIAL - 1]]
        if not counts:
            raise ValueError("lines must hold some text to learn a vocabulary from, got none; is the file empty?")
        return cls(tokens, texts, None)

    def __len__(self) -> int:
        return SPECIAL + len(self._id_texts)

    def __repr__(self) -> str:
        return f"Tokenizer({self.kind!r}, {len(self)})"

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The ids of each line, without BOS and EOS."""
        if isinstance(lines, str):
            raise TypeError(f"lines must be a list of lines, got one string {lines[:20]!r}; write [line]")
        if self._bpe is not None:
            # With a space before it the first word of a line is encoded as anywhere else; decode removes it again.
            spaced = [" " + line if line else "" for line in lines]
            with utf8_errors(lines):
                return [encoding.ids for encoding in self._bpe.encode_batch_fast(spaced, add_special_tokens=False)]
        number = self._numbers.get
        if self.kind == "characters":
            return [[number(character, UNK) for character in line] for line in lines]
        return [[number(word, UNK) for word in _words(self.kind, line)] if line else [] for line in lines]

    def encode_with_offsets(self, lines: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """The ids of each line, as `encode` has them, and the characters of each id: line[start:end]."""
        if self.kind == "folded-words":
            return list(zip(self.encode(lines), [[*split_words(line, "runs")[1]] for line in lines], strict=True))
        if self._bpe is None:
            pattern = re.compile("." if self.kind == "characters" else "(?:^|(?<= ))[^ ]*", re.DOTALL)
            places = [[match.span() for match in pattern.finditer(line)] if line else [] for line in lines]
            return list(zip(self.encode(lines), places, strict=True))
        with utf8_errors(lines):
            encodings = self._bpe.encode_batch([" " + line for line in lines], add_special_tokens=False)
        encoded = []
        for line, encoding in zip(lines, encodings, strict=True):
            spaced = " " + line
            # a token of a word includes the space before it
            trimmed = [(end - len(spaced[start:end].lstrip(" ")), end) for start, end in encoding.offsets]
            offsets = [(max(start, 1) - 1, max(end, 1) - 1) for start, end in trimmed]
            encoded.append((list(encoding.ids) if line else [], offsets if line else []))
        return encoded

    def encode_text(self, text: str) -> list[int]:
        """The ids of running text, line breaks included; bpe puts no space before it."""
        if self._bpe is None:
            return self.encode([text])[0]
        chunks = [*_chunks(text)]
        with utf8_errors(chunks):
            encodings = self._bpe.encode_batch_fast(chunks, add_special_tokens=False)
        return [token for encoding in encodings for token in encoding.ids]

    def encode_prompt(self, text: str) -> list[int]:
        """The ids of a text to continue; an empty one begins a document, so it is the end of the one before."""
        return self.encode_text(text) or [EOS]

    def decode_text(self, ids: Iterable[int]) -> str:
        """The text of these ids of running text: decode_text(encode_text(x)) == x."""
        stream = self.text_decoder()
        return "".join([*map(stream.add, ids), stream.finish()])

    def text_decoder(self, prompt: Sequence[int] = ()) -> "TextDecoder":
        """A decoder of running text that takes one id at a time; what stands before changes nothing in it."""
        return TextDecoder(self)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of these ids. PAD, BOS and EOS are dropped, UNK becomes ⁇."""
        if self._bpe is None:
            return ("" if self.kind == "characters" else " ").join(self._texts(ids))
        # bytes that are no character (of a truncated sequence) become �
        text = b"".join(self._texts(ids)).decode("utf-8", "replace")
        return text.removeprefix(" ")

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The text of each id for display: ▁ starts a word of bpe, ␣ is a space, � part of a character."""
        return [_LABELS[n] if n in _LABELS else _display(self._text_of(n)) for n in ids]

    def pieces_of(self, line: str) -> list[str]:
        """The text of each token of a line for display; ⁇ stands behind the text of an unknown one."""
        ((ids, places),) = self.encode_with_offsets([line])
        pieces = zip(ids, self.pieces(ids), places, strict=True)
        return [_display(line[start:end]) + UNKNOWN if n == UNK else piece for n, piece, (start, end) in pieces]

    def token_text(self, n: int) -> str:
        """The text of one id, with its spaces; a part of a character has � in place of it."""
        text = self._text_of(n)
        return text if isinstance(text, str) else text.decode("utf-8", "replace")

    def to_json(self) -> str:
        """The vocabulary as text; the same vocabulary gives the same text."""
        content = {"tokenizer": json.loads(self._bpe.to_str())} if self._bpe else {"vocabulary": list(self._id_texts)}
        return json.dumps({"kind": self.kind, **content}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        try:
            content = json.loads(text)
            kind = _known(content["kind"])
            if kind != "bpe":
                return cls(kind, [str(piece) for piece in content["vocabulary"]], None)
            tokenizer = json.dumps(content["tokenizer"])
        except (json.JSONDecodeError, KeyError, TypeError, RecursionError) as error:
            raise _format_error(text) from error
        try:
            return _from_bpe(_tokenizers().Tokenizer.from_str(tokenizer))
        except ImportError:
            raise
        except Exception as error:  # the library raises nothing narrower
            raise _format_error(text) from error

    def _text_of(self, n: int) -> Any:
        if not SPECIAL <= n < len(self):
            raise ValueError(f"ids must be numbers from 0 to {len(self) - 1}, got {n}; is this the model's vocabulary?")
        return self._id_texts[n - SPECIAL]

    def _texts(self, ids: Iterable[int]) -> Iterator[Any]:
        unknown = UNKNOWN if self._bpe is None else UNKNOWN.encode()
        for n in ids:
            if n == UNK:
                yield unknown
            elif n not in (PAD, BOS, EOS):
                yield self._text_of(n)


@final
class TextDecoder:
    """Running text, id by id: the bytes of an unfinished character are held back until it is whole."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._is_first = True

    def add(self, token: int) -> str:
        """The text that this id completes."""
        (piece,) = [*self.tokenizer._texts([token])] or [b"" if self.tokenizer.kind == "bpe" else ""]
        if isinstance(piece, bytes):
            return self._utf8.decode(piece)
        space = "" if self._is_first or self.tokenizer.kind == "characters" else " "
        self._is_first = False
        return space + piece

    def finish(self) -> str:
        """A character that was cut off, as �."""
        return self._utf8.decode(b"", True)


def _words(kind: Kind, line: str) -> Sequence[str]:
    return [word.lower() for word in split_words(line, "runs")[0]] if kind == "folded-words" else line.split(" ")


def _chunks(text: str) -> Iterator[str]:
    """Pieces of about `_CHUNK` characters; no token crosses from the end of a line to the first letter of the next."""
    start = 0
    for boundary in _LINE_STARTS.finditer(text):
        if boundary.start() - start >= _CHUNK:
            yield text[start : boundary.start()]
            start = boundary.start()
    yield text[start:]


def _format_error(text: str) -> ValueError:
    return ValueError(f"text must be the output of Tokenizer.to_json, got {text[:40]!r}; train the vocabulary again")


def _known(kind: Any) -> Kind:
    if kind not in get_args(Kind):
        raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, got {kind!r}; try kind='bpe'")
    return kind


@contextmanager
def utf8_errors(lines: Sequence[str]) -> Iterator[None]:
    """Names the line that has no UTF-8 encoding, which the library reports as a wrong type."""
    try:
        yield
    except TypeError as error:
        invalid = next((line for line in lines if any("\ud800" <= character <= "\udfff" for character in line)), None)
        if invalid is None:
            raise
        raise ValueError(
            f"lines must be Unicode text, got {invalid[:40]!r}, which holds a surrogate; decode what you read as UTF-8"
        ) from error


def _tokenizers() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError("bpe needs tokenizers; install it with: pip install 'regard[train]'") from error
    return tokenizers


def _train_bpe(lines: Iterable[str], vocabulary: int) -> "BPE":
    library = _tokenizers()
    from tokenizers import models, pre_tokenizers, trainers

    alphabet = sorted(_byte_of_character())
    if vocabulary < SPECIAL + len(alphabet):
        raise ValueError(
            f"vocabulary must be at least {SPECIAL + len(alphabet)} for bpe ({len(alphabet)} bytes and {SPECIAL} "
            f"special numbers), got {vocabulary}; try vocabulary=8000, or tokens='characters' for a small alphabet"
        )
    tokenizer = library.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(library.Regex(_SPLIT_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        show_progress=False,
        initial_alphabet=alphabet,
        special_tokens=[_LABELS[n] for n in range(SPECIAL)],
    )
    characters = 0

    def spaced() -> Iterator[str]:
        nonlocal characters
        for line in lines:
            characters += len(line)
            yield " " + line

    tokenizer.train_from_iterator(spaced(), trainer)
    if not characters:
        raise ValueError("lines must hold some text to learn a vocabulary from, got none; is the file empty?")
    # The library searches the text for its special tokens; without them "<pad>" is five characters like any other.
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = []
    return library.Tokenizer.from_str(json.dumps(content))


def _from_bpe(tokenizer: "BPE") -> Tokenizer:
    numbers: Mapping[str, int] = tokenizer.get_vocab(with_added_tokens=False)
    texts = sorted(numbers, key=numbers.__getitem__)[SPECIAL:]
    byte = _byte_of_character()
    return Tokenizer("bpe", [bytes(byte[letter] for letter in piece) for piece in texts], tokenizer)


def _byte_of_character() -> dict[str, int]:
    """The characters with which the library writes bytes: Latin-1 where it is printable, the others follow from
    U+0100.
    """
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


def _display(piece: str | bytes) -> str:
    text = piece
    mark = ""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
        if text[0] == " " and not text.isspace():
            mark, text = "▁", text[1:]
    return mark + ("".join(map(_visible, text)) or "␣")


def _visible(character: str) -> str:
    if character == " ":
        return "␣"
    # a combining mark is shown on a circle, as in Unicode's charts
    if unicodedata.category(character).startswith("M"):
        return "◌" + character
    return character if character.isprintable() else character.encode("unicode_escape").decode()
