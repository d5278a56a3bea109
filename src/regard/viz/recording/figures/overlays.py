"""Weights over an image: the grid of one query, and one grid per word of a caption."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from regard.common import checks, image_files
from regard.recording.recorded_map import KINDS, RecordedMap
from regard.recording.recording import Recording
from regard.viz.plots.canvas import COLOUR_BAR, MIN_FONT, fit_scale, open_canvas
from regard.viz.plots.contours import contour_lines
from regard.viz.plots.panels import frame_cell
from regard.viz.plots.picture_panels import draw_image, draw_overlay, image_inches
from regard.viz.recording import selection
from regard.viz.recording.selection import SelectedMap
from regard.viz.text import labels

ImageSource = Tensor | str | os.PathLike[str]
INTERPOLATIONS = ("nearest", "bilinear")
# inches of the longer side of an image alone and among others, images per row and words per figure
_LARGE, _SMALL, _ACROSS, _MAX_WORDS = 2.8, 1.2, 5, 40
# lines of the contours in a small panel, at most
_MAX_CONTOURS = 300
_CONTOURS_NOTE = "lines: the contours of the image"


def load_image(image: ImageSource) -> Tensor:  # -> "h w 3"
    """An image file, or a tensor with its channels first or last, as red, green and blue between 0 and 1."""
    if isinstance(image, str | os.PathLike):
        return torch.from_numpy(image_files.read(Path(image), mode="RGB")) / 255
    if not isinstance(image, Tensor):
        raise TypeError(
            f"image must be a tensor or the path of an image file, got {type(image).__name__}; try 'cat.png'"
        )
    pixels = image.detach().to("cpu", torch.float32) / (255 if image.dtype == torch.uint8 else 1)
    if pixels.ndim == 3 and pixels.shape[-1] not in (1, 3) and pixels.shape[0] in (1, 3):
        pixels = pixels.movedim(0, -1)
    if pixels.ndim == 2:
        pixels = pixels.unsqueeze(-1)
    if pixels.ndim != 3 or pixels.shape[-1] not in (1, 3) or not pixels.numel():
        raise ValueError(
            f"image must be (height, width) or have 1 or 3 channels, (3, height, width), got {checks.shape(image)}; "
            "pass one image of a batch, image[0]"
        )
    low, high = float(pixels.min()), float(pixels.max())
    if not (low >= 0 and high <= 1):
        raise ValueError(
            f"image must lie between 0 and 1 (or be uint8), got {low:.3g} to {high:.3g}; "
            "undo its normalisation, or pass (image - image.min()) / (image.max() - image.min())"
        )
    return pixels.expand(*pixels.shape[:2], 3)


def grid_map_numbers(recording: Recording, layer: int | str | None, kinds: Sequence[str], what: str) -> list[int]:
    """The indices of the maps to draw over an image: calls of one module whose keys are patches of an image."""
    numbers = selection.layer_numbers(recording, layer)
    if layer is None:
        gridded = [n for n in numbers if recording[n].grid is not None and recording[n].kind in kinds]
        if not gridded:
            raise ValueError(
                f"what={what!r} needs a map of kind {' or '.join(map(repr, kinds))} whose keys are patches of an "
                "image, and the recording has none; set its grid with "
                "dataclasses.replace(recorded, grid=(height, width))"
            )
        numbers = [n for n in gridded if recording[n].name == recording[gridded[0]].name]
    for n in numbers:
        _grid_shape(recording[n])
    return numbers


def _grid_shape(recorded_map: RecordedMap) -> tuple[int, int, int]:
    """The height and width of the grid, and the number of keys before it."""
    name, k = selection.display_name(recorded_map), recorded_map.shape[-1]
    if recorded_map.grid is None:
        raise ValueError(
            f"{name!r} has no grid: its {k} keys are not known to be patches of an image; "
            "set it with dataclasses.replace(recorded, grid=(height, width)), or draw what='map'"
        )
    height, width = recorded_map.grid
    if height * width > k or height < 1 or width < 1:
        raise ValueError(
            f"grid of {name!r} must be of at most its {k} keys, got {height} × {width}; "
            "give (height, width) in patches, not pixels"
        )
    return height, width, k - height * width


def _check_interpolation(interpolation: str | None) -> str:
    checks.known("interpolation", interpolation or "nearest", INTERPOLATIONS)
    return interpolation or "nearest"


def overlay_figure(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None,
                   head: int | None = None, query: int | None = None, image: ImageSource | None = None,
                   interpolation: str | None = None) -> Path:  # fmt: skip
    """The weights of a query over an image; without a query, the mean over all. Keys before the grid are listed."""
    interpolation, pixels = _check_interpolation(interpolation), None if image is None else load_image(image)
    if layer is None:
        layer = grid_map_numbers(recording, layer, list(KINDS), "overlay")[0]
    selected = selection.select_layer(recording, layer, sample, head)
    recorded_map = selected.recorded_map
    height, width, before = _grid_shape(recorded_map)
    q, k = selected.map.shape
    row = None if query is None else selection.query_row(selected, query)
    weights = selected.map.pooled(1, k)[0] if row is None else selected.map[row]
    weights = selection.drawable_cells(weights, recorded_map)
    cells = weights[before:].reshape(height, width)
    scale = fit_scale([cells])
    if recorded_map.kind == "gate" and float(cells.min()) < scale.high:
        # all weights of a gate may lie near one: the scale begins at the least, so that they differ visibly
        scale = replace(scale, low=float(cells.min()))
    kind = KINDS[recorded_map.kind]
    average = f"all {q} {kind.rows} on average" if q > 1 else f"its only {kind.row}"
    query_label = average if row is None else selected.query_label(row)
    title = f"{selected.title} · {query_label}{selection.unverified_suffix(recorded_map)}"
    size = image_inches((height, width), pixels, _LARGE)
    verification = selection.verification_label(recorded_map)
    notes = [
        selection.prediction_note(recording, sample),
        f"{KINDS[recorded_map.kind].label}, {height} × {width} patches, {verification}",
        _prefix_note(selected, weights[:before]),
        _CONTOURS_NOTE if pixels is not None else "",
    ]
    left, bar_height = 0.0 if pixels is None else size[0] + 0.1, scale.bar_height(size[1])
    with open_canvas(path, title, notes, selected.rows, left + size[0] + 0.1 + COLOUR_BAR, bar_height) as canvas:
        if pixels is not None:
            draw_image(canvas.add_axes(0.0, 0.0, *size), pixels)
        axes = canvas.add_axes(left, 0.0, *size)
        draw_overlay(axes, cells, pixels, scale, interpolation)
        if row is not None and recorded_map.kind == "self":
            itself = selection.query_positions(recorded_map)[row] - before
            if itself >= 0:
                frame_cell(axes, itself % width, itself // width)
        canvas.add_colour_bar(left + size[0] + 0.1, 0.0, bar_height, scale)
    return Path(path)


def class_token_figure(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None,
                       query: int | None = None, image: ImageSource | None = None,
                       interpolation: str | None = None) -> Path:  # fmt: skip
    """The first token, such as a class token, of the last layer over an image, one panel per head; or another query."""
    interpolation, pixels = _check_interpolation(interpolation), None if image is None else load_image(image)
    if layer is None:
        numbers = [n for n, item in enumerate(recording) if selection.has_class_token(item)]
        if not numbers:
            raise ValueError(
                "what='class-token' needs self attention over patches of an image with a token before them, and the "
                "recording has none; draw what='overlay'"
            )
        layer = numbers[-1]
    selected = selection.select_layer(recording, layer, sample, None)
    recorded_map = selected.recorded_map
    height, width, before = _grid_shape(recorded_map)
    row = selection.query_row(selected, query or 0)
    heads = list(selection.iter_heads(selection.sample_heads(recorded_map, sample)))
    weights = torch.stack([selection.drawable_cells(head[row], recorded_map) for head in heads])  # "h k"
    grids = weights[:, before:].reshape(-1, height, width)
    name = "class token" if row == 0 and before == 1 and not (recording.queries or ()) else selected.query_label(row)
    notes = [
        selection.prediction_note(recording, sample),
        f"{selection.display_name(recorded_map)}, {height} × {width} patches, "
        f"{selection.verification_label(recorded_map)}",
        _prefix_note(selected, weights[:, :before].mean(0)),
        _CONTOURS_NOTE if _has_contours(pixels) else "",
    ]
    title = f"attention of the {name}{', head by head' if len(heads) > 1 else ''}"
    panels = [f"head {number}" for number in selection.head_numbers(recorded_map)] if len(heads) > 1 else [name]
    title += selection.unverified_suffix(recorded_map)
    _draw_panels(path, title, notes, panels, grids, pixels, interpolation, power=0.5)
    return Path(path)


def _prefix_note(selected: SelectedMap, weights: Tensor) -> str:
    """The weights of the keys before the grid, which are not patches of the image."""
    if not len(weights):
        return ""
    named = [
        f"{f'token {name}' if name.isdecimal() else name}: {weight:.2f}"
        for name, weight in zip(selected.columns, weights.tolist(), strict=False)
    ]
    listed = ", ".join(named[:6]) + (f" and {len(named) - 6} more" if len(named) > 6 else "")
    return f"not in the image: {listed}; in it: {1 - float(weights.sum()):.2f}"


def step_grids(recording: Recording, numbers: Sequence[int], sample: int) -> tuple[list[SelectedMap], Tensor]:
    """All rows of all calls of a module as grids, "steps h w": one per word or glimpse."""
    maps = [selection.select_map(recording, n, sample, None) for n in numbers]
    shapes = {selected.recorded_map.grid for selected in maps}
    if len(shapes) > 1:
        raise ValueError(f"one image must lie under all maps, got grids of {shapes}; pick a layer by name or number")
    grids = []
    for selected in maps:
        height, width, before = _grid_shape(selected.recorded_map)
        cells = selection.drawable_cells(selected.map.dense(), selected.recorded_map)
        grids.append(cells[:, before:].reshape(-1, height, width))
    return maps, torch.cat(grids)


def step_words(recording: Recording, maps: Sequence[SelectedMap], sample: int) -> list[str]:
    """The labels of all rows of all calls of a module."""
    words = [word for selected in maps for word in selected.rows]
    queries = recording.queries or ()
    if len(maps) > 1 and not sample and len(queries) == len(words):
        # one call per word: each call has the position 0, and the words are those of the recording
        return [labels.visible_label(word) for word in queries]
    return words


def _hard_positions(maps: Sequence[SelectedMap], sample: int) -> list[set[int]]:
    """The patches that the heads of hard attention read, per step; empty for soft attention."""
    if not all(selection.is_hard(selected.recorded_map) for selected in maps):
        return []
    positions = []
    for selected in maps:
        before = _grid_shape(selected.recorded_map)[2]
        best = selection.sample_heads(selected.recorded_map, sample).dense().argmax(-1)  # "*h q"
        steps = best.reshape(-1, best.shape[-1]).T.tolist()
        positions += [{n - before for n in step if n >= before} for step in steps]
    return positions


def captions_figure(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None,
                    image: ImageSource | None = None, interpolation: str | None = None) -> Path:  # fmt: skip
    """One grid of weights per word of a caption."""
    interpolation, pixels = _check_interpolation(interpolation), None if image is None else load_image(image)
    numbers = grid_map_numbers(recording, layer, ("cross", "alignment"), "captions")
    maps, grids = step_grids(recording, numbers, sample)
    words = step_words(recording, maps, sample)
    count = min(len(words), _MAX_WORDS)
    height, width = grids.shape[1:]
    hard = _hard_positions(maps, sample)
    recorded_maps = [selected.recorded_map for selected in maps]
    notes = [f"{maps[0].title}, {height} × {width} patches, {selection.verification_label(*recorded_maps)}"]
    notes += ["hard attention: the one patch that was read for each word has a frame"] if hard else []
    notes += [_CONTOURS_NOTE] if _has_contours(pixels) else []
    notes += [f"the first {count} of {len(words)} words"] if count < len(words) else []
    title = f"word by word{selection.unverified_suffix(*recorded_maps)}"
    _draw_panels(path, title, notes, words[:count], grids[:count], pixels, interpolation, hard)
    return Path(path)


def _has_contours(pixels: Tensor | None) -> bool:
    """Whether small panels show the contours of the image; the many of a photograph would hide the weights."""
    return pixels is not None and len(contour_lines(pixels)) <= _MAX_CONTOURS


def _draw_panels(path: str | Path, title: str, notes: Sequence[str], names: Sequence[str], grids: Tensor,
                 pixels: Tensor | None, interpolation: str, hard: Sequence[set[int]] = (),
                 power: float = 1.0) -> None:  # fmt: skip
    """One grid of weights per name, "n h w", behind the image itself; patches that hard attention read have frames."""
    height, width = grids.shape[1:]
    scale = fit_scale([grids], power=power)
    size = image_inches((height, width), pixels, _SMALL)
    first = int(pixels is not None)
    across = max(min(len(names) + first, _ACROSS), 1)
    pitch = size[0] + 0.1, size[1] + 0.22
    rows = -(-(first + len(names)) // across)
    corners = [(n % across * pitch[0], n // across * pitch[1]) for n in range(first + len(names))]
    canvas_size = across * pitch[0] + COLOUR_BAR, max(rows * pitch[1], 0.16 + scale.bar_height(size[1]))
    with open_canvas(path, title, notes, names, *canvas_size) as canvas:
        if pixels is not None:
            draw_image(canvas.add_axes(0.0, 0.16, *size), pixels)
        for n, (left, top) in enumerate(corners[first:]):
            axes = canvas.add_axes(left, top + 0.16, *size)
            draw_overlay(axes, grids[n], pixels if _has_contours(pixels) else None, scale, interpolation)
            for position in hard[n] if hard else ():
                frame_cell(axes, position % width, position // width)
            word = labels.shorten(canvas.spell(names[n]), max(int(size[0] * 72 / (MIN_FONT + 0.5) / 0.62), 3))
            canvas.write(word, left + size[0] / 2, top + 0.13, MIN_FONT + 0.5, ha="center")
        canvas.add_colour_bar(across * pitch[0], 0.16, scale.bar_height(size[1]), scale)
