"""saliency: the conspicuous places of a picture by centre-surround differences, without learning."""

import math
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.common import checks
from regard.kernels.precision import widen

# levels below the picture, centres and their distances to surrounds  (Itti, Koch and Niebur 1998, section 2.1)
_DEPTH, _FIRST_CENTRE, _CENTRES, _SURROUNDS = 8, 2, 3, (3, 4)
# the shortest side that has a surround
_SMALLEST = 5
# directions of lines in degrees, anticlockwise from horizontal
ANGLES = (0, 45, 90, 135)
# pixels of a Gabor filter and of its wave, and the deviation of its bell, which the paper leaves open
_GABOR_SIZE, _WAVELENGTH, _DEVIATION = 9, 3.0, 1.5
# local maxima below this share of the greatest are none
_LEAST_PEAK = 0.1
# colours count where the intensity is above this share of the greatest  (section 2.1)
_LEAST_INTENSITY = 0.1
# a map whose range is below this many rounding errors of its input is flat
_ROUNDINGS = 256


@dataclass(frozen=True, eq=False)
class Saliency:
    """The saliency of a picture and the three maps that it is the mean of, each "*b h w", from 0.

    The maps have the size of the coarsest centre: a sixteenth of the height and width of a large picture.
    """

    map: Tensor  # mean of the three below, each promoted if it has few peaks
    intensity: Tensor
    colour: Tensor
    orientation: Tensor
    size: tuple[int, int]  # height and width of the picture
    level: int  # level of the pyramid: a place of the maps is 2^level pixels

    def enlarged(self) -> "Saliency":
        """The same maps in the size of the picture, interpolated linearly."""
        if not self.level:
            return self
        maps = {
            field.name: resample(getattr(self, field.name), self.size, 2**self.level)
            for field in fields(self)
            if field.name not in ("size", "level")
        }
        return Saliency(**maps, size=self.size, level=0)


def saliency(picture: Tensor) -> Saliency:  # "*b c h w" or "h w"
    """S = (N(Ī) + N(C̄) + N(Ō))/3: places that differ from their surroundings  (Itti, Koch and Niebur 1998).

    Intensity, the opponents red-green and blue-yellow, and four orientations are compared between the centres 2, 3 and
    4 of a Gaussian pyramid and surrounds three and four levels coarser; N promotes maps with one strong peak. A
    picture of fewer than 129 pixels in height or width has fewer than nine levels: its centres begin at a finer level,
    and pairs without a surround are left out. Nothing is learned, and the scale of the values does not matter.
    """
    pixels = _as_pixels(picture)  # "b c h w"
    height, width = pixels.shape[-2:]
    depth = min(_DEPTH, math.ceil(math.log2(min(height, width))))
    first = max(0, min(_FIRST_CENTRE, depth - _CENTRES + 1 - _SURROUNDS[-1]))
    pairs = [
        (c, c + distance) for c in range(first, first + _CENTRES) for distance in _SURROUNDS if c + distance <= depth
    ]
    level = max(c for c, _ in pairs)
    intensity = pixels.mean(1)
    scale = intensity.amax((-2, -1), keepdim=True)
    brightness = pyramid(intensity, depth)
    intensities = conspicuity([brightness], pairs, level, scale)
    colours = (
        conspicuity([pyramid(opponent, depth) for opponent in opponents(pixels)], pairs, level, torch.ones_like(scale))
        if pixels.shape[1] == 3
        else torch.zeros_like(intensities)
    )
    orientations = torch.zeros_like(intensities)
    for angle in ANGLES:
        lines = [gabor_energy(values, angle) if n >= first else values for n, values in enumerate(brightness)]
        orientations = orientations + promote(conspicuity([lines], pairs, level, scale))
    maps = [intensities, colours, orientations]
    combined = torch.stack([promote(each) for each in maps]).mean(0)
    leading = picture.shape[:-3]
    saliencies = [each.reshape(*leading, *each.shape[-2:]) for each in (combined, *maps)]
    return Saliency(saliencies[0], saliencies[1], saliencies[2], saliencies[3], (height, width), level)


