"""Recurrent decoders: Bahdanau's, Luong's, and those without attention. Each runs over a known target or step by step.

    Bahdanau      c_t = attend(s_{t−1}, h);   s_t = cell([y_{t−1}; c_t], s_{t−1});   r_t = maxout(s_t, y_{t−1}, c_t)
    Luong         s_t = cell([y_{t−1}; a_{t−1}], s_{t−1});   c_t = attend(s_t, h);   a_t = tanh(W_c [c_t; s_t])
    FixedContext  s_t = cell([y_{t−1}; c], s_{t−1});   c = the encoder's last state   (Cho et al. 2014)
    InitialState  s_0 = tanh(W c), s_t = cell(y_{t−1}, s_{t−1});   c = the encoder's last state, read once
    PerPosition   r_t = tanh(W h_t);   h_t = the encoder's state at source position t, zero behind the end

Bahdanau attends before the step, from the previous state; Luong after the step, from the new state, and feeds its
output to the next step (input feeding) or not. Without feeding no step depends on an earlier attention: the recurrent
layers then run over all steps at once, and all steps attend at once.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn import stepwise
from regard.attn.call import NOTHING, Attended, Need
from regard.attn.catalogue import Factory
from regard.layers.hooks import is_plain_linear
from regard.layers.rnn.decoder_base import (
    AttentionDecoder,
    DecoderOutput,
    DecoderStep,
    RecurrentDecoder,
    RecurrentState,
    join_attended,
)
from regard.layers.rnn.deferred_linear import DeferredGradLinear
from regard.layers.rnn.distinct_tokens import DistinctTokens
from regard.layers.rnn.encoder import EncoderOutput
from regard.layers.rnn.source_projection import project_source_once
from regard.layers.rnn.stack import Bridge, Stack


class Bahdanau(AttentionDecoder):
    """c_t = attend(s_{t−1}, h); s_t = cell([y_{t−1}; c_t], s_{t−1}); r_t = max(pairs of W [s_t; y_{t−1}; c_t]).

    (Bahdanau et al. 2015, A.2.2, with the readout of eq. 4: from the new state.)
    """

    def __init__(
        self,
        dim: int,
        source_dim: int,
        hidden: int,
        *,
        attention: Factory,
        layers: int,
        cell: str,
        dropout: float,
        out_features: int,
    ) -> None:
        super().__init__()
        context_dim = self._build_attention(attention, hidden, source_dim)
        self.stack = Stack(dim, hidden, fed=context_dim, layers=layers, cell=cell, dropout=dropout)
        self.bridge = Bridge(source_dim, self.stack)
        self.readout = nn.Linear(hidden + dim + context_dim, 2 * out_features)
        self.out_features = out_features

    def teacher_force(self, y: Tensor, encoded: EncoderOutput, lengths: Tensor, need: Need = NOTHING) -> DecoderOutput:
        memory, cells = stepwise.project_kv(self.attention, encoded.outputs), self.bridge(encoded.summary)
        attention_state, cell = self._initial_attention_state(memory), self.stack.steps(y)
        need = self._need(need.weights)
        states: list[Tensor] = []
        attentions: list[Attended] = []
        for t in range(y.shape[1]):
            query = cells[-1][0].unsqueeze(1)
            attended, attention_state = self._attend_step(query, memory, lengths, attention_state, need)
            s, cells = cell.step(t, attended.out.squeeze(1), cells)
            states.append(s)
            attentions.append(attended)
        attended = join_attended(attentions)
        out = self._read(torch.stack(states, dim=1), y, attended.out)
        return DecoderOutput(out, attended.weights, attended.log_prob, attended.entropy)

    def init_state(self, encoded: EncoderOutput, lengths: Tensor, hypotheses: int = 1) -> RecurrentState:
        return self._start(encoded, lengths, self.bridge(encoded.summary), hypotheses)

    def step(self, tokens: DistinctTokens, state: RecurrentState, weights: bool = False) -> DecoderStep:
        assert state.memory is not None
        previous = state.cells[-1][0].unflatten(0, tokens.rows.shape)
        attended, attention_state = self._attend_step(
            previous, state.memory, state.lengths, state.attention_state, Need(weights=weights)
        )
        context = attended.out.flatten(0, 1)
        if state.is_projected:
            fed_gates, context_part = context.split((len(self.stack.fed_weight), len(self.readout.weight)), dim=-1)
            s, cells = self.stack.step(tokens, state.cells, fed_gates=fed_gates)
            of_s, of_y, _ = self._columns()
            out = _maxout(
                tokens.expand(F.linear(tokens.vectors, of_y, self.readout.bias)) + F.linear(s, of_s) + context_part
            )
        else:
            s, cells = self.stack.step(tokens, state.cells, fed=context)
            out = self._read(s, tokens.expand(tokens.vectors), context)
        return DecoderStep(
            out.unflatten(0, tokens.rows.shape),
            replace(state, cells=cells, attention_state=attention_state),
            attended.weights,
        )

    def _read(self, s: Tensor, y: Tensor, context: Tensor) -> Tensor:
        """The maxout of the deep output  (Goodfellow et al. 2013)."""
        return _maxout(self.readout(torch.cat([s, y, context], dim=-1)))

    def _columns(self) -> tuple[Tensor, ...]:
        """The columns of the readout matrix that multiply s, y and the context."""
        hidden, dim = self.stack.rnn.hidden_size, self.stack.dim
        return self.readout.weight.tensor_split((hidden, hidden + dim), dim=1)

    def _context_matrices(self) -> tuple[Tensor, ...]:
        return (self.stack.fed_weight, self._columns()[2]) if is_plain_linear(self.readout) else ()


def _maxout(deep: Tensor) -> Tensor:  # "… 2r" -> "… r"
    return deep.unflatten(-1, (-1, 2)).amax(-1)


class Luong(AttentionDecoder):
    """s_t = cell([y_{t−1}; a_{t−1}], s_{t−1}); c_t = attend(s_t, h); a_t = tanh(W_c [c_t; s_t])  (Luong et al. 2015).

    With `feeding=False` the input does not contain a_{t−1}, and all steps are computed at once.
    """

    def __init__(
        self,
        dim: int,
        source_dim: int,
        hidden: int,
        *,
        attention: Factory,
        feeding: bool,
        layers: int,
        cell: str,
        dropout: float,
        out_features: int,
    ) -> None:
        super().__init__()
        context_dim = self._build_attention(attention, hidden, source_dim)
        self.feeding = feeding
        self.stack = Stack(dim, hidden, fed=out_features if feeding else 0, layers=layers, cell=cell, dropout=dropout)
        self.bridge = Bridge(source_dim, self.stack)
        self.readout = nn.Linear(context_dim + hidden, out_features)
        self.out_features = out_features

    def teacher_force(self, y: Tensor, encoded: EncoderOutput, lengths: Tensor, need: Need = NOTHING) -> DecoderOutput:
        cells, need = self.bridge(encoded.summary), self._need(need.weights)
        if not self.feeding:
            s = self.stack.run(y, cells)
            projected_values = project_source_once(
                self.attention, encoded.outputs, self._context_matrices(), y.shape[1]
            )
            attended = self._attend_all(s, encoded.outputs, projected_values, lengths, need)
            out = self._read(attended.out, s, projected_values is not None)
            return DecoderOutput(out, attended.weights, attended.log_prob, attended.entropy)
        memory = stepwise.project_kv(self.attention, encoded.outputs)
        attention_state, cell, a = self._initial_attention_state(memory), self.stack.steps(y), self._zeros(y)
        readout: nn.Module | DeferredGradLinear = self.readout
        if is_plain_linear(self.readout):
            readout = DeferredGradLinear(self.readout.weight, self.readout.bias)
        states: list[Tensor] = []
        attentions: list[Attended] = []
        for t in range(y.shape[1]):
            s, cells = cell.step(t, a, cells)
            attended, attention_state = self._attend_step(s.unsqueeze(1), memory, lengths, attention_state, need)
            a = torch.tanh(readout(torch.cat([attended.out.squeeze(1), s], dim=-1)))
            states.append(a)
            attentions.append(attended)
        attended = join_attended(attentions)
        return DecoderOutput(torch.stack(states, dim=1), attended.weights, attended.log_prob, attended.entropy)

    def init_state(self, encoded: EncoderOutput, lengths: Tensor, hypotheses: int = 1) -> RecurrentState:
        fed = self._zeros(encoded.outputs) if self.feeding else None
        return self._start(encoded, lengths, self.bridge(encoded.summary), hypotheses, fed)

    def step(self, tokens: DistinctTokens, state: RecurrentState, weights: bool = False) -> DecoderStep:
        assert state.memory is not None
        s, cells = self.stack.step(tokens, state.cells, fed=state.fed)
        s = s.unflatten(0, tokens.rows.shape)
        attended, attention_state = self._attend_step(
            s, state.memory, state.lengths, state.attention_state, Need(weights=weights)
        )
        a = self._read(attended.out, s, state.is_projected)
        fed = a.flatten(0, 1) if self.feeding else None
        return DecoderStep(a, replace(state, cells=cells, attention_state=attention_state, fed=fed), attended.weights)

    def _zeros(self, like: Tensor) -> Tensor:  # -> "b a"
        return like.new_zeros(like.shape[0], self.out_features)

    def _read(self, context: Tensor, s: Tensor, is_projected: bool) -> Tensor:
        if not is_projected:
            return torch.tanh(self.readout(torch.cat([context, s], dim=-1)))
        _, of_s = self._columns()
        return torch.tanh(context + F.linear(s, of_s, self.readout.bias))

    def _columns(self) -> tuple[Tensor, ...]:
        """The columns of W_c that multiply the context and s."""
        return self.readout.weight.tensor_split((-self.stack.rnn.hidden_size,), dim=1)

    def _context_matrices(self) -> tuple[Tensor, ...]:
        return self._columns()[:1] if is_plain_linear(self.readout) else ()


def _refuse_weights(requested: bool) -> None:
    """Raises if weights are requested of a decoder without attention."""
    if requested:
        raise ValueError("a decoder without attention has no weights; build it with decoder='bahdanau' to get some")


class FixedContext(RecurrentDecoder):
    """s_t = cell([y_{t−1}; c], s_{t−1}), r_t = tanh(W [s_t; c]), c = the encoder's last state  (Cho et al. 2014)."""

    def __init__(
        self, dim: int, source_dim: int, hidden: int, *, layers: int, cell: str, dropout: float, out_features: int
    ) -> None:
        super().__init__()
        self.stack = Stack(dim, hidden, fed=source_dim, layers=layers, cell=cell, dropout=dropout)
        self.bridge = Bridge(source_dim, self.stack)
        self.readout = nn.Linear(hidden + source_dim, out_features)
        self.out_features = out_features

    def teacher_force(self, y: Tensor, encoded: EncoderOutput, lengths: Tensor, need: Need = NOTHING) -> DecoderOutput:
        _refuse_weights(need.weights)
        context = encoded.summary.unsqueeze(1).expand(-1, y.shape[1], -1)
        s = self.stack.run(torch.cat([y, context], dim=-1), self.bridge(encoded.summary))
        return DecoderOutput(self._read(s, context))

    def init_state(self, encoded: EncoderOutput, lengths: Tensor, hypotheses: int = 1) -> RecurrentState:
        return RecurrentState(lengths, None, encoded.summary, self.bridge(encoded.summary), 1, None, 0)

    def step(self, tokens: DistinctTokens, state: RecurrentState, weights: bool = False) -> DecoderStep:
        _refuse_weights(weights)
        assert state.context is not None
        context = state.context.repeat_interleave(state.count, dim=0)
        s, cells = self.stack.step(tokens, state.cells, fed=context)
        return DecoderStep(self._read(s, context).unflatten(0, tokens.rows.shape), replace(state, cells=cells))

    def _read(self, s: Tensor, context: Tensor) -> Tensor:
        return torch.tanh(self.readout(torch.cat([s, context], dim=-1)))


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
        _refuse_weights(need.weights)
        return DecoderOutput(torch.tanh(self.readout(self.stack.run(y, self.bridge(encoded.summary)))))

    def init_state(self, encoded: EncoderOutput, lengths: Tensor, hypotheses: int = 1) -> RecurrentState:
        return RecurrentState(lengths, None, None, self.bridge(encoded.summary), 1, None, 0)

    def step(self, tokens: DistinctTokens, state: RecurrentState, weights: bool = False) -> DecoderStep:
        _refuse_weights(weights)
        s, cells = self.stack.step(tokens, state.cells)
        return DecoderStep(torch.tanh(self.readout(s)).unflatten(0, tokens.rows.shape), replace(state, cells=cells))


