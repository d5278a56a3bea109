"""Seq2Seq: the recurrent encoder-decoder, without attention, with Bahdanau's or with Luong's."""

from torch import Tensor

from regard.attn.catalogue import Factory
from regard.common import checks
from regard.layers.dropout import Dropout
from regard.layers.rnn.encoder import Encoder, EncoderOutput
from regard.models.encoder_decoder import DECODERS, RecurrentEncoderDecoder, build_decoder, embeddings


class Seq2Seq(RecurrentEncoderDecoder):
    """p(y_t | y_<t, x) = softmax(W_o r_t + b), r_t of a recurrent decoder on a recurrent encoder.

    `decoder`: "bahdanau" attends before each step (Bahdanau et al. 2015), "luong" after it, all steps at once,
    "luong-feeding" after it, feeding the attentional vector to the next step (Luong et al. 2015), "fixed" does not
    attend: every step gets the encoder's last state (Cho et al. 2014); "initial" has it as its first state only
    (Sutskever et al. 2014), and "per-position" has one output per source position, without a decoder state. `cell` is
    "gru", "lstm" or "rnn". `attention` is a name of MECHANISMS or a factory like those in it; None is the paper's. The
    encoder is `bidirectional` unless the decoder is "initial" or "per-position", and has `encoder_hidden` units per
    direction; None halves `hidden`, so that keys are as wide as queries, which some mechanisms need. `tied` shares the
    target's embedding with the vocabulary layer ("target") and with the source's embedding too ("all").
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
        bidirectional: bool | None = None,
        encoder_hidden: int | None = None,
        decoder: str = "bahdanau",
        attention: str | Factory | None = None,
        dropout: float = 0.2,
        tied: str = "target",
        padding: int = 0,
    ) -> None:
        super().__init__()
        checks.known("decoder", decoder, DECODERS)
        checks.positive_ints("Seq2Seq", source_size=source_size, target_size=target_size, width=width, hidden=hidden)
        if bidirectional is None:
            bidirectional = decoder not in ("initial", "per-position")
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
        self.decoder = build_decoder(
            decoder,
            attention,
            self.encoder.out_features,
            width=width,
            hidden=hidden,
            layers=layers,
            cell=cell,
            dropout=dropout,
        )
        self.dropout = Dropout(dropout)

    @property
    def attends(self) -> bool:
        return self.decoder.attends

    def encode(self, source: Tensor, lengths: Tensor) -> EncoderOutput:  # "b s", "b"
        return self.encoder(self.dropout(self.source(source)), lengths)
