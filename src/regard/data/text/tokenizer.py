"""Text as numbers and back: decode(encode(x)) == x, white space and all.

    bpe          pairs of bytes merged by how often they meet (Sennrich et al. 2016, Radford et al. 2019): any text
    characters   one number a character: any text made of characters that were seen
    words        one number a word, cut at single spaces: any text made of words that were seen

PAD, BOS, EOS and UNK are 0, 1, 2, 3, and no text ever becomes one of the first three, whatever it looks like. One
vocabulary for two languages is one that was trained on the lines of both.
"""

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, final, get_args

from regard.data.text.special_tokens import BOS, EOS, PAD, SPECIAL, UNK, UNKNOWN

if TYPE_CHECKING:
    from tokenizers import Tokenizer as BPE

Kind = Literal["bpe", "characters", "words"]

_LABELS = {PAD: "<pad>", BOS: "<bos>", EOS: "<eos>", UNK: UNKNOWN}
# Merges stay inside these: an English ending, a word with its marks, a digit, a run of signs, white space. A word takes
# along the space before it; digits stand alone, so that a number never seen is still spelt in a known way.
_CUT = (
    r"'(?:s|t|d|m|ll|re|ve)(?![\p{L}\p{M}])"
    r"| ?\p{L}[\p{L}\p{M}]*"
    r"| ?\p{N}"
    r"| ?[^\s\p{L}\p{N}]+"
    r"|\s+(?!\S)|\s+"
)


