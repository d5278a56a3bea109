"""Decoders without attention that show what attention adds: the source as the first state, and position by position.

InitialState  s_0 = tanh(W c), s_t = cell(y_{t−1}, s_{t−1});   c = the encoder's last state, read once
PerPosition   r_t = tanh(W h_t);   h_t = the encoder's state at source position t, zero behind the end
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn.call import NOTHING, Need
from regard.layers.rnn.decoder_base import (
    DecoderOutput,
    DecoderStep,
    RecurrentDecoder,
    RecurrentState,
    refuse_weights,
)
from regard.layers.rnn.distinct_tokens import DistinctTokens
from regard.layers.rnn.encoder import EncoderOutput
from regard.layers.rnn.stack import Bridge, Stack


class InitialState(RecurrentDecoder):
    """s_t = cell(y_{t−1}, s_{t−1}), r_t = tanh(W s_t), s_0 from the encoder's last state  (Sutskever et al. 2014).

    No later step sees the source: the state must carry all of it.
    """

    def __init__(
        self, dim: int, source_dim: int, hidden: int, *, layers: int, cell: str, dropout: float, out_features: int
    ) -> None:
        super().__init__()
        self.stack = Stack(dim, hidden, layers=layers, cell=cell, dropout=dropout)
        self.bridge = Bridge(source_dim, self.stack)
        self.readout = nn.Linear(hidden, out_features)
        self.out_features = out_features

    def teacher_force(self, y: Tensor, encoded: EncoderOutput, lengths: Tensor, need: Need = NOTHING) -> DecoderOutput:
        refuse_weights(need.weights)
        return DecoderOutput(torch.tanh(self.readout(self.stack.run(y, self.bridge(encoded.summary)))))

    def init_state(self, encoded: EncoderOutput, lengths: Tensor, hypotheses: int = 1) -> RecurrentState:
        return RecurrentState(lengths, None, None, self.bridge(encoded.summary), 1, None, 0)

    def step(self, tokens: DistinctTokens, state: RecurrentState, weights: bool = False) -> DecoderStep:
        refuse_weights(weights)
        s, cells = self.stack.step(tokens, state.cells)
        return DecoderStep(torch.tanh(self.readout(s)).unflatten(0, tokens.rows.shape), replace(state, cells=cells))


class PerPosition(RecurrentDecoder):
    """r_t = tanh(W h_t): output t reads source position t alone, and no output before it.

    The shorter side is padded: behind the end of the source h_t is zero, and behind the end of the target nothing
    counts. A width, cell and layers of its own it does not have: the encoder is the whole recurrent network.
    """

    def __init__(
        self, dim: int, source_dim: int, hidden: int, *, layers: int, cell: str, dropout: float, out_features: int
    ) -> None:
        super().__init__()
        self.readout = nn.Linear(source_dim, out_features)
        self.out_features = out_features

    def teacher_force(self, y: Tensor, encoded: EncoderOutput, lengths: Tensor, need: Need = NOTHING) -> DecoderOutput:
        refuse_weights(need.weights)
        missing = max(y.shape[1] - encoded.outputs.shape[1], 0)
        states = F.pad(encoded.outputs, (0, 0, 0, missing))[:, : y.shape[1]]
        return DecoderOutput(torch.tanh(self.readout(states)))

    def init_state(self, encoded: EncoderOutput, lengths: Tensor, hypotheses: int = 1) -> RecurrentState:
        return RecurrentState(lengths, None, encoded.outputs, (), 1, None, 0)

    def step(self, tokens: DistinctTokens, state: RecurrentState, weights: bool = False) -> DecoderStep:
        refuse_weights(weights)
        assert state.context is not None
        t, source = state.attention_state, state.context
        here = source[:, t] if t < source.shape[1] else source.new_zeros(len(source), source.shape[-1])
        out = torch.tanh(self.readout(here)).unsqueeze(1).expand(*tokens.rows.shape, -1)
        return DecoderStep(out, replace(state, attention_state=t + 1))
