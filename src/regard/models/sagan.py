"""SelfAttentionGAN: a class-conditional generator and discriminator with self-attention over feature maps."""

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parametrizations

from regard.common import checks
from regard.common.weight_averaging import can_average
from regard.gates.catalogue import GateFactory, optional_gate
from regard.gates.non_local import NonLocal

# maps between noise and image: a quarter of its size, half of it, all of it
_MAPS = 3
# the number of the feature map that the attention block reads
MAPS: dict[str, int | None] = {"none": None, "quarter": 0, "half": 1, "whole": 2}


class ConditionalBatchNorm(nn.Module):
    """γ_y (x − μ) / √(σ² + ε) + β_y: scale and shift of each class  (Dumoulin et al. 2017; de Vries et al. 2017)."""

    # one vector per class: weight decay must not pull them to zero, as for the parameters of other norms
    no_weight_decay = ("scale", "shift")

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, affine=False)
        self.scale = nn.Parameter(torch.ones(classes, channels))
        self.shift = nn.Parameter(torch.zeros(classes, channels))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:  # "b c h w", "b" -> "b c h w"
        return self.norm(x) * self.scale[y][:, :, None, None] + self.shift[y][:, :, None, None]


def _spectral_norm(layer: nn.Module) -> nn.Module:
    """The layer with W / σ(W) for its weight, σ the largest singular value  (Miyato et al. 2018)."""
    # on the meta device, where only sizes count, the power iterations at the start would take seconds
    return layer if next(layer.parameters()).is_meta else parametrizations.spectral_norm(layer)


