"""EncoderSlotTracker: a pretrained encoder below the attention of a tracker."""

import torch
from torch import Tensor, nn

from regard.common import checks
from regard.data.text.subword_inputs import SubwordInputs
from regard.layers.text_pooling import pool_texts
from regard.models.tracking.inputs import TurnWords, Words
from regard.models.tracking.slot_tracker import SlotTracker
from regard.models.transfer.fine_tuned_encoder import fine_tuning_rates
from regard.models.transfer.text_encoder import TextEncoder


class EncoderSlotTracker(SlotTracker):
    """h = tanh(W [s; names of w]), s the state of the first sub-word of w; a phrase is tanh(P mean s).

    `layer_decay` and `head_rate` are those of EncoderClassifier.
    """

    def __init__(
        self,
        encoder: TextEncoder,
        names: int,
        *,
        hidden: int = 128,
        slot_attention: str = "scaled-dot",
        context: str = "acts",
        dropout: float = 0.1,
        layer_decay: float = 0.9,
        head_rate: float = 10.0,
    ) -> None:
        super().__init__(dropout=dropout)
        checks.positive_ints("EncoderSlotTracker", names=names, hidden=hidden)
        self.encoder = encoder
        self.state = nn.Linear(encoder.width + names, hidden)
        self.phrase = nn.Linear(encoder.width, hidden)
        self._finish(hidden, slot_attention, context)
        self.lr_multipliers = fine_tuning_rates(self, layer_decay, head_rate)

    def _states(self, words: Words) -> Tensor:  # -> "n t d"
        assert isinstance(words, SubwordInputs)
        states: Tensor = self.encoder(words.tokens, words.num_tokens)
        return states.gather(1, words.firsts.unsqueeze(-1).expand(*words.firsts.shape, states.shape[-1]))

    def word_states(self, texts: TurnWords) -> Tensor:
        states = self._states(texts.words)
        return torch.tanh(self.state(torch.cat([states, texts.topics.to(states.dtype)], -1)))

    def phrase_vectors(self, phrases: Words) -> Tensor:
        return torch.tanh(self.phrase(pool_texts(self._states(phrases), phrases.lengths, "mean")))
