"""Pieces to words: by marks, by numbers, and maps that keep their mass."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from tests.recording.toy import computed, kept, stack, weights
from tests.refusals import Act, check_refusals

from regard.attn.maps.attention_map import DenseMap
from regard.recording.analysis.words import MARKS, Words
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording

WORDPIECE = ["[CLS]", "un", "##believ", "##able", "!", "play", "##ing", "[SEP]"]
BPE = ["Un", "believ", "able", "!", "Ġplay", "ing", "Ċ", "<|endoftext|>", "The"]
PLAIN = ["[CLS]", "the", "cat", "sat", "."]
SENTENCEPIECE = ["▁Un", "believ", "able", "▁", "▁play", "ing", "</s>", "▁a"]


def test_wordpiece() -> None:
    found = Words.by_mark(WORDPIECE)
    assert found.text == ("[CLS]", "unbelievable", "!", "playing", "[SEP]")
    assert found.word_ids == (0, 1, 1, 1, 2, 3, 3, 4)


def test_bpe() -> None:
    found = Words.by_mark(BPE)
    assert found.text == ("Unbelievable!", "playing", "Ċ", "<|endoftext|>", "The")
    assert found.word_ids == (0, 0, 0, 0, 1, 1, 2, 3, 4)


def test_sentencepiece() -> None:
    found = Words.by_mark(SENTENCEPIECE)
    assert found.text == ("Unbelievable", "▁", "playing", "</s>", "a")
    assert found.word_ids == (0, 0, 0, 1, 2, 2, 3, 4)


def test_by_numbers() -> None:
    found = Words.by_ids(WORDPIECE, [None, 0, 0, 0, 1, 2, 2, None])
    assert found == Words.by_mark(WORDPIECE, "wordpiece")
    # special tokens side by side stay apart, and so do equal numbers of two sentences
    assert Words.by_ids(["[PAD]", "[PAD]", "a", "[SEP]", "b"], [None, None, 0, None, 0]).word_ids == (0, 1, 2, 3, 4)
    assert Words.by_ids([], []) == Words((), ())


def test_the_numbers_of_a_tokenizer() -> None:
    """A WordPiece tokenizer that nobody here wrote says the same as its marks; it cuts off the full stop, too."""
    tokenizers = pytest.importorskip("tokenizers")
    names = ["[UNK]", "[CLS]", "[SEP]", "the", "cat", "##s", "sat", "un", "##happi", "##ly", "."]
    made = tokenizers.BertWordPieceTokenizer(vocab={name: n for n, name in enumerate(names)})
    got = made.encode("The cats sat unhappily.")
    assert len(got.tokens) > len(set(got.word_ids))
    found = Words.by_ids(got.tokens, got.word_ids)
    assert found == Words.by_mark(got.tokens)
    assert found.text == ("[CLS]", "the", "cats", "sat", "unhappily", ".", "[SEP]")


@st.composite
def grouped(draw: st.DrawFn) -> Words:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    of = tuple(word for word, size in enumerate(sizes) for _ in range(size))
    return Words(tuple(f"w{n}" for n in range(len(sizes))), of)


@settings(max_examples=30, deadline=None)
@given(grouped(), grouped(), st.booleans())
def test_columns_are_summed_and_rows_averaged(queries: Words, keys: Words, lazy: bool) -> None:
    q, k = len(queries.word_ids), len(keys.word_ids)
    one = computed(q=q, k=k) if lazy else DenseMap(weights(2, 3, q, k))
    found = Recording((RecordedMap("a", "cross", one, grid=(1, k)),)).merge_words(queries, keys)
    p = one.dense().double().numpy()
    expected = np.zeros((2, 3, len(queries), len(keys)))
    for u in range(len(queries)):
        for v in range(len(keys)):
            block = p[..., np.array(queries.word_ids) == u, :][..., np.array(keys.word_ids) == v]
            expected[..., u, v] = block.sum(-1).mean(-1)
    got = found[0].weights
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.dense().numpy(), expected, atol=1e-6)
    # a row keeps its mass
    torch.testing.assert_close(got.dense().sum(-1), torch.ones(2, 3, len(queries)))
    assert (found.queries, found.keys) == (queries.text, keys.text)
    assert found[0].grid is None
    again = torch.tensor([0, len(queries) - 1, 0])
    torch.testing.assert_close(got.rows(again), got.dense()[..., again, :])
    torch.testing.assert_close(got.pick(1, 2).dense(), got.dense()[1, 2])


def test_words_of_one_piece_change_nothing() -> None:
    tape = stack()
    same = tape.merge_words(Words(tape.queries, tuple(range(5))))
    assert all(torch.equal(a.weights.dense(), b.weights.dense()) for a, b in zip(tape, same, strict=True))
    assert (same.queries, same.keys) == (tape.queries, tape.keys)


def test_left_out_the_words_come_from_the_labels() -> None:
    one = stack(n=8).with_labels(WORDPIECE).merge_words()
    words = ("[CLS]", "unbelievable", "!", "playing", "[SEP]")
    assert one.labels(one[0]) == (words, words)
    assert one[0].shape == (2, 3, 5, 5)
    two = Recording((kept("e", 1, 2, 8, 8), kept("d", 1, 2, 5, 5), kept("c", 1, 2, 5, 8, kind="cross")))
    # a text that shows no mark is of the tokenizer of the other one
    two = two.with_labels(PLAIN, WORDPIECE)
    # an encoder's words are those of the keys
    assert [m.shape[-2:] for m in two.merge_words()] == [(5, 5), (5, 5), (5, 5)]
    assert two.merge_words().labels(two.merge_words()[2]) == (tuple(PLAIN), Words.by_mark(WORDPIECE).text)


REFUSED: dict[type[Exception], dict[str, Act]] = {
    ValueError: {
        "keys must be Words for 'c', which attends to another text (kind cross); pass keys=, label them by "
        "with_labels": lambda _: Recording((kept("c", 1, 2, 8, 8, kind="cross"),)).with_labels(WORDPIECE).merge_words(),
        "unknown mark 'bpee'; did you mean 'bpe'?": lambda _: Words.by_mark(BPE, "bpee"),
        "the tokens show no mark; name one of wordpiece, bpe, sentencepiece, or number the words: "
        "Words.by_ids(tokens, encoding.word_ids())": lambda _: Words.by_mark(["a", "b"]),
        "the marks of wordpiece and sentencepiece; name": lambda _: Words.by_mark(["##a", "▁b"]),
        "ids must number 1 tokens, got 2 of them; pass encodi": lambda _: Words.by_ids(["a"], [0, 1]),
        "every word must have a token and every token a word, got 2 words and tokens of [0]; number the words "
        "from 0": lambda _: Words(("a", "b"), (0, 0)),
        "queries must be Words for a rec": lambda _: Recording((kept("a", 1, 1, 2, 2),)).merge_words(),
        "words must be made of 5 queries and 5 keys for 'layers.0', got words of 2 and of 2 tokens": lambda _: (
            stack().merge_words(Words(("a",), (0, 0)))
        ),
    },
    TypeError: {
        "queries must be a Words, got [0, 0, 1]": lambda _: stack().merge_words([0, 0, 1]),
    },
}


def test_refusals(tmp_path: Path) -> None:
    check_refusals(REFUSED, tmp_path)


@pytest.mark.parametrize("mark", MARKS)
def test_no_pieces_are_no_words(mark: str) -> None:
    assert Words.by_mark([], mark) == Words((), ())