def _conv(before: int, after: int, kernel: int) -> nn.Module:
    """A convolution that keeps the size of a map, with spectral normalization."""
    conv = nn.Conv2d(before, after, kernel, padding=kernel // 2)
    nn.init.xavier_uniform_(conv.weight)
    assert conv.bias is not None
    nn.init.zeros_(conv.bias)
    return _spectral_norm(conv)


def _attention(channels: int) -> NonLocal:
    """x + γ W_o attention(W_q x, W_k x, W_v x), γ = 0 at first, with spectral normalization."""
    block = NonLocal(channels)
    for layer in (block.query, block.key, block.value, block.out):
        _spectral_norm(layer)
    return block


class GeneratorBlock(nn.Module):
    """up(W_s x) + conv(relu(cbn(conv(up(relu(cbn(x)))))))  (Miyato & Koyama 2018, fig. 14b): twice as high and wide."""

    def __init__(self, before: int, after: int, classes: int) -> None:
        super().__init__()
        self.first_norm = ConditionalBatchNorm(before, classes)
        self.first = _conv(before, after, 3)
        self.second_norm = ConditionalBatchNorm(after, classes)
        self.second = _conv(after, after, 3)
        self.skip = _conv(before, after, 1)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:  # "b c h w", "b" -> "b d 2h 2w"
        hidden = self.first(_upsample(torch.relu(self.first_norm(x, y))))
        return _upsample(self.skip(x)) + self.second(torch.relu(self.second_norm(hidden, y)))


class DiscriminatorBlock(nn.Module):
    """mean₂(W_s x) + mean₂(conv(relu(conv(relu(x)))))  (Miyato & Koyama 2018, fig. 14a): half as high and wide."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.first = _conv(before, before, 3)
        self.second = _conv(before, after, 3)
        self.skip = _conv(before, after, 1)

    def forward(self, x: Tensor) -> Tensor:  # "b c h w" -> "b d h/2 w/2"
        return F.avg_pool2d(self.skip(x) + self.second(torch.relu(self.first(torch.relu(x)))), 2)


def _gates(gate: str | GateFactory | None, widths: Sequence[int]) -> nn.ModuleList:
    """One gate per map; None has no effect."""
    make = optional_gate(gate)
    return nn.ModuleList(nn.Identity() if make is None else make(width) for width in widths)


def _upsample(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2.0, mode="nearest")


class Generator(nn.Module):
    """x = tanh(conv(relu(norm(block(… W z)))), with an attention block after one of the maps  (Zhang et al. 2019)."""

    def __init__(
        self,
        size: int,
        channels: int,
        classes: int,
        *,
        noise: int,
        width: int,
        place: int | None,
        gate: str | GateFactory | None = None,
    ) -> None:
        super().__init__()
        self.noise, self.start, self.place = noise, size // 4, place
        widths = [4 * width, 2 * width, width]
        self.first = _spectral_norm(nn.Linear(noise, widths[0] * self.start**2))
        self.blocks = nn.ModuleList([GeneratorBlock(a, b, classes) for a, b in itertools.pairwise(widths)])
        self.attention = nn.Identity() if place is None else _attention(widths[place])
        self.norm = nn.BatchNorm2d(width)
        self.last = _conv(width, channels, 3)
        self.gates = _gates(gate, widths)

    def forward(self, z: Tensor, y: Tensor) -> Tensor:  # "b z", "b" -> "b c h w" between −1 and 1
        x = self.first(z).unflatten(1, (-1, self.start, self.start))
        for n in range(_MAPS):
            x = self.gates[n](self.blocks[n - 1](x, y) if n else x)
            x = self.attention(x) if n == self.place else x
        return torch.tanh(self.last(torch.relu(self.norm(x))))


class Discriminator(nn.Module):
    """D(x, y) = (u + v_y) · Σ relu(φ(x)) + b: the projection discriminator  (Miyato & Koyama 2018, eq. 3).

    φ mirrors the generator, with an attention block after the map of the same size.
    """

    def __init__(
        self,
        size: int,
        channels: int,
        classes: int,
        *,
        width: int,
        place: int | None,
        gate: str | GateFactory | None = None,
    ) -> None:
        super().__init__()
        self.channels, self.size, self.place = channels, size, None if place is None else _MAPS - 1 - place
        widths = [width, 2 * width, 4 * width]
        self.first = _conv(channels, width, 3)
        self.blocks = nn.ModuleList([DiscriminatorBlock(a, b) for a, b in itertools.pairwise(widths)])
        self.attention = nn.Identity() if self.place is None else _attention(widths[self.place])
        self.real = _spectral_norm(nn.Linear(widths[-1], 1))
        self.of_class = _spectral_norm(nn.Embedding(classes, widths[-1]))
        self.gates = _gates(gate, widths)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:  # "b c h w", "b" -> "b"
        if x.ndim != 4 or tuple(x.shape[1:]) != (self.channels, self.size, self.size):
            expected = f"{self.channels} channels, {self.size}, {self.size}"
            raise ValueError(f"x must be (images, {expected}), got {checks.shape(x)}; scale the images to that size")
        x = self.first(x)
        for n in range(_MAPS):
            x = self.gates[n](self.blocks[n - 1](x) if n else x)
            x = self.attention(x) if n == self.place else x
        features = torch.relu(x).sum((2, 3))  # "b d"
        return self.real(features).squeeze(1) + (self.of_class(y) * features).sum(1)


class SelfAttentionGAN(nn.Module):
    """min_D E[relu(1 − D(x, y))] + E[relu(1 + D(G(z, y), y))], min_G −E[D(G(z, y), y)]  (Zhang et al. 2019, eq. 4).

    Every matrix of G and D, gates aside, has the largest singular value one; y enters G by conditional batch norm and D
    by a projection. `attention` is the map after which the attention block stands: a "quarter", "half" or the "whole"
    of `size`; "none" leaves it out. `faster` is the learning rate of D in multiples of that of G. `gate`, a name of
    GATES or a factory like those in it, weights every map of both networks.
    model(z, y) generates with `average`: the generator whose weights are an exponential moving average of the trained
    ones, which makes better images  (Yazıcı et al. 2019).
    """

    # two time scales: the discriminator learns four times as fast  (Zhang et al. 2019, 4.2; Heusel et al. 2017)
    lr_multipliers: Mapping[str, float]

    def __init__(
        self,
        size: int,
        channels: int,
        classes: int,
        *,
        noise: int = 64,
        width: int = 16,
        attention: str = "whole",
        faster: float = 8.0,
        gate: str | GateFactory | None = None,
    ) -> None:
        super().__init__()
        checks.positive_ints(
            "SelfAttentionGAN", size=size, channels=channels, classes=classes, noise=noise, width=width
        )
        if size % 4:
            raise ValueError(
                f"size must be a multiple of 4 for SelfAttentionGAN, which doubles a map twice, got {size}; "
                f"try size={size + 4 - size % 4}"
            )
        checks.known("attention", attention, MAPS)
        place = MAPS[attention]
        self.noise, self.classes = noise, classes
        self.lr_multipliers = {"generator": 1.0, "discriminator": faster}
        self.generator = Generator(size, channels, classes, noise=noise, width=width, place=place, gate=gate)
        self.discriminator = Discriminator(size, channels, classes, width=width, place=place, gate=gate)
        self.average = copy.deepcopy(self.generator).requires_grad_(False)

    def forward(self, z: Tensor, y: Tensor) -> Tensor:  # "b z", "b" -> "b c h w" between −1 and 1
        self._check(z, y)
        return self.average(z, y)

    def draw(self, z: Tensor, y: Tensor) -> Tensor:
        """The images of the trained generator."""
        self._check(z, y)
        return self.generator(z, y)

    def frozen_discriminator(self) -> Callable[[Tensor, Tensor], Tensor]:
        """The discriminator with detached parameters: its input gets a gradient, its parameters get none."""
        parameters = {name: p.detach() for name, p in self.discriminator.named_parameters()}
        return lambda x, y: functional_call(self.discriminator, parameters, (x, y))

    @torch.no_grad()
    def update_ema(self, decay: float) -> None:
        """average ← decay · average + (1 − decay) · generator, including its running statistics."""
        current = self.generator.state_dict()
        for name, average in self.average.state_dict().items():
            if can_average(name, average):
                average.lerp_(current[name], 1 - decay)
            else:
                average.copy_(current[name])

    def _check(self, z: Tensor, y: Tensor) -> None:
        if z.ndim != 2 or z.shape[1] != self.noise:
            raise ValueError(f"z must be (images, {self.noise} numbers), got {checks.shape(z)}; try torch.randn")
        if y.shape != z.shape[:1] or y.is_floating_point():
            raise ValueError(
                f"y must be one integer per image, {len(z)} of them, got {y.dtype} {checks.shape(y)}; "
                "give the class of each"
            )
        if len(y) and not 0 <= int(y.min()) <= int(y.max()) < self.classes:
            raise ValueError(
                f"y must be classes from 0 to {self.classes - 1}, got {int(y.min())} to {int(y.max())}; "
                "build the model for as many classes as there are"
            )
