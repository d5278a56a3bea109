"""ConvSeq2Seq: the convolutional encoder-decoder of Gehring et al., with its attention as an argument."""

import math

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Need
from regard.attn.catalogue import Factory
from regard.attn.terms.position import LearnedPositions, Sinusoidal
from regard.common import checks
from regard.decoding.protocol import LazyLogits, Step
from regard.layers.conv.decoder import ConvolutionalDecoder, ConvSource, ConvState, add_positions
from regard.layers.conv.gated_convolution import HALF, GatedConvolution, WeightNormLinear
from regard.layers.dropout import Dropout
from regard.layers.lengths import inside_lengths
from regard.layers.rnn.decoder_base import DecoderOutput
from regard.models.encoder_decoder import EncoderDecoder, check_learned_positions, embeddings

POSITIONS = ("learned", "sinusoidal")


class ConvSeq2Seq(EncoderDecoder):
    """Encoder and decoder of gated convolutions, with attention in every layer of the decoder  (Gehring et al. 2017).

    `width` is that of embeddings and of the attention, `hidden` that of the convolutions, `kernel` their number of
    positions, which is odd: an encoder looks as far back as ahead. `attention` is a name of MECHANISMS or a factory
    like those in it; its keys are the outputs z of the encoder, its values √½ (z + e) with the embeddings e.
    `positions` are added to the embeddings. In training the gradient of the encoder's outputs is multiplied by
    `encoder_gradient`, 1 / (2 decoder layers) unless given: every layer of the decoder adds to it. The alignment is the
    mean over the layers. Embeddings start with the variance 1 / width, since `tied` shares them with the vocabulary
    layer; the paper, which does not, has 0.01.
    """

    def __init__(
        self,
        source_size: int,
        target_size: int,
        *,
        width: int = 256,
        hidden: int = 256,
        layers: int = 4,
        decoder_layers: int | None = None,
        kernel: int = 3,
        attention: str | Factory = "dot",
        positions: str = "learned",
        longest: int = 512,
        encoder_gradient: float | None = None,
        dropout: float = 0.2,
        tied: str = "target",
        padding: int = 0,
    ) -> None:
        super().__init__()
        checks.known("positions", positions, POSITIONS)
        decoder_layers = layers if decoder_layers is None else decoder_layers
        checks.positive_ints("ConvSeq2Seq", source_size=source_size, target_size=target_size, width=width)
        checks.positive_ints("ConvSeq2Seq", hidden=hidden, layers=layers, decoder_layers=decoder_layers)
        checks.positive_ints("ConvSeq2Seq", kernel=kernel, longest=longest)
        if kernel % 2 == 0:
            raise ValueError(
                f"kernel must be odd, so that the encoder looks as far back as ahead, got {kernel}; "
                f"try kernel={kernel + 1}"
            )
        self.dropout = Dropout(dropout)
        self.source, self.target, self.output = embeddings(source_size, target_size, width, tied, padding)
        self.source_place, self.target_place = (_places(positions, longest, width) for _ in range(2))
        self.longest = longest if positions == "learned" else None
        self.encoder_gradient = 1 / (2 * decoder_layers) if encoder_gradient is None else encoder_gradient
        self.encoder_first = WeightNormLinear(width, hidden, std=math.sqrt((1 - dropout) / width))
        self.encoder = nn.ModuleList(GatedConvolution(hidden, kernel, dropout=dropout) for _ in range(layers))
        self.encoder_last = WeightNormLinear(hidden, width, std=hidden**-0.5)
        self.decoder = ConvolutionalDecoder(width, hidden, decoder_layers, kernel, attention=attention, dropout=dropout)

    def encode(self, source: Tensor, lengths: Tensor) -> ConvSource:  # "b s", "b"
        check_learned_positions(self.longest, "source", source.shape[1])
        e = self.dropout(add_positions(self.source(source), self.source_place))
        is_token = inside_lengths(lengths, source.shape[1]).unsqueeze(-1)
        x = self.encoder_first(e)
        for layer in self.encoder:
            side = layer.kernel // 2  # type: ignore[operator]
            # a convolution must see zeros behind the sentence
            x = (layer(x * is_token, side, side) + x) * HALF
        z = self.encoder_last(x)
        if self.training:
            z = torch.lerp(z.detach(), z, self.encoder_gradient)
        return ConvSource(z, (z + e) * HALF, lengths)

    def teacher_force(self, source: Tensor, lengths: Tensor, target: Tensor, need: Need = NOTHING) -> DecoderOutput:
        check_learned_positions(self.longest, "target", target.shape[1])
        y = self.dropout(add_positions(self.target(target), self.target_place))
        output = self.decoder.teacher_force(y, self.encode(source, lengths), need)
        return output._replace(states=self.dropout(output.states))

    def init_state(self, source: Tensor, lengths: Tensor, hypotheses: int = 1) -> ConvState:
        return self.decoder.init_state(self.encode(source, lengths))

    def step(self, tokens: Tensor, state: ConvState, weights: bool = False) -> Step:  # "b n" -> "b n v"
        check_learned_positions(self.longest, "target", state.time + 1)
        y = add_positions(self.target(tokens).unsqueeze(2), self.target_place, state.time).squeeze(2)
        out, state, alignment = self.decoder.step(y, state, weights)
        return Step(LazyLogits.of(self.output, out), state, alignment)


def _places(positions: str, longest: int, width: int) -> LearnedPositions | Sinusoidal:
    if positions == "sinusoidal":
        return Sinusoidal(width)
    places = LearnedPositions(longest, width)
    nn.init.normal_(places.table.weight, std=width**-0.5)
    return places
