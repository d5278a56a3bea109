"""The context of a turn in a tracker: a recurrent layer, or attention, over the turns before it."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.attn.layer import Attention
from regard.attn.terms.bias import T5Buckets
from regard.attn.terms.sequence_masks import Causal
from regard.layers.lengths import inside_lengths
from regard.layers.rnn.encoder import Encoder

# distances between turns are told apart one by one up to half of the first number, and no further than the second
_BUCKETS, _FARTHEST = 8, 32
# numbers of turns that an error shows
_LISTED = 20


class TurnContext(nn.Module, ABC):
    """c_tk of the vectors z_1k … z_tk that the turns of a dialogue have for topic k."""

    def forward(self, turns: Tensor, numbers: Tensor) -> Tensor:  # "n k d", "n" -> "n k d"
        """The rows are whole dialogues one after the other; `numbers` count the turns of each from 0."""
        places, lengths = _dialogues(numbers)  # "b t", "b"
        b, k = len(places), turns.shape[1]
        rows = turns[places].transpose(1, 2).flatten(0, 1)  # "b·k t d"
        read = self.read(rows, lengths.repeat_interleave(k)).unflatten(0, (b, k)).transpose(1, 2)
        inside = inside_lengths(lengths, places.shape[1])
        return read[inside]

    @abstractmethod
    def read(self, turns: Tensor, lengths: Tensor) -> Tensor:  # "b t d", "b" -> "b t d"
        """A vector per turn, of the turns up to it; anything behind the end of a dialogue."""


class RecurrentContext(TurnContext):
    """c_t = GRU(z_t, c_t−1)  (the recurrent tracker of Lee et al. 2019, SUMBT)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.encoder = Encoder(dim, dim, bidirectional=False)

    def read(self, turns: Tensor, lengths: Tensor) -> Tensor:
        return self.encoder(turns, lengths).outputs


class AttentiveContext(TurnContext):
    """c_t = Σ_j≤t α_tj V z_j, α_t = softmax(Q z_t · K z_j / √d + b[t − j])."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        bias = T5Buckets(1, buckets=_BUCKETS, max_distance=_FARTHEST, bidirectional=False)
        self.turn_attention = Attention(bias=bias, mask=Causal())

    def read(self, turns: Tensor, lengths: Tensor) -> Tensor:
        q, k, v = (layer(turns).unsqueeze(1) for layer in (self.query, self.key, self.value))  # "b 1 t d"
        # no turn attends to the padding behind it
        return self.turn_attention(q, k, v).squeeze(1)


CONTEXTS: dict[str, Callable[[int], TurnContext] | None] = {
    "acts": None,
    "recurrent": RecurrentContext,
    "attention": AttentiveContext,
}


def _dialogues(numbers: Tensor) -> tuple[Tensor, Tensor]:  # "n" -> "b t", "b"
    """The rows of the turns of every dialogue, the last of all behind its end, and how many turns it has."""
    is_first = numbers == 0
    follows = numbers[1:] == numbers[:-1] + 1
    if not len(numbers) or not bool(is_first[0]) or not bool((is_first[1:] | follows).all()):
        raise ValueError(
            f"numbers must count the turns of whole dialogues from 0, got {numbers.tolist()[:_LISTED]}; give all "
            "turns of a dialogue in their order"
        )
    rows = torch.arange(len(numbers), device=numbers.device)
    starts = rows[is_first]
    lengths = torch.diff(starts, append=rows[-1:] + 1)
    places = starts.unsqueeze(-1) + torch.arange(int(lengths.max()), device=numbers.device)
    return places.clamp_max(len(rows) - 1), lengths
