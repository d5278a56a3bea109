"""A recording as a figure in a file: PNG, SVG or PDF by suffix, the same bytes for the same recording."""

import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from regard.common import checks
from regard.recording.recording import Recording
from regard.viz.plots.figure_file import check_figure_path
from regard.viz.recording import selection
from regard.viz.recording.figures import channels, glimpses, heat_map, lines, memory, overlays, saliency, text

# the figures of a recording by name; each takes the options that apply to it
FIGURES: dict[str, Callable[..., Path]] = {
    "map": heat_map.map_figure,
    "heads": heat_map.heads_figure,
    "lines": lines.lines_figure,
    "text": text.text_figure,
    "texts": text.texts_figure,
    "channels": channels.channels_figure,
    "overlay": overlays.overlay_figure,
    "class-token": overlays.class_token_figure,
    "glimpses": glimpses.glimpses_figure,
    "captions": overlays.captions_figure,
    "saliency": saliency.saliency_figure,
    "hops": heat_map.hops_figure,
    "memory": memory.memory_figure,
    "difference": heat_map.difference_figure,
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
    image: overlays.ImageSource | None = None,
    other: Recording | None = None,
    interpolation: str | None = None,
) -> Path:
    """Draws the figure `what` of FIGURES into a .png, .svg or .pdf. An option that the figure does not take is refused.

    `layer` is the number of a map in the recording or the name of a module, `query` the row of a map; without a `head`
    the mean over heads is drawn. `image` is a file or a tensor between 0 and 1, `interpolation` "nearest" or
    "bilinear"; `other` is the recording that is subtracted. Every figure names its map and marks a map that is not
    verified.
    """
    path = Path(path)
    check_figure_path(path)
    checks.instance_of("recording", recording, Recording, "Recording(maps)")
    all_options = {"layer": layer, "head": head, "query": query, "image": image, "other": other}
    options = {
        name: value for name, value in (all_options | {"interpolation": interpolation}).items() if value is not None
    }
    check_options(recording, what, options)
    return FIGURES[what](recording, path, sample=sample, **options)


def check_options(recording: Recording, what: str, options: Mapping[str, object]) -> None:
    """Raises if the figure does not take one of these options, or if a difference has nothing to subtract."""
    checks.known("what", what, FIGURES)
    takes = [name for name in _parameters(what) if name not in ("recording", "path")]
    for name in options:
        if name not in takes:
            takers = [repr(figure) for figure in FIGURES if name in _parameters(figure)]
            raise ValueError(
                f"{name} is no option of what={what!r}, which takes {', '.join(takes)}; "
                f"leave it out, or draw what={' or '.join(takers)}"
            )
    if what == "difference" and "other" not in options and not any(map(selection.is_difference, recording)):
        raise ValueError(
            "what='difference' needs other, the recording to subtract, or differences, and these are weights; "
            "pass other=, or draw recording.difference(other)"
        )


def _parameters(what: str) -> list[str]:
    return list(inspect.signature(FIGURES[what]).parameters)