class PerPosition(RecurrentDecoder):
    """r_t = tanh(W h_t): output t reads the state of the encoder at position t, and no output before it.

    The shorter side is padded: behind the end of the source h_t is zero, and behind the end of the target nothing
    counts. The encoder is the whole recurrent network: `dim`, `hidden`, `layers` and `cell` are not used.
    """

    def __init__(
        self, dim: int, source_dim: int, hidden: int, *, layers: int, cell: str, dropout: float, out_features: int
    ) -> None:
        super().__init__()
        self.readout = nn.Linear(source_dim, out_features)
        self.out_features = out_features

    def teacher_force(self, y: Tensor, encoded: EncoderOutput, lengths: Tensor, need: Need = NOTHING) -> DecoderOutput:
        _refuse_weights(need.weights)
        missing = max(y.shape[1] - encoded.outputs.shape[1], 0)
        states = F.pad(encoded.outputs, (0, 0, 0, missing))[:, : y.shape[1]]
        return DecoderOutput(torch.tanh(self.readout(states)))

    def init_state(self, encoded: EncoderOutput, lengths: Tensor, hypotheses: int = 1) -> RecurrentState:
        return RecurrentState(lengths, None, encoded.outputs, (), 1, None, 0)

    def step(self, tokens: DistinctTokens, state: RecurrentState, weights: bool = False) -> DecoderStep:
        _refuse_weights(weights)
        assert state.context is not None
        t, source = state.attention_state, state.context
        here = source[:, t] if t < source.shape[1] else source.new_zeros(len(source), source.shape[-1])
        out = torch.tanh(self.readout(here)).unsqueeze(1).expand(*tokens.rows.shape, -1)
        return DecoderStep(out, replace(state, attention_state=t + 1))
