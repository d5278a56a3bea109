"""Pictures and captions of one's own: a line a caption, path and caption with a tab between.  No torch here."""

from pathlib import Path

from regard.common import image_files
from regard.data.embedded.scenes import Captioned
from regard.data.images.labelled import alike
from regard.data.text.pairs import read_lines


def read_captions(path: Path, size: int | None = None) -> Captioned:
    """Pictures that a file names, and their captions; a picture that is named by several lines has several.

    Paths that are not whole start where the file lies. All pictures become `size` × `size`, which they must be already,
    or of another size in common, if it is left out.
    """
    said: dict[Path, list[str]] = {}
    first: dict[Path, tuple[Path, int]] = {}
    for number, line in enumerate(read_lines(path, "the path of a picture, tab, caption, a line each"), 1):
        parts = line.split("\t")
        if len(parts) != 2 or not all(part.strip() for part in parts):
            raise ValueError(
                f"{path}:{number}: a line must be the path of a picture, tab, caption, got {line[:60]!r}; "
                "write as many lines as a picture has captions"
            )
        named = path.parent / parts[0]
        # one picture, however it is spelled
        said.setdefault(named.resolve(), []).append(parts[1])
        first.setdefault(named.resolve(), (named, number))
    pixels = []
    for named, number in first.values():
        try:
            pixels.append(image_files.read(named, size=None if size is None else (size, size)))
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from error
        if pixels[-1].shape[:2] != pixels[0].shape[:2]:
            (high, wide), (one_high, one_wide) = pixels[-1].shape[:2], pixels[0].shape[:2]
            raise ValueError(
                f"{path}:{number}: {named} is {wide} × {high}, the first picture {one_wide} × {one_high}; "
                "give size, such as size=64, to make them alike"
            )
    return Captioned(alike(pixels), [tuple(dict.fromkeys(lines)) for lines in said.values()])
