"""A recording as a figure in a file: PNG, SVG or PDF by suffix, the same bytes for the same recording."""

import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from regard.attn import checks
from regard.recording.recording import Recording
from regard.viz.plots.figure_file import drawable
from regard.viz.recording import selection
from regard.viz.recording.figures import channels, glimpses, heatmaps, lines, overlays, text

# what can be drawn; each takes the options that it has a use for
FIGURES: dict[str, Callable[..., Path]] = {
    "map": heatmaps.whole,
    "heads": heatmaps.heads,
    "lines": lines.lines,
    "text": text.text,
    "channels": channels.channels,
    "overlay": overlays.overlay,
    "glimpses": glimpses.glimpses,
    "captions": overlays.captions,
    "hops": heatmaps.hops,
    "difference": heatmaps.difference,
}


def draw_recording(
    recording: Recording,
    path: str | os.PathLike[str],
    *,
    what: str = "heads",
    sample: int = 0,
    layer: int | str | None = None,
    head: int | None = None,
    query: int | None = None,
    image: overlays.Picture | None = None,
    other: Recording | None = None,
    interpolation: str | None = None,
) -> Path:
    """Draws `what` of FIGURES into a .png, .svg or .pdf. An option that a figure has no use for is refused.

    `layer` is the number of a map in the recording or the name of a module, `query` the row of a map; without a `head`
    the mean of all is drawn. `image` is a file or a tensor between 0 and 1, `interpolation` "nearest" or "bilinear";
    `other` is the recording that a difference is taken from. Every figure names what it shows and marks a
    map that is not verified.
    """
    path = Path(path)
    drawable(path)
    checks.term("recording", recording, Recording, "tape")
    options = {"layer": layer, "head": head, "query": query, "image": image, "other": other}
    given = {name: value for name, value in (options | {"interpolation": interpolation}).items() if value is not None}
    accepts(recording, what, given)
    return FIGURES[what](recording, path, sample=sample, **given)


def accepts(recording: Recording, what: str, given: Mapping[str, object]) -> None:
    """Raises unless the figure has a use for these options, and a difference something to be taken from."""
    checks.known("what", what, FIGURES)
    takes = [name for name in inspect.signature(FIGURES[what]).parameters if name not in ("recording", "path")]
    for name in given:
        if name not in takes:
            able = [what for what, figure in FIGURES.items() if name in inspect.signature(figure).parameters]
            raise ValueError(
                f"{name} is of no use for what={what!r}, which takes {', '.join(takes)}; "
                f"leave it out, or draw what={' or '.join(map(repr, able))}"
            )
    if what == "difference" and "other" not in given and not any(map(selection.differs, recording)):
        raise ValueError(
            "what='difference' needs other, the recording to take away, or differences, and these are weights; "
            "pass other=, or draw recording.difference(other)"
        )
