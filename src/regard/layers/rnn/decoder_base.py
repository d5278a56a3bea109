"""The base classes of recurrent decoders: their state, their outputs, and how decoders with attention call it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from regard.attn import stepwise
from regard.attn.call import NOTHING, Attended, Need
from regard.attn.kv_cache import KVCache
from regard.layers.rnn.cells import States
from regard.layers.rnn.distinct_tokens import DistinctTokens
from regard.layers.rnn.encoder import EncoderOutput
from regard.layers.rnn.source_projection import project_source_once
from regard.layers.rnn.stepwise_attention import StepwiseAttention, map_tensors


class DecoderOutput(NamedTuple):
    """The outputs of a decoder for a known target: "b t …" each."""

    states: Tensor  # "b t r", input of the vocabulary layer
    weights: Tensor | None = None  # "b t s"
    log_prob: Tensor | None = None  # "b t", of the keys that a hard attention sampled
    entropy: Tensor | None = None  # "b t", of the distribution it sampled from
    ponder: Tensor | None = None  # scalar, the cost of the steps of all tokens where their number is learned


def join_attended(steps: Sequence[Attended]) -> Attended:  # "b 1 …" each -> "b t …"
    """Output, weights, log-probabilities and entropies of all steps; None if they were not requested."""

    def join(name: str) -> Tensor | None:
        parts = [getattr(step, name) for step in steps]
        return None if parts[0] is None else torch.cat(parts, dim=1)

    out = torch.cat([step.out for step in steps], dim=1)
    return Attended(out, join("weights"), join("log_prob"), entropy=join("entropy"))


def hypothesis_rows(index: Tensor, count: int) -> Tensor:  # "b n2" -> "b·n2"
    """The rows of the hypotheses index[i, j] of each sentence, all of which have `count` rows."""
    return (count * torch.arange(len(index), device=index.device).unsqueeze(-1) + index).flatten()


def sentence_rows(index: Tensor, count: int) -> Tensor:  # "b2" -> "b2·count"
    """The rows of these sentences, each of which has `count`."""
    return (count * index.unsqueeze(-1) + torch.arange(count, device=index.device)).flatten()


@dataclass(frozen=True, eq=False)
class RecurrentState:
    """The state of n hypotheses for each of b sentences. The source is stored once per sentence."""

    lengths: Tensor  # "b"
    memory: KVCache | None  # "b s …", the keys and values of the source
    context: Tensor | None  # "b k", the summary of a decoder without attention, or "b s k", all its states
    cells: States  # "b·n h" each; empty without recurrent layers
    count: int  # n
    fed: Tensor | None  # "b·n a", the attentional vector of the last step with input feeding
    attention_state: Any  # the state of the attention: the step number, or tensors "b n …"
    is_projected: bool = False  # whether the values of `memory` are already multiplied by the decoder's matrices

    def reorder(self, index: Tensor) -> "RecurrentState":  # "b n2"
        sentences = torch.arange(len(index), device=index.device).unsqueeze(-1)
        attention_state = map_tensors(self.attention_state, lambda part: part[sentences, index])
        rows = self._rows(hypothesis_rows(index, self.count))
        return replace(rows, attention_state=attention_state, count=index.shape[1])

    def select_sentences(self, index: Tensor) -> "RecurrentState":  # "b2"
        return replace(
            self._rows(sentence_rows(index, self.count)),
            lengths=self.lengths[index],
            memory=None if self.memory is None else self.memory.reorder(index),
            context=None if self.context is None else self.context[index],
            attention_state=map_tensors(self.attention_state, lambda part: part[index]),
        )

    def _rows(self, rows: Tensor) -> "RecurrentState":
        return replace(
            self,
            cells=tuple(tuple(part.index_select(0, rows) for part in layer) for layer in self.cells),
            fed=None if self.fed is None else self.fed.index_select(0, rows),
        )


class DecoderStep(NamedTuple):
    """One step of a decoder."""

    out: Tensor  # "b n r"
    state: RecurrentState
    weights: Tensor | None = None  # "b n s"


class RecurrentDecoder(nn.Module, ABC):
    """A recurrent decoder of y, "b t e", over an encoded source."""

    attends: ClassVar[bool] = False
    out_features: int

    @abstractmethod
    def teacher_force(
        self, y: Tensor, encoded: EncoderOutput, lengths: Tensor, need: Need = NOTHING
    ) -> DecoderOutput:  # "b t e", "b"
        """Runs all steps on a known target."""

    @abstractmethod
    def init_state(self, encoded: EncoderOutput, lengths: Tensor, hypotheses: int = 1) -> RecurrentState:
        """The state before the first step, with one hypothesis per sentence. `hypotheses`: roughly how many will be
        searched per sentence.
        """

    @abstractmethod
    def step(self, tokens: DistinctTokens, state: RecurrentState, weights: bool = False) -> DecoderStep:
        """One step of every hypothesis after its last token."""


class AttentionDecoder(StepwiseAttention, RecurrentDecoder):
    """The base class of decoders with attention."""

    attends: ClassVar[bool] = True

    def _context_matrices(self) -> Sequence[Tensor]:  # "m k" each
        """All matrices that a step multiplies the context by, if it does nothing else with it."""
        return ()

    def _start(
        self, encoded: EncoderOutput, lengths: Tensor, cells: States, hypotheses: int, fed: Tensor | None = None
    ) -> RecurrentState:
        # a sentence has about as many steps as positions
        contexts = hypotheses * encoded.outputs.shape[1]
        projected_values = project_source_once(self.attention, encoded.outputs, self._context_matrices(), contexts)
        memory = stepwise.project_kv(self.attention, encoded.outputs, projected_values)
        return RecurrentState(
            lengths, memory, None, cells, 1, fed, self._initial_attention_state(memory), projected_values is not None
        )
