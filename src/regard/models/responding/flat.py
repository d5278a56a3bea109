"""FlatResponder: a language model that reads all turns of a dialogue as one text and continues it."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Need
from regard.decoding.protocol import LazyLogits, Step
from regard.layers.causal_stack import CausalState, StackOutput
from regard.layers.rnn.decoder_base import DecoderOutput
from regard.models.language_model import TransformerLanguageModel
from regard.models.responding.responder import History, Responder

# the number of the speaker who gives the reply
_REPLYING = 0


class _FlatHistory(NamedTuple):
    """The turns of each dialogue as one text."""

    tokens: Tensor  # "b s", padded behind the counts
    owners: Tensor  # "b s", the speaker of the turn that a token belongs to
    speakers: Tensor  # "b s", the same, but of the end of a turn the one who speaks next
    counts: Tensor  # "b"
    places: Tensor  # "b s", of the tokens in "m·w"


class _FlatOutput(NamedTuple):
    """The result of the language model on dialogues and their replies."""

    stack: StackOutput  # "b s+t …"
    tokens: Tensor  # "b s+t"
    owners: Tensor  # "b s+t"
    history: _FlatHistory


class FlatResponder(Responder):
    """p(y_t | y_<t, x) of a language model on x_1 ⟨bos⟩ x_2 ⟨eos⟩ … x_m ⟨bos⟩ y_<t, its inputs E[w] + P + S[speaker].

    (Mei et al. 2017; Zhang et al. 2020, DialoGPT; the speakers are those of Wolf et al. 2019.) ⟨bos⟩ ends a turn of the
    other speaker and begins a reply, ⟨eos⟩ ends a reply: in vocabularies in which both are one token this is the layout
    of DialoGPT. S is zero at first, so that a pretrained `decoder` begins as it is. The texts of a batch are padded
    behind their ends, where no token of theirs attends.

    `bidirectional`: the tokens of the turns x attend to later ones, too (Raffel et al. 2020, prefix LM), so that the
    words of a question know their answer; a `decoder` without a memory that was not pretrained can learn that.
    """

    def __init__(self, decoder: TransformerLanguageModel, *, bidirectional: bool = False) -> None:
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
        self.decoder, self.bidirectional = decoder, bidirectional
        self.speakers = nn.Embedding(2, decoder.output.in_features)
        nn.init.zeros_(self.speakers.weight)

    @property
    def embedding(self) -> nn.Embedding:  # type: ignore[override]
        assert isinstance(self.decoder.embedding, nn.Embedding)
        return self.decoder.embedding

    @property
    def output(self) -> nn.Linear:  # type: ignore[override]
        assert isinstance(self.decoder.output, nn.Linear)
        return self.decoder.output

    def teacher_force(self, history: History, target: Tensor, need: Need = NOTHING) -> DecoderOutput:
        output = self._read(history, target, need)
        joined, (b, t) = output.history, target.shape
        s = joined.tokens.shape[1]
        reply = joined.counts.unsqueeze(-1) + torch.arange(t, device=target.device)  # "b t"
        rows = torch.arange(b, device=target.device).unsqueeze(-1)
        states = output.stack.states[rows, reply]
        if not need.weights:
            return DecoderOutput(states)
        mean = torch.stack([weights.mean(1) for weights in output.stack.weights]).mean(0)  # "b s+t s+t"
        is_history = torch.arange(s, device=target.device) < joined.counts.unsqueeze(-1)
        read = mean[rows, reply][..., :s] * is_history.unsqueeze(1)  # "b t s"
        all_places = read.new_zeros(b, t, history.tokens[0].numel())
        return DecoderOutput(states, all_places.scatter_add(2, joined.places.unsqueeze(1).expand(-1, t, -1), read))

    def reply_states(
        self, history: History, target: Tensor, lengths: Tensor, first: Tensor
    ) -> tuple[Tensor, Tensor]:  # "b t", "b", "b" -> "n d", "n"
        """The states that predict the tokens of the replying speaker from turn `first` of the history on, and these
        tokens.

        The replies in the history are predicted from the turns before them, and the target, whose `lengths` do not
        count BOS, from all: one pass learns many replies of a dialogue. A bidirectional model reads the turns before
        the first of them in both directions, as it does when it writes that one, and those behind it as a causal one.
        """
        turns = torch.arange(history.lengths.shape[1], device=target.device)
        # without the end of the last turn before the first reply, which begins that
        prefix = (history.lengths * (turns < first.unsqueeze(-1))).sum(1) - 1
        output = self._read(history, target, NOTHING, prefix)
        places = torch.arange(1, output.tokens.shape[1], device=target.device)
        is_learned = (places <= (output.history.counts + lengths).unsqueeze(-1)) & (places > prefix.unsqueeze(-1))
        is_reply = is_learned & (output.owners[:, 1:] == _REPLYING)
        return output.stack.states[:, :-1][is_reply], output.tokens[:, 1:][is_reply]

    def _read(self, history: History, target: Tensor, need: Need, prefix: Tensor | None = None) -> _FlatOutput:
        joined = _join(history)
        s, t = joined.tokens.shape[1], target.shape[1]
        steps = torch.arange(s + t, device=target.device)
        # row by row the history, then the target, without a gap between them: the columns of both side by side
        columns = torch.where(
            steps < joined.counts.unsqueeze(-1), steps, (steps - joined.counts.unsqueeze(-1) + s).clamp_max(s + t - 1)
        )
        # the begin of the reply is the end of the turn before it
        owners = torch.full_like(target, _REPLYING)
        owners[:, 0] = 1 - _REPLYING
        parts = (joined.tokens, target), (joined.owners, owners), (joined.speakers, torch.full_like(target, _REPLYING))
        tokens, owners, speakers = (torch.cat(part, 1).gather(1, columns) for part in parts)
        prefix = joined.counts if prefix is None else prefix
        prefix = prefix if self.bidirectional else None
        stack = self.decoder.stack(self._embed(tokens, steps, speakers), prefix=prefix, need=need)
        return _FlatOutput(stack, tokens, owners, joined)

    def init_state(self, history: History) -> CausalState:
        joined = _join(history)
        steps = torch.arange(joined.tokens.shape[1], device=joined.tokens.device)
        embedded = self._embed(joined.tokens, steps, joined.speakers)
        return self.decoder.stack.init_state(embedded, joined.counts, is_prefix=self.bidirectional)

    def step(self, tokens: Tensor, state: CausalState) -> Step:
        positions = state.next_position.expand(*state.next_position.shape[:-1], tokens.shape[1])
        x = self._embed(tokens, positions, torch.full_like(tokens, _REPLYING))
        states, state = self.decoder.stack.step(x, state)
        return Step(LazyLogits.of(self.output, states), state)

    def _embed(self, tokens: Tensor, positions: Tensor, speakers: Tensor) -> Tensor:  # "b t" -> "b t d"
        return self.decoder.embed(tokens, positions) + self.speakers(speakers)


def _join(history: History) -> _FlatHistory:
    history.check()
    is_inside = history.is_inside.flatten(1)  # "b m·w"
    counts = is_inside.sum(1) - 1  # without the end of the last turn
    longest = is_inside.shape[1] if counts.is_meta else int(counts.max())
    places = is_inside.logical_not().int().argsort(dim=1, stable=True)[:, :longest]
    words = torch.arange(1, history.tokens.shape[2] + 1, device=history.tokens.device)
    is_end = words == history.lengths.unsqueeze(-1)  # "b m w"
    owners = history.speakers.unsqueeze(-1).expand_as(history.tokens)
    speakers = torch.where(is_end, 1 - owners, owners)
    tokens, owners, speakers = (part.flatten(1).gather(1, places) for part in (history.tokens, owners, speakers))
    return _FlatHistory(tokens, owners, speakers, counts, places)
