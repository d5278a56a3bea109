"""The file of a figure: an empty matplotlib figure, written as PNG, SVG or PDF with the fonts that its words need."""

import contextlib
import io
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from regard.attn import checks
from regard.common import atomic_files
from regard.viz.text import fonts

# the file formats of a figure
SUFFIXES = (".png", ".svg", ".pdf")


def drawable(path: str | Path) -> None:
    """Matplotlib is there, and the file is of a kind that it writes."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("figures need matplotlib; install it with: pip install 'regard[view]'") from error
    checks.known("suffix", Path(path).suffix, SUFFIXES)


def speller(path: str | Path, words: Iterable[str]) -> Callable[[str], str]:
    """How to write a word into such a file: what no font has is spelt [U+XXXX], but in an SVG, where it stays."""
    if Path(path).suffix == ".svg":
        return str
    _, missing = fonts.families(words)
    return lambda word: fonts.spelt(word, missing)


@contextlib.contextmanager
def fonts_for(words: Iterable[str]) -> Iterator[None]:
    """Matplotlib with the fonts that these words need and with no formulas; what was set before is set again after."""
    from matplotlib import rc_context

    families, _ = fonts.families(words)
    settings: dict[Any, Any] = {"svg.hashsalt": "regard", "svg.fonttype": "none", "font.size": 8}
    with rc_context({**settings, "text.parse_math": False, "font.family": families}), warnings.catch_warnings():
        # of an SVG, which names its characters and leaves the drawing to the reader's fonts
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font", category=UserWarning)
        yield


@contextlib.contextmanager
def figure_file(
    path: Path, words: Iterable[str], size: tuple[float, float]
) -> Iterator[tuple[Any, Callable[[str], str]]]:
    """An empty matplotlib figure that is written to `path` at the end, and how to write a word on it.

    Words are words: no dollar sign starts a formula. Characters that the usual font has not are drawn with the fonts of
    the machine that have them, such as Noto; one that no font has is spelt [U+XXXX], but in an SVG, whose
    text stays text, it stays itself. The same input gives the same bytes, and no setting of matplotlib is left changed.
    """
    drawable(path)
    from matplotlib.figure import Figure

    words = list(words)
    still = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with fonts_for(words):
        drawn = Figure(figsize=size, dpi=150, layout="constrained")
        yield drawn, speller(path, words)
        held = io.BytesIO()
        drawn.savefig(held, format=path.suffix[1:], metadata=still[path.suffix])
        atomic_files.write_atomically(path, [held.getbuffer()])
