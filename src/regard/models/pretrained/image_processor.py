"""preprocessor_config.json of released models of images: the size, the filter and the numbers that they read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.models.pretrained.folder import CheckpointConfig, read_json

PROCESSOR = "preprocessor_config.json"
# the numbers of filters, which pillow gave them
_RESAMPLING = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
# steps that change an image in other ways, and are not supported
_OTHERS = ("do_center_crop", "do_pad", "do_flip_channel_order", "do_thumbnail", "do_align_long_axis")


class NormalizedImages(nn.Module):
    """model((s x − μ) / σ), with a mean μ and a standard deviation σ per channel; x is from 0 to 1."""

    mean: Tensor  # "c 1 1"
    std: Tensor  # "c 1 1"

    def __init__(self, model: nn.Module, scale: float, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.model, self.scale = model, scale
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32)[:, None, None])
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32)[:, None, None])

    def forward(self, images: Tensor) -> Any:  # "b c h w"
        return self.model((self.scale * images - self.mean) / self.std)


@dataclass(frozen=True)
class ImageProcessor:
    """The steps from images to the input of a model."""

    resample: str  # the filter
    scale: float  # factor of values from 0 to 1
    mean: tuple[float, ...]  # per channel
    std: tuple[float, ...]

    def normalize(self, model: nn.Module) -> NormalizedImages:
        """The model of images from 0 to 1."""
        return NormalizedImages(model, self.scale, self.mean, self.std)


def load_image_processor(config: CheckpointConfig, image: tuple[int, int], channels: int) -> ImageProcessor:
    """The processor of a folder, whose model reads images of this height and width; raises if it makes others."""
    path = config.folder / PROCESSOR
    if not path.exists():
        raise FileNotFoundError(
            f"{config.folder} holds no {PROCESSOR}, which says how its model reads images; "
            "save it there with the image processor's save_pretrained"
        )
    values = read_json(path)
    for key in _OTHERS:
        if values.get(key):
            raise ValueError(f"{path} has {key}=true, and regard resizes, rescales and normalizes only; take another")
    if values.get("do_resize", True) is not True or _size(values.get("size")) != image:
        raise ValueError(
            f"{path} must resize images to the {image[0]} × {image[1]} pixels (height × width) of its config.json, got "
            f"do_resize={values.get('do_resize', True)!r} and size={values.get('size')!r}; restore the file"
        )
    resample = values.get("resample", 2)
    if not isinstance(resample, int) or resample not in _RESAMPLING:
        raise ValueError(f"{path} has resample={resample!r}, and the filters are {_RESAMPLING}; correct it")
    entries = CheckpointConfig(config.folder, values, PROCESSOR)
    scale = 255 * entries.number("rescale_factor", 1 / 255) if values.get("do_rescale", True) else 255.0
    normalizes = values.get("do_normalize", True)
    mean = _channels(entries, "image_mean", channels) if normalizes else (0.0,) * channels
    std = _channels(entries, "image_std", channels) if normalizes else (1.0,) * channels
    if 0.0 in std:
        raise ValueError(f"{path} has image_std={values['image_std']!r}, and none of it may be 0; correct it")
    return ImageProcessor(_RESAMPLING[resample], scale, mean, std)


def _size(value: Any) -> tuple[Any, Any]:
    """Height and width, which older files write as one number."""
    return (value.get("height"), value.get("width")) if isinstance(value, dict) else (value, value)


def _channels(entries: CheckpointConfig, key: str, channels: int) -> tuple[float, ...]:
    """One number per channel."""
    values = entries.values.get(key)
    if not isinstance(values, list) or len(values) != channels:
        raise ValueError(
            f"{key} of {entries.folder / PROCESSOR} must be {channels} numbers, one per channel, got {values!r}; "
            "correct it"
        )
    return tuple(replace(entries, values={key: value}).number(key) for value in values)
