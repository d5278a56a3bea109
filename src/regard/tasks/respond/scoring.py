"""Scores of replies: a unigram model as the baseline, their variety, and for bookings the values that they name."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from regard.common.word_splitting import split_words
from regard.data.dialogues import Dialogue
from regard.data.embedded import bookings
from regard.metrics.diversity import distinct, most_common_share
from regard.tasks.respond.data import EncodedReply


def count_tokens(replies: Sequence[EncodedReply], vocabulary: int) -> list[int]:
    """The counts of tokens in the replies."""
    tokens = np.fromiter((token for reply in replies for token in reply.tokens), np.int64)
    return np.bincount(tokens, minlength=vocabulary).tolist()


def unigram_nll(counts: Sequence[int], replies: Sequence[EncodedReply]) -> float:
    """−log p of a token of the replies, the mean over the tokens, p = (count + 1) / (all counts + all tokens)."""
    log_p = np.log(np.array(counts) + 1.0) - np.log(sum(counts) + len(counts))
    tokens = np.fromiter((token for reply in replies for token in reply.tokens), np.int64)
    return -float(log_p[tokens].mean())


class ReplyVariety(NamedTuple):
    """distinct-1, distinct-2, the share of the most common reply in percent, and that reply."""

    scores: dict[str, float]
    most_common: str


def reply_scores(texts: Sequence[str]) -> ReplyVariety:
    words = [[word.lower() for word in split_words(text)[0]] for text in texts]
    share, text = most_common_share(texts)
    return ReplyVariety(
        {"distinct-1": distinct(words, 1), "distinct-2": distinct(words, 2), "most common": share}, text
    )


class NamedValues(NamedTuple):
    """The number of replies that name the right values, of those whose values follow from the dialogue."""

    num_right: int
    num_scored: int

    @property
    def share(self) -> float:
        """In percent, if any is scored."""
        return 100 * self.num_right / self.num_scored


def named_values(
    dialogues: Sequence[Dialogue], replies: Sequence[EncodedReply], texts: Sequence[str], seed: int
) -> NamedValues:
    """The replies of the system whose right text names values, all of them in the state after the user's turn before.

    Values that the system offers by chance are in no state, so that turns with offers do not count. A generated reply
    is right if the values that it names are those that the right one names, no more and no less.
    """
    parts = bookings.splits(seed)
    states = {each.turns: each.states for part in (parts.valid, parts.test) for each in part}
    num_right = count = 0
    for reply, text in zip(replies, texts, strict=True):
        dialogue = dialogues[reply.dialogue]
        state = states[dialogue][reply.turn // 2] if dialogue in states else {}
        right = _values(dialogue[reply.turn])
        if right and right <= set(state.values()):
            count += 1
            num_right += _values(text) == right
    return NamedValues(num_right, count)


_ALL_VALUES = frozenset(value for values in bookings.ONTOLOGY.values() for value in values)


def _values(text: str) -> set[str]:
    """The values of the ontology that a text names."""
    return {word.lower() for word in split_words(text)[0]} & _ALL_VALUES
