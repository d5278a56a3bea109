"""Recordings over a picture: the grid of one look, one look a word, and the path of glimpses."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard import pictures
from regard.parts import checks
from regard.tape.recorded import Recorded
from regard.tape.recording import Recording
from regard.view import chosen, labels
from regard.view.board import BAR, LEAST, Board, Scale, board, scale
from regard.view.chosen import KINDS, Chosen

Picture = Tensor | str | os.PathLike[str]
BLENDS = ("nearest", "bilinear")
# inches of a picture's longer side alone and among others, and pictures in a row and in a figure
_LARGE, _SMALL, _ACROSS, _WORDS = 2.8, 1.2, 5, 40
# how much of a colour lies over the picture, and the ink of what is pointed out
_OVER, _INK = 0.6, "#D55E00"


def picture(image: Picture) -> Tensor:  # -> "h w 3"
    """Any picture as red, green and blue between 0 and 1: a file, or a tensor with its channels first or last."""
    if isinstance(image, str | os.PathLike):
        return torch.from_numpy(pictures.read(Path(image), mode="RGB")) / 255
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


def _gridded(recording: Recording, layer: int | str | None, kinds: Sequence[str], what: str) -> list[int]:
    """The maps to be drawn over a picture: calls of one module, whose keys are places."""
    numbers = chosen.layers(recording, layer)
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


def _places(one: Recorded) -> tuple[int, int, int]:
    """Height and width of the grid, and how many keys stand before it."""
    k = one.shape[-1]
    if one.grid is None:
        raise ValueError(
            f"{chosen.called(one)!r} has no grid: its {k} keys are not known to be places of an image; "
            "say so with dataclasses.replace(recorded, grid=(height, width)), or draw what='map'"
        )
    high, wide = one.grid
    if high * wide > k or high < 1 or wide < 1:
        raise ValueError(
            f"grid of {chosen.called(one)!r} must be of at most its {k} keys, got {high} × {wide}; "
            "give (height, width) in patches, not pixels"
        )
    return high, wide, k - high * wide


def _blend(interpolation: str | None) -> str:
    checks.known("interpolation", interpolation or "nearest", BLENDS)
    return interpolation or "nearest"


def _size(grid: tuple[int, int], under: Tensor | None, most: float) -> tuple[float, float]:
    """Inches, wide and high, of a picture whose longer side is `most`."""
    high, wide = grid if under is None else under.shape[:2]
    return most * wide / max(high, wide), most * high / max(high, wide)


def _lay(b: Board, axes: Any, cells: Tensor, under: Tensor | None, meaning: Scale, blend: str) -> None:
    """Colours of the cells over the picture in grey, so that none of its own is taken for a weight."""
    high, wide = cells.shape
    where = (-0.5, wide - 0.5, high - 0.5, -0.5)
    if under is not None:
        # lightened, or the dark of a picture would hide what lies on it
        grey = (0.35 + 0.65 * (under @ torch.tensor([0.2126, 0.7152, 0.0722]))).numpy()
        axes.imshow(grey, cmap="gray", vmin=0, vmax=1, extent=where, aspect="auto", interpolation="nearest")
    colours = {"cmap": meaning.map, "norm": meaning.norm(), "alpha": 1.0 if under is None else _OVER}
    axes.imshow(cells.numpy(), **colours, extent=where, aspect="auto", interpolation=blend)
    axes.set(xticks=[], yticks=[])


def overlay(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None,
            head: int | None = None, query: int | None = None, image: Picture | None = None,
            interpolation: str | None = None) -> Path:  # fmt: skip
    """What a query looked at in an image; without one, all on average. Keys before the grid are named."""
    blend, under = _blend(interpolation), None if image is None else picture(image)
    if layer is None:
        layer = _gridded(recording, layer, list(KINDS), "overlay")[0]
    seen = chosen.first(recording, layer, sample, head)
    high, wide, before = _places(seen.one)
    q, k = seen.map.shape
    only = None if query is None else chosen.query(seen, query)
    row = chosen.sane(seen.map.coarse(1, k)[0] if only is None else seen.map[only], seen.one)
    cells = row[before:].reshape(high, wide)
    meaning = scale([cells])
    rows = "channels" if seen.one.kind == "gate" else "queries"
    who = f"all {q} {rows} on average" if only is None else seen.asked(only)
    size = _size((high, wide), under, _LARGE)
    notes = [f"{KINDS[seen.one.kind]}, {high} × {wide} places, {chosen.trust(seen.one)}", _prefix(seen, row[:before])]
    left = 0.0 if under is None else size[0] + 0.1
    with board(path, f"{seen.named} · {who}{chosen.mark(seen.one)}", notes, seen.rows, left + size[0] + 0.1 + BAR,
               max(size[1], 0.9)) as b:  # fmt: skip
        if under is not None:
            plain = b.place(0.0, 0.0, *size)
            plain.imshow(under.numpy(), aspect="auto", interpolation="nearest")
            plain.set(xticks=[], yticks=[])
        axes = b.place(left, 0.0, *size)
        _lay(b, axes, cells, under, meaning, blend)
        at = -1 if only is None or seen.one.kind != "self" else chosen.positions(seen.one)[only] - before
        if at >= 0:
            _frame(axes, at % wide, at // wide)
        b.bar(left + size[0] + 0.1, 0.0, max(size[1], 0.9), meaning)
    return Path(path)


def _frame(axes: Any, column: int, row: int) -> None:
    """Around the place that looks."""
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=_INK, linewidth=1.2))


def _prefix(seen: Chosen, weights: Tensor) -> str:
    """What the keys got that are no place of the image."""
    if not len(weights):
        return ""
    named = [
        f"{f'token {name}' if name.isdecimal() else name}: {weight:.2f}"
        for name, weight in zip(seen.columns, weights.tolist(), strict=False)
    ]
    some = ", ".join(named[:6]) + (f" and {len(named) - 6} more" if len(named) > 6 else "")
    return f"not in the image: {some}; in it: {1 - float(weights.sum()):.2f}"


def _steps(recording: Recording, numbers: Sequence[int], sample: int) -> tuple[list[Chosen], Tensor]:
    """All rows of all calls of a module, one below the other, "steps h w": one a word, one a glimpse."""
    seen = [chosen.pick(recording, n, sample, None) for n in numbers]
    grids = {one.one.grid for one in seen}
    if len(grids) > 1:
        raise ValueError(f"one image must lie under all maps, got grids of {grids}; pick a layer by name or number")
    found = []
    for one in seen:
        high, wide, before = _places(one.one)
        found.append(chosen.sane(one.map.dense(), one.one)[:, before:].reshape(-1, high, wide))
    return seen, torch.cat(found)


def _known(seen: Sequence[Chosen]) -> str:
    """How far the least sure map is sure."""
    return chosen.trust(max((one.one for one in seen), key=chosen.worry))


def captions(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None,
             image: Picture | None = None, interpolation: str | None = None) -> Path:  # fmt: skip
    """One picture a word, with what was looked at when it was written."""
    blend, under = _blend(interpolation), None if image is None else picture(image)
    seen, cells = _steps(recording, _gridded(recording, layer, ("cross", "alignment"), "captions"), sample)
    words = [word for one in seen for word in one.rows]
    asked = recording.queries or ()
    if len(seen) > 1 and not sample and len(asked) == len(words):  # a call a word: their places are those of the text
        words = [labels.shown(word) for word in asked]
    count = min(len(words), _WORDS)
    meaning = scale([cells[:count]])
    size, (high, wide) = _size((cells.shape[1], cells.shape[2]), under, _SMALL), cells.shape[1:]
    across = max(min(count + (under is not None), _ACROSS), 1)
    pitch = size[0] + 0.1, size[1] + 0.22
    notes = [f"{seen[0].named}, {high} × {wide} places, {_known(seen)}"]
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
                _lay(b, axes, one, under, meaning, blend)
                said = labels.shortened(b.spelt(word), max(int(size[0] * 72 / (LEAST + 2) / 0.62), 3))
                b.write(said, left + size[0] / 2, top + 0.13, LEAST + 2, ha="center")
        b.bar(across * pitch[0], 0.16, max(size[1], 0.7), meaning)
    return Path(path)


def glimpses(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None,
             image: Picture | None = None) -> Path:  # fmt: skip
    """The windows that were looked through, numbered, and the path from one to the next."""
    under = None if image is None else picture(image)
    seen, cells = _steps(recording, _gridded(recording, layer, ("glimpse",), "glimpses"), sample)
    high, wide = cells.shape[1:]
    size = _size((high, wide), under, 1.4 * _LARGE)
    unsure = "" if all(one.one.verified for one in seen) else " (unverified)"
    notes = [f"{seen[0].named}, over {high} × {wide} places, {_known(seen)}"]
    empty = [str(n + 1) for n, one in enumerate(cells) if not bool(one.any())]
    notes += [f"nothing was seen at {', '.join(empty)}"] if empty else []
    with board(path, f"{len(cells)} glimpses{unsure}", notes, [], size[0], size[1]) as b:
        axes = b.place(0.0, 0.0, *size)
        where = (-0.5, wide - 0.5, high - 0.5, -0.5)
        ground = torch.full((1, 1, 3), 0.6) if under is None else under
        axes.imshow(ground.numpy(), extent=where, aspect="auto", interpolation="nearest")
        axes.set(xticks=[], yticks=[], xlim=where[:2], ylim=where[2:])
        _path(axes, cells)
    return Path(path)


def _path(axes: Any, cells: Tensor) -> None:
    """A frame around all that a glimpse saw, one around what it saw best, and a line through their middles."""
    from matplotlib.patches import Rectangle

    middles, taken = [], set()
    for number, one in enumerate(cells):
        if not bool(one.any()):
            continue
        outer, inner = _box(one > 0), _box(one >= 0.99 * one.max())
        for left, top, right, bottom in dict.fromkeys((outer, inner)):
            for colour, width in (("white", 2.4), (_INK, 1.1)):  # a light rim, so that it is seen on any ground
                frame = Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor=colour)
                axes.add_patch(frame)
                frame.set_linewidth(width)
        middles.append(((inner[0] + inner[2]) / 2, (inner[1] + inner[3]) / 2))
        corner, shift = (outer[0], outer[1]), 0
        while (corner, shift) in taken:  # windows may lie on each other, their numbers may not
            shift += 1
        taken.add((corner, shift))
        axes.annotate(
            str(number + 1), corner, xytext=(3 + 11 * shift, -3), textcoords="offset points", va="top", fontsize=7,
            color="white", bbox={"facecolor": _INK, "edgecolor": "white", "linewidth": 0.4, "pad": 1.2},
        )  # fmt: skip
    for width, colour in ((2.4, "white"), (1.1, _INK)):
        axes.plot([x for x, _ in middles], [y for _, y in middles], "-", color=colour, linewidth=width)
    axes.plot([x for x, _ in middles], [y for _, y in middles], "o", color=_INK, markeredgecolor="white", markersize=4)


def _box(seen: Tensor) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of the cells that are true."""
    rows, columns = seen.any(1).nonzero().flatten().tolist(), seen.any(0).nonzero().flatten().tolist()
    return columns[0] - 0.5, rows[0] - 0.5, columns[-1] + 0.5, rows[-1] + 0.5
