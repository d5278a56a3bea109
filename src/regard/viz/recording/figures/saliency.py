"""The saliency of a picture, alone or beside the maps of a trained model on the same picture."""

import os
from pathlib import Path

from torch import Tensor

from regard.common import checks
from regard.gates.saliency_map import Saliency, saliency
from regard.recording.recorded_map import KINDS
from regard.recording.recording import Recording
from regard.viz.plots.canvas import Scale
from regard.viz.plots.figure_file import check_figure_path
from regard.viz.plots.picture_panels import draw_picture_panels
from regard.viz.recording import selection
from regard.viz.recording.figures.overlays import ImageSource, grid_map_numbers, load_image, step_grids, step_words

# steps of a recording that are drawn
_MAX_STEPS = 15


def draw_saliency(maps: Saliency, path: str | os.PathLike[str], *, image: ImageSource) -> Path:
    """The picture, its saliency and the three maps that it is made of, each scaled to its maximum."""
    path = Path(path)
    check_figure_path(path)
    checks.instance_of("maps", maps, Saliency, "regard.gates.saliency(picture)")
    if maps.map.ndim != 2:
        raise ValueError(
            f"maps must be the saliency of one picture, got maps of {checks.shape(maps.map)}; "
            "compute that of one picture of the batch, regard.gates.saliency(pictures[0])"
        )
    return _draw(maps, [], path, load_image(image), "saliency")


def saliency_figure(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None,
                    image: ImageSource | None = None) -> Path:  # fmt: skip
    """The saliency of an image, which nothing was learned for, beside the attention of the recording to it.

    Of a module that attends step by step there is one map per step, such as a word of a caption; of any other the mean
    over the queries of its last layer, or its class token.
    """
    if image is None:
        raise ValueError("what='saliency' needs image, the picture that the model read; pass image='picture.png'")
    pixels = load_image(image)
    grids, label = query_grids(recording, sample, layer)
    return _draw(saliency(pixels.movedim(-1, 0)), grids, Path(path), pixels, f"saliency, and attention of {label}")


def query_grids(
    recording: Recording, sample: int = 0, layer: int | str | None = None
) -> tuple[list[tuple[str, Tensor]], str]:
    """The maps over the patches of an image, each "h w" with its name; and the module that they are of."""
    numbers = grid_map_numbers(recording, layer, list(KINDS), "saliency")
    kind = recording[numbers[0]].kind
    if not KINDS[kind].has_steps and layer is None:
        numbers = [max(n for n, item in enumerate(recording) if item.grid is not None and item.kind == kind)]
    maps, cells = step_grids(recording, numbers, sample)
    label = f"{maps[0].title}{selection.unverified_suffix(*(selected.recorded_map for selected in maps))}"
    if KINDS[kind].has_steps:
        return list(zip(step_words(recording, maps, sample), cells, strict=True))[:_MAX_STEPS], label
    if selection.has_class_token(maps[0].recorded_map):
        return [("class token", cells[0])], label
    return [(f"mean of {KINDS[kind].rows}", cells.mean(0))], label


def _draw(computed: Saliency, grids: list[tuple[str, Tensor]], path: Path, image: Tensor, title: str) -> Path:
    # maps are as large as the picture: a place of a coarse map is the upper left of the pixels that it stands for
    large = computed.enlarged()
    maps: list[tuple[str, Tensor]] = [
        ("saliency", large.map),
        ("intensity", large.intensity),
        ("colour", large.colour),
        ("orientation", large.orientation),
    ]
    across = 1 + len(maps)
    shares = [(name, cells.detach().to("cpu").float() / max(float(cells.max()), 1e-30)) for name, cells in maps + grids]
    learned = "the first four " if grids else ""
    note = f"{learned}without learning (Itti, Koch and Niebur 1998); lines: the contours of the picture"
    scale = Scale(1.0, 0.0, name="share of the greatest")
    return draw_picture_panels(image, shares, path, title, note, scale, across)
