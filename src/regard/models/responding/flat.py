"""FlatResponder: a language model that reads all turns of a dialogue as one text and continues it."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn.call import NOTHING, Need
from regard.attn.terms.mask import BooleanMask
from regard.common import checks
from regard.decoding.protocol import LazyLogits, Step
from regard.layers.causal_stack import CausalState, StackOutput
from regard.layers.pointer_generator import CopySource, PointerGenerator
from regard.layers.rnn.decoder_base import DecoderOutput
from regard.losses.vocabulary import vocabulary_loss
from regard.models.language_model import TransformerLanguageModel
from regard.models.responding.responder import History, Responder

# the number of the speaker who gives the reply
REPLYING = 0


class FlatHistory(NamedTuple):
    """The turns of each dialogue as one text, without the end of the last turn, which begins the reply."""

    tokens: Tensor  # "b s", padded behind the counts
    owners: Tensor  # "b s", the speaker of the turn that a token belongs to
    speakers: Tensor  # "b s", the same, but of the end of a turn the one who speaks next
    numbers: Tensor  # "b s", those of the turns, from 0; of the end of a turn that of the next one
    is_end: Tensor  # bool "b s", whether a token ends a turn
    counts: Tensor  # "b", of the tokens
    num_turns: Tensor  # "b", of those with words
    places: Tensor  # "b s", of the tokens in "m·w"

    @property
    def is_inside(self) -> Tensor:  # bool "b s"
        """The tokens that are no padding."""
        return torch.arange(self.tokens.shape[1], device=self.tokens.device) < self.counts.unsqueeze(-1)


def join_turns(history: History) -> FlatHistory:
    history.check()
    is_inside = history.is_inside.flatten(1)  # "b m·w"
    counts = is_inside.sum(1) - 1
    longest = is_inside.shape[1] if counts.is_meta else int(counts.max())
    places = is_inside.logical_not().int().argsort(dim=1, stable=True)[:, :longest]
    words = torch.arange(1, history.tokens.shape[2] + 1, device=history.tokens.device)
    is_end = words == history.lengths.unsqueeze(-1)  # "b m w"
    owners = history.speakers.unsqueeze(-1).expand_as(history.tokens)
    speakers = torch.where(is_end, 1 - owners, owners)
    # an absent turn has no number
    filled = (history.lengths > 0).cumsum(1)
    numbers = (filled - 1).unsqueeze(-1) + is_end
    parts = (history.tokens, owners, speakers, numbers, is_end)
    tokens, owners, speakers, numbers, is_end = (part.flatten(1).gather(1, places) for part in parts)
    return FlatHistory(tokens, owners, speakers, numbers, is_end, counts, filled[:, -1], places)


class _FlatOutput(NamedTuple):
    """The result of the language model on dialogues and their replies."""

    stack: StackOutput  # "b s+t …"
    tokens: Tensor  # "b s+t"
    owners: Tensor  # "b s+t"
    history: FlatHistory

    def of_reply(self, steps: int) -> Tensor:  # -> "b t d"
        """The states at the first tokens of the replies, BOS included."""
        states = self.stack.states
        places = self.history.counts.unsqueeze(-1) + torch.arange(steps, device=states.device)
        return states[torch.arange(len(states), device=states.device).unsqueeze(-1), places]


@dataclass(frozen=True, eq=False)
class CopyingState:
    """The state of n hypotheses for each of b dialogues, and the tokens of these that can be copied."""

    stack: CausalState
    source: CopySource

    def reorder(self, index: Tensor) -> "CopyingState":  # "b n2"
        return CopyingState(self.stack.reorder(index), self.source)

    def select_sentences(self, index: Tensor) -> "CopyingState":  # "b2"
        return CopyingState(self.stack.select_sentences(index), self.source.select(index))


class FlatResponder(Responder):
    """p(y_t | y_<t, x) of a language model on x_1 ⟨bos⟩ x_2 ⟨eos⟩ … x_m ⟨bos⟩ y_<t, its inputs E[w] + P + S[speaker].

    (Mei et al. 2017; Zhang et al. 2020, DialoGPT; the speakers are those of Wolf et al. 2019.) ⟨bos⟩ ends a turn of the
    other speaker and begins a reply, ⟨eos⟩ ends a reply: in vocabularies in which both are one token this is the layout
    of DialoGPT. S is zero at first, so that a pretrained `decoder` begins as it is. The texts of a batch are padded
    behind their ends, where no token of theirs attends.

    `history` "bidirectional": the tokens of the turns x attend to later ones, too (Raffel et al. 2020, prefix LM), so
    that the words of a question know their answer; a `decoder` without a memory that was not pretrained can learn that.
    `output` "pointer-generator": a reply may also copy words of x. `turn_window`: the tokens of a turn attend to those
    of this many turns before it, and in both directions behind it; None: to all. A pointer reads all of x whatever the
    window.
    """

    def __init__(
        self,
        decoder: TransformerLanguageModel,
        *,
        history: str = "causal",
        output: str = "softmax",
        turn_window: int | None = None,
    ) -> None:
        super().__init__()
        if decoder.stack.memory:
            raise ValueError(
                f"decoder must read a dialogue at once, and this one has a memory of {decoder.stack.memory} tokens "
                "between segments; train it with memory=0"
            )
        if not isinstance(decoder.output, nn.Linear):
            raise ValueError(
                f"decoder must have a linear vocabulary layer, got {type(decoder.output).__name__}; "
                "build it without cutoffs"
            )
        checks.known("history", history, ("causal", "bidirectional"))
        checks.known("output", output, ("softmax", "pointer-generator"))
        if turn_window is not None:
            checks.positive_ints("FlatResponder", turn_window=turn_window)
        width = decoder.output.in_features
        self.decoder, self.bidirectional, self.turn_window = decoder, history == "bidirectional", turn_window
        self.pointer = PointerGenerator(width) if output == "pointer-generator" else None
        self.speakers = nn.Embedding(2, width)
        nn.init.zeros_(self.speakers.weight)

    @property
    def embedding(self) -> nn.Embedding:  # type: ignore[override]
        return self.decoder.embedding  # type: ignore[return-value]

    @property
    def output(self) -> nn.Linear:  # type: ignore[override]
        return self.decoder.output  # type: ignore[return-value]

    def teacher_force(self, history: History, target: Tensor, need: Need = NOTHING) -> DecoderOutput:
        """The weights are the mean over all heads and layers, of which a pointer is one."""
        output = self._read(history, target, need)
        joined, (b, t) = output.history, target.shape
        s = joined.tokens.shape[1]
        states = output.of_reply(t)
        # a recorder sees the pointer whether its weights are asked for or not
        mixture = None
        if self.pointer is not None:
            mixture = self.pointer.mixture(states, self._source(joined, output.stack.states))
        if not need.weights:
            return DecoderOutput(states)
        reply = joined.counts.unsqueeze(-1) + torch.arange(t, device=target.device)  # "b t"
        rows = torch.arange(b, device=target.device).unsqueeze(-1)
        maps = [weights.mean(1)[rows, reply][..., :s] for weights in output.stack.weights]  # "b t s"
        if mixture is not None:
            maps.append(mixture.weights)
        read = torch.stack(maps).mean(0) * joined.is_inside.unsqueeze(1)
        all_places = read.new_zeros(b, t, history.tokens[0].numel())
        return DecoderOutput(states, all_places.scatter_add(2, joined.places.unsqueeze(1).expand(-1, t, -1), read))

    def forward(self, history: History, target: Tensor) -> Tensor:  # "b t" -> "b t v"
        output = self._read(history, target, NOTHING)
        states = output.of_reply(target.shape[1])
        logits = self.output(states)
        if self.pointer is None:
            return logits
        source = self._source(output.history, output.stack.states)
        return self.pointer.log_probs(logits, self.pointer.mixture(states, source), source)

    def token_loss(
        self, history: History, target: Tensor, lengths: Tensor, first: Tensor, *, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:  # "b t", "b", "b" -> scalar, "n"
        """The loss of the tokens of the replying speaker from turn `first` of the history on, and of the target.

        The replies in the history are predicted from the turns before them, and the target from all: one pass learns
        many replies of a dialogue. A bidirectional model reads the turns before the first of them in both directions,
        as it does when it writes that one, and those behind it as a causal one.
        """
        turns = torch.arange(history.lengths.shape[1], device=target.device)
        # without the end of the last turn before the first reply, which begins that
        prefix = (history.lengths * (turns < first.unsqueeze(-1))).sum(1) - 1
        output = self._read(history, target, NOTHING, prefix)
        places = torch.arange(1, output.tokens.shape[1], device=target.device)
        is_learned = (places <= (output.history.counts + lengths).unsqueeze(-1)) & (places > prefix.unsqueeze(-1))
        is_reply = is_learned & (output.owners[:, 1:] == REPLYING)
        states, tokens = output.stack.states[:, :-1], output.tokens[:, 1:]
        if self.pointer is None:
            return vocabulary_loss(self.output, states[is_reply], tokens[is_reply], smoothing=smoothing)
        if smoothing:
            raise ValueError(f"smoothing must be 0 for a pointer, got {smoothing}; build the model without one")
        column = int(prefix.min())
        states, tokens, is_reply = (part[:, column:] for part in (states, tokens, is_reply))
        source = self._source(output.history, output.stack.states)
        # a reply copies from the turns before it: the last token of the other speaker begins it
        steps = torch.arange(output.owners.shape[1], device=target.device)
        begins = torch.where(output.owners == REPLYING, -1, steps).cummax(1).values[:, column:-1]
        is_before = steps[: source.mask.shape[-1]] < begins.unsqueeze(-1)  # "b t s"
        source = source._replace(mask=source.mask & is_before)
        log_p = torch.zeros_like(states[..., 0])
        log_p = log_p.masked_scatter(
            is_reply, -F.cross_entropy(self.output(states[is_reply]), tokens[is_reply], reduction="none")
        )
        nll = -self.pointer.token_log_probs(log_p, self.pointer.mixture(states, source), source, tokens)[is_reply]
        return nll.sum(), nll.detach()

    def _source(self, joined: FlatHistory, states: Tensor) -> CopySource:  # "b s+… d"
        """The words of the history, without the ends of turns."""
        assert self.pointer is not None
        keys = self.pointer.keys(states[:, : joined.tokens.shape[1]])
        return CopySource(keys, joined.tokens, (joined.is_inside & ~joined.is_end).unsqueeze(1))

    def _read(self, history: History, target: Tensor, need: Need, prefix: Tensor | None = None) -> _FlatOutput:
        joined = join_turns(history)
        s, t = joined.tokens.shape[1], target.shape[1]
        steps = torch.arange(s + t, device=target.device)
        # row by row the history, then the target, without a gap between them: the columns of both side by side
        columns = torch.where(
            steps < joined.counts.unsqueeze(-1), steps, (steps - joined.counts.unsqueeze(-1) + s).clamp_max(s + t - 1)
        )
        # the begin of the reply is the end of the turn before it
        owners = torch.full_like(target, REPLYING)
        owners[:, 0] = 1 - REPLYING
        numbers = joined.num_turns.unsqueeze(-1).expand_as(target)
        parts = (
            (joined.tokens, target),
            (joined.owners, owners),
            (joined.speakers, torch.full_like(target, REPLYING)),
            (joined.numbers, numbers),
        )
        tokens, owners, speakers, numbers = (torch.cat(part, 1).gather(1, columns) for part in parts)
        prefix = joined.counts if prefix is None else prefix
        prefix = prefix if self.bidirectional else None
        near = self._near(numbers, numbers)
        mask = None if near is None else BooleanMask(near)
        stack = self.decoder.stack(self._embed(tokens, steps, speakers), mask=mask, prefix=prefix, need=need)
        return _FlatOutput(stack, tokens, owners, joined)

    def _near(self, turns: Tensor, others: Tensor) -> Tensor | None:  # "b q", "b k" -> bool "b q k"
        """The tokens within the window, by the numbers of their turns; None: all of them."""
        if self.turn_window is None:
            return None
        return (turns.unsqueeze(-1) - others.unsqueeze(-2)).abs() <= self.turn_window

    def init_state(self, history: History) -> CausalState | CopyingState:
        joined = join_turns(history)
        steps = torch.arange(joined.tokens.shape[1], device=joined.tokens.device)
        near = self._near(joined.num_turns.unsqueeze(-1), joined.numbers)  # "b 1 s"
        states, state = self.decoder.stack.read_prompt(
            self._embed(joined.tokens, steps, joined.speakers),
            joined.counts,
            is_prefix=self.bidirectional,
            mask=self._near(joined.numbers, joined.numbers),
            allowed=None if near is None else near.squeeze(1),
        )
        return state if self.pointer is None else CopyingState(state, self._source(joined, states))

    def step(self, tokens: Tensor, state: CausalState | CopyingState) -> Step:
        before = state.stack if isinstance(state, CopyingState) else state
        positions = before.next_position.expand(*before.next_position.shape[:-1], tokens.shape[1])
        x = self._embed(tokens, positions, torch.full_like(tokens, REPLYING))
        states, after = self.decoder.stack.step(x, before)
        if not isinstance(state, CopyingState):
            return Step(LazyLogits.of(self.output, states), after)
        assert self.pointer is not None
        source = state.source
        log_p = self.pointer.log_probs(self.output(states), self.pointer.mixture(states, source), source)
        return Step(log_p, CopyingState(after, source))

    def _embed(self, tokens: Tensor, positions: Tensor, speakers: Tensor) -> Tensor:  # "b t" -> "b t d"
        return self.decoder.embed(tokens, positions) + self.speakers(speakers)
