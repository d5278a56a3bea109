"""MarianTokenizer: source.spm, target.spm and vocab.json of released translators, without the library sentencepiece.

A .spm file is a protocol buffer: fields of a number, a type and a value, of which few are needed here.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, final

from regard.common.panics import failures_as_errors, panics_as_errors
from regard.data.text.special_tokens import SpecialTokens
from regard.data.text.subwords import TEXT_FAILURE
from regard.data.text.tokenizer import utf8_errors
from regard.models.pretrained.folder import CheckpointConfig, read_json, refuse_pointer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SOURCE, TARGET, VOCABULARY, TARGET_VOCABULARY = "source.spm", "target.spm", "vocab.json", "target_vocab.json"
SPACE = "▁"
# types of pieces and of models, as the format numbers them
_UNKNOWN, _CONTROL, _UNIGRAM = 2, 3, 1


class SentencePieces(NamedTuple):
    """The content of a .spm file."""

    pieces: list[tuple[str, float, int]]  # text, log p and type
    charsmap: bytes  # replacements of characters


@final
class MarianVocabulary:
    """The pieces of one language of a translator, between text and ids; a TextTokenizer."""

    def __init__(self, unigram: "Tokenizer", ids: dict[str, int], special: SpecialTokens) -> None:
        self._unigram, self._ids, self.special = unigram, ids, special
        self._pieces = {n: piece for piece, n in ids.items()}
        self._marks = {ids[name] for name in ("</s>", "<pad>") if name in ids}

    def __len__(self) -> int:
        return len(self._ids)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The ids of each line, without its end; a line may begin with a target language, >>de<<."""
        unknown, ids = self._ids["<unk>"], []
        for line in lines:
            code, text = _split_language(line)
            # without spaces at the ends, as the pieces were trained: the first word begins with ▁ then
            with utf8_errors([line]), panics_as_errors(*TEXT_FAILURE):
                pieces = self._unigram.encode(text, add_special_tokens=False).tokens if text.strip() else []
            ids.append([self._ids.get(piece, unknown) for piece in (*code, *pieces)])
        return ids

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The text of each id for display: ▁ starts a word."""
        return [self._pieces.get(n, "<unk>") for n in ids]

    def pieces_of(self, line: str) -> list[str]:
        """The text of each token of a line for display."""
        return self.pieces(self.encode([line])[0])

    def decode(self, ids: Iterable[int]) -> str:
        """The text of these ids, without padding and ends."""
        return "".join(self.pieces(n for n in ids if n not in self._marks)).replace(SPACE, " ").strip()


@final
class MarianTokenizer:
    """Text to ids by the pieces of the source, ids to text by those of the target."""

    def __init__(self, source: MarianVocabulary, target: MarianVocabulary) -> None:
        self.source, self.target = source, target

    def __len__(self) -> int:
        return len(self.source)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The ids of each line, with the end of the sentence; a line may begin with a target language, >>de<<."""
        return [[*ids, self.source.special.eos] for ids in self.source.encode(lines)]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The text of each id of the target for display: ▁ starts a word."""
        return self.target.pieces(ids)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of these ids of the target, without padding and ends."""
        return self.target.decode(ids)


def load_marian_tokenizer(config: CheckpointConfig) -> MarianTokenizer:
    """The tokenizer of a released translator; raises if one of its ids has no row in the embedding."""
    folder = config.folder
    for name in (SOURCE, TARGET, VOCABULARY):
        if not (folder / name).exists():
            raise FileNotFoundError(
                f"{folder} holds no {name}, which the tokenizer of a Marian model needs; restore the file"
            )
    source_ids = _ids(folder / VOCABULARY, config.integer("vocab_size"))
    other = folder / TARGET_VOCABULARY
    target_size = config.integer("decoder_vocab_size", config.integer("vocab_size"))
    target_ids = _ids(other, target_size) if other.exists() else source_ids
    return MarianTokenizer(
        *(
            MarianVocabulary(_unigram(folder / name), ids, special_tokens(config, ids["<unk>"]))
            for name, ids in ((SOURCE, source_ids), (TARGET, target_ids))
        )
    )


