"""Reads image files, or their bytes, into arrays. No torch here."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.common import memory

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

# suffixes of image files
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
# the formats that are read; pillow knows more, one of which it hands to another program
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
# filters to resize with, as pillow names them
RESAMPLING = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
_GREY = ("1", "L", "LA", "La")
# modes without a known black and white, except "I" in files of the 16-bit formats, where it is 16-bit grey
_WIDE_MODES, _GREY16_FORMATS = ("I", "F"), ("PNG", "PPM")
_PIXELS_PER_STRIP = 1 << 20


def read_size(
    source: Path | bytes, *, name: str | None = None, formats: tuple[str, ...] = FORMATS
) -> tuple[int, int]:  # width, height
    """The size that the first bytes of an image declare; no pixel is decoded."""
    with _open(source, name, formats) as image:
        return image.width, image.height


def read(
    source: Path | bytes,
    *,
    size: tuple[int, int] | None = None,
    resample: str = "bilinear",
    mode: str | None = None,
    name: str | None = None,
    formats: tuple[str, ...] = FORMATS,
) -> "NDArray[np.uint8]":  # "h w c"
    """The first image of a file or of its bytes, upright, on white where it is transparent.

    `size` is (width, height) to resize to, `resample` the filter, a name of RESAMPLING. `mode` is "L" or "RGB"; without
    one, a grey image is "L" and any other "RGB". `name` names the image in errors, and `formats` are the formats that
    are read, as pillow names them.
    """
    with _open(source, name, formats) as opened:
        return _pixels(opened, _label(source, name), size, resample, mode)


def read_frames(
    source: Path | bytes,
    *,
    size: tuple[int, int] | None = None,
    mode: str | None = None,
    name: str | None = None,
    formats: tuple[str, ...] = FORMATS,
) -> "list[NDArray[np.uint8]]":  # "h w c" each
    """Every picture of an animated GIF, PNG or WebP, each as `read` reads the first."""
    with _open(source, name, formats) as opened:
        label, count = _label(source, name), getattr(opened, "n_frames", 1)
        width, height = opened.size if size is None else size
        try:
            memory.check_fits(
                3 * count * width * height, f"{label}, with {count:,} frames,", "shorten it, or give size"
            )
        except ValueError as error:
            raise _RefusedError(str(error)) from error
        frames = []
        for n in range(count):
            opened.seek(n)
            frames.append(_pixels(opened.copy(), label, size, "bilinear", mode, opened.format))
        return frames


def _pixels(
    opened: "Image.Image",
    label: str,
    size: tuple[int, int] | None,
    resample: str,
    mode: str | None,
    image_format: str | None = None,
) -> "NDArray[np.uint8]":  # -> "h w c"
    """The current picture of an open file; `image_format` is that of the file if the picture does not know it."""
    import numpy as np
    from PIL import Image, ImageOps

    image_format = image_format or opened.format
    # a camera stores its orientation beside the pixels
    ImageOps.exif_transpose(opened, in_place=True)
    image: Image.Image = opened
    if image.mode in _WIDE_MODES and not (image.mode == "I" and image_format in _GREY16_FORMATS):
        raise _RefusedError(
            f"{label} has numbers of {'32 bits' if image.mode == 'I' else 'any size'} and does not say which are "
            "black and white; save it in 8 or 16 bits"
        )
    if image.mode.startswith("I"):
        image = Image.fromarray(_to_8_bits(np.asarray(image), image.info.get("transparency")))
    grey = image.mode in _GREY
    if image.has_transparency_data:
        image = image.convert("LA" if grey else "RGBA")
        background = Image.new("L" if grey else "RGB", image.size, "white")
        background.paste(image.getchannel("L") if grey else image, mask=image.getchannel("A"))
        image = background
    mode = mode or ("L" if grey else "RGB")
    image = image if image.mode == mode else image.convert(mode)
    if size is not None:
        image = image.resize(size, Image.Resampling[resample.upper()])
    pixels = np.array(image, np.uint8)
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _label(source: Path | bytes, name: str | None) -> str:
    return name or str(source if isinstance(source, Path) else "the picture")


@contextmanager
def _open(source: Path | bytes, name: str | None, formats: tuple[str, ...]) -> "Iterator[Image.Image]":
    """An image whose header was read; any error in it, also inside the context, becomes one sentence."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("pictures need pillow; install it with: pip install 'regard[vision]'") from error
    label = _label(source, name)
    if isinstance(source, Path):
        if source.is_dir():
            raise ValueError(f"{label} is a folder; name the pictures in it")
        if not source.exists():
            raise ValueError(f"there is no file {label}; name a picture that is there")
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=formats) as opened:
            yield opened
    except _RefusedError:
        raise
    except Exception as error:  # bytes that are no image may break a decoder in any way
        cause = f"none of {', '.join(formats)}" if type(error).__name__ == "UnidentifiedImageError" else error
        raise ValueError(f"{label} cannot be read as a picture ({cause}); fix it, or take another") from error


class _RefusedError(ValueError):
    """An image that can be decoded, but is too large, or whose numbers for black and white are not known."""


def _to_8_bits(pixels: "NDArray[Any]", transparent: int | None) -> "NDArray[np.uint8]":
    """16 bits rounded to 8, in strips so that no copy of all pixels is wider; white at the transparent value.

    Pillow's own conversion clips values above 255.
    """
    import numpy as np

    flat, rounded = pixels.reshape(-1), np.empty(pixels.size, np.uint8)
    for start in range(0, pixels.size, _PIXELS_PER_STRIP):
        strip = slice(start, start + _PIXELS_PER_STRIP)
        wide = flat[strip].astype(np.uint32)
        rounded[strip] = (wide + 128) // 257
        if transparent is not None:
            rounded[strip][wide == transparent] = 255
    return rounded.reshape(pixels.shape)
