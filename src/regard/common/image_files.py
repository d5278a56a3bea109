"""Pictures in files, or in bytes that somebody sent, as arrays: one reader for all rooms. No torch here."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

# what a file of a picture is called
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
# and the formats of such files: pillow knows more, and hands one of them to another program
KINDS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
_GREY = ("1", "L", "LA", "La")
# numbers without a known black and white, but in files of these formats, where they are grey in 16 bits
_WIDE, _SIXTEEN = ("I", "F"), ("PNG", "PPM")
# of 16 bits, how many are turned into 8 at a time
_STRIP = 1 << 20


def extent(
    source: Path | bytes, *, name: str | None = None, kinds: tuple[str, ...] = KINDS
) -> tuple[int, int]:  # width, height
    """How large a picture says it is, in its first bytes: nothing is unpacked."""
    with _opened(source, name, kinds) as image:
        return image.width, image.height


def read(
    source: Path | bytes,
    *,
    size: tuple[int, int] | None = None,
    mode: str | None = None,
    name: str | None = None,
    kinds: tuple[str, ...] = KINDS,
) -> "NDArray[np.uint8]":  # "h w c"
    """The first picture of a file or of its bytes, upright, on white where one sees through it.

    It is made (width, height) large if `size` says so. `mode` is "L" or "RGB"; without one, grey if it is grey and RGB
    otherwise. `name` is what an error calls it, and `kinds` are the formats that are read, as pillow names them.
    """
    import numpy as np

    with _opened(source, name, kinds) as opened:
        from PIL import Image, ImageOps

        kind, called = opened.format, _called(source, name)
        # a camera held upright says so beside the pixels
        ImageOps.exif_transpose(opened, in_place=True)
        image: Image.Image = opened
        if image.mode in _WIDE and not (image.mode == "I" and kind in _SIXTEEN):
            raise _Unclear(
                f"{called} has numbers of {'32 bits' if image.mode == 'I' else 'any size'} and does not say which are "
                "black and white; save it in 8 or 16 bits"
            )
        if image.mode.startswith("I"):
            image = Image.fromarray(_eight(np.asarray(image), image.info.get("transparency")))
        grey = image.mode in _GREY
        if image.has_transparency_data:
            image = image.convert("LA" if grey else "RGBA")
            ground = Image.new("L" if grey else "RGB", image.size, "white")
            ground.paste(image.getchannel("L") if grey else image, mask=image.getchannel("A"))
            image = ground
        mode = mode or ("L" if grey else "RGB")
        image = image if image.mode == mode else image.convert(mode)
        if size is not None:
            image = image.resize(size, Image.Resampling.BILINEAR)
        found = np.array(image, np.uint8)
    return found[..., None] if found.ndim == 2 else found


def _called(source: Path | bytes, name: str | None) -> str:
    return name or str(source if isinstance(source, Path) else "the picture")


@contextmanager
def _opened(source: Path | bytes, name: str | None, kinds: tuple[str, ...]) -> "Iterator[Image.Image]":
    """A picture of which the first bytes were read; whatever is wrong with it is one sentence."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("pictures need pillow; install it with: pip install 'regard[vision]'") from error
    called = _called(source, name)
    if isinstance(source, Path):
        if source.is_dir():
            raise ValueError(f"{called} is a folder; name the pictures in it")
        if not source.exists():
            raise ValueError(f"there is no file {called}; name a picture that is there")
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=kinds) as opened:
            yield opened
    except _Unclear:
        raise
    except Exception as error:  # bytes that are no picture may break a decoder in any way
        known = f"none of {', '.join(kinds)}" if type(error).__name__ == "UnidentifiedImageError" else error
        raise ValueError(f"{called} cannot be read as a picture ({known}); mend it, or take another") from error


class _Unclear(ValueError):
    """A picture that can be read, and seen in several ways."""


def _eight(deep: "NDArray[Any]", through: int | None) -> "NDArray[np.uint8]":
    """16 bits in 8, rounded, in strips so that no copy of all is wider; white at the value that one sees through.

    Pillow's own conversion cuts off what is above 255.
    """
    import numpy as np

    flat, found = deep.reshape(-1), np.empty(deep.size, np.uint8)
    for n in range(0, deep.size, _STRIP):
        strip = flat[n : n + _STRIP].astype(np.uint32)
        found[n : n + _STRIP] = (strip + 128) // 257
        if through is not None:
            found[n : n + _STRIP][strip == through] = 255
    return found.reshape(deep.shape)
