"""Masked tokens: those that a model is asked for, and the tokens in their place  (Devlin et al. 2019, 3.1).

15 % of the tokens are chosen; of these 80 % become the mask token, 10 % a random token, and 10 % stay. The mask token
has the number behind those of the tokenizer, so no text is ever encoded as it.
"""

import unicodedata

import numpy as np
from numpy.typing import NDArray

from regard.data.text.special_tokens import SPECIAL
from regard.data.text.tokenizer import Tokenizer

# shares of the chosen tokens that become a random token, and that stay as they are
_RANDOM, _KEPT = 0.1, 0.1


def mask_token(tokenizer: Tokenizer) -> int:
    return len(tokenizer)


class WordBoundaries:
    """The tokens of one word: neighbours that join a letter, mark or digit to another."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        texts = [tokenizer.token_text(n) for n in range(SPECIAL, len(tokenizer))]
        none = np.zeros(SPECIAL, np.bool_)
        self.begins_inside = np.concatenate([none, [_is_word(text[:1]) for text in texts]])  # "v"
        self.ends_inside = np.concatenate([none, [_is_word(text[-1:]) for text in texts]])  # "v"

    def numbers(self, tokens: NDArray[np.integer]) -> NDArray[np.int64]:  # "… t" -> "… t"
        """The number of the word of each token, counted from 0 per row."""
        continues = self.begins_inside[tokens[..., 1:]] & self.ends_inside[tokens[..., :-1]]
        first = np.zeros((*tokens.shape[:-1], 1), np.int64)
        return np.concatenate([first, np.cumsum(~continues, -1)], -1)


def _is_word(character: str) -> bool:
    # part of a character that is spelt in bytes stays with its other parts
    return character == "�" or unicodedata.category(character)[0] in "LMN" if character else False


def choose_tokens(
    tokens: NDArray[np.integer], words: NDArray[np.int64] | None, share: float, rng: np.random.Generator
) -> NDArray[np.bool_]:  # "b t", "b t" -> "b t"
    """Tokens drawn at random, or whole words: this share of every row, and at least one token; never a special one."""
    chosen = np.zeros(tokens.shape, np.bool_)
    for n, row in enumerate(tokens):
        places = np.flatnonzero(row >= SPECIAL)
        if not len(places):
            continue
        numbers = np.arange(len(places)) if words is None else np.unique(words[n, places], return_inverse=True)[1]
        sizes = np.bincount(numbers)
        order = rng.permutation(len(sizes))
        # words in random order until the share is reached
        reached = np.cumsum(sizes[order]) - sizes[order]
        taken = np.zeros(len(sizes), np.bool_)
        taken[order[reached < max(round(share * len(places)), 1)]] = True
        chosen[n, places[taken[numbers]]] = True
    return chosen


def replace_tokens(
    tokens: NDArray[np.integer], chosen: NDArray[np.bool_], mask: int, rng: np.random.Generator
) -> NDArray[np.int64]:  # "b t", "b t" -> "b t"
    """The tokens that a model reads in training: a chosen one becomes `mask`, a random token, or stays."""
    draw = rng.random(tokens.shape)
    random = rng.integers(SPECIAL, mask, tokens.shape)
    replaced = np.where(draw < _RANDOM, random, np.where(draw < _RANDOM + _KEPT, tokens, mask))
    return np.where(chosen, replaced, tokens).astype(np.int64)
