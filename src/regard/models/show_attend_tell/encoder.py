"""What a picture is turned into before it is told of: annotation vectors, by an encoder of one's own or by this one."""

import torch
from torch import Tensor, nn

from regard.attn import checks
from regard.common.eval_mode import eval_mode

# the attributes by which modules say how wide they are
_NAMES = ("out_features", "out_channels", "num_features")


class AnnotationEncoder(nn.Module):
    """a = relu(W₂ relu(W₁ [u; p])), u = pool(relu(conv(relu(conv(x))))), p = where a place lies.

    A place stands for 4 × 4 pixels and sees the 12 × 12 around their middle, no more: what it tells is what is there.
    So that words for places can be learned too, every place knows where it lies: p = x, y and the sine and cosine of
    their multiples, from −1 at one edge to 1 at the other (Liu et al. 2018). Nothing depends on the other pictures of a
    batch.
    """

    def __init__(self, channels: int, out_features: int, *, width: int = 32) -> None:
        super().__init__()
        checks.sizes("AnnotationEncoder", channels=channels, out_features=out_features, width=width)
        self.channels, self.out_features = channels, out_features
        self.first = nn.Conv2d(channels, width, 6, stride=2, padding=2)
        self.second = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.mixed = nn.Conv2d(2 * width + _PLACE, out_features, 1)
        self.last = nn.Conv2d(out_features, out_features, 1)
        for layer in (self.first, self.second, self.mixed, self.last):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:  # "b c h w" -> "b d h/4 w/4"
        if x.ndim != 4 or x.shape[1] != self.channels:
            raise ValueError(
                f"images must be (pictures, {self.channels} channels, height, width), got {checks.shape(x)}; "
                "grey pictures have one channel, images.unsqueeze(1)"
            )
        if min(x.shape[2:]) < 4:
            raise ValueError(f"images must be 4 × 4 pixels or more, a place each, got {checks.shape(x)}; enlarge them")
        u = self.pool(torch.relu(self.second(torch.relu(self.first(x)))))
        places = _places(u).expand(len(u), -1, -1, -1)
        return torch.relu(self.last(torch.relu(self.mixed(torch.cat([u, places], 1)))))


# x, y, and sine and cosine of one and two half turns of each
_PLACE = 10


def _places(u: Tensor) -> Tensor:  # "b c h w" -> "10 h w"
    """Where the places of a map lie, in numbers from −1 to 1."""
    h, w = u.shape[2:]
    y, x = (torch.linspace(-1, 1, n, dtype=u.dtype, device=u.device) if n > 1 else u.new_zeros(1) for n in (h, w))
    each = torch.stack([y[:, None].expand(h, w), x.expand(h, w)])  # "2 h w"
    turns = [turn(torch.pi * n * each) for n in (1, 2) for turn in (torch.sin, torch.cos)]
    return torch.cat([each, *turns])


def annotated(made: object, dim: int) -> tuple[Tensor, tuple[int, int] | None]:  # -> "b n d"
    """Annotation vectors out of what an encoder made, and how they lie."""
    a = _tensor(made)
    if a.shape[1 if a.ndim == 4 else 2] != dim:
        raise ValueError(
            f"the encoder gave annotation vectors of {checks.shape(a)}, and its width was said to be {dim}; "
            "let it tell its out_features, or give example, a batch of pictures"
        )
    return (a.flatten(2).transpose(1, 2), (a.shape[2], a.shape[3])) if a.ndim == 4 else (a, None)


def _tensor(made: object) -> Tensor:
    if not isinstance(made, Tensor) or made.ndim not in (3, 4):
        got = checks.shape(made) if isinstance(made, Tensor) else type(made).__name__
        raise ValueError(
            'encoder must make a map "b d h w" or rows "b n d" of pictures, got '
            f"{got}; wrap it in a module that returns one of them, before anything is pooled"
        )
    return made


def wide(encoder: nn.Module, example: Tensor | None) -> int:
    """How wide annotation vectors are: as the encoder makes them of an example, or as it says."""
    if not isinstance(encoder, nn.Module):
        raise TypeError(
            f"encoder must be a module, got {type(encoder).__name__}; try AnnotationEncoder(channels=1, out_features=96)"
        )
    if example is None:
        for name in _NAMES:
            if isinstance(said := getattr(encoder, name, None), int):
                return said
        raise ValueError(
            f"encoder {type(encoder).__name__} does not say how wide it is ({', '.join(_NAMES)}); "
            "give example, a batch of pictures to call it with"
        )
    with eval_mode(encoder), torch.no_grad(), torch.random.fork_rng(devices=[]):
        made = _tensor(encoder(example))
    return made.shape[1 if made.ndim == 4 else 2]
