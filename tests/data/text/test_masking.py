"""Masked tokens: shares, whole words, replacements."""

import numpy as np
import pytest

from regard.data.text.masking import WordBoundaries, choose_tokens, mask_token, replace_tokens
from regard.data.text.special_tokens import BOS, EOS, PAD, SPECIAL
from regard.data.text.tokenizer import Kind, Tokenizer

TEXT = "the unhappy cats — naïve, 128 of them — sat; don't\n"


@pytest.mark.parametrize(("kind", "size"), [("bpe", 262), ("bpe", 300), ("characters", 60)])
def test_words_are_runs_of_letters_and_digits(kind: Kind, size: int) -> None:
    tokenizer = Tokenizer.train(kind, [TEXT] * 2, size)
    tokens = np.array(tokenizer.encode_text(TEXT))
    numbers = WordBoundaries(tokenizer).numbers(tokens)
    words = [tokenizer.decode_text(tokens[numbers == n].tolist()) for n in range(numbers.max() + 1)]
    assert "".join(words) == TEXT
    kept = [word.strip() for word in words if any(map(str.isalnum, word))]
    assert kept == ["the", "unhappy", "cats", "naïve", "128", "of", "them", "sat", "don", *kept[9:]]
    assert "".join(kept[9:]).strip("'") == "t"


@pytest.mark.parametrize("share", [0.01, 0.15, 0.5])
def test_every_row_has_its_share_and_no_special_token(share: float) -> None:
    rng = np.random.default_rng(0)
    rows = np.full((7, 42), 9)
    rows[:, 0], rows[:, -1] = BOS, EOS
    rows[3, 20:] = PAD
    chosen = choose_tokens(rows, None, share, rng)
    lengths = (rows >= SPECIAL).sum(1)
    assert chosen.sum(1).tolist() == [max(round(share * n), 1) for n in lengths.tolist()]
    assert (rows[chosen] >= SPECIAL).all()
    assert not choose_tokens(np.array([[BOS, EOS]]), None, share, rng).any()


def test_all_tokens_of_a_word_are_chosen_or_none() -> None:
    rng = np.random.default_rng(1)
    words = np.sort(rng.integers(0, 20, (5, 60)), axis=1)
    chosen = choose_tokens(np.full((5, 60), 7), words, 0.15, rng)
    for row, numbers in zip(chosen, words, strict=True):
        sizes = np.bincount(numbers)
        of_word = np.bincount(numbers, row)
        assert set(of_word[sizes > 0] / sizes[sizes > 0]) == {0.0, 1.0}
        assert 9 <= row.sum() < 9 + sizes.max()


def test_eight_in_ten_become_the_mask_one_is_random_one_stays() -> None:
    rng = np.random.default_rng(2)
    rows = np.full((40, 500), 7)
    chosen = rng.random(rows.shape) < 0.5
    before = rows.copy()
    read = replace_tokens(rows, chosen, 107, rng)
    assert (rows == before).all()
    assert (read[~chosen] == 7).all()
    others = read[chosen]
    shares = [(others == 107).mean(), ((others != 107) & (others != 7)).mean(), (others == 7).mean()]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.02)
    assert others.min() >= SPECIAL
    assert others.max() == 107


def test_no_text_is_encoded_as_the_mask() -> None:
    tokenizer = Tokenizer.train("bpe", ["[MASK] of the mask"], 270)
    assert max(tokenizer.encode_text("[MASK]")) < mask_token(tokenizer) == len(tokenizer)
