"""NTM: the neural Turing machine of Graves et al., a controller with a memory that it writes and reads by heads."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.attn import observer
from regard.attn.call import NOTHING, Need
from regard.common import checks
from regard.decoding.protocol import LazyLogits, Step
from regard.layers.dropout import Dropout
from regard.layers.hooks import is_plain_linear
from regard.layers.memory.feed_forward_controller import FeedForwardController
from regard.layers.memory.heads import MemoryHeads, WrittenMemory
from regard.layers.rnn.cells import States
from regard.layers.rnn.decoder_base import DecoderOutput, hypothesis_rows, sentence_rows
from regard.layers.rnn.deferred_linear import DeferredGradLinear
from regard.layers.rnn.packing import check_one_per_row, checked_lengths
from regard.layers.rnn.stack import Stack
from regard.layers.rnn.stepwise_attention import map_tensors
from regard.models.encoder_decoder import EncoderDecoder, embeddings


def _lstm(*sizes: int, **options: Any) -> Stack:
    """An LSTM with the initial weights of torch, by which the memory is learned in few steps: docs/guides/ntm.md."""
    stack = Stack(*sizes, cell="lstm", **options)
    stack.rnn.reset_parameters()
    return stack


CONTROLLERS: dict[str, Callable[..., Stack | FeedForwardController]] = {
    "lstm": _lstm,
    "feed-forward": FeedForwardController,
}
DECODER_INPUTS = ("none", "previous")


@dataclass(frozen=True, eq=False)
class NTMState:
    """The state of n hypotheses for each of b sentences, each with a memory of its own: "b·n …"."""

    cells: States  # states of the controller
    memory: WrittenMemory
    count: int = 1  # n

    def reorder(self, index: Tensor) -> "NTMState":  # "b n2"
        return replace(self._rows(hypothesis_rows(index, self.count)), count=index.shape[1])

    def select_sentences(self, index: Tensor) -> "NTMState":  # "b2"
        return self._rows(sentence_rows(index, self.count))

    def _rows(self, rows: Tensor) -> "NTMState":
        cells, memory = map_tensors((self.cells, self.memory), lambda part: part.index_select(0, rows))
        return replace(self, cells=cells, memory=memory)

    def where(self, is_running: Tensor, before: "NTMState") -> "NTMState":  # bool "b·n"
        """This state where a sequence is running, and the one before where it has ended."""

        def chosen(new: Tensor, old: Tensor) -> Tensor:
            return torch.where(is_running.view(-1, *(1,) * (new.ndim - 1)), new, old)

        cells = tuple(tuple(map(chosen, *parts)) for parts in zip(self.cells, before.cells, strict=True))
        return replace(self, cells=cells, memory=WrittenMemory(*map(chosen, self.memory, before.memory)))


class NTM(EncoderDecoder):
    """h_t = controller([x_t; r_{t−1}], h_{t−1}); M_t, r_t = heads(h_t, M_{t−1}); p(y_t) = softmax(W_o [h_t; r_t] + b)
    (Graves, Wayne and Danihelka 2014).

    One controller and its heads read the source, token by token, and then emit the
    target: the memory and the state of the controller are all that goes from one side to the other. While it emits, the
    input x is zero (`decoder_input` "none", as in the paper), or the embedding of the token before ("previous").
    `controller` is "lstm" or "feed-forward" and has `hidden` units; the memory has `locations` of `memory_width`
    numbers, and heads move by up to `reach` locations per step. Steps behind the end of a source change nothing.
    """

    def __init__(
        self,
        source_size: int,
        target_size: int,
        *,
        width: int = 256,
        hidden: int = 100,
        layers: int = 1,
        controller: str = "lstm",
        locations: int = 64,
        memory_width: int = 20,
        read_heads: int = 1,
        write_heads: int = 1,
        reach: int = 1,
        decoder_input: str = "none",
        dropout: float = 0.2,
        tied: str = "target",
        padding: int = 0,
    ) -> None:
        super().__init__()
        checks.known("controller", controller, CONTROLLERS)
        checks.known("decoder_input", decoder_input, DECODER_INPUTS)
        checks.positive_ints("NTM", source_size=source_size, target_size=target_size, width=width, hidden=hidden)
        self.source, self.target, self.output = embeddings(source_size, target_size, width, tied, padding)
        self.heads = MemoryHeads(
            hidden, locations, memory_width, read_heads=read_heads, write_heads=write_heads, reach=reach
        )
        self.controller = CONTROLLERS[controller](
            width, hidden, fed=self.heads.out_features, layers=layers, dropout=dropout
        )
        self.project = nn.Linear(hidden + self.heads.out_features, width)
        self.dropout = Dropout(dropout)
        self.feeds_tokens = decoder_input == "previous"

    @property
    def attends(self) -> bool:
        """False: the model reads its memory, not the positions of the source."""
        return False

    def encode(self, source: Tensor, lengths: Tensor) -> NTMState:  # "b s", "b"
        checked_lengths(lengths, source.shape[1])
        check_one_per_row(lengths, source)
        empty = NTMState(self.controller.init_states(len(source)), self.heads.init_memory(len(source)))
        with observer.alignment_steps():
            *_, (_, state) = self._steps(self.dropout(self.source(source)), empty, lengths)
        return state

    def teacher_force(self, source: Tensor, lengths: Tensor, target: Tensor, need: Need = NOTHING) -> DecoderOutput:
        _refuse_weights(need.weights)
        with observer.alignment_steps():
            outputs = [out for out, _ in self._steps(self._inputs(target), self.encode(source, lengths))]
        return DecoderOutput(self.dropout(self.project(torch.stack(outputs, dim=1))))

    def init_state(self, source: Tensor, lengths: Tensor, hypotheses: int = 1) -> NTMState:
        return self.encode(source, lengths)

    def step(self, tokens: Tensor, state: NTMState, weights: bool = False) -> Step:  # "b n" -> "b n v"
        _refuse_weights(weights)
        ((out, state),) = self._steps(self._inputs(tokens.reshape(-1, 1)), state)
        return Step(LazyLogits.of(self.output, self.project(out).view(*tokens.shape, -1)), state)

    def _inputs(self, tokens: Tensor) -> Tensor:  # "b t" -> "b t d"
        if self.feeds_tokens:
            return self.dropout(self.target(tokens))
        weight = self.project.weight
        return weight.new_zeros(()).expand(*tokens.shape, self.project.out_features)

    def _steps(
        self, x: Tensor, state: NTMState, lengths: Tensor | None = None
    ) -> Iterator[tuple[Tensor, NTMState]]:  # "b t d", "b" -> "b h+r·w" each
        """The output [h; r] of every step, and the state after it; sequences that have ended keep their state."""
        steps, emit = self.controller.steps(x), None
        if is_plain_linear(self.heads.emit):
            emit = DeferredGradLinear(self.heads.emit.weight, self.heads.emit.bias)
        shortest = x.shape[1] if lengths is None else int(lengths.min())
        for t in range(x.shape[1]):
            h, cells = steps.step(t, state.memory.read, state.cells)
            before, state = state, replace(state, cells=cells, memory=self.heads(h, state.memory, emit))
            if lengths is not None and t >= shortest:
                state = state.where(t < lengths, before)
            yield torch.cat([h, state.memory.read], dim=-1), state


def _refuse_weights(requested: bool) -> None:
    if requested:
        raise ValueError(
            "an NTM reads its memory and has no weights over the source; record(model) shows reads and writes, or take "
            "a Seq2Seq with decoder='bahdanau'"
        )