def opponents(pixels: Tensor) -> tuple[Tensor, Tensor]:  # "b 3 h w" -> two of "b h w"
    """R − G and B − Y of colours divided by their intensity; zero where a pixel is dark.

    R = r − (g + b)/2, G = g − (r + b)/2, B = b − (r + g)/2, Y = (r + g)/2 − |r − g|/2 − b, each 0 where negative.
    """
    intensity = pixels.mean(1, keepdim=True)
    is_bright = intensity > _LEAST_INTENSITY * intensity.amax((-2, -1), keepdim=True)
    r, g, b = torch.where(is_bright, pixels / torch.where(is_bright, intensity, 1.0), 0.0).unbind(1)
    red, green, blue = (r - (g + b) / 2).relu(), (g - (r + b) / 2).relu(), (b - (r + g) / 2).relu()
    yellow = ((r + g) / 2 - (r - g).abs() / 2 - b).relu()
    return red - green, blue - yellow


def pyramid(values: Tensor, depth: int) -> list[Tensor]:  # "b h w"
    """The values and `depth` coarser levels, each smoothed and of half the height and width, rounded up."""
    levels = [values]
    for _ in range(depth):
        levels.append(reduce(levels[-1]))
    return levels


def reduce(values: Tensor) -> Tensor:  # "b h w" -> "b ⌈h/2⌉ ⌈w/2⌉"
    """Every second place after smoothing by (1, 4, 6, 4, 1)/16 in both directions; the border is continued."""
    bell = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0], dtype=values.dtype, device=values.device) / 16
    padded = F.pad(values.unsqueeze(1), (2, 2, 2, 2), mode="replicate")
    rows = F.conv2d(padded, bell.view(1, 1, 5, 1), stride=(2, 1))
    return F.conv2d(rows, bell.view(1, 1, 1, 5), stride=(1, 2)).squeeze(1)


def gabor_energy(values: Tensor, angle: float) -> Tensor:  # "b h w" -> "b h w"
    """√(even² + odd²) of a Gabor filter: how strongly lines in the direction of the angle stand out."""
    half = _GABOR_SIZE // 2
    filters = gabor_filters(angle, values)
    padded = F.pad(values.unsqueeze(1), (half, half, half, half), mode="replicate")
    even, odd = F.conv2d(padded, filters.unsqueeze(1)).unbind(1)
    squares = even.square() + odd.square()
    # a root has no finite slope at zero
    return torch.where(squares > 0, torch.where(squares > 0, squares, 1.0).sqrt(), 0.0)


def gabor_filters(angle: float, like: Tensor) -> Tensor:  # "2 n n"
    """exp(−(x² + y²)/2σ²) cos(2πu/λ) and sin(2πu/λ), u across the line; their mean is 0, the sum of their sizes 1."""
    half = _GABOR_SIZE // 2
    offsets = torch.arange(-half, half + 1, dtype=like.dtype, device=like.device)
    y, x = torch.meshgrid(offsets, offsets, indexing="ij")
    radians = math.radians(angle)
    # y grows downwards
    across = x * math.sin(radians) + y * math.cos(radians)
    bell = torch.exp(-(x.square() + y.square()) / (2 * _DEVIATION**2))
    phase = 2 * math.pi * across / _WAVELENGTH
    filters = torch.stack([bell * phase.cos(), bell * phase.sin()])
    filters = filters - filters.mean((-2, -1), keepdim=True)
    return filters / filters.abs().sum((-2, -1), keepdim=True)


def conspicuity(pyramids: list[list[Tensor]], pairs: list[tuple[int, int]], level: int, scale: Tensor) -> Tensor:
    """Σ N(|centre − surround|) over pyramids and pairs of levels, each reduced to `level`: "b h w".

    `scale` is the greatest value that the pyramids may have: differences within its rounding are none.
    """
    total = torch.zeros_like(pyramids[0][level])
    for levels in pyramids:
        for centre, surround in pairs:
            values = levels[centre]
            around = resample(levels[surround], (values.shape[-2], values.shape[-1]), 2 ** (surround - centre))
            difference = promote((values - around).abs(), scale)
            for _ in range(level - centre):
                difference = reduce(difference)
            total = total + difference
    return total


