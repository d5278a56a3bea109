"""ListenAttendSpell: a pyramidal encoder of sound and a recurrent decoder that attends to its states."""

import functools

import torch
from torch import Tensor, nn

from regard.attn.catalogue import Factory
from regard.attn.mechanisms.monotonic import ChunkwiseSoftmax, Monotonic
from regard.attn.terms.score import Additive, NormedAdditive
from regard.common import checks
from regard.layers.dropout import Dropout
from regard.layers.rnn.decoder_base import AttentionDecoder
from regard.layers.rnn.encoder import EncoderOutput
from regard.layers.rnn.pyramid import Pyramid
from regard.models.encoder_decoder import RecurrentEncoderDecoder, build_decoder, init_embedding


def _sure_monotonic(query: int, key: int, chunk: bool = False) -> Monotonic:
    """Monotonic attention whose stops are sure: a letter has few states, and a step that may stop at each of them with
    a chance below a half stops at none when it is decoded. More noise drives the chances to 0 and 1.
    """
    window = ChunkwiseSoftmax(Additive(query, key, query)) if chunk else None
    return Monotonic(NormedAdditive(query, key, query), chunk=window, offset=-2.0, noise=3.0)


# mechanisms that replace the entries of MECHANISMS
_ATTENTIONS: dict[str, Factory] = {
    "monotonic": _sure_monotonic,
    "mocha": functools.partial(_sure_monotonic, chunk=True),
}
# two numbers decide how sure all stops are, and must move as far as whole matrices do
_FAST = 20.0


class ListenAttendSpell(RecurrentEncoderDecoder):
    """p(y_t | y_<t, x) of frames x "b s m", by Pyramid and an attentional decoder  (Chan et al. 2016).

    `attention` is a name of MECHANISMS or a factory like those in it; None is "location-sensitive", or "monotonic" if
    the model is `online`. Every 2^`pyramid` frames are one state. The decoder attends before its step, as in Bahdanau
    et al. 2015 and Chorowski et al. 2015, and begins in a learned state that does not depend on the sound: an encoder
    of one direction (`online`) with a monotonic attention can write while it listens.
    """

    def __init__(
        self,
        frame_dim: int,
        vocabulary: int,
        *,
        width: int = 128,
        hidden: int = 256,
        encoder_hidden: int | None = None,
        pyramid: int = 2,
        cell: str = "gru",
        online: bool = False,
        attention: str | Factory | None = None,
        dropout: float = 0.1,
        padding: int = 0,
    ) -> None:
        super().__init__()
        checks.positive_ints("ListenAttendSpell", frame_dim=frame_dim, vocabulary=vocabulary, width=width)
        checks.positive_ints("ListenAttendSpell", hidden=hidden, pyramid=pyramid)
        if encoder_hidden is None:
            encoder_hidden = hidden if online else -(-hidden // 2)
        if attention is None:
            attention = "monotonic" if online else "location-sensitive"
        self.encoder = Pyramid(
            frame_dim, encoder_hidden, layers=pyramid, cell=cell, bidirectional=not online, dropout=dropout
        )
        self.target = nn.Embedding(vocabulary, width, padding_idx=padding)
        init_embedding(self.target)
        self.decoder = build_decoder(
            "bahdanau",
            _ATTENTIONS.get(attention, attention) if isinstance(attention, str) else attention,
            self.encoder.out_features,
            width=width,
            hidden=hidden,
            layers=1,
            cell=cell,
            dropout=dropout,
        )
        self.lr_multipliers: dict[str, float] = {}
        if isinstance(self.decoder, AttentionDecoder) and isinstance(self.decoder.attention, Monotonic):
            self.lr_multipliers = dict.fromkeys(["decoder.attention.offset", "decoder.attention.score.gain"], _FAST)
        self.start = nn.Parameter(torch.randn(self.encoder.out_features))
        self.output = nn.Linear(width, vocabulary)
        self.dropout = Dropout(dropout)

    def encode(self, source: Tensor, lengths: Tensor) -> EncoderOutput:  # "b s m", "b"
        return self.encoded(self.encoder(source, lengths))

    def encoded(self, states: Tensor) -> EncoderOutput:  # "b t k"
        """States of the encoder with the summary that the decoder begins with."""
        return EncoderOutput(states, self.start.expand(len(states), -1))

    def encoded_lengths(self, lengths: Tensor) -> Tensor:
        return self.encoder.lengths(lengths)
