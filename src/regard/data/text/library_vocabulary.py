"""LibraryVocabulary: a vocabulary as other programs read it, with its tokenizer for the library `tokenizers`.

vocabulary = library_vocabulary(tokenizer, spaced=True, end=(EOS,))      of a Tokenizer of regard
vocabulary = LibraryVocabulary.of_library(library, {"eos": 50256})       of the tokenizer of a released model
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.data.text.sentences import SENTENCE_SPACE
from regard.data.text.special_tokens import BOS, EOS, PAD, SPECIAL, UNK
from regard.data.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

MASK = "[MASK]"
# `words` has no text for an unknown token: this is its name in the vocabulary
_UNKNOWN = "<unk>"


@dataclass(frozen=True, eq=False)
class LibraryVocabulary:
    """The text of every id, the ids of the special tokens by their names, and the tokenizer if the library has it.

    Names are "pad", "bos", "eos", "unk" and "mask". A generated text has no token of `forbidden`. `matches_special`:
    special tokens that a text spells are read as such; otherwise they are text like any other.
    """

    pieces: tuple[str, ...]
    special: Mapping[str, int]
    library: "Library | None" = None
    forbidden: tuple[int, ...] = ()
    matches_special: bool = False

    @staticmethod
    def of_library(
        library: "Library",
        special: Mapping[str, int | None],
        *,
        forbidden: Sequence[int] = (),
        matches_special: bool = False,
    ) -> "LibraryVocabulary":
        """The vocabulary of a tokenizer; ids that are None or negative stand for tokens that it does not have."""
        count = 1 + max(library.get_vocab(with_added_tokens=True).values(), default=-1)
        pieces = tuple(library.id_to_token(n) or f"<unused {n}>" for n in range(count))
        ids = {name: n for name, n in special.items() if n is not None and 0 <= n < count}
        return LibraryVocabulary(pieces, ids, library, tuple(forbidden), matches_special)

    def name(self, special: str) -> str | None:
        """The text of a special token; None if there is none."""
        return self.pieces[self.special[special]] if special in self.special else None

    def padded(self, size: int) -> list[str]:
        """The text of every row of an embedding of this size, which may have more rows than the vocabulary has ids."""
        return [*self.pieces, *(f"<unused {n}>" for n in range(len(self.pieces), size))]


def library_vocabulary(
    tokenizer: Tokenizer,
    *,
    spaced: bool,
    begin: Sequence[int] = (),
    end: Sequence[int] = (),
    bos: int = BOS,
    mask: bool = False,
    matches_special: bool = False,
    by_sentence: bool = False,
) -> LibraryVocabulary:
    """A tokenizer of regard for the library: equal ids for every text.

    `spaced` reads texts as lines (`Tokenizer.encode`), otherwise as running text (`Tokenizer.encode_text`). `begin` and
    `end` are put around a text; `mask` adds the token of masked-lm behind all others. `by_sentence` reads the sentences
    of a text as lines of their own: white space around them has no tokens.
    """
    from tokenizers import AddedToken, Regex, normalizers, processors

    if tokenizer.kind not in _LIBRARIES:
        raise ValueError(
            f"tokens of kind {tokenizer.kind!r} have no equal in the library tokenizers, which lowers some letters "
            "otherwise; train with --tokens bpe, characters or words to export the run"
        )
    library = _LIBRARIES[tokenizer.kind](json.loads(tokenizer.to_json()), spaced)
    if by_sentence:
        rest = [] if library.normalizer is None else [library.normalizer]
        # one space between sentences, and none before and behind a text
        between = normalizers.Replace(Regex(SENTENCE_SPACE), "" if tokenizer.kind == "characters" else " ")
        library.normalizer = normalizers.Sequence([between, normalizers.Strip(), *rest])
    names = [str(library.id_to_token(n)) for n in range(SPECIAL)]
    library.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    special: dict[str, int | None] = {"pad": PAD, "bos": bos, "eos": EOS, "unk": UNK}
    if mask:
        # a space before a masked word belongs to its token
        strips = tokenizer.kind == "bpe" and not spaced
        library.add_special_tokens([AddedToken(MASK, special=True, normalized=False, lstrip=strips)])
        special["mask"] = len(tokenizer)
    if begin or end:
        around = " ".join((*(names[n] for n in begin), "$A", *(names[n] for n in end)))
        pair = " ".join((around, "$B", *(names[n] for n in end)))
        marks = [(names[n], n) for n in sorted({*begin, *end})]
        library.post_processor = processors.TemplateProcessing(single=around, pair=pair, special_tokens=marks)
    library.encode_special_tokens = not matches_special
    forbidden = tokenizer.special.forbidden
    return LibraryVocabulary.of_library(library, special, forbidden=forbidden, matches_special=matches_special)


def _bpe(content: Mapping[str, Any], spaced: bool) -> "Library":
    from tokenizers import Tokenizer as Library, decoders, normalizers

    library = Library.from_str(json.dumps(content["tokenizer"]))
    library.decoder = decoders.ByteLevel()
    if spaced:
        library.normalizer = normalizers.Prepend(" ")
        library.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return library


def _characters(content: Mapping[str, Any], spaced: bool) -> "Library":
    library = _word_level(list(content["vocabulary"]), r"[\s\S]")
    from tokenizers import decoders

    library.decoder = decoders.Fuse()
    return library


def _words(content: Mapping[str, Any], spaced: bool) -> "Library":
    """Words with the space before them, so that two spaces have a word of no letters between them."""
    from tokenizers import decoders, normalizers

    library = _word_level([" " + word for word in content["vocabulary"]], r" [^ ]*")
    library.normalizer = normalizers.Prepend(" ")
    library.decoder = decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return library


def _word_level(texts: Sequence[str], pattern: str) -> "Library":
    """Every match of the pattern is one token."""
    from tokenizers import Regex, Tokenizer as Library, models, pre_tokenizers

    pieces = ["<pad>", "<bos>", "<eos>", _UNKNOWN, *texts]
    library = Library(models.WordLevel({piece: n for n, piece in enumerate(pieces)}, unk_token=_UNKNOWN))
    library.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    return library


_LIBRARIES = {"bpe": _bpe, "characters": _characters, "words": _words}