def resample(values: Tensor, size: tuple[int, int], factor: int) -> Tensor:  # "*b h w" -> "*b H W"
    """Linear interpolation: the value at row i and column j is the one at row i/factor and column j/factor."""
    rows, columns = (
        _interpolation(few, many, factor, values) for few, many in zip(values.shape[-2:], size, strict=True)
    )
    return rows @ values @ columns.mT


def _interpolation(few: int, many: int, factor: int, like: Tensor) -> Tensor:  # "many few"
    """Row i has the weights 1 − |i/factor − j|, of the last place beyond the end."""
    places = (torch.arange(many, dtype=like.dtype, device=like.device) / factor).clamp_max(few - 1)
    return (1 - (places.unsqueeze(1) - torch.arange(few, dtype=like.dtype, device=like.device)).abs()).clamp_min(0)


def promote(values: Tensor, scale: Tensor | None = None) -> Tensor:  # "b h w" -> "b h w"
    """N: from 0 to 1, times (1 − m̄)², m̄ the mean of the local maxima besides the greatest  (section 2.2).

    A local maximum is at least as great as its eight neighbours and a tenth of the greatest. A flat map becomes zeros.
    """
    low, high = values.amin((-2, -1), keepdim=True), values.amax((-2, -1), keepdim=True)
    span = high - low
    bound = 0.0 if scale is None else _ROUNDINGS * torch.finfo(values.dtype).eps * scale
    is_flat = span <= bound
    normalized = torch.where(is_flat, 0.0, (values - low) / torch.where(is_flat, 1.0, span))
    around = F.max_pool2d(normalized.unsqueeze(1), 3, stride=1, padding=1).squeeze(1)
    is_peak = (normalized == around) & (normalized >= _LEAST_PEAK)
    count = is_peak.sum((-2, -1), keepdim=True)
    total = torch.where(is_peak, normalized, 0.0).sum((-2, -1), keepdim=True)
    others = (total - 1) / (count - 1).clamp_min(1)
    return normalized * (1 - torch.where(count > 1, others, 0.0)).square()


def _as_pixels(picture: Tensor) -> Tensor:  # -> "b c h w"
    """The picture in float32 or float64, from 0 to 1; raises for anything that is no picture."""
    if not isinstance(picture, Tensor):
        raise TypeError(f"picture must be a tensor, got {type(picture).__name__}; wrap it in torch.as_tensor")
    if picture.is_complex() or picture.dtype == torch.bool:
        raise TypeError(f"picture must have real numbers, got {picture.dtype}; call picture.float()")
    shape = picture.shape if picture.ndim != 2 else (1, *picture.shape)
    if len(shape) < 3 or shape[-3] not in (1, 3):
        raise ValueError(
            f"picture must be (height, width) or have 1 or 3 channels before them, got {checks.shape(picture)}; "
            "move channels there with picture.movedim(-1, -3)"
        )
    if min(shape[-2:]) < _SMALLEST:
        raise ValueError(
            f"picture must be at least {_SMALLEST} pixels high and wide to have a surround, got "
            f"{shape[-2]} × {shape[-1]}; enlarge it"
        )
    wide = widen(picture) if picture.is_floating_point() else picture.float()
    if not bool(((wide >= 0) & wide.isfinite()).all()):
        raise ValueError(
            "picture must have finite values from 0, got others; undo its normalisation, or pass picture.clamp_min(0)"
        )
    pixels = wide.reshape(-1, *shape[-3:])
    # squares of very large or small values have no room
    greatest = pixels.amax((-3, -2, -1), keepdim=True)
    return pixels / torch.where(greatest > 0, greatest, 1.0)
