"""EpisodeView: an episode as lines of text, a figure or a page: its moves above, the attended past moves below."""

import math
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from regard.common import atomic_files
from regard.viz.html import page
from regard.viz.plots.canvas import MIN_FONT, WEIGHTS, Scale
from regard.viz.plots.figure_file import figure_file
from regard.viz.plots.panels import FRAME_COLOUR
from regard.viz.plots.typesetting import wrap

# attended moves per line of text, and the least weight of one
_TOP, _LEAST = 3, 0.05
# inches of a figure: of a move in a line, of a line of moves, of a move in the attended ones, and of all else
_WIDTH, _LINE, _HEIGHT, _REST = 0.62, 1.5, 0.3, 2.4
# points of the title, and the line below it
_TITLE, _LEGEND = 9.0, "above a frame its move, below it the action and, if there is one, the reward"
# letters of a line below a frame, lines there at most, and inches of one after the first
_CAPTION, _CAPTION_LINES, _CAPTION_HEIGHT = 11, 4, 0.13
# moves per line of a figure, frames in a figure, attended moves that have names, and letters of a name
_PER_LINE, _FRAMES, _NAMED, _LETTERS = 16, 96, 30, 32


@dataclass(frozen=True, eq=False)
class AttendedObject:
    """The object with the greatest weight of a move, and its row and column in the frame."""

    name: str
    weight: float
    pixel: tuple[int, int]


