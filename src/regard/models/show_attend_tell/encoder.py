"""Image encoders for captioning: annotation vectors from any encoder, and AnnotationEncoder, a small convolutional
one.
"""

import torch
from torch import Tensor, nn

from regard.common import checks
from regard.common.eval_mode import eval_mode
from regard.gates.catalogue import GateFactory, optional_gate

# attributes in which modules declare their output width
_WIDTH_ATTRIBUTES = ("out_features", "out_channels", "num_features")


class AnnotationEncoder(nn.Module):
    """a = relu(W₂ relu(W₁ [u; p])), u = pool(relu(conv(relu(conv(x))))), p = the position of a patch.

    An annotation vector stands for 4 × 4 pixels and sees only the 12 × 12 pixels around their centre. So that words for
    positions can be learned too, it also gets its position: p = x, y and the sine and cosine of their multiples, from
    −1 at one edge to 1 at the other (Liu et al. 2018). No vector depends on other images of the batch.
    `annotation` is the width of a vector, `channels` that of the first layer; the second has twice as many. `gate`, a
    name of GATES or a factory like those in it, weights the map u.
    """

    def __init__(
        self,
        image_channels: int,
        annotation: int = 64,
        *,
        channels: int = 32,
        gate: str | GateFactory | None = None,
    ) -> None:
        super().__init__()
        checks.positive_ints("AnnotationEncoder", image_channels=image_channels)
        checks.positive_ints("AnnotationEncoder", annotation=annotation, channels=channels)
        self.channels, self.out_features = image_channels, annotation
        self.first = nn.Conv2d(image_channels, channels, 6, stride=2, padding=2)
        self.second = nn.Conv2d(channels, 2 * channels, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.mixed = nn.Conv2d(2 * channels + _POSITION_CHANNELS, annotation, 1)
        self.last = nn.Conv2d(annotation, annotation, 1)
        for layer in (self.first, self.second, self.mixed, self.last):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
        make = optional_gate(gate)
        self.gate = nn.Identity() if make is None else make(2 * channels)

    def forward(self, x: Tensor) -> Tensor:  # "b c h w" -> "b d h/4 w/4"
        if x.ndim != 4 or x.shape[1] != self.channels:
            raise ValueError(
                f"images must be (images, {self.channels} channels, height, width), got {checks.shape(x)}; "
                "grey images have one channel, images.unsqueeze(1)"
            )
        if min(x.shape[2:]) < 4:
            raise ValueError(f"images must be 4 × 4 pixels or more, one patch, got {checks.shape(x)}; enlarge them")
        u = self.gate(self.pool(torch.relu(self.second(torch.relu(self.first(x))))))
        places = _position_codes(u).expand(len(u), -1, -1, -1)
        return torch.relu(self.last(torch.relu(self.mixed(torch.cat([u, places], 1)))))


# x, y, and sine and cosine of π and 2π times each
_POSITION_CHANNELS = 10


def _position_codes(u: Tensor) -> Tensor:  # "b c h w" -> "10 h w"
    """The positions of the cells of a map, between −1 and 1."""
    h, w = u.shape[2:]
    y, x = (torch.linspace(-1, 1, n, dtype=u.dtype, device=u.device) if n > 1 else u.new_zeros(1) for n in (h, w))
    coordinates = torch.stack([y[:, None].expand(h, w), x.expand(h, w)])  # "2 h w"
    waves = [wave(torch.pi * n * coordinates) for n in (1, 2) for wave in (torch.sin, torch.cos)]
    return torch.cat([coordinates, *waves])


def annotation_vectors(output: object, dim: int) -> tuple[Tensor, tuple[int, int] | None]:  # -> "b n d"
    """The annotation vectors in the output of an encoder, and the size of their grid."""
    a = _tensor(output)
    if a.shape[1 if a.ndim == 4 else 2] != dim:
        raise ValueError(
            f"the encoder gave annotation vectors of {checks.shape(a)}, but its declared width is {dim}; "
            "set its out_features, or give example, a batch of images"
        )
    return (a.flatten(2).transpose(1, 2), (a.shape[2], a.shape[3])) if a.ndim == 4 else (a, None)


def _tensor(output: object) -> Tensor:
    if not isinstance(output, Tensor) or output.ndim not in (3, 4):
        description = checks.shape(output) if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(
            'encoder must return a map "b d h w" or rows "b n d", got '
            f"{description}; wrap it in a module that returns one of them, before anything is pooled"
        )
    return output


def annotation_width(encoder: nn.Module, example: Tensor | None) -> int:
    """The width of the annotation vectors: as the encoder computes them for an example, or as it declares it."""
    if not isinstance(encoder, nn.Module):
        raise TypeError(
            f"encoder must be a module, got {type(encoder).__name__}; try AnnotationEncoder(image_channels=1)"
        )
    if example is None:
        for name in _WIDTH_ATTRIBUTES:
            if isinstance(declared := getattr(encoder, name, None), int):
                return declared
        raise ValueError(
            f"encoder {type(encoder).__name__} does not declare its width ({', '.join(_WIDTH_ATTRIBUTES)}); "
            "give example, a batch of images to call it with"
        )
    with eval_mode(encoder), torch.no_grad(), torch.random.fork_rng(devices=[]):
        output = _tensor(encoder(example))
    return output.shape[1 if output.ndim == 4 else 2]
