"""Recordings over a picture: the grid of one look, one look a word, and the path of glimpses."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.attn import checks
from regard.common import image_files
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.viz.plots.canvas import BAR, LEAST, Scale, board, scale
from regard.viz.plots.contours import trace
from regard.viz.plots.heatmap import frame
from regard.viz.recording import selection
from regard.viz.recording.selection import KINDS, SelectedMap
from regard.viz.text import labels

Picture = Tensor | str | os.PathLike[str]
BLENDS = ("nearest", "bilinear")
# inches of a picture's longer side alone and among others, and pictures in a row and in a figure
_LARGE, _SMALL, _ACROSS, _WORDS = 2.8, 1.2, 5, 40
# a rim that parts what is pointed out from any ground
RIM = "#FFFFFF"
_LINES = "lines: the outlines of the picture"


def picture(image: Picture) -> Tensor:  # -> "h w 3"
    """Any picture as red, green and blue between 0 and 1: a file, or a tensor with its channels first or last."""
    if isinstance(image, str | os.PathLike):
        return torch.from_numpy(image_files.read(Path(image), mode="RGB")) / 255
    if not isinstance(image, Tensor):
        raise TypeError(f"image must be a tensor or the path of a picture, got {type(image).__name__}; try 'cat.png'")
    seen = image.detach().to("cpu", torch.float32) / (255 if image.dtype == torch.uint8 else 1)
    if seen.ndim == 3 and seen.shape[-1] not in (1, 3) and seen.shape[0] in (1, 3):
        seen = seen.movedim(0, -1)
    if seen.ndim == 2:
        seen = seen.unsqueeze(-1)
    if seen.ndim != 3 or seen.shape[-1] not in (1, 3) or not seen.numel():
        raise ValueError(
            f"image must be (height, width) or have 1 or 3 channels, (3, height, width), got {checks.shape(image)}; "
            "pass one image of a batch, image[0]"
        )
    low, high = float(seen.min()), float(seen.max())
    if not (low >= 0 and high <= 1):
        raise ValueError(
            f"image must lie between 0 and 1 (or be uint8), got {low:.3g} to {high:.3g}; "
            "undo its normalisation, or pass (image - image.min()) / (image.max() - image.min())"
        )
    return seen.expand(*seen.shape[:2], 3)


def gridded(recording: Recording, layer: int | str | None, kinds: Sequence[str], what: str) -> list[int]:
    """The maps to be drawn over a picture: calls of one module, whose keys are places."""
    numbers = selection.layers(recording, layer)
    if layer is None:
        fit = [n for n in numbers if recording[n].grid is not None and recording[n].kind in kinds]
        if not fit:
            raise ValueError(
                f"what={what!r} needs a map of kind {' or '.join(map(repr, kinds))} whose keys are places of an image, "
                "the recording has none; say which they are with dataclasses.replace(recorded, grid=(height, width))"
            )
        numbers = [n for n in fit if recording[n].name == recording[fit[0]].name]
    for n in numbers:
        _places(recording[n])
    return numbers


def _places(one: RecordedMap) -> tuple[int, int, int]:
    """Height and width of the grid, and how many keys stand before it."""
    k = one.shape[-1]
    if one.grid is None:
        raise ValueError(
            f"{selection.called(one)!r} has no grid: its {k} keys are not known to be places of an image; "
            "say so with dataclasses.replace(recorded, grid=(height, width)), or draw what='map'"
        )
    high, wide = one.grid
    if high * wide > k or high < 1 or wide < 1:
        raise ValueError(
            f"grid of {selection.called(one)!r} must be of at most its {k} keys, got {high} × {wide}; "
            "give (height, width) in patches, not pixels"
        )
    return high, wide, k - high * wide


def _blend(interpolation: str | None) -> str:
    checks.known("interpolation", interpolation or "nearest", BLENDS)
    return interpolation or "nearest"


def inches(grid: tuple[int, int], under: Tensor | None, most: float) -> tuple[float, float]:
    """Inches, wide and high, of a picture whose longer side is `most`."""
    high, wide = grid if under is None else under.shape[:2]
    return most * wide / max(high, wide), most * high / max(high, wide)


def _lay(axes: Any, cells: Tensor, under: Tensor | None, meaning: Scale, blend: str) -> None:
    """The cells, whose colours are those of the bar, and the lines of the picture over them."""
    high, wide = cells.shape
    where = (-0.5, wide - 0.5, high - 0.5, -0.5)
    axes.imshow(cells.numpy(), cmap=meaning.map, norm=meaning.norm(), extent=where, aspect="auto", interpolation=blend)
    if under is not None:
        trace(axes, under, *where)
    axes.set(xticks=[], yticks=[])


def overlay(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None,
            head: int | None = None, query: int | None = None, image: Picture | None = None,
            interpolation: str | None = None) -> Path:  # fmt: skip
    """What a query looked at in an image; without one, all on average. Keys before the grid are named."""
    blend, under = _blend(interpolation), None if image is None else picture(image)
    if layer is None:
        layer = gridded(recording, layer, list(KINDS), "overlay")[0]
    seen = selection.first(recording, layer, sample, head)
    high, wide, before = _places(seen.one)
    q, k = seen.map.shape
    only = None if query is None else selection.query(seen, query)
    row = selection.sane(seen.map.coarse(1, k)[0] if only is None else seen.map[only], seen.one)
    cells = row[before:].reshape(high, wide)
    meaning = scale([cells])
    if seen.one.kind == "gate" and float(cells.min()) < meaning.high:
        # all of its weights may lie near one: what tells them apart is seen from the least on
        meaning = replace(meaning, low=float(cells.min()))
    rows = "channels" if seen.one.kind == "gate" else "queries"
    who = f"all {q} {rows} on average" if only is None else seen.asked(only)
    size = inches((high, wide), under, _LARGE)
    notes = [
        selection.said(recording, sample),
        f"{KINDS[seen.one.kind]}, {high} × {wide} places, {selection.trust(seen.one)}",
    ]
    notes += [_prefix(seen, row[:before]), _LINES if under is not None else ""]
    left = 0.0 if under is None else size[0] + 0.1
    with board(path, f"{seen.named} · {who}{selection.mark(seen.one)}", notes, seen.rows, left + size[0] + 0.1 + BAR,
               max(size[1], 0.9)) as b:  # fmt: skip
        if under is not None:
            plain = b.place(0.0, 0.0, *size)
            plain.imshow(under.numpy(), aspect="auto", interpolation="nearest")
            plain.set(xticks=[], yticks=[])
        axes = b.place(left, 0.0, *size)
        _lay(axes, cells, under, meaning, blend)
        at = -1 if only is None or seen.one.kind != "self" else selection.positions(seen.one)[only] - before
        if at >= 0:
            frame(axes, at % wide, at // wide)
        b.bar(left + size[0] + 0.1, 0.0, max(size[1], 0.9), meaning)
    return Path(path)


def _prefix(seen: SelectedMap, weights: Tensor) -> str:
    """What the keys got that are no place of the image."""
    if not len(weights):
        return ""
    named = [
        f"{f'token {name}' if name.isdecimal() else name}: {weight:.2f}"
        for name, weight in zip(seen.columns, weights.tolist(), strict=False)
    ]
    some = ", ".join(named[:6]) + (f" and {len(named) - 6} more" if len(named) > 6 else "")
    return f"not in the image: {some}; in it: {1 - float(weights.sum()):.2f}"


def steps(recording: Recording, numbers: Sequence[int], sample: int) -> tuple[list[SelectedMap], Tensor]:
    """All rows of all calls of a module, one below the other, "steps h w": one a word, one a glimpse."""
    seen = [selection.pick(recording, n, sample, None) for n in numbers]
    grids = {one.one.grid for one in seen}
    if len(grids) > 1:
        raise ValueError(f"one image must lie under all maps, got grids of {grids}; pick a layer by name or number")
    found = []
    for one in seen:
        high, wide, before = _places(one.one)
        found.append(selection.sane(one.map.dense(), one.one)[:, before:].reshape(-1, high, wide))
    return seen, torch.cat(found)


def known(seen: Sequence[SelectedMap]) -> str:
    """How far the least sure map is sure."""
    return selection.trust(max((one.one for one in seen), key=selection.worry))


def _read(seen: Sequence[SelectedMap], sample: int) -> list[set[int]]:
    """The places that the heads of a hard attention went to, step by step; nothing of a soft one."""
    if not all(selection.hard(one.one) for one in seen):
        return []
    found = []
    for one in seen:
        before = _places(one.one)[2]
        best = selection.heads(one.one, sample).dense().argmax(-1)  # "*h q"
        found += [{n - before for n in row if n >= before} for row in best.reshape(-1, best.shape[-1]).T.tolist()]
    return found


def captions(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None,
             image: Picture | None = None, interpolation: str | None = None) -> Path:  # fmt: skip
    """One picture a word, with what was looked at when it was written."""
    blend, under = _blend(interpolation), None if image is None else picture(image)
    seen, cells = steps(recording, gridded(recording, layer, ("cross", "alignment"), "captions"), sample)
    words = [word for one in seen for word in one.rows]
    asked = recording.queries or ()
    if len(seen) > 1 and not sample and len(asked) == len(words):  # a call a word: their places are those of the text
        words = [labels.shown(word) for word in asked]
    count = min(len(words), _WORDS)
    meaning = scale([cells[:count]])
    size, (high, wide) = inches((cells.shape[1], cells.shape[2]), under, _SMALL), cells.shape[1:]
    across = max(min(count + (under is not None), _ACROSS), 1)
    pitch = size[0] + 0.1, size[1] + 0.22
    read = _read(seen, sample)
    notes = [f"{seen[0].named}, {high} × {wide} places, {known(seen)}"]
    notes += ["hard attention: of each word the one place that was read has a frame"] if read else []
    notes += [_LINES] if under is not None else []
    notes += [f"the first {count} of {len(words)} words"] if count < len(words) else []
    unsure = "" if all(one.one.verified for one in seen) else " (unverified)"
    panels = ([("", None)] if under is not None else []) + list(zip(words, cells[:count], strict=False))
    rows = -(-len(panels) // across)
    with board(path, f"word by word{unsure}", notes, words, across * pitch[0] + BAR, max(rows * pitch[1], 0.9)) as b:
        for n, (word, one) in enumerate(panels):
            left, top = n % across * pitch[0], n // across * pitch[1]
            axes = b.place(left, top + 0.16, *size)
            if one is None and under is not None:
                axes.imshow(under.numpy(), aspect="auto", interpolation="nearest")
                axes.set(xticks=[], yticks=[])
            elif one is not None:
                _lay(axes, one, under, meaning, blend)
                for at in read[n - (under is not None)] if read else ():
                    frame(axes, at % wide, at // wide)
                said = labels.shortened(b.spelt(word), max(int(size[0] * 72 / (LEAST + 2) / 0.62), 3))
                b.write(said, left + size[0] / 2, top + 0.13, LEAST + 2, ha="center")
        b.bar(across * pitch[0], 0.16, max(size[1], 0.7), meaning)
    return Path(path)
