"""FlatHistory: the turns of dialogues as one text each."""

from typing import NamedTuple

import torch
from torch import Tensor

from regard.models.responding.responder import History

# the number of the speaker who gives the reply
REPLYING = 0


class FlatHistory(NamedTuple):
    """The turns of each dialogue as one text, without the end of the last turn, which begins the reply."""

    tokens: Tensor  # "b s", padded behind the counts
    owners: Tensor  # "b s", the speaker of the turn that a token belongs to
    speakers: Tensor  # "b s", the same, but of the end of a turn the one who speaks next
    numbers: Tensor  # "b s", those of the turns, from 0; of the end of a turn that of the next one
    is_end: Tensor  # bool "b s", whether a token ends a turn
    counts: Tensor  # "b", of the tokens
    num_turns: Tensor  # "b", of those with words
    places: Tensor  # "b s", of the tokens in "m·w"

    @property
    def is_inside(self) -> Tensor:  # bool "b s"
        """Which tokens are no padding."""
        return torch.arange(self.tokens.shape[1], device=self.tokens.device) < self.counts.unsqueeze(-1)


def join_turns(history: History) -> FlatHistory:
    history.check()
    is_inside = history.is_inside.flatten(1)  # "b m·w"
    counts = is_inside.sum(1) - 1
    longest = is_inside.shape[1] if counts.is_meta else int(counts.max())
    places = is_inside.logical_not().int().argsort(dim=1, stable=True)[:, :longest]
    words = torch.arange(1, history.tokens.shape[2] + 1, device=history.tokens.device)
    is_end = words == history.lengths.unsqueeze(-1)  # "b m w"
    owners = history.speakers.unsqueeze(-1).expand_as(history.tokens)
    speakers = torch.where(is_end, 1 - owners, owners)
    # an absent turn has no number
    filled = (history.lengths > 0).cumsum(1)
    numbers = (filled - 1).unsqueeze(-1) + is_end
    parts = (history.tokens, owners, speakers, numbers, is_end)
    tokens, owners, speakers, numbers, is_end = (part.flatten(1).gather(1, places) for part in parts)
    return FlatHistory(tokens, owners, speakers, numbers, is_end, counts, filled[:, -1], places)