@final
class Tokenizer:
    """A vocabulary: made by `train`, kept by `to_json`, brought back by `from_json`."""

    def __init__(self, kind: Kind, written: Sequence[str | bytes], bpe: "BPE | None") -> None:
        """`written`: what each number after the special ones stands for; bytes for bpe, which alone has a `bpe`."""
        self.kind: Kind = kind
        self._written = written
        self._bpe = bpe
        self._numbers = {} if bpe else {text: n for n, text in enumerate(written, SPECIAL)}

    @classmethod
    def train(cls, tokens: Kind, lines: Iterable[str], vocabulary: int) -> "Tokenizer":
        """The same for the same lines: at most `vocabulary` numbers, the special ones counted.

        bpe needs room for 256 bytes, characters for all of them; words keeps the most frequent ones.
        """
        _known(tokens)
        if isinstance(lines, str):
            raise TypeError(f"lines must be lines of text, got one string {lines[:20]!r}; put it into a list")
        if isinstance(vocabulary, bool) or not isinstance(vocabulary, int):
            raise TypeError(f"vocabulary must be a whole number, got {vocabulary!r}; try vocabulary=8000")
        if tokens == "bpe":
            return _of_tokenizer(_merges(lines, vocabulary))
        if tokens == "characters":
            counts = Counter[str]()
            for line in lines:
                counts.update(line)
            if len(counts) > vocabulary - SPECIAL:
                raise ValueError(
                    f"vocabulary must hold {len(counts)} characters and {SPECIAL} special numbers, got {vocabulary}; "
                    f"try vocabulary={len(counts) + SPECIAL}, or tokens='bpe', which spells rare characters in bytes"
                )
            kept = sorted(counts)
        else:
            counts = Counter(word for line in lines for word in line.split(" "))
            if vocabulary <= SPECIAL + 1:
                raise ValueError(
                    f"vocabulary must be more than {SPECIAL + 1} for words, got {vocabulary}; try vocabulary=8000"
                )
            # what stands between two spaces is a word of no letters: with it, spaces come back as they were
            del counts[""]
            kept = ["", *sorted(counts, key=lambda word: (-counts[word], word))[: vocabulary - SPECIAL - 1]]
        if not counts:
            raise ValueError("lines must hold some text to learn a vocabulary from, got none; is the file empty?")
        return cls(tokens, kept, None)

    def __len__(self) -> int:
        return SPECIAL + len(self._written)

    def __repr__(self) -> str:
        return f"Tokenizer({self.kind!r}, {len(self)})"

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The numbers of each line, without BOS and EOS."""
        if isinstance(lines, str):
            raise TypeError(f"lines must be a list of lines, got one string {lines[:20]!r}; write [line]")
        if self._bpe is not None:
            # With a space before it the first word of a line is the same as anywhere else; decode takes it away again.
            spaced = [" " + line if line else "" for line in lines]
            with _whole(lines):
                return [got.ids for got in self._bpe.encode_batch_fast(spaced, add_special_tokens=False)]
        number = self._numbers.get
        if self.kind == "characters":
            return [[number(character, UNK) for character in line] for line in lines]
        return [[number(word, UNK) for word in line.split(" ")] if line else [] for line in lines]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of these numbers. PAD, BOS and EOS are dropped, UNK is written ⁇."""
        if self._bpe is None:
            return (" " if self.kind == "words" else "").join(self._texts(ids))
        # bytes that make no character (a sequence that was cut) become �
        text = b"".join(self._texts(ids)).decode("utf-8", "replace")
        return text.removeprefix(" ")

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """What stands at each number, to be read alone: ▁ begins a word of bpe, ␣ is a space, � part of a character."""
        return [_LABELS[n] if n in _LABELS else _shown(self._at(n)) for n in ids]

    def to_json(self) -> str:
        """All of it as text; the same vocabulary gives the same text."""
        kept = {"tokenizer": json.loads(self._bpe.to_str())} if self._bpe else {"vocabulary": list(self._written)}
        return json.dumps({"kind": self.kind, **kept}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        try:
            kept = json.loads(text)
            kind = _known(kept["kind"])
            if kind != "bpe":
                return cls(kind, [str(piece) for piece in kept["vocabulary"]], None)
            tokenizer = json.dumps(kept["tokenizer"])
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise _foreign(text) from error
        try:
            return _of_tokenizer(_tokenizers().Tokenizer.from_str(tokenizer))
        except ImportError:
            raise
        except Exception as error:  # the library raises nothing narrower
            raise _foreign(text) from error

    def _at(self, n: int) -> Any:
        if not SPECIAL <= n < len(self):
            raise ValueError(f"ids must be numbers from 0 to {len(self) - 1}, got {n}; is this the model's vocabulary?")
        return self._written[n - SPECIAL]

    def _texts(self, ids: Iterable[int]) -> Iterator[Any]:
        unknown = UNKNOWN if self._bpe is None else UNKNOWN.encode()
        for n in ids:
            if n == UNK:
                yield unknown
            elif n not in (PAD, BOS, EOS):
                yield self._at(n)


def _foreign(text: str) -> ValueError:
    return ValueError(f"text must be what Tokens.to_json gave, got {text[:40]!r}; train the vocabulary again")


def _known(kind: Any) -> Kind:
    if kind not in get_args(Kind):
        raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, got {kind!r}; try kind='bpe'")
    return kind


@contextmanager
def _whole(lines: Sequence[str]) -> Iterator[None]:
    """Says which line has no bytes in UTF-8, which the library calls a wrong type."""
    try:
        yield
    except TypeError as error:
        half = next((line for line in lines if any("\ud800" <= character <= "\udfff" for character in line)), None)
        if half is None:
            raise
        raise ValueError(
            f"lines must be Unicode text, got {half[:40]!r}, which holds a surrogate; decode what you read as UTF-8"
        ) from error


def _tokenizers() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError("bpe needs tokenizers; install it with: pip install 'regard[train]'") from error
    return tokenizers


def _merges(lines: Iterable[str], vocabulary: int) -> "BPE":
    library = _tokenizers()
    from tokenizers import models, pre_tokenizers, trainers

    alphabet = sorted(_byte_of_letter())
    if vocabulary < SPECIAL + len(alphabet):
        raise ValueError(
            f"vocabulary must be at least {SPECIAL + len(alphabet)} for bpe ({len(alphabet)} bytes and {SPECIAL} "
            f"special numbers), got {vocabulary}; try vocabulary=8000, or tokens='characters' for a small alphabet"
        )
    tokenizer = library.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(library.Regex(_CUT), "isolated"),
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
    seen = 0

    def spaced() -> Iterator[str]:
        nonlocal seen
        for line in lines:
            seen += len(line)
            yield " " + line

    tokenizer.train_from_iterator(spaced(), trainer)
    if not seen:
        raise ValueError("lines must hold some text to learn a vocabulary from, got none; is the file empty?")
    # The library looks for its special tokens inside the text; without them "<pad>" is five characters like any other.
    kept = json.loads(tokenizer.to_str())
    kept["added_tokens"] = []
    return library.Tokenizer.from_str(json.dumps(kept))


def _of_tokenizer(tokenizer: "BPE") -> Tokenizer:
    numbers: Mapping[str, int] = tokenizer.get_vocab(with_added_tokens=False)
    written = sorted(numbers, key=numbers.__getitem__)[SPECIAL:]
    byte = _byte_of_letter()
    return Tokenizer("bpe", [bytes(byte[letter] for letter in piece) for piece in written], tokenizer)


def _byte_of_letter() -> dict[str, int]:
    """The letters by which the library writes bytes: Latin-1 where it is visible, the others follow from U+0100."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


def _shown(piece: str | bytes) -> str:
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
    # a mark that sits on a letter is shown on a circle, as Unicode's own charts do
    if unicodedata.category(character).startswith("M"):
        return "◌" + character
    return character if character.isprintable() else character.encode("unicode_escape").decode()
