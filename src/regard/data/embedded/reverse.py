"""Letters -> the same letters in reverse order: too long for a fixed vector, simple for attention.

    bca -> acb

No sequence occurs twice, so none of the test is in training; the few of one or two letters are therefore rarer than
other lengths.
"""

import numpy as np

from regard.data.embedded._letters import check_available, check_counts, distinct, letter_sequences, split_pairs
from regard.data.text.pairs import Splits


def splits(seed: int = 0, train: int = 100_000, valid: int = 1_000, test: int = 2_000, *, longest: int = 30) -> Splits:
    """Sequences of 1 to `longest` letters, uniform over lengths; a pure function of its arguments."""
    check_counts(longest, 30, train=train, valid=valid, test=test)
    total = train + valid + test
    check_available(total, longest)
    sequences = distinct(letter_sequences(np.random.default_rng(seed), longest), total)
    return split_pairs(sequences, lambda line: line[::-1], valid, test)
