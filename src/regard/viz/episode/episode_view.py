"""EpisodeView: an episode as lines of text, a figure or a page: its steps above, the attended past steps below."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from regard.common import atomic_files
from regard.viz.html import page
from regard.viz.plots.figure_file import figure_file
from regard.viz.plots.heatmap import FRAME_COLOUR

# attended steps per line of text, and the least weight of one
_TOP, _LEAST = 3, 0.05
# inches: of a step, and of the figure without its steps; letters of a label
_STEP, _REST, _LETTERS = 0.62, 1.9, 16


@dataclass(frozen=True, eq=False)
class AttendedObject:
    """The object with the greatest weight of a step, and its row and column in the frame."""

    name: str
    weight: float
    pixel: tuple[int, int]


@dataclass(frozen=True, eq=False)
class EpisodeView:
    """The steps of an episode; `weights` are those of every step to the steps before it and to itself."""

    title: str
    frames: NDArray[np.float32]  # "t h w", from 0 to 1
    seen: Sequence[str]
    actions: Sequence[str]
    rewards: Sequence[float]
    values: Sequence[float]
    weights: Tensor | None  # "t t"; None: a memory without attention
    places: NDArray[np.float32] | None = None  # "t y x", weights of the places of each frame
    objects: Sequence[AttendedObject] | None = None  # one per step

    def lines(self) -> Iterator[str]:
        """A line per step, below a heading."""
        wide = max(len("sees"), *map(len, self.seen))
        acts = max(len("does"), *map(len, self.actions))
        is_blind = self.weights is None and self.places is None and self.objects is None
        attends = "" if is_blind else "  attends to"
        yield f"step  {'sees':{wide}}  {'does':{acts}}  reward   value{attends}"
        for t, (seen, action) in enumerate(zip(self.seen, self.actions, strict=True)):
            reward = f"{self.rewards[t]:+.2f}" if self.rewards[t] else ""
            line = f"{t:4}  {seen:{wide}}  {action:{acts}}  {reward:>6}  {self.values[t]:6.2f}  {self._attended(t)}"
            yield line.rstrip()

    def _attended(self, t: int) -> str:
        """The steps, the place or the object with the greatest weights of step t."""
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
        """The row and column of the greatest weight of step t."""
        assert self.places is not None
        y, x = np.unravel_index(int(self.places[t].argmax()), self.places[t].shape)
        return int(y), int(x)

    def save(self, path: Path) -> Path:
        """Writes a page (.html) or a figure."""
        if path.suffix == ".html":
            content = page.view_document(self.title, "episode/page", self._data(), "\n".join(self.lines()))
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
        count = len(self.frames)
        names = [f"{t} {seen if len(seen) <= _LETTERS else f'{seen[:_LETTERS]}…'}" for t, seen in enumerate(self.seen)]
        below = 0.0 if self.weights is None else 0.3 * count + 1.0
        size = (max(_STEP * count + _REST, 4.0), 1.9 + below)
        with figure_file(path, [self.title, *names, *self.actions], size) as (figure, spell):
            figure.suptitle(spell(self.title), fontsize=9)
            ratios = [1.6, *([] if self.weights is None else [0.3 * count + 0.6])]
            upper, *lower = figure.subfigures(len(ratios), 1, height_ratios=ratios, squeeze=False)[:, 0]
            for t, axes in enumerate(upper.subplots(1, count, squeeze=False)[0]):
                axes.imshow(self.frames[t], cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
                axes.set(xticks=[], yticks=[])
                if self.places is not None:
                    self._frame_place(axes, t)
                if self.objects is not None:
                    y, x = self.objects[t].pixel
                    self._frame(axes, (x - 2.5, y - 2.5), 5, 5)
                reward = f"\n{self.rewards[t]:+.2f}" if self.rewards[t] else ""
                axes.set_title(spell(f"{t}"), fontsize=7)
                axes.set_xlabel(spell(f"{self.actions[t]}{reward}"), fontsize=7)
            for part in lower:
                assert self.weights is not None
                axes = part.subplots()
                image = axes.imshow(self.weights.numpy(), cmap="cividis", vmin=0.0, vmax=1.0, aspect="auto")
                axes.set_yticks(range(count), [spell(name) for name in names])
                axes.set_xticks(range(count))
                axes.set_xlabel("attended step")
                part.colorbar(image, ax=axes, label="weight")

    def _frame_place(self, axes: Any, t: int) -> None:
        """A frame around the place of the greatest weight."""
        assert self.places is not None
        (y, x), (rows, columns) = self._place(t), self.places[t].shape
        height, width = self.frames[t].shape[0] / rows, self.frames[t].shape[1] / columns
        self._frame(axes, (x * width - 0.5, y * height - 0.5), width, height)

    def _frame(self, axes: Any, corner: tuple[float, float], width: float, height: float) -> None:
        from matplotlib.patches import Rectangle

        axes.add_patch(Rectangle(corner, width, height, fill=False, edgecolor=FRAME_COLOUR, linewidth=1.5))