def special_tokens(config: CheckpointConfig, unknown: int | None = None) -> SpecialTokens:
    """A translation begins with the token of padding, which it may not hold."""
    padding = config.integer("pad_token_id")
    begin = config.integer("decoder_start_token_id", padding)
    return SpecialTokens(padding, begin, config.integer("eos_token_id"), unknown, (padding,))


def _ids(path: Path, rows: int) -> dict[str, int]:
    ids = read_json(path)
    if not all(isinstance(n, int) for n in ids.values()) or "<unk>" not in ids:
        raise ValueError(f"{path} must hold the id of each piece, <unk> among them; restore the file")
    if (last := max(ids.values())) >= rows:
        raise ValueError(
            f"the tokenizer of {path.parent} has ids up to {last}, but the embedding has {rows} rows; "
            "restore the tokenizer that the model was trained with"
        )
    return ids


def _split_language(line: str) -> tuple[list[str], str]:
    """The token of the target language, if the line begins with one, and the text."""
    end = line.find("<<") + 2
    return ([line[:end]], line[end:]) if line.startswith(">>") and end > 1 else ([], line)


def _unigram(path: Path) -> "Tokenizer":
    model = read_pieces(path)
    with failures_as_errors(f"{path} is no model of sentencepiece", "restore the file"):
        tokenizer = _build_unigram(model)
        tokenizer.encode("a")
    return tokenizer


def _build_unigram(model: SentencePieces) -> "Tokenizer":
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    # pieces of control cannot be written: no text is encoded as one
    pieces = [(f"\0{n}" if kind == _CONTROL else text, score) for n, (text, score, kind) in enumerate(model.pieces)]
    unknown = next(n for n, (_, _, kind) in enumerate(model.pieces) if kind == _UNKNOWN)
    tokenizer = Tokenizer(models.Unigram(pieces, unknown, False))
    spaces = [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    replacements = [normalizers.Precompiled(model.charsmap)] if model.charsmap else []
    tokenizer.normalizer = normalizers.Sequence([*replacements, *spaces])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme="always")
    return tokenizer


def read_pieces(path: Path) -> SentencePieces:
    """The pieces of a .spm file with a unigram model."""
    refuse_pointer(path)
    pieces, charsmap, kind = [], b"", _UNIGRAM
    try:
        for number, value in _fields(path.read_bytes()):
            if number == 1 and isinstance(value, bytes):
                part = dict(_fields(value))
                score = struct.unpack("<f", _bytes(part.get(2, b"\0" * 4)))[0]
                pieces.append((_bytes(part[1]).decode(), score, int(part.get(3, 1))))
            elif number == 2 and isinstance(value, bytes):
                kind = int(dict(_fields(value)).get(3, _UNIGRAM))
            elif number == 3 and isinstance(value, bytes):
                charsmap = _bytes(dict(_fields(value)).get(2, b""))
    except (IndexError, KeyError, ValueError, struct.error) as error:
        raise ValueError(f"{path} is no model of sentencepiece; restore the file") from error
    if kind != _UNIGRAM or not any(piece[2] == _UNKNOWN for piece in pieces):
        raise ValueError(f"{path} must hold a unigram model with an unknown piece; take the released file")
    return SentencePieces(pieces, charsmap)


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a field of bytes holds a number")
    return value


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The numbers and values of the fields of a message."""
    position = 0
    while position < len(content):
        key, position = _varint(content, position)
        kind = key & 7
        if kind == 0:
            value, position = _varint(content, position)
            yield key >> 3, value
            continue
        if kind == 2:
            size, position = _varint(content, position)
        else:
            size = {1: 8, 5: 4}[kind]
        if position + size > len(content):
            raise ValueError("the message ends inside a field")
        yield key >> 3, content[position : position + size]
        position += size


def _varint(content: bytes, position: int) -> tuple[int, int]:
    """A number of seven bits per byte, the lowest first, and the position behind it."""
    value = shift = 0
    while True:
        byte = content[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
        if shift > 63:
            raise ValueError("a number is longer than 64 bits")
