"""Weights as a heat map in a file: PNG, SVG or PDF, by suffix."""

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.parts import checks
from regard.parts.map import AttentionMap
from regard.view import fonts

# the kinds of file that a figure can be
SUFFIXES = (".png", ".svg", ".pdf")
# beyond this many cells a side a map is drawn coarse: a screen has no more pixels
_CELLS = 512
# labels are drawn up to this many on the usual panel, beyond it they would overlap
_LABELS = 40
_INCHES = 2.9


@dataclass(frozen=True)
class Panel:
    """One map with its title and, if given, what stands at its rows (queries) and columns (keys)."""

    weights: Tensor | AttentionMap  # "q k"
    title: str = ""
    rows: Sequence[str] | None = None
    columns: Sequence[str] | None = None


def _cells(panel: Panel) -> Tensor:
    weights = panel.weights
    if len(weights.shape) != 2:
        raise ValueError(
            f"weights must be one map (queries, keys), got {tuple(weights.shape)}; "
            "pick a sample and a head: weights[0, 0] of a tensor, map.pick(0, 0) of a map"
        )
    for name, labels, count in (("rows", panel.rows, weights.shape[0]), ("columns", panel.columns, weights.shape[1])):
        if labels is not None and len(labels) != count:
            raise ValueError(f"{name} must label {count} positions, got {len(labels)} labels; give one each or None")
    if isinstance(weights, AttentionMap):
        weights = weights.coarse(_CELLS, _CELLS) if max(weights.shape) > _CELLS else weights.dense()
    return weights.detach().to("cpu", torch.float32)


@contextlib.contextmanager
def sheet(path: Path, words: Iterable[str], size: tuple[float, float]) -> Iterator[tuple[Any, Callable[[str], str]]]:
    """An empty matplotlib figure that is written to `path` at the end, and how to write a word on it.

    Words are words: no dollar sign starts a formula. Characters that the usual font has not are drawn with the fonts of
    the machine that have them, such as Noto; one that no font has is spelt U+XXXX, but in an SVG, whose text stays
    text, it stays itself. The same input gives the same bytes, and no setting of matplotlib is left changed.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need matplotlib; install it with: pip install 'regard[view]'") from error
    checks.known("suffix", path.suffix, SUFFIXES)
    families, missing = fonts.families(words)
    settings: dict[Any, Any] = {"svg.hashsalt": "regard", "svg.fonttype": "none", "font.size": 8}
    still = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with rc_context({**settings, "text.parse_math": False, "font.family": families}), warnings.catch_warnings():
        # of an SVG, which names its characters and leaves the drawing to the reader's fonts
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font", category=UserWarning)
        drawn = Figure(figsize=size, dpi=150, layout="constrained")
        yield drawn, (str if path.suffix == ".svg" else lambda word: fonts.spelt(word, missing))
        drawn.savefig(path, metadata=still[path.suffix])


def _words(panels: Iterable[Panel]) -> Iterator[str]:
    for panel in panels:
        yield from (panel.title, *(panel.rows or ()), *(panel.columns or ()))


def figure(
    panels: Panel | Sequence[Panel],
    path: str | Path,
    *,
    across: int = 4,
    size: tuple[float, float] = (_INCHES, _INCHES),
) -> Path:
    """Draws maps side by side into a file: dark is no weight, bright is all of it, also for colour-blind eyes.

    `size` is that of one panel, wide and high, in inches. The same input gives the same bytes.
    """
    path = Path(path)
    panels = list(panels) if isinstance(panels, list | tuple) else [panels]  # type: ignore[list-item]
    if not panels:
        raise ValueError("panels must hold at least one map, got none; pass Panel(weights)")
    for panel in panels:
        checks.term("panels", panel, Panel, "[Panel(weights)]")
    checks.positive("across", across, "figure")
    wide = min(across, len(panels))
    high = -(-len(panels) // wide)
    with sheet(path, _words(panels), (size[0] * wide + 0.5, size[1] * high)) as (drawn, spelt):
        axes = drawn.subplots(high, wide, squeeze=False)
        for place, panel in zip(axes.flat, panels, strict=False):
            cells = _cells(panel)
            place.set_title(spelt(panel.title), fontsize=9)
            if not cells.numel():
                place.set(xticks=[], yticks=[])
                place.text(0.5, 0.5, "nothing to look at", ha="center", va="center", transform=place.transAxes)
                continue
            place.imshow(cells.numpy(), cmap="cividis", vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
            for axis, labels, inches in ((place.yaxis, panel.rows, size[1]), (place.xaxis, panel.columns, size[0])):
                if labels is not None and len(labels) <= _LABELS * inches / _INCHES:
                    axis.set_ticks(range(len(labels)), [spelt(label) for label in labels])
            if panel.columns is not None and max(map(len, panel.columns), default=0) > 3:
                place.tick_params("x", labelrotation=90)
        for place in axes.flat[len(panels) :]:
            place.set_axis_off()
        drawn.colorbar(_scale(), ax=axes, shrink=0.6, label="weight")
    return path


def _scale() -> Any:
    """What the colours mean, also where no panel has a cell."""
    from matplotlib.cm import ScalarMappable

    scale = ScalarMappable(cmap="cividis")
    scale.set_clim(0.0, 1.0)
    return scale
