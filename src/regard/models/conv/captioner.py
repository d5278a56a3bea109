"""ConvCaptioner: captions an image with a convolutional decoder that attends to its annotation vectors."""

import math

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Need
from regard.attn.catalogue import Factory
from regard.attn.terms.position import Sinusoidal
from regard.common import checks
from regard.decoding.protocol import LazyLogits, Step
from regard.layers.conv.decoder import ConvolutionalDecoder, ConvSource, add_positions
from regard.layers.conv.gated_convolution import WeightNormLinear
from regard.layers.dropout import Dropout
from regard.layers.rnn.decoder_base import DecoderOutput
from regard.models.encoder_decoder import init_embedding
from regard.models.show_attend_tell.encoder import annotation_vectors, annotation_width
from regard.models.show_attend_tell.image_captioner import CaptionState, Grid, ImageCaptioner, spatial_keys


class ConvCaptioner(ImageCaptioner):
    """The decoder of ConvSeq2Seq over the annotation vectors of an image, z = W a + b  (Gehring et al. 2017).

    `encoder` is any module that returns a map "b d h w" or rows "b n d" of images, as ShowAttendTell takes it.
    `attention` is a name of MECHANISMS or a factory like those in it; keys and values are z, since a patch has no
    embedding. In training the gradient of z is multiplied by `encoder_gradient`, 1 / (2 layers) unless given. Positions
    of words are sinusoidal, so that no caption is too long. The alignment is the mean over the layers.
    """

    decoder: ConvolutionalDecoder

    def __init__(
        self,
        encoder: nn.Module,
        vocabulary: int,
        *,
        width: int = 64,
        hidden: int = 96,
        layers: int = 3,
        kernel: int = 3,
        attention: str | Factory = "dot",
        encoder_gradient: float | None = None,
        dropout: float = 0.0,
        padding: int = 0,
        example: Tensor | None = None,
    ) -> None:
        super().__init__()
        checks.positive_ints("ConvCaptioner", vocabulary=vocabulary, width=width)
        self.dropout = Dropout(dropout)
        self.encoder = encoder
        self.annotation_dim = annotation_width(encoder, example)
        self.annotation = WeightNormLinear(self.annotation_dim, width, std=self.annotation_dim**-0.5)
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=padding)
        self.place = Sinusoidal(width)
        self.decoder = ConvolutionalDecoder(width, hidden, layers, kernel, attention=attention, dropout=dropout)
        self.encoder_gradient = 1 / (2 * layers) if encoder_gradient is None else encoder_gradient
        self.output = nn.Linear(width, vocabulary)
        self.register_buffer("baseline", torch.tensor(-math.log(vocabulary)))
        init_embedding(self.embedding)

    def encode(self, images: Tensor) -> tuple[ConvSource, Grid | None]:  # "b …"
        a, grid = annotation_vectors(self.encoder(images), self.annotation_dim)
        z = self.annotation(a)
        if self.training:
            z = torch.lerp(z.detach(), z, self.encoder_gradient)
        return ConvSource(z, z, torch.full((len(a),), a.shape[1], device=a.device)), grid

    def teacher_force(
        self, images: Tensor, target: Tensor, need: Need = NOTHING
    ) -> DecoderOutput:  # "b …", "b t" -> "b t d"
        source, grid = self.encode(images)
        y = self.dropout(add_positions(self.embedding(target), self.place))
        with spatial_keys(grid):
            output = self.decoder.teacher_force(y, source, need)
        return output._replace(states=self.dropout(output.states))

    def init_state(self, images: Tensor) -> CaptionState:
        source, grid = self.encode(images)
        return CaptionState(self.decoder.init_state(source), grid)

    def step(self, tokens: Tensor, state: CaptionState, weights: bool = False) -> Step:  # "b n" -> "b n v"
        y = add_positions(self.embedding(tokens).unsqueeze(2), self.place, state.state.time).squeeze(2)
        with spatial_keys(state.grid):
            out, decoder_state, alignment = self.decoder.step(y, state.state, weights)
        return Step(LazyLogits.of(self.output, out), CaptionState(decoder_state, state.grid), alignment)
