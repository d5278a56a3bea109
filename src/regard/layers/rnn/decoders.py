"""Recurrent decoders: without attention, Bahdanau's, Luong's.  Each runs over a known target, and goes step by step.

    Bahdanau   c_t = attend(s_{t−1}, h);   s_t = cell([y_{t−1}; c_t], s_{t−1});   r_t = maxout(s_t, y_{t−1}, c_t)
    Luong      s_t = cell([y_{t−1}; a_{t−1}], s_{t−1});   c_t = attend(s_t, h);   a_t = tanh(W_c [c_t; s_t])
    Fixed      s_t = cell([y_{t−1}; c], s_{t−1});   c = the encoder's last state   (Cho et al. 2014)

Bahdanau attends before the step, from the state before it; Luong after the step, from the state after it, and gives
what was found to the next step (input feeding) or not. Without feeding no step depends on what an earlier one found:
then the recurrent layers run over all steps at once, and all steps attend at once.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn import stepwise
from regard.attn.call import NOTHING, Attended, Need
from regard.attn.catalogue import Factory
from regard.layers.hooks import bare
from regard.layers.rnn.decoder_base import Attentive, DecoderOutput, DecoderStep, RecurrentDecoder, RecurrentState
from regard.layers.rnn.deferred_linear import DeferredGradLinear
from regard.layers.rnn.encoder import Encoded
from regard.layers.rnn.source_projection import projected
from regard.layers.rnn.stack import Bridge, Stack
from regard.layers.token_batch import TokenBatch


class Fixed(RecurrentDecoder):
    """s_t = cell([y_{t−1}; c], s_{t−1}), r_t = tanh(W [s_t; c]), c = the encoder's last state  (Cho et al. 2014)."""

    def __init__(
        self, dim: int, source_dim: int, hidden: int, *, layers: int, cell: str, dropout: float, out_features: int
    ) -> None:
        super().__init__()
        self.stack = Stack(dim, hidden, fed=source_dim, layers=layers, cell=cell, dropout=dropout)
        self.bridge = Bridge(source_dim, self.stack)
        self.readout = nn.Linear(hidden + source_dim, out_features)
        self.out_features = out_features

    def teacher_force(self, y: Tensor, encoded: Encoded, lengths: Tensor, need: Need = NOTHING) -> DecoderOutput:
        if need.weights:
            raise _blind()
        context = encoded.summary.unsqueeze(1).expand(-1, y.shape[1], -1)
        s = self.stack.run(torch.cat([y, context], dim=-1), self.bridge(encoded.summary))
        return DecoderOutput(self._read(s, context))

    def init_state(self, encoded: Encoded, lengths: Tensor, hypotheses: int = 1) -> RecurrentState:
        return RecurrentState(lengths, None, encoded.summary, self.bridge(encoded.summary), 1, None, 0)

    def step(self, words: TokenBatch, state: RecurrentState, weights: bool = False) -> DecoderStep:
        if weights:
            raise _blind()
        assert state.context is not None
        context = state.context.repeat_interleave(state.count, dim=0)
        s, cells = self.stack.step(words, state.cells, fed=context)
        return DecoderStep(self._read(s, context).unflatten(0, words.at.shape), replace(state, cells=cells))

    def _read(self, s: Tensor, context: Tensor) -> Tensor:
        return torch.tanh(self.readout(torch.cat([s, context], dim=-1)))


def _blind() -> ValueError:
    return ValueError("a decoder without attention has no weights; build it with decoder='bahdanau' to see some")


def _joined(parts: list[Tensor | None]) -> Tensor | None:
    """ "b 1 …" of every step -> "b t …"; None where none was asked for."""
    return None if not parts or parts[0] is None else torch.cat(parts, dim=1)  # type: ignore[arg-type]


class Bahdanau(Attentive):
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
        found = self._attend_by(attention, hidden, source_dim)
        self.stack = Stack(dim, hidden, fed=found, layers=layers, cell=cell, dropout=dropout)
        self.bridge = Bridge(source_dim, self.stack)
        self.readout = nn.Linear(hidden + dim + found, 2 * out_features)
        self.out_features = out_features

    def teacher_force(self, y: Tensor, encoded: Encoded, lengths: Tensor, need: Need = NOTHING) -> DecoderOutput:
        memory, cells = stepwise.project_kv(self.attention, encoded.outputs), self.bridge(encoded.summary)
        looked, cell, need = self._begin(memory), self.stack.steps(y), self._need(need.weights)
        states: list[Tensor] = []
        found: list[Attended] = []
        for t in range(y.shape[1]):
            got, looked = self._look(cells[-1][0].unsqueeze(1), memory, lengths, looked, need)
            s, cells = cell.step(t, got.out.squeeze(1), cells)
            states.append(s)
            found.append(got)
        contexts = torch.cat([got.out for got in found], dim=1)
        return DecoderOutput(
            self._read(torch.stack(states, dim=1), y, contexts),
            _joined([got.weights for got in found]),
            _joined([got.log_prob for got in found]),
            _joined([got.entropy for got in found]),
        )

    def init_state(self, encoded: Encoded, lengths: Tensor, hypotheses: int = 1) -> RecurrentState:
        return self._start(encoded, lengths, self.bridge(encoded.summary), hypotheses)

    def step(self, words: TokenBatch, state: RecurrentState, weights: bool = False) -> DecoderStep:
        assert state.memory is not None
        before = state.cells[-1][0].unflatten(0, words.at.shape)
        got, looked = self._look(before, state.memory, state.lengths, state.looked, Need(weights=weights))
        context = got.out.flatten(0, 1)
        if state.projected:
            met, read = context.split((len(self.stack.meets), len(self.readout.weight)), dim=-1)
            s, cells = self.stack.step(words, state.cells, met=met)
            of_s, of_y, _ = self._columns()
            out = _maxout(words.each(F.linear(words.vectors, of_y, self.readout.bias)) + F.linear(s, of_s) + read)
        else:
            s, cells = self.stack.step(words, state.cells, fed=context)
            out = self._read(s, words.each(words.vectors), context)
        return DecoderStep(out.unflatten(0, words.at.shape), replace(state, cells=cells, looked=looked), got.weights)

    def _read(self, s: Tensor, y: Tensor, context: Tensor) -> Tensor:
        """The maxout of the deep output  (Goodfellow et al. 2013)."""
        return _maxout(self.readout(torch.cat([s, y, context], dim=-1)))

    def _columns(self) -> tuple[Tensor, ...]:
        """The matrix of the readout as what meets s, y and the context."""
        hidden, dim = self.stack.rnn.hidden_size, self.stack.dim
        return self.readout.weight.tensor_split((hidden, hidden + dim), dim=1)

    def _matrices(self) -> tuple[Tensor, ...]:
        return (self.stack.meets, self._columns()[2]) if bare(self.readout) else ()


