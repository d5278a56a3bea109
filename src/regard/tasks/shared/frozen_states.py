"""FrozenStates: the states of texts by an encoder that is not trained, each computed once."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from regard.common.eval_mode import eval_mode
from regard.data.text.subwords import RunSubwords
from regard.data.text.tokenizer import Tokenizer
from regard.models.transfer.text_encoder import TextEncoder
from regard.tasks.shared.encoder import SMALLEST, PretrainedEncoder

# texts whose states are computed together
_GROUP = 32
# of states that are kept; if there are more, they are computed again in every step
MOST_BYTES = 2 << 30


def smallest_pretrained(layers: int = 1) -> PretrainedEncoder:
    """An encoder and a tokenizer for a first call of a model, before anything is read."""
    return PretrainedEncoder(replace(SMALLEST, layers=layers), RunSubwords(Tokenizer.train("characters", ["x y"], 9)))


class FrozenStates:
    """The states of distinct texts by one frozen encoder, computed in groups when they are first read.

    A group depends on the texts alone, so that states have the same bits in any order of batches.
    """

    def __init__(self, texts: Iterable[tuple[int, ...]], pad: int) -> None:
        ordered = sorted({*texts}, key=lambda ids: (len(ids), ids))
        self.groups = [ordered[n : n + _GROUP] for n in range(0, len(ordered), _GROUP)]
        self.group_of = {ids: n for n, group in enumerate(self.groups) for ids in group}
        self.pad = pad
        self.states: dict[tuple[int, ...], Tensor] = {}

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.group_of))

    def read(self, encoder: TextEncoder, tokens: Tensor, lengths: Tensor) -> Tensor:  # "b t", "b" -> "b t d"
        """The states of texts that are padded behind their lengths, zeros behind the end."""
        rows = [tuple(row[:n]) for row, n in zip(tokens.tolist(), lengths.tolist(), strict=True)]
        for ids in rows:
            if ids and ids not in self.states:
                self._compute(encoder, self.groups[self.group_of[ids]], tokens.device)
        nothing = torch.zeros(0, encoder.width, device=tokens.device)
        return pad_sequence([self.states[ids] if ids else nothing for ids in rows], batch_first=True)

    @torch.no_grad()
    def _compute(self, encoder: TextEncoder, group: Sequence[tuple[int, ...]], device: torch.device) -> None:
        lengths = torch.tensor([len(ids) for ids in group], device=device)
        tokens = torch.full((len(group), max(map(len, group))), self.pad, device=device)
        for n, ids in enumerate(group):
            tokens[n, : len(ids)] = torch.tensor(ids, device=device)
        with eval_mode(encoder):
            states = encoder(tokens, lengths)
        for n, ids in enumerate(group):
            self.states[ids] = states[n, : len(ids)].clone()
