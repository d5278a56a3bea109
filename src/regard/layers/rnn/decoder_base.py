"""The base classes of recurrent decoders: their state, their outputs, and how decoders with attention call it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attn import observer, stepwise
from regard.attn.call import NOTHING, Attended, Need
from regard.attn.catalogue import Factory, width
from regard.attn.kv_cache import KVCache
from regard.attn.terms.mask import Lengths
from regard.attn.terms.read import Sample
from regard.layers.rnn.cells import States
from regard.layers.rnn.distinct_tokens import DistinctTokens
from regard.layers.rnn.encoder import EncoderOutput
from regard.layers.rnn.source_projection import project_source_once


class DecoderOutput(NamedTuple):
    """The outputs of a decoder for a known target: "b t …" each."""

    states: Tensor  # "b t r", input of the vocabulary layer
    weights: Tensor | None = None  # "b t s"
    log_prob: Tensor | None = None  # "b t", of the keys that a hard attention sampled
    entropy: Tensor | None = None  # "b t", of the distribution it sampled from


@dataclass(frozen=True, eq=False)
class RecurrentState:
    """The state of n hypotheses for each of b sentences. The source is stored once per sentence."""

    lengths: Tensor  # "b"
    memory: KVCache | None  # "b s …", the keys and values of the source
    context: Tensor | None  # "b k", the summary of a decoder without attention
    cells: States  # "b·n h" each
    count: int  # n
    fed: Tensor | None  # "b·n a", the attentional vector of the last step with input feeding
    attention_state: Any  # the state of the attention: the step number, or tensors "b n …"
    is_projected: bool = False  # whether the values of `memory` are already multiplied by the decoder's matrices

    def reorder(self, index: Tensor) -> "RecurrentState":  # "b n2"
        """Slot j of sentence i continues the hypothesis of slot index[i, j]."""
        first_slots = self.count * torch.arange(len(index), device=index.device).unsqueeze(-1)
        sentences = torch.arange(len(index), device=index.device).unsqueeze(-1)
        attention_state = _map_tensors(self.attention_state, lambda part: part[sentences, index])
        return replace(
            self._rows((first_slots + index).flatten()), attention_state=attention_state, count=index.shape[1]
        )

    def select_sentences(self, index: Tensor) -> "RecurrentState":  # "b2"
        """The state of these sentences only."""
        slots = torch.arange(self.count, device=index.device)
        return replace(
            self._rows((self.count * index.unsqueeze(-1) + slots).flatten()),
            lengths=self.lengths[index],
            memory=None if self.memory is None else self.memory.reorder(index),
            context=None if self.context is None else self.context[index],
            attention_state=_map_tensors(self.attention_state, lambda part: part[index]),
        )

    def _rows(self, rows: Tensor) -> "RecurrentState":
        return replace(
            self,
            cells=tuple(tuple(part.index_select(0, rows) for part in layer) for layer in self.cells),
            fed=None if self.fed is None else self.fed.index_select(0, rows),
        )


def _map_tensors(attention_state: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The state of an attention with every tensor in it changed; a step number stays."""
    if isinstance(attention_state, Tensor):
        return change(attention_state)
    if isinstance(attention_state, tuple):
        parts = [_map_tensors(part, change) for part in attention_state]
        return type(attention_state)(*parts) if hasattr(attention_state, "_fields") else tuple(parts)
    return attention_state


class DecoderStep(NamedTuple):
    """One step of a decoder."""

    out: Tensor  # "b n r"
    state: RecurrentState
    weights: Tensor | None = None  # "b n s"


class RecurrentDecoder(nn.Module, ABC):
    """A recurrent decoder of y, "b t e", over an encoded source."""

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


class IncompatibleAttention(ValueError):
    """An attention that a decoder of these widths cannot use step by step."""


class AttentionDecoder(RecurrentDecoder):
    """The base class of decoders with attention: it builds the attention and calls it for one query or for all."""

    attention: nn.Module

    def _build_attention(self, make: Factory, hidden: int, source_dim: int) -> int:
        """Builds `self.attention` and returns the width of its output."""
        self.attention = make(hidden, source_dim)
        if not callable(getattr(self.attention, "project_kv", None)):
            raise IncompatibleAttention(
                f"{type(self.attention).__name__} needs all queries together, but a decoder has one at a time"
            )
        try:
            return width(self.attention, hidden, source_dim)
        except (ValueError, TypeError) as error:
            raise IncompatibleAttention(
                f"queries are hidden={hidden} wide, the encoder's states {source_dim}: {error}"
            ) from error

    def _is_sampling(self) -> bool:
        """Whether the attention samples a key, so that the loss needs the log-probability of the sample."""
        return self.training and isinstance(getattr(self.attention, "read", None), Sample)

    def _need(self, weights: bool) -> Need:
        return Need(weights=weights, log_prob=self._is_sampling(), entropy=self._is_sampling())

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

    def _initial_attention_state(self, memory: KVCache) -> Any:
        return stepwise.start(self.attention, _per_hypothesis(memory)) if self._has_state() else 0

    def _has_state(self) -> bool:
        """Whether a step of the attention depends on the previous steps."""
        return hasattr(self.attention, "start")

    def _attend_step(
        self, s: Tensor, memory: KVCache, lengths: Tensor, attention_state: Any, need: Need
    ) -> tuple[Attended, Any]:
        """Attends with one query for each of n hypotheses, "b n d" -> "b n v"."""
        mask = Lengths(lengths)
        if self._has_state():
            with observer.alignment_steps(memory):
                attended, attention_state = stepwise.step(
                    self.attention,
                    s.unsqueeze(2),
                    _per_hypothesis(memory, s.shape[1]),
                    attention_state,
                    mask=mask,
                    need=need,
                )
            weights = None if attended.weights is None else attended.weights.squeeze(2)
            return Attended(attended.out.squeeze(2), weights), attention_state
        query_positions = torch.full((s.shape[1],), attention_state, device=s.device)
        key_positions = torch.arange(len(memory), device=s.device)
        with observer.alignment_steps():
            attended = self.attention.attend(
                s, memory, mask=mask, positions=(query_positions, key_positions), need=need
            )  # type: ignore[operator]
        return _average_heads(attended), attention_state + 1

    def _attend_all(
        self, s: Tensor, encoded: EncoderOutput, values: Tensor | None, lengths: Tensor, need: Need
    ) -> Attended:  # "b t d", "b s k", "b s v" -> "b t v"
        """Attends with all queries at once, if none depends on the output of another one."""
        positions = tuple(torch.arange(n, device=s.device) for n in (s.shape[1], encoded.outputs.shape[1]))
        with observer.alignment_steps():
            attended = self.attention.attend(  # type: ignore[operator]
                s, encoded.outputs, values, mask=Lengths(lengths), positions=positions, need=need
            )
        return _average_heads(attended)


def _average_heads(attended: Attended) -> Attended:
    """Averages weights over the heads, if there are heads: "b t s"."""
    has_heads = attended.weights is not None and attended.weights.ndim > attended.out.ndim
    return (
        attended._replace(weights=attended.weights.mean(1)) if has_heads and attended.weights is not None else attended
    )


def _per_hypothesis(memory: KVCache, count: int = 1) -> KVCache:
    """The memory of a sentence for each of its hypotheses, "b n s …", without a copy."""
    keys, values = (t.unsqueeze(1).expand(-1, count, -1, -1) for t in (memory.keys, memory.values))
    return KVCache(keys, values, memory.positions, _like=memory)