@dataclass(frozen=True, eq=False)
class EpisodeView:
    """The moves of an episode; `weights` are those of every move to the moves before it and to itself."""

    title: str
    frames: NDArray[np.float32]  # "t h w", from 0 to 1
    seen: Sequence[str]
    actions: Sequence[str]
    rewards: Sequence[float]
    values: Sequence[float]
    weights: Tensor | None  # "t t"; None: a memory without attention
    places: NDArray[np.float32] | None = None  # "t y x", weights of the places of each frame
    objects: Sequence[AttendedObject] | None = None  # one per move
    cells: Sequence[str] = ()  # names of the rows of a frame

    def lines(self) -> Iterator[str]:
        """A line per move, below a heading."""
        wide = max(len("sees"), *map(len, self.seen))
        acts = max(len("does"), *map(len, self.actions))
        is_blind = self.weights is None and self.places is None and self.objects is None
        attends = "" if is_blind else "  attends to"
        yield f"move  {'sees':{wide}}  {'does':{acts}}  reward   value{attends}"
        for t, (seen, action) in enumerate(zip(self.seen, self.actions, strict=True)):
            reward = f"{self.rewards[t]:+.2f}" if self.rewards[t] else ""
            line = f"{t:4}  {seen:{wide}}  {action:{acts}}  {reward:>6}  {self.values[t]:6.2f}  {self._attended(t)}"
            yield line.rstrip()

    def _attended(self, t: int) -> str:
        """The moves, the place or the object with the greatest weights of move t."""
        if self.objects is not None:
            return f"{self.objects[t].name} {100 * self.objects[t].weight:.0f} %"
        if self.places is not None:
            y, x = self._place(t)
            return f"row {y + 1}, column {x + 1} {100 * self.places[t, y, x]:.0f} %"
        if self.weights is None:
            return ""
        row = self.weights[t, : t + 1]
        best = [int(n) for n in row.argsort(descending=True)[:_TOP] if row[n] >= _LEAST]
        return ", ".join(f"{'itself' if n == t else f'{n} {self.seen[n]}'} {100 * float(row[n]):.0f} %" for n in best)

    def _place(self, t: int) -> tuple[int, int]:
        """The row and column of the greatest weight of move t."""
        assert self.places is not None
        y, x = np.unravel_index(int(self.places[t].argmax()), self.places[t].shape)
        return int(y), int(x)

    def save(self, path: Path) -> Path:
        """Writes a page (.html) or a figure."""
        if path.suffix == ".html":
            content = page.view_document(self.title, "html/episode", self._data(), "\n".join(self.lines()))
            atomic_files.write_atomically(path, [content.encode()])
        else:
            self._draw(path)
        return path

    def _data(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "frames": self.frames.round(3).tolist(),
            "seen": list(self.seen),
            "actions": list(self.actions),
            "rewards": [float(reward) for reward in self.rewards],
            "values": [float(value) for value in self.values],
            "weights": [] if self.weights is None else [[round(w, 5) for w in row] for row in self.weights.tolist()],
            "attended": [self._attended(t) for t in range(len(self.seen))],
            "shown": {},
        }

    def _draw(self, path: Path) -> None:
        count, shown = len(self.frames), min(len(self.frames), _FRAMES)
        names = [f"{t} {seen if len(seen) <= _LETTERS else f'{seen[:_LETTERS]}…'}" for t, seen in enumerate(self.seen)]
        title = self.title if shown == count else f"{self.title}; frames of the first {shown} of {count} moves"
        lines = math.ceil(shown / _PER_LINE)
        captions = [self._caption(t) for t in range(shown)]
        below = max((caption.count("\n") for caption in captions), default=0)
        heights = [
            (_LINE + _CAPTION_HEIGHT * below) * lines,
            *([] if self.weights is None else [_HEIGHT * min(count, _NAMED) + 0.6]),
        ]
        width = max(_WIDTH * min(shown, _PER_LINE) + _REST, 4.0)
        header = [line for text in (title, _LEGEND) for line in wrap(text, width - 0.2, _TITLE)]
        size = (width, sum(heights) + 0.15 + 0.15 * len(header))
        with figure_file(path, [title, *names, *captions, *self.cells], size) as (figure, spell):
            figure.suptitle(spell("\n".join(header)), fontsize=_TITLE)
            upper, *lower = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
            grid = upper.subplots(lines, min(shown, _PER_LINE), squeeze=False)
            for t, axes in enumerate(grid.flat):
                if t < shown:
                    self._draw_move(axes, t, spell)
                else:
                    axes.axis("off")
            for part in lower:
                assert self.weights is not None
                axes = part.subplots()
                image = axes.imshow(self.weights.numpy(), cmap=WEIGHTS, vmin=0.0, aspect="auto")
                named = range(0, count, math.ceil(count / _NAMED))
                axes.set_yticks(named, [spell(names[t]) for t in named])
                axes.set_xticks(named)
                axes.set_xlabel("attended move")
                part.colorbar(image, ax=axes, label=Scale(1.0).label)

    def _draw_move(self, axes: Any, t: int, spell: Callable[[str], str]) -> None:
        """The frame of a move, with its number above, and its action and reward below."""
        axes.imshow(self.frames[t], cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        if self.cells and t % _PER_LINE == 0:
            axes.set_yticks(range(len(self.cells)), [spell(cell) for cell in self.cells], fontsize=MIN_FONT)
        if self.places is not None:
            self._frame_place(axes, t)
        if self.objects is not None:
            y, x = self.objects[t].pixel
            self._frame(axes, (x - 2.5, y - 2.5), 5, 5)
        axes.set_title(spell(f"{t}"), fontsize=7)
        axes.set_xlabel(spell(self._caption(t)), fontsize=7)

    def _caption(self, t: int) -> str:
        """The action of move t in lines that are no wider than its frame, and the reward if there is one."""
        words = re.sub(r",\s*", ", ", self.actions[t]).split()
        pieces = [word[n : n + _CAPTION] for word in words for n in range(0, len(word), _CAPTION)]
        lines = textwrap.wrap(" ".join(pieces), _CAPTION)
        if len(lines) > _CAPTION_LINES:
            lines = [*lines[: _CAPTION_LINES - 1], f"{lines[_CAPTION_LINES - 1][: _CAPTION - 1]}…"]
        reward = [f"reward {self.rewards[t]:+.2f}"] if abs(self.rewards[t]) >= 0.005 else []
        return "\n".join([*lines, *reward])

    def _frame_place(self, axes: Any, t: int) -> None:
        """A frame around the place of the greatest weight."""
        assert self.places is not None
        (y, x), (rows, columns) = self._place(t), self.places[t].shape
        height, width = self.frames[t].shape[0] / rows, self.frames[t].shape[1] / columns
        self._frame(axes, (x * width - 0.5, y * height - 0.5), width, height)

    def _frame(self, axes: Any, corner: tuple[float, float], width: float, height: float) -> None:
        from matplotlib.patches import Rectangle

        axes.add_patch(Rectangle(corner, width, height, fill=False, edgecolor=FRAME_COLOUR, linewidth=1.5))
