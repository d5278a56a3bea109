"""The tokens of a text by their places, for every kind of tokenizer."""

import pytest
from tests.tasks.encoders import PIECES

from regard.data.text.special_tokens import OWN_TOKENS, UNK
from regard.data.text.subwords import PretrainedSubwords, RunSubwords
from regard.data.text.tokenizer import Tokenizer
from regard.data.text.words import WordEncoder
from regard.inference.token_places import TokenPlace, VocabularyTexts, parts_in, token_places, word_places

LINES = ["the film was playing", "the film was good, good", "a trip to the film"]


class Placeless:
    """A tokenizer that does not say where its tokens stand, as those of Marian."""

    special = OWN_TOKENS

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.encode, self.pieces, self._size = tokenizer.encode, tokenizer.pieces, len(tokenizer)

    def __len__(self) -> int:
        return self._size


@pytest.mark.parametrize("kind", ["words", "characters", "bpe"])
@pytest.mark.parametrize("wrap", [lambda tokenizer: tokenizer, RunSubwords, Placeless])
def test_places_hold_the_texts_of_their_tokens(kind: str, wrap: type) -> None:
    tokenizer = wrap(Tokenizer.train(kind, LINES, 300))
    vocabulary = VocabularyTexts.of_tokenizer(tokenizer)
    assert vocabulary.texts[:4] == (None,) * 4
    count = 0
    for line, places in zip(LINES, token_places(tokenizer, LINES), strict=True):
        for start, end, token in places:
            if (text := vocabulary.texts[token]) is not None:
                assert line[start:end] == text
                count += 1
    assert count > 10
    assert any(vocabulary.continues) == (kind == "bpe")


def test_word_pieces() -> None:
    vocabulary = VocabularyTexts.of_pieces(PIECES, {0, 2, 3})
    texts = dict(zip(PIECES, zip(vocabulary.texts, vocabulary.continues, strict=True), strict=True))
    assert texts["##ing"] == ("ing", True)
    assert texts["good"] == ("good", False)
    assert {texts[name][0] for name in ("[PAD]", "[UNK]", "[CLS]", "[MASK]")} == {None}
    assert vocabulary.numbers["good"] == PIECES.index("good")
    assert "ing" not in vocabulary.numbers


def test_words_are_looked_up_in_lower_case() -> None:
    encoder = WordEncoder(["film", "00"], ())
    assert word_places(encoder, "Film 12 x") == [TokenPlace(0, 4, 4), TokenPlace(5, 7, 5), TokenPlace(8, 9, UNK)]
    assert VocabularyTexts.of_words(encoder).texts == (None, None, None, None, "film", "00")


def test_parts_begin_one_behind_the_other() -> None:
    assert parts_in("a b\ta b", ["a b", "a b"]) == [0, 4]


def test_a_released_tokenizer() -> None:
    from tokenizers import Tokenizer as Library
    from tokenizers.models import WordPiece
    from tokenizers.pre_tokenizers import Whitespace

    library = Library(WordPiece({piece: n for n, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    library.pre_tokenizer = Whitespace()
    (places,) = token_places(PretrainedSubwords(library), ["a filming"])
    assert [(start, end, PIECES[token]) for start, end, token in places] == [
        (0, 1, "a"),
        (2, 6, "film"),
        (6, 9, "##ing"),
    ]
