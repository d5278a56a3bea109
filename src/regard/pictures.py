"""Pictures in files, or in bytes that somebody sent, as arrays: one reader for all rooms. No torch here."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# what a file of a picture is called
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
# grey in more than 8 bits: what the values of each mode are divided by
_DEEP = {"I;16": 257.0, "I;16B": 257.0, "I;16L": 257.0, "I": 257.0}


def read(
    source: Path | bytes,
    *,
    size: tuple[int, int] | None = None,
    mode: str | None = None,
    name: str | None = None,
    kinds: tuple[str, ...] | None = None,
    most: int | None = None,
) -> "NDArray[np.uint8]":  # "h w c"
    """The first picture of a file or of its bytes, upright, made (width, height) large if `size` says so.

    `mode` is "L" or "RGB"; without one, grey if it is grey and RGB otherwise. `name` is what an error calls it. `kinds`
    are the formats that are read, as pillow names them, and `most` the pixels that it may have: both are known from its
    first bytes, before anything is unpacked.
    """
    try:
        import numpy as np
        from PIL import Image, ImageOps
    except ImportError as error:
        raise ImportError("pictures need pillow; install it with: pip install 'regard[vision]'") from error
    called = name or str(source if isinstance(source, Path) else "the picture")
    if isinstance(source, Path):
        if source.is_dir():
            raise ValueError(f"{called} is a folder; name the pictures in it")
        if not source.exists():
            raise ValueError(f"there is no file {called}; name a picture that is there")
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=kinds) as opened:
            if most is not None and opened.width * opened.height > most:
                raise _Large(
                    f"{called} must have at most {most:,} pixels, got {opened.width:,} × {opened.height:,}; "
                    "make it smaller"
                )
            image = ImageOps.exif_transpose(opened)  # a camera held upright says so beside the pixels
            if image.mode in _DEEP:
                # pillow's own conversion cuts off what is above 255
                deep = np.asarray(image, np.float64) / _DEEP[image.mode]
                image = Image.fromarray(np.rint(deep).clip(0, 255).astype(np.uint8))
            mode = mode or ("L" if image.mode == "L" else "RGB")
            image = image if image.mode == mode else image.convert(mode)
            if size is not None:
                image = image.resize(size, Image.Resampling.BILINEAR)
            found = np.array(image, np.uint8)
    except _Large as error:
        raise ValueError(str(error)) from None
    except Exception as error:  # bytes that are no picture may break a decoder in any way
        known = f"none of {', '.join(kinds)}" if kinds and type(error).__name__ == "UnidentifiedImageError" else error
        raise ValueError(f"{called} cannot be read as a picture ({known}); mend it, or take another") from error
    return found[..., None] if found.ndim == 2 else found


class _Large(Exception):
    """More pixels than allowed."""
