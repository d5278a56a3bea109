"""Vocabularies: what goes in comes out, white space and all, and no text becomes a special number."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st
from tests.for_each import for_each

from regard.data.text.special_tokens import BOS, EOS, PAD, SPECIAL, UNK
from regard.data.text.tokenizer import Kind, Tokenizer

LINES = [
    "Zwei junge weiße Männer sind im Freien, in der Nähe vieler Büsche.",
    "Two young, White males are outside near many bushes.",
    "Two men don't see the man's 12 dogs -- they're in Köln (1999)!",
    "no\u00a0break, tab\tand  two spaces ",
    " जनवरी ๒๕ 年 русский <pad> </s> <bos> ⁇",
] * 3
KINDS: tuple[Kind, ...] = ("bpe", "characters", "words")
VOCABULARIES = {kind: Tokenizer.train(kind, LINES, 400) for kind in KINDS}
WORDS = sorted({word for line in LINES for word in line.split(" ")})
CHARACTERS = sorted(set("".join(LINES)))


@given(st.text())
def test_bpe_gives_back_any_text(text: str) -> None:
    tokens = VOCABULARIES["bpe"]
    [ids] = tokens.encode([text])
    assert tokens.decode(ids) == text
    assert all(SPECIAL <= n < len(tokens) for n in ids)
    assert bool(ids) == bool(text)


@given(st.text(alphabet=CHARACTERS))
def test_characters_give_back_what_is_made_of_them(text: str) -> None:
    tokens = VOCABULARIES["characters"]
    [ids] = tokens.encode([text])
    assert tokens.decode(ids) == text
    assert len(ids) == len(text)
    assert UNK not in ids


@given(st.lists(st.sampled_from(WORDS)))
def test_words_give_back_what_is_made_of_them(words: Sequence[str]) -> None:
    tokens = VOCABULARIES["words"]
    text = " ".join(words)
    [ids] = tokens.encode([text])
    assert tokens.decode(ids) == text
    assert UNK not in ids


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_seen_comes_back(kind: Kind) -> None:
    tokens = VOCABULARIES[kind]
    assert [tokens.decode(ids) for ids in tokens.encode(LINES)] == LINES
    assert tokens.encode([]) == []
    assert tokens.encode([""]) == [[]]
    assert tokens.decode([]) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_becomes_a_special_number(kind: Kind) -> None:
    # in the lines that were learnt and outside of them, alone and inside a word
    texts = ["<pad>", "</s>", "<bos>", "<eos>", "a<pad>b", " <bos> <eos>"]
    for ids in VOCABULARIES[kind].encode(texts):
        assert not {PAD, BOS, EOS}.intersection(ids)
    assert UNK not in VOCABULARIES[kind].encode(["<pad>"])[0]


@pytest.mark.parametrize("kind", KINDS)
def test_special_numbers_are_dropped_and_the_unknown_is_seen(kind: Kind) -> None:
    tokens = VOCABULARIES[kind]
    [ids] = tokens.encode(["Two men"])
    assert tokens.decode([BOS, *ids, EOS, PAD, PAD]) == "Two men"
    assert "⁇" in tokens.decode([*ids, UNK])
    assert tokens.pieces([PAD, BOS, EOS, UNK]) == ["<pad>", "<bos>", "<eos>", "⁇"]


def test_what_was_never_seen_is_unknown() -> None:
    characters, words = VOCABULARIES["characters"], VOCABULARIES["words"]
    assert characters.encode(["a☃"]) == [[*characters.encode(["a"])[0], UNK]]
    assert characters.decode(characters.encode(["a☃b"])[0]) == "a⁇b"
    assert words.decode(words.encode(["Two snowmen see"])[0]) == "Two ⁇ see"
    assert characters.pieces_of("a☃b ") == ["a", "☃⁇", "b", "␣"]
    assert words.pieces_of("Two snowmen see") == ["Two", "snowmen⁇", "see"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_pieces_of_a_line_are_those_of_its_ids(kind: Kind) -> None:
    tokens = VOCABULARIES[kind]
    for line in (*LINES, ""):
        assert tokens.pieces_of(line) == tokens.pieces(tokens.encode([line])[0])


@pytest.mark.parametrize("kind", KINDS)
def test_the_vocabulary_survives_its_text(kind: Kind) -> None:
    tokens = VOCABULARIES[kind]
    again = Tokenizer.from_json(tokens.to_json())
    assert again.to_json() == tokens.to_json()
    assert (again.kind, len(again)) == (kind, len(tokens))
    assert again.encode([*LINES, "unseen ☃"]) == tokens.encode([*LINES, "unseen ☃"])
    [ids] = tokens.encode(LINES[2:3])
    assert again.pieces(ids) == tokens.pieces(ids)


def test_training_is_the_same_in_every_process() -> None:
    code = (
        "import hashlib, json, sys; from regard.data.text.tokenizer import Tokenizer\n"
        "tokens = Tokenizer.train('bpe', json.loads(sys.argv[1]), 400)\n"
        "print(hashlib.sha256(tokens.to_json().encode()).hexdigest())"
    )
    ran = subprocess.run([sys.executable, "-c", code, json.dumps(LINES)], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == hashlib.sha256(VOCABULARIES["bpe"].to_json().encode()).hexdigest()


def test_size_is_a_bound() -> None:
    assert len(Tokenizer.train("bpe", LINES, 271)) == 271
    assert len(Tokenizer.train("words", LINES, 11)) == 11
    assert len(Tokenizer.train("characters", LINES, 10_000)) == SPECIAL + len(CHARACTERS)


def test_words_keep_the_most_frequent() -> None:
    tokens = Tokenizer.train("words", ["b a a c c c", "d  d d d"], SPECIAL + 1 + 2)
    # beside them the word of no letters, so that spaces stay what they are
    assert tokens.pieces(range(SPECIAL, len(tokens))) == ["␣", "d", "c"]
    assert tokens.decode(tokens.encode(["  d c a "])[0]) == "  d c ⁇ "


def test_bpe_learns_words_but_neither_numbers_nor_signs_with_them() -> None:
    tokens = Tokenizer.train("bpe", ["schöne Grüße, 1999", "don't man's l'homme"] * 9, 2000)
    [ids] = tokens.encode(["schöne Grüße, 1999 don't man's"])
    assert tokens.pieces(ids) == ["▁schöne", "▁Grüße", ",", "▁1", "9", "9", "9", "▁don", "'t", "▁man", "'s"]
    # the first word of a line is the word it is elsewhere
    assert tokens.encode(["Grüße"])[0] == tokens.encode(["schöne Grüße"])[0][1:]


def test_marks_stay_with_their_letters() -> None:
    tokens = Tokenizer.train("bpe", ["हिन्दी में"] * 9, 2000)
    assert tokens.pieces(tokens.encode(["हिन्दी में"])[0]) == ["▁" + "".join(map(shown, w)) for w in ("हिन्दी", "में")]


def shown(character: str) -> str:
    return character if character.isalpha() else "◌" + character


def test_pieces_can_be_read() -> None:
    bpe, characters = VOCABULARIES["bpe"], VOCABULARIES["characters"]
    assert bpe.pieces(bpe.encode(["é☃"])[0]) == ["␣", "�", "�", "�", "�", "�"]
    wide = Tokenizer.train("bpe", ["a    b"] * 9, 300)
    assert wide.pieces(wide.encode(["a    b"])[0]) == ["▁a", "␣␣␣", "▁b"]
    assert characters.pieces(characters.encode(["a \t\u00a0"])[0]) == ["a", "␣", "\\t", "\\xa0"]
    for tokens in VOCABULARIES.values():
        labels = tokens.pieces(range(len(tokens)))
        assert len(labels) == len(tokens)
        assert all(label.isprintable() and label.strip() for label in labels)


def test_part_of_a_character_does_not_break_the_text() -> None:
    tokens = VOCABULARIES["bpe"]
    [ids] = tokens.encode(["é☃"])
    assert tokens.decode(ids[:-1]).endswith("�")


@for_each(
    ("kind", "lines", "size", "sentence"),
    [
        ("bp", LINES, 400, "kind must be one of bpe, characters, words, folded-words, got 'bp'; try kind='bpe'"),
        ("bpe", LINES, 259, r"vocabulary must be at least 260 for bpe .*, got 259; try vocabulary=8000, or "),
        ("characters", ["abc"], 6, "vocabulary must hold 3 characters and 4 special numbers, got 6; try"),
        ("words", LINES, 5, "vocabulary must be more than 5 for words, got 5; try vocabulary=8000"),
        ("bpe", ["", ""], 400, "lines must hold some text to learn a vocabulary from, got none"),
        ("words", [], 400, "lines must hold some text to learn a vocabulary from, got none"),
        ("characters", [], 400, "lines must hold some text to learn a vocabulary from, got none"),
    ],
)
def test_a_vocabulary_that_cannot_be_says_why(kind: Kind, lines: list[str], size: int, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Tokenizer.train(kind, lines, size)


def test_wrong_types_are_told() -> None:
    with pytest.raises(TypeError, match="lines must be lines of text, got one string 'abc'; put it into a list"):
        Tokenizer.train("bpe", "abc", 400)
    with pytest.raises(TypeError, match="vocabulary must be a whole number, got 400.0; try vocabulary=8000"):
        Tokenizer.train("bpe", LINES, 400.0)
    with pytest.raises(TypeError, match=r"lines must be a list of lines, got one string 'abc'; write \[line\]"):
        VOCABULARIES["bpe"].encode("abc")
    with pytest.raises(TypeError):
        VOCABULARIES["bpe"].encode([1])


def test_numbers_outside_are_told() -> None:
    for tokens in VOCABULARIES.values():
        for n in (-1, len(tokens)):
            sentence = f"ids must be numbers from 0 to {len(tokens) - 1}, got {n}; is this the model's vocabulary"
            with pytest.raises(ValueError, match=sentence):
                tokens.decode([5, n])
            with pytest.raises(ValueError, match=sentence):
                tokens.pieces([n])


def test_half_a_character_is_told() -> None:
    with pytest.raises(ValueError, match=r"lines must be Unicode text, got 'b\\ud800', which holds a surrogate"):
        VOCABULARIES["bpe"].encode(["a", "b\ud800"])


@for_each("text", ["", "no", "[]", "{}", '{"kind": "words"}', '{"kind": "bpe"}', "3", "[" * 100_000])
def test_what_is_no_vocabulary_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="text must be the output of Tokenizer.to_json, got .*; train the vocabulary"):
        Tokenizer.from_json(text)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"bpe needs tokenizers; install it with: pip install 'regard\[train\]'"):
        Tokenizer.train("bpe", LINES, 400)
    # the others need nothing
    assert len(Tokenizer.train("words", ["a b"], 400)) == SPECIAL + 3


@pytest.mark.parametrize("kind", ["bpe", "characters", "words"])
def test_offsets_are_the_characters_of_an_id(kind: Kind) -> None:
    lines = ["the cat  sat", "", "größer 日本 the", " the"]
    tokenizer = Tokenizer.train(kind, [*lines, "the the cat cat"], 400)
    encoded = tokenizer.encode_with_offsets(lines)
    assert [ids for ids, _ in encoded] == tokenizer.encode(lines)
    for line, (ids, offsets) in zip(lines, encoded, strict=True):
        texts = [tokenizer.token_text(n) for n in ids]
        assert all(0 <= start <= end <= len(line) for start, end in offsets)
        assert all(
            line[start:end] == text.lstrip(" ")
            for text, (start, end) in zip(texts, offsets, strict=True)
            if "�" not in text and kind == "bpe" and text.strip()
        )
        if kind != "bpe":
            assert [line[start:end] for start, end in offsets] == texts


def test_folded_words_have_no_case_and_marks_apart() -> None:
    tokenizer = Tokenizer.train("folded-words", ["Great film.", "a GREAT one, really"], 100)
    assert tokenizer.encode(["great  Film ."]) == tokenizer.encode(["Great film."])
    assert UNK not in tokenizer.encode(["A film, REALLY great."])[0]
    ((ids, places),) = tokenizer.encode_with_offsets(["Great,  bad film."])
    assert [("Great,  bad film."[start:end], n == UNK) for n, (start, end) in zip(ids, places, strict=True)] == [
        ("Great", False), (",", False), ("bad", True), ("film", False), (".", False)
    ]  # fmt: skip
    assert tokenizer.decode(ids) == "great , ⁇ film ."
    assert Tokenizer.from_json(tokenizer.to_json()).encode(["Great film."]) == tokenizer.encode(["Great film."])
    assert tokenizer.encode(["", " "]) == [[], []]
