"""Metrics of the variety of generated texts.  They fall with the number of texts: compare equal numbers.

distinct-n = different n-grams of all texts / words of all texts  (Li et al. 2016)
"""

from collections import Counter
from collections.abc import Sequence


def distinct(texts: Sequence[Sequence[str]], n: int) -> float:
    """The number of n-grams of words that differ from each other, over all texts together, per hundred words."""
    grams = {tuple(words[k : k + n]) for words in texts for k in range(len(words) - n + 1)}
    return 100 * len(grams) / max(1, sum(map(len, texts)))


def most_common_share(texts: Sequence[str]) -> tuple[float, str]:
    """The share of the texts that are the most common one, in percent, and that text."""
    if not texts:
        raise ValueError("texts must be one text or more, got none; generate some first")
    text, count = Counter(texts).most_common(1)[0]
    return 100 * count / len(texts), text
