"""The baseline of every evaluation: a unigram model, which knows the frequencies of tokens in replies alone.

p(token) = (count + 1) / (all counts + tokens of the vocabulary)
"""

from collections.abc import Sequence

import numpy as np

from regard.tasks.respond.data import EncodedReply


def count_tokens(replies: Sequence[EncodedReply], vocabulary: int) -> list[int]:
    """How often each token occurs in the replies."""
    tokens = np.fromiter((token for reply in replies for token in reply.tokens), np.int64)
    return np.bincount(tokens, minlength=vocabulary).tolist()


def unigram_nll(counts: Sequence[int], replies: Sequence[EncodedReply]) -> float:
    """−log p of a token of the replies, the mean over the tokens."""
    log_p = np.log(np.array(counts) + 1.0) - np.log(sum(counts) + len(counts))
    tokens = np.fromiter((token for reply in replies for token in reply.tokens), np.int64)
    return -float(log_p[tokens].mean())
