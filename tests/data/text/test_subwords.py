"""Sub-words of pretrained encoders: frames, pairs, words, offsets, and what is cut off."""

from pathlib import Path

import pytest
import transformers
from hypothesis import given, strategies as st
from tests.tasks.encoders import PIECES

from regard.data.text.special_tokens import BOS, EOS, UNK
from regard.data.text.subwords import PretrainedSubwords, RunSubwords, SubwordTokenizer, read_subwords
from regard.data.text.tokenizer import Tokenizer
from regard.models.pretrained.folder import CheckpointConfig
from regard.models.pretrained.tokenizer_files import load_tokenizer

TEXTS = ["a good film", "It wasn't bad.", "", "trip-ing  to\tÉ", "[SEP] to"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pieces")
    (path / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def pretrained(folder: Path) -> PretrainedSubwords:
    return PretrainedSubwords(load_tokenizer(CheckpointConfig(folder, {"vocab_size": len(PIECES)})))


def of_run(kind: str) -> RunSubwords:
    lines = [*TEXTS * 3, "größer 日本"]
    return RunSubwords(Tokenizer.train(kind, lines, 300))


@pytest.fixture(params=["pretrained", "bpe", "characters"])
def tokenizer(request: pytest.FixtureRequest, pretrained: PretrainedSubwords) -> SubwordTokenizer:
    return pretrained if request.param == "pretrained" else of_run(request.param)


def test_the_frame_is_that_of_transformers(folder: Path, pretrained: PretrainedSubwords) -> None:
    theirs = transformers.BertTokenizerFast.from_pretrained(folder)
    texts = TEXTS[:-1]
    assert [list(each.ids) for each in pretrained.encode(texts)] == theirs(texts)["input_ids"]
    pairs = [("a film", "it was bad"), ("", "to")]
    expected = theirs([a for a, _ in pairs], [b for _, b in pairs])
    ours = pretrained.encode_pairs(pairs)
    assert [list(each.ids) for each in ours] == expected["input_ids"]
    assert [list(each.types) for each in ours] == expected["token_type_ids"]
    words = [["a", "film", "bads"], ["to"]]
    expected = theirs(words, is_split_into_words=True)
    ours = pretrained.encode_words(words)
    assert [list(each.ids) for each in ours] == expected["input_ids"]
    assert [list(each.words) for each in ours] == [expected.word_ids(n) for n in range(2)]


def test_a_text_that_spells_a_special_token_is_text(pretrained: PretrainedSubwords) -> None:
    (encoded,) = pretrained.encode(["[SEP] to"])
    assert [n for n in encoded.ids if n == PIECES.index("[SEP]")] == [PIECES.index("[SEP]")]
    assert encoded.ids[-1] == PIECES.index("[SEP]")


def test_rows_of_a_run_stand_between_begin_and_end() -> None:
    tokenizer = of_run("bpe")
    (encoded,) = tokenizer.encode(["a good film"])
    assert (encoded.ids[0], encoded.ids[-1]) == (BOS, EOS)
    assert tokenizer.pieces([*encoded.ids[:2], tokenizer.mask or 0]) == ["<bos>", "▁a", "[MASK]"]
    (pair,) = tokenizer.encode_pairs([("a", "film")])
    assert pair.ids.count(EOS) == 2
    assert set(pair.types) == {0}


def test_offsets_are_the_characters_of_a_token(tokenizer: SubwordTokenizer) -> None:
    for text, encoded in zip(TEXTS, tokenizer.encode(TEXTS), strict=True):
        ends = 0
        for piece, number, (start, end) in zip(
            tokenizer.pieces(encoded.ids), encoded.texts, encoded.offsets, strict=True
        ):
            if number is None:
                continue
            assert 0 <= start <= end <= len(text)
            assert end >= ends, "in the order of the text"
            ends = end
            spelled = piece.removeprefix("##").removeprefix("▁")
            if (text[start:end] + spelled).isascii() and spelled.isalpha():
                assert text[start:end].lower() == spelled.lower()
        assert encoded.is_empty == (not text)


def test_every_word_has_a_token(tokenizer: SubwordTokenizer) -> None:
    sentences = [["trip", "\x00", "to", "B-C"], ["x"], []]
    for words, encoded in zip(sentences, tokenizer.encode_words(sentences), strict=True):
        assert sorted({word for word in encoded.words if word is not None}) == list(range(len(words)))
        assert [encoded.words[place] for place in encoded.firsts] == list(range(len(words)))
        assert all(encoded.words[place - 1] != encoded.words[place] for place in encoded.firsts)


def test_characters_have_a_space_between_words() -> None:
    tokenizer = of_run("characters")
    joined, words = tokenizer.encode(["it was"])[0], tokenizer.encode_words([["it", "was"]])[0]
    assert joined.ids == words.ids
    assert words.words == (None, 0, 0, None, 1, 1, 1, None)


def test_tokens_beyond_the_longest_input_are_cut_and_counted(tokenizer: SubwordTokenizer) -> None:
    text = "a good film it was bad"
    (whole,) = tokenizer.encode([text])
    (cut,) = tokenizer.encode([text], longest=5)
    assert len(cut) == 5
    assert cut.num_cut == len(whole) - 5
    assert (cut.ids[:-1], cut.ids[-1]) == (whole.ids[:4], whole.ids[-1])
    assert tokenizer.encode([text], longest=len(whole))[0] == whole
    assert whole.num_cut == 0


@given(st.integers(0, 9), st.integers(0, 9), st.integers(3, 20))
def test_of_a_pair_the_longer_text_is_cut_first(first: int, second: int, longest: int) -> None:
    tokenizer = RunSubwords(Tokenizer.train("characters", ["ab"], 10))
    (pair,) = tokenizer.encode_pairs([("a" * first, "b" * second)], longest=longest)
    kept = [pair.texts.count(number) for number in (0, 1)]
    assert len(pair) == min(longest, first + second + 3)
    assert pair.num_cut == first + second - sum(kept)
    # no text is shorter than the other, unless it was
    if kept[0] < first:
        assert kept[0] >= kept[1] - 1 or kept[1] == second
        assert kept[0] + 1 >= kept[1]
    if kept[1] < second:
        assert kept[1] + 1 >= kept[0]


def test_unknown_characters_are_counted(tokenizer: SubwordTokenizer) -> None:
    (encoded,) = tokenizer.encode(["a ☃"])
    assert encoded.num_unknown == encoded.ids.count(-1 if tokenizer.unknown is None else tokenizer.unknown)
    if isinstance(tokenizer, PretrainedSubwords) or tokenizer.space:
        assert encoded.num_unknown == 1
    assert of_run("characters").unknown == UNK


def test_json_restores_it(tokenizer: SubwordTokenizer) -> None:
    again = read_subwords(tokenizer.to_json())
    assert (again.frame, again.size, again.pad, again.mask) == (
        tokenizer.frame, tokenizer.size, tokenizer.pad, tokenizer.mask,
    )  # fmt: skip
    assert again.encode(TEXTS) == tokenizer.encode(TEXTS)
    assert again.to_json() == tokenizer.to_json()
    assert tokenizer.special >= {*tokenizer.frame.begin, *tokenizer.frame.end}


def test_a_tokenizer_without_a_frame(folder: Path) -> None:
    library = load_tokenizer(CheckpointConfig(folder, {"vocab_size": len(PIECES)}))
    library.post_processor = None
    tokenizer = PretrainedSubwords(library)
    assert tokenizer.frame.size() == 0
    (encoded,) = tokenizer.encode([""])
    assert encoded.ids == (PIECES.index("[UNK]"),), "a text of no tokens is one that is unknown"
    assert encoded.is_empty


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "text must be a tokenizer of sub-words, got ''; write it again"),
        ("[]", r"text must be a tokenizer of sub-words, got '\[\]'; write it again"),
        ('{"kind": "pretrained", "tokenizer": {}}', r"text must be a tokenizer of sub-words \(.+\); write it again"),
    ],
)
def test_other_text_is_refused(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        read_subwords(text)
