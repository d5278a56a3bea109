"""Seq2Seq: the recurrent encoder-decoder, without attention, with Bahdanau's or with Luong's."""

import functools
from collections.abc import Callable

from torch import Tensor

from regard.attn import checks, observer
from regard.attn.call import NOTHING, Need
from regard.attn.catalogue import MECHANISMS, Factory
from regard.decoding.protocol import LazyLogits, Step
from regard.layers.dropout import Dropout
from regard.layers.rnn.decoder_base import DecoderOutput, RecurrentDecoder, RecurrentState
from regard.layers.rnn.decoders import Bahdanau, FixedContext, Luong
from regard.layers.rnn.distinct_tokens import DistinctTokens
from regard.layers.rnn.encoder import Encoder, EncoderOutput
from regard.layers.rnn.plain_decoders import InitialState, PerPosition
from regard.layers.rnn.stepwise_attention import IncompatibleAttention
from regard.models.encoder_decoder import EncoderDecoder, embeddings

# the decoder class, and the attention of its paper
DECODERS: dict[str, tuple[Callable[..., RecurrentDecoder], str | None]] = {
    "fixed": (FixedContext, None),
    "initial": (InitialState, None),
    "per-position": (PerPosition, None),
    "bahdanau": (Bahdanau, "additive"),
    "luong": (functools.partial(Luong, feeding=False), "general"),
    "luong-feeding": (functools.partial(Luong, feeding=True), "general"),
}


class Seq2Seq(EncoderDecoder):
    """p(y_t | y_<t, x) = softmax(W_o r_t + b), r_t of a recurrent decoder on a recurrent encoder.

    `decoder`: "bahdanau" attends before each step (Bahdanau et al. 2015), "luong" after it, all steps at once,
    "luong-feeding" after it, feeding the attentional vector to the next step (Luong et al. 2015), "fixed" does not
    attend: every step gets the encoder's last state (Cho et al. 2014); "initial" has it as its first state only
    (Sutskever et al. 2014), and "per-position" has one output per source position, without a decoder state. `cell` is
    "gru", "lstm" or "rnn". `attention` is a name of MECHANISMS or a factory
    like those in it; None is the paper's. A bidirectional encoder has `encoder_hidden` units per direction; None halves
    `hidden`, so that keys are as wide as queries, which some mechanisms need. `tied` shares the target's embedding with
    the vocabulary layer ("target") and with the source's embedding too ("all").
    """

    def __init__(
        self,
        source_size: int,
        target_size: int,
        *,
        width: int = 256,
        hidden: int = 256,
        layers: int = 1,
        cell: str = "gru",
        bidirectional: bool = True,
        encoder_hidden: int | None = None,
        decoder: str = "bahdanau",
        attention: str | Factory | None = None,
        dropout: float = 0.1,
        tied: str = "target",
        padding: int = 0,
    ) -> None:
        super().__init__()
        checks.known("decoder", decoder, DECODERS)
        checks.positive_ints("Seq2Seq", source_size=source_size, target_size=target_size, width=width, hidden=hidden)
        if encoder_hidden is None:
            encoder_hidden = hidden // 2 if bidirectional else hidden
            if bidirectional and hidden % 2:
                raise ValueError(
                    f"hidden must be even to be halved over two directions, got {hidden}; "
                    f"try hidden={hidden + 1} or give encoder_hidden"
                )
        self.source, self.target, self.output = embeddings(source_size, target_size, width, tied, padding)
        self.encoder = Encoder(
            width, encoder_hidden, layers=layers, cell=cell, bidirectional=bidirectional, dropout=dropout
        )
        decoder_class, default = DECODERS[decoder]
        sizes = {"layers": layers, "cell": cell, "dropout": dropout, "out_features": width}
        if default is None:
            if attention is not None:
                raise ValueError(
                    f"attention={attention!r} cannot be used with decoder='{decoder}', which does not attend; "
                    "choose decoder='bahdanau', 'luong' or 'luong-feeding', or leave attention out"
                )
            self.decoder = decoder_class(width, self.encoder.out_features, hidden, **sizes)
        else:
            attention = default if attention is None else attention
            if isinstance(attention, str):
                checks.known("attention", attention, MECHANISMS)
            factory = MECHANISMS[attention] if isinstance(attention, str) else attention
            try:
                self.decoder = decoder_class(width, self.encoder.out_features, hidden, attention=factory, **sizes)
            except IncompatibleAttention as error:
                raise ValueError(
                    f"attention={attention!r} does not fit decoder='{decoder}': {error}; "
                    "try attention='general' or attention='additive', which fit all of them"
                ) from error
        self.dropout = Dropout(dropout)

    @property
    def attends(self) -> bool:
        return self.decoder.attends

    def encode(self, source: Tensor, lengths: Tensor) -> EncoderOutput:  # "b s", "b"
        return self.encoder(self.dropout(self.source(source)), lengths)

    def teacher_force(self, source: Tensor, lengths: Tensor, target: Tensor, need: Need = NOTHING) -> DecoderOutput:
        y = self.dropout(self.target(target))
        encoded = self.encode(source, lengths)
        with observer.alignment_steps():
            output = self.decoder.teacher_force(y, encoded, lengths, need)
        return output._replace(states=self.dropout(output.states))

    def init_state(self, source: Tensor, lengths: Tensor, hypotheses: int = 1) -> RecurrentState:
        return self.decoder.init_state(self.encode(source, lengths), lengths, hypotheses)

    def step(self, tokens: Tensor, state: RecurrentState, weights: bool = False) -> Step:  # "b n" -> "b n v"
        decoder_step = self.decoder.step(DistinctTokens.of(tokens, self.target), state, weights)
        return Step(LazyLogits.of(self.output, decoder_step.out), decoder_step.state, decoder_step.weights)
