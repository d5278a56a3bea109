"""EncoderDecoder: the base class of sequence-to-sequence models, for training, decoding and alignments;
RecurrentEncoderDecoder: that of those with a recurrent decoder.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from regard.attn import observer
from regard.attn.call import NOTHING, Need
from regard.attn.catalogue import MECHANISMS, Factory
from regard.common import checks
from regard.decoding.protocol import LazyLogits, Step
from regard.layers.dropout import Dropout
from regard.layers.rnn.decoder_base import DecoderOutput, RecurrentDecoder, RecurrentState
from regard.layers.rnn.decoders import Bahdanau, FixedContext, InitialState, Luong, PerPosition
from regard.layers.rnn.distinct_tokens import DistinctTokens
from regard.layers.rnn.encoder import EncoderOutput
from regard.layers.rnn.stepwise_attention import IncompatibleAttention


class EncoderDecoder(nn.Module, ABC):
    """p(y | x) = Π_t p(y_t | y_<t, x).

    `teacher_force` runs over a known target; `init_state` and `step` decode one token at a time, n hypotheses for each
    of b sentences, with a state that is a value: `state.reorder(index)` selects hypotheses,
    `state.select_sentences(index)` sentences.
    """

    output: nn.Linear

    @property
    def attends(self) -> bool:
        """Whether target tokens attend to the source."""
        return True

    @abstractmethod
    def teacher_force(self, source: Tensor, lengths: Tensor, target: Tensor, need: Need = NOTHING) -> DecoderOutput:
        """The inputs of the vocabulary layer at every step: "b s", "b", "b t" -> "b t d"; the target starts with
        BOS.
        """

    @abstractmethod
    def init_state(self, source: Tensor, lengths: Tensor, hypotheses: int = 1) -> Any:  # "b s", "b"
        """The state before the first step, with one hypothesis per sentence.

        `hypotheses` is roughly the number of hypotheses per sentence. It changes no result, only what is precomputed.
        """

    @abstractmethod
    def step(self, tokens: Tensor, state: Any, weights: bool = False) -> Step:  # "b n" -> "b n v"
        """The logits of the token after these, and the next state."""

    def encoded_lengths(self, lengths: Tensor) -> Tensor:  # "b" -> "b"
        """The number of states that the encoder makes of sources of these lengths."""
        return lengths

    def logits(self, states: Tensor) -> Tensor:  # "… d" -> "… v"
        return self.output(states)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:  # "b s", "b", "b t" -> "b t v"
        return self.logits(self.teacher_force(source, lengths, target).states)


def init_embedding(table: nn.Embedding) -> None:
    """N(0, 1/d), zeros for the padding."""
    nn.init.normal_(table.weight, std=table.embedding_dim**-0.5)
    nn.init.zeros_(table.weight[table.padding_idx].data)


TIED = ("none", "target", "all")


def embeddings(
    source_size: int, target_size: int, width: int, tied: str, padding: int
) -> tuple[nn.Embedding, nn.Embedding, nn.Linear]:
    """The embeddings of source and target and the vocabulary layer; `tied` says which share a matrix  (Press & Wolf
    2017).
    """
    checks.known("tied", tied, TIED)
    if tied == "all" and source_size != target_size:
        raise ValueError(
            f"tied='all' shares one vocabulary, got {source_size} words of the source and {target_size} of the target; "
            "train one tokenizer on both sides, or use tied='target'"
        )
    target = nn.Embedding(target_size, width, padding_idx=padding)
    source = target if tied == "all" else nn.Embedding(source_size, width, padding_idx=padding)
    output = nn.Linear(width, target_size)
    for table in (source, target):
        init_embedding(table)
    nn.init.zeros_(output.bias)
    if tied == "none":
        nn.init.normal_(output.weight, std=width**-0.5)
    else:
        output.weight = target.weight
    return source, target, output


def check_learned_positions(longest: int | None, side: str, tokens: int) -> None:
    """Raises if a model with this many learned positions, None: any number, cannot read this many tokens."""
    if longest is not None and tokens > longest:
        raise ValueError(
            f"the {side} has {tokens} tokens, but positions='learned' has longest={longest} positions; "
            f"shorten it, or build the model with longest={tokens}, or with positions='sinusoidal'"
        )


# the decoder class, and the attention of its paper
DECODERS: dict[str, tuple[Callable[..., RecurrentDecoder], str | None]] = {
    "fixed": (FixedContext, None),
    "initial": (InitialState, None),
    "per-position": (PerPosition, None),
    "bahdanau": (Bahdanau, "additive"),
    "luong": (functools.partial(Luong, feeding=False), "general"),
    "luong-feeding": (functools.partial(Luong, feeding=True), "general"),
}


def build_decoder(
    decoder: str,
    attention: str | Factory | None,
    source_dim: int,
    *,
    width: int,
    hidden: int,
    layers: int,
    cell: str,
    dropout: float,
) -> RecurrentDecoder:
    """The decoder of this name over states of `source_dim`; `attention` None is the attention of its paper."""
    decoder_class, default = DECODERS[decoder]
    sizes = {"layers": layers, "cell": cell, "dropout": dropout, "out_features": width}
    if default is None:
        if attention is not None:
            raise ValueError(
                f"attention={attention!r} cannot be used with decoder='{decoder}', which does not attend; "
                "choose decoder='bahdanau', 'luong' or 'luong-feeding', or leave attention out"
            )
        return decoder_class(width, source_dim, hidden, **sizes)
    attention = default if attention is None else attention
    if isinstance(attention, str):
        checks.known("attention", attention, MECHANISMS)
    factory = MECHANISMS[attention] if isinstance(attention, str) else attention
    try:
        return decoder_class(width, source_dim, hidden, attention=factory, **sizes)
    except IncompatibleAttention as error:
        raise ValueError(
            f"attention={attention!r} does not fit decoder='{decoder}': {error}; "
            "try attention='general' or attention='additive', which fit all of them"
        ) from error


class RecurrentEncoderDecoder(EncoderDecoder):
    """p(y_t | y_<t, x) = softmax(W_o r_t + b), r_t of a recurrent decoder over the states of an encoder."""

    target: nn.Embedding
    decoder: RecurrentDecoder
    dropout: Dropout

    @abstractmethod
    def encode(self, source: Tensor, lengths: Tensor) -> EncoderOutput:  # "b s …", "b"
        """The states of the source that the decoder attends to, and their summary."""

    def teacher_force(self, source: Tensor, lengths: Tensor, target: Tensor, need: Need = NOTHING) -> DecoderOutput:
        y = self.dropout(self.target(target))
        encoded = self.encode(source, lengths)
        with observer.alignment_steps():
            output = self.decoder.teacher_force(y, encoded, self.encoded_lengths(lengths), need)
        return output._replace(states=self.dropout(output.states))

    def init_state(self, source: Tensor, lengths: Tensor, hypotheses: int = 1) -> RecurrentState:
        return self.decoder.init_state(self.encode(source, lengths), self.encoded_lengths(lengths), hypotheses)

    def step(self, tokens: Tensor, state: RecurrentState, weights: bool = False) -> Step:  # "b n" -> "b n v"
        decoder_step = self.decoder.step(DistinctTokens.of(tokens, self.target), state, weights)
        return Step(LazyLogits.of(self.output, decoder_step.out), decoder_step.state, decoder_step.weights)
