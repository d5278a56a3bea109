"""The file of a figure: an empty matplotlib figure, written as PNG, SVG or PDF with the fonts that its words need."""

import contextlib
import io
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from regard.common import atomic_files, checks
from regard.viz.text import fonts

# the file formats of a figure
SUFFIXES = (".png", ".svg", ".pdf")
# dots per inch of a PNG
DPI = 150
# metadata without dates and versions, so that the same input gives the same bytes
_METADATA = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def check_figure_path(path: str | Path) -> None:
    """Raises if matplotlib is not installed or does not write files with this suffix."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("figures need matplotlib; install it with: pip install 'regard[view]'") from error
    checks.known("suffix", Path(path).suffix, SUFFIXES)


def speller(path: str | Path, words: Iterable[str]) -> Callable[[str], str]:
    """A function that spells characters without a font as [U+XXXX]; for an SVG, whose text stays text, the identity."""
    if Path(path).suffix == ".svg":
        return str
    _, missing = fonts.families(words)
    return lambda word: fonts.spell_missing(word, missing)


@contextlib.contextmanager
def fonts_for(words: Iterable[str]) -> Iterator[None]:
    """Matplotlib with the fonts that these words need and without formulas; restores its settings at the end."""
    from matplotlib import rc_context

    families, _ = fonts.families(words)
    settings: dict[Any, Any] = {"svg.hashsalt": "regard", "svg.fonttype": "none", "font.size": 8}
    with rc_context({**settings, "text.parse_math": False, "font.family": families}), warnings.catch_warnings():
        # an SVG keeps characters as text and leaves their drawing to the reader's fonts
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font", category=UserWarning)
        yield


@contextlib.contextmanager
def figure_file(
    path: Path, words: Iterable[str], size: tuple[float, float]
) -> Iterator[tuple[Any, Callable[[str], str]]]:
    """An empty matplotlib figure that is written to `path` at the end, and a function that spells words for it.

    No dollar sign starts a formula. Characters that the default font lacks are drawn with installed fonts that have
    them, such as Noto; a character that no font has is spelt [U+XXXX], except in an SVG, whose text stays text. The
    same input gives the same bytes, and the settings of matplotlib are restored.
    """
    check_figure_path(path)
    from matplotlib.figure import Figure

    words = list(words)
    with fonts_for(words):
        figure = Figure(figsize=size, dpi=DPI, layout="constrained")
        yield figure, speller(path, words)
        buffer = io.BytesIO()
        figure.savefig(buffer, format=path.suffix[1:], metadata=_METADATA[path.suffix])
        atomic_files.write_atomically(path, [buffer.getbuffer()])
