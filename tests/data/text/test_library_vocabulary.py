"""Vocabularies for other programs: the library has the same ids and the same text."""

import random

import pytest

from regard.data.text.library_vocabulary import MASK, library_vocabulary
from regard.data.text.sentences import split_sentences
from regard.data.text.tokenizer import Kind, Tokenizer

LINES = ["the cat  sat on the mat\n", "a <pad> b", "", " ", "x\ty é漢 ", "<unk> <eos>", "  two", "the the cat"]
KINDS: list[tuple[Kind, int]] = [("bpe", 300), ("characters", 100), ("words", 20)]


@pytest.mark.parametrize("spaced", [True, False])
@pytest.mark.parametrize(("kind", "size"), KINDS)
def test_equal_ids_and_text(kind: Kind, size: int, spaced: bool) -> None:
    tokenizer = Tokenizer.train(kind, LINES[:3], size)
    library = library_vocabulary(tokenizer, spaced=spaced).library
    for line in LINES:
        ids = tokenizer.encode([line])[0] if spaced else tokenizer.encode_text(line)
        assert library.encode(line).ids == ids
        if 3 not in ids:
            assert library.decode(ids) == line


def test_folded_words_are_refused() -> None:
    tokenizer = Tokenizer.train("folded-words", LINES[:3], 20)
    with pytest.raises(
        ValueError, match="'folded-words' have no equal .* train with --tokens bpe, characters or words"
    ):
        library_vocabulary(tokenizer, spaced=True)


@pytest.mark.parametrize(("kind", "size"), KINDS)
def test_marks_and_masks(kind: Kind, size: int) -> None:
    tokenizer = Tokenizer.train(kind, LINES[:3], size)
    vocabulary = library_vocabulary(tokenizer, spaced=False, begin=(1,), end=(2,), mask=True, matches_special=True)
    (before, after) = map(tokenizer.encode_text, ("the", "cat" if kind == "words" else " cat"))
    assert vocabulary.library.encode(f"the{MASK} cat").ids[: len(before) + 2] == [1, *before, len(tokenizer)]
    assert vocabulary.library.encode(f"the{MASK} cat").ids[-len(after) - 1 :] == [*after, 2]
    assert vocabulary.name("mask") == MASK
    assert vocabulary.name("cls") is None
    assert len(vocabulary.padded(len(tokenizer) + 3)) == len(tokenizer) + 3


@pytest.mark.parametrize(("kind", "size"), KINDS)
def test_sentences_are_read_one_by_one(kind: Kind, size: int) -> None:
    """White space between sentences has no tokens; that inside them has."""
    tokenizer = Tokenizer.train(kind, LINES[:3], size)
    library = library_vocabulary(tokenizer, spaced=True, by_sentence=True).library
    draw = random.Random(0)
    parts = ["a", "B", " ", "  ", ". ", ".", "!", "? ", "\n", "。", ")", "”", "é", "漢", "…"]
    for _ in range(300):
        text = "".join(draw.choices(parts, k=draw.randint(1, 12)))
        sentences = tokenizer.encode(split_sentences(text))
        assert library.encode(text).ids == [token for ids in sentences for token in ids]
