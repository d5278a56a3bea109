"""Captioned images from a file with one caption per line: path, tab, caption.  No torch here."""

from pathlib import Path

from regard.common import image_files, memory
from regard.data.embedded.scenes import CaptionedImages
from regard.data.images.labelled import stack_images
from regard.data.text.pairs import read_records


def read_captions(path: Path, size: int | None = None) -> CaptionedImages:
    """The images that a file names, with their captions; an image that several lines name has several captions.

    Relative paths start at the folder of the file. All images are resized to `size` × `size`; without `size` they must
    have one size already.
    """
    captions: dict[Path, list[str]] = {}
    first: dict[Path, tuple[Path, int]] = {}
    for number, line in enumerate(read_records(path, "the path of a picture, tab, caption, one per line"), 1):
        parts = line.split("\t")
        if len(parts) != 2 or not all(part.strip() for part in parts):
            raise ValueError(
                f"{path}:{number}: a line must be the path of a picture, tab, caption, got {line[:60]!r}; "
                "write as many lines as a picture has captions"
            )
        image_path = path.parent / parts[0]
        # one image, however its path is written
        captions.setdefault(image_path.resolve(), []).append(parts[1])
        first.setdefault(image_path.resolve(), (image_path, number))
    if size is not None:
        memory.check_fits(len(first) * size**2, f"size={size} for the {len(first):,} images of {path}", "try size=64")
    pixels = []
    for image_path, number in first.values():
        try:
            pixels.append(image_files.read(image_path, size=None if size is None else (size, size)))
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from error
    names = [f"{path}:{number}: {image_path}" for image_path, number in first.values()]
    return CaptionedImages(stack_images(pixels, names), [tuple(dict.fromkeys(lines)) for lines in captions.values()])
