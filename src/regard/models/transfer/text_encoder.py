"""TextEncoder: a pretrained BERT inside of another model."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Need
from regard.attn.terms.sequence_masks import Lengths
from regard.models.bert import BERT
from regard.models.transfer.fine_tuned_encoder import FineTunedEncoder


class TextEncoder(FineTunedEncoder):
    """h = BERT(tokens), whose lowest parts keep their weights  (Devlin et al. 2019).

    With `levels`, h are the states of several layers side by side: 0 the embedded tokens, n those behind layer n.
    """

    transformer_name: ClassVar[str] = "bert"
    embedding_names: ClassVar[tuple[str, ...]] = ("embedding", "place", "types", "embedding_norm")

    def __init__(self, bert: BERT, *, frozen: int = 0, levels: Sequence[int] = ()) -> None:
        super().__init__()
        check_levels(levels, len(bert.layers))
        self.bert, self.levels = bert, tuple(levels)
        # the pooler reads the first token for a classifier of its own, which this model has not
        self.bert.pooler = None
        self.freeze(frozen)

    @property
    def width(self) -> int:
        return self.bert.width * max(len(self.levels), 1)

    @property
    def embedding(self) -> nn.Embedding:
        return self.bert.embedding

    def forward(
        self, tokens: Tensor, lengths: Tensor, types: Tensor | None = None
    ) -> Tensor:  # "b t", "b", "b t" -> "b t d"
        """The states of texts that are padded behind their `lengths`."""
        if not self.levels:
            return self.attend(tokens, lengths, types)[0]
        states = self.bert.levels(tokens, ragged_mask(tokens, lengths), types=types)
        return torch.cat([states[n] for n in self.levels], -1)

    def attend(
        self, tokens: Tensor, lengths: Tensor, types: Tensor | None = None, need: Need = NOTHING
    ) -> tuple[Tensor, Tensor | None]:  # "b t", "b", "b t" -> "b t d", "b h t t"
        """The states of the last layer, and its weights if they are requested."""
        return self.bert.attend(tokens, ragged_mask(tokens, lengths), types=types, need=need)


def ragged_mask(tokens: Tensor, lengths: Tensor) -> Lengths | None:  # "b t", "b"
    """The mask of texts that are padded; None if none is."""
    return Lengths(lengths) if bool((lengths != tokens.shape[1]).any()) else None


def check_levels(levels: Sequence[int], layers: int) -> None:
    """Raises if an encoder with this many layers lacks one of these levels."""
    if levels and not 0 <= min(levels) <= max(levels) <= layers:
        raise ValueError(
            f"levels must be from 0 to {layers}, the layers of the encoder, got {tuple(levels)}; "
            f"try levels=(0, {layers})"
        )
