"""Weights as a heat map in a file: PNG, SVG or PDF, by suffix."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from regard.parts import checks
from regard.parts.map import AttentionMap

# beyond this many cells a side a map is drawn coarse: a screen has no more pixels
_CELLS = 512
# labels are drawn up to this many, beyond it they would overlap
_LABELS = 40


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


def figure(panels: Panel | Sequence[Panel], path: str | Path, *, across: int = 4) -> Path:
    """Draws maps side by side into a file: dark is no weight, bright is all of it, also for colour-blind eyes.

    The same input gives the same bytes.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need matplotlib; install it with: pip install 'regard[view]'") from error
    path = Path(path)
    checks.known("suffix", path.suffix, (".png", ".svg", ".pdf"))
    panels = list(panels) if isinstance(panels, list | tuple) else [panels]  # type: ignore[list-item]
    if not panels:
        raise ValueError("panels must hold at least one map, got none; pass Panel(weights)")
    for panel in panels:
        checks.term("panels", panel, Panel, "[Panel(weights)]")
    checks.positive("across", across, "figure")
    wide = min(across, len(panels))
    high = -(-len(panels) // wide)
    with rc_context({"svg.hashsalt": "regard", "svg.fonttype": "none", "font.size": 8}):
        sheet = Figure(figsize=(2.9 * wide + 0.5, 2.9 * high), dpi=150, layout="constrained")
        axes = sheet.subplots(high, wide, squeeze=False)
        for place, panel in zip(axes.flat, panels, strict=False):
            image = place.imshow(
                _cells(panel).numpy(), cmap="cividis", vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest"
            )
            place.set_title(panel.title, fontsize=9)
            for axis, labels in ((place.yaxis, panel.rows), (place.xaxis, panel.columns)):
                if labels is not None and len(labels) <= _LABELS:
                    axis.set_ticks(range(len(labels)), labels)
            if panel.columns is not None and max(map(len, panel.columns), default=0) > 3:
                place.tick_params("x", labelrotation=90)
        for place in axes.flat[len(panels) :]:
            place.set_axis_off()
        sheet.colorbar(image, ax=axes, shrink=0.6, label="weight")
        still = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        sheet.savefig(path, metadata=still[path.suffix])
    return path