def _maxout(deep: Tensor) -> Tensor:  # "… 2r" -> "… r"
    return deep.unflatten(-1, (-1, 2)).amax(-1)


class Luong(Attentive):
    """s_t = cell([y_{t−1}; a_{t−1}], s_{t−1}); c_t = attend(s_t, h); a_t = tanh(W_c [c_t; s_t])  (Luong et al. 2015).

    With `feeding=False` a_{t−1} is left out of the input, and all steps are computed at once.
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
        found = self._attend_by(attention, hidden, source_dim)
        self.feeding = feeding
        self.stack = Stack(dim, hidden, fed=out_features if feeding else 0, layers=layers, cell=cell, dropout=dropout)
        self.bridge = Bridge(source_dim, self.stack)
        self.readout = nn.Linear(found + hidden, out_features)
        self.out_features = out_features

    def teacher_force(self, y: Tensor, encoded: Encoded, lengths: Tensor, need: Need = NOTHING) -> DecoderOutput:
        cells, need = self.bridge(encoded.summary), self._need(need.weights)
        if not self.feeding:
            s = self.stack.run(y, cells)
            made = projected(self.attention, encoded.outputs, self._matrices(), y.shape[1])
            got = self._look_all(s, encoded, made, lengths, need)
            return DecoderOutput(self._read(got.out, s, made is not None), got.weights, got.log_prob, got.entropy)
        memory = stepwise.project_kv(self.attention, encoded.outputs)
        looked, cell, a = self._begin(memory), self.stack.steps(y), self._nothing(y)
        read = DeferredGradLinear(self.readout.weight, self.readout.bias) if bare(self.readout) else self.readout
        states: list[Tensor] = []
        found: list[Attended] = []
        for t in range(y.shape[1]):
            s, cells = cell.step(t, a, cells)
            got, looked = self._look(s.unsqueeze(1), memory, lengths, looked, need)
            a = torch.tanh(read(torch.cat([got.out.squeeze(1), s], dim=-1)))
            states.append(a)
            found.append(got)
        return DecoderOutput(
            torch.stack(states, dim=1),
            _joined([got.weights for got in found]),
            _joined([got.log_prob for got in found]),
            _joined([got.entropy for got in found]),
        )

    def init_state(self, encoded: Encoded, lengths: Tensor, hypotheses: int = 1) -> RecurrentState:
        fed = self._nothing(encoded.outputs) if self.feeding else None
        return self._start(encoded, lengths, self.bridge(encoded.summary), hypotheses, fed)

    def step(self, words: TokenBatch, state: RecurrentState, weights: bool = False) -> DecoderStep:
        assert state.memory is not None
        s, cells = self.stack.step(words, state.cells, fed=state.fed)
        s = s.unflatten(0, words.at.shape)
        got, looked = self._look(s, state.memory, state.lengths, state.looked, Need(weights=weights))
        a = self._read(got.out, s, state.projected)
        fed = a.flatten(0, 1) if self.feeding else None
        return DecoderStep(a, replace(state, cells=cells, looked=looked, fed=fed), got.weights)

    def _nothing(self, like: Tensor) -> Tensor:  # -> "b a"
        return like.new_zeros(like.shape[0], self.out_features)

    def _read(self, context: Tensor, s: Tensor, projected: bool) -> Tensor:
        if not projected:
            return torch.tanh(self.readout(torch.cat([context, s], dim=-1)))
        _, of_s = self._columns()
        return torch.tanh(context + F.linear(s, of_s, self.readout.bias))

    def _columns(self) -> tuple[Tensor, ...]:
        """W_c as what meets the context and s."""
        return self.readout.weight.tensor_split((-self.stack.rnn.hidden_size,), dim=1)

    def _matrices(self) -> tuple[Tensor, ...]:
        return self._columns()[:1] if bare(self.readout) else ()
