"""SpeechTransformer: convolutions that shorten frames of sound, and a Transformer over them."""

import math

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Need
from regard.common import checks
from regard.decoding.protocol import Step
from regard.layers.lengths import inside_lengths
from regard.layers.rnn.decoder_base import DecoderOutput
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.transformer import Transformer, TransformerState


class FrameConvolutions(nn.Module):
    """u = LayerNorm(relu(conv₂(relu(conv₁(x))))): every convolution halves the number of frames  (Dong et al. 2018)."""

    def __init__(self, frame_dim: int, width: int, *, layers: int = 2) -> None:
        super().__init__()
        checks.positive_ints("FrameConvolutions", frame_dim=frame_dim, width=width, layers=layers)
        self.layers = nn.ModuleList(
            nn.Conv1d(width if n else frame_dim, width, 3, stride=2, padding=1) for n in range(layers)
        )
        self.norm = nn.LayerNorm(width)

    def lengths(self, lengths: Tensor) -> Tensor:  # "b" -> "b"
        """The number of vectors of this many frames."""
        return -(-lengths // 2 ** len(self.layers))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:  # "b s m", "b" -> "b ⌈s/2ⁿ⌉ d"
        for layer in self.layers:
            # behind the end every convolution reads zeros, as it does behind the longest of a batch
            x = x * inside_lengths(lengths, x.shape[1]).unsqueeze(-1)
            x = torch.relu(layer(x.transpose(1, 2))).transpose(1, 2)
            lengths = (lengths + 1) // 2
        return self.norm(x)


class SpeechTransformer(EncoderDecoder):
    """p(y_t | y_<t, x) of frames x "b s m", by convolutions and a Transformer  (Dong et al. 2018).

    `attention` is a name of MECHANISMS for all heads. Every 2^`convolutions` frames are one vector.
    """

    def __init__(
        self,
        frame_dim: int,
        vocabulary: int,
        *,
        width: int = 128,
        layers: int = 3,
        decoder_layers: int | None = None,
        heads: int = 4,
        feed: int | None = None,
        convolutions: int = 2,
        attention: str = "scaled-dot",
        positions: str = "sinusoidal",
        dropout: float = 0.1,
        padding: int = 0,
    ) -> None:
        super().__init__()
        self.convolutions = FrameConvolutions(frame_dim, width, layers=convolutions)
        self.transformer = Transformer(
            None,
            vocabulary,
            width=width,
            layers=layers,
            decoder_layers=decoder_layers,
            heads=heads,
            feed=4 * width if feed is None else feed,
            attention=attention,
            positions=positions,
            dropout=dropout,
            padding=padding,
        )

    @property
    def output(self) -> nn.Linear:  # type: ignore[override]
        """The vocabulary layer."""
        return self.transformer.output

    def encoded_lengths(self, lengths: Tensor) -> Tensor:  # "b" -> "b"
        return self.convolutions.lengths(lengths)

    def teacher_force(self, source: Tensor, lengths: Tensor, target: Tensor, need: Need = NOTHING) -> DecoderOutput:
        return self.transformer.teacher_force(*self._vectors(source, lengths), target, need)

    def init_state(self, source: Tensor, lengths: Tensor, hypotheses: int = 1) -> TransformerState:
        return self.transformer.init_state(*self._vectors(source, lengths), hypotheses)

    def step(self, tokens: Tensor, state: TransformerState, weights: bool = False) -> Step:  # "b n" -> "b n v"
        return self.transformer.step(tokens, state, weights)

    def _vectors(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:  # "b s m", "b" -> "b t d", "b"
        # the Transformer multiplies what it reads by √d
        vectors = self.convolutions(source, lengths) / math.sqrt(self.transformer.width)
        return vectors, self.encoded_lengths(lengths)
