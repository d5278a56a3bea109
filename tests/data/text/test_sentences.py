"""Sentences: cut where they end, and nothing but white space is lost."""

from hypothesis import given, strategies as st
from tests.for_each import for_each

from regard.data.text.sentences import split_sentences


@for_each(
    ("text", "sentences"),
    [
        ("", []),
        (" \n\n ", []),
        ("one", ["one"]),
        ("It rained. We left!  Why? Nobody knows…", ["It rained.", "We left!", "Why?", "Nobody knows…"]),
        ('She said "no." He left. (Really.) Yes', ['She said "no."', "He left.", "(Really.)", "Yes"]),
        ("It costs 3.50 e.g. here, at no. one place", ["It costs 3.50 e.g. here, at no. one place"]),
        ("a line\nanother line \n\n a third", ["a line", "another line", "a third"]),
        ("雨が降った。帰った！なぜ？", ["雨が降った。", "帰った！", "なぜ？"]),
    ],
)
def test_where_sentences_end(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


@given(st.text(alphabet="ab .!?\n\"')。A1", max_size=40))
def test_nothing_but_white_space_is_lost(text: str) -> None:
    sentences = split_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence == sentence.strip() != "" for sentence in sentences)
