"""Gates that weigh whole channels and know no places, such as squeeze and excitation: a bar a channel."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from regard.recording.recording import Recording
from regard.viz.plots.canvas import LEAST, board, ruler
from regard.viz.recording import selection
from regard.viz.recording.selection import SelectedMap

# bars of a gate, and gates of a figure; more are pooled, and counted
_BARS, _GATES = 512, 24
# inches of the bars of a gate, and of what stands above them and at their left
_WIDE, _HIGH, _ABOVE, _LEFT = 5.2, 0.9, 0.2, 0.3
_COLOUR = "#00427D"


def channels(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None) -> Path:
    """The weight of each channel, gate by gate; of differences, bars around nothing."""
    numbers = [n for n in selection.layers(recording, layer) if selection.weighs_channels(recording[n])]
    if not numbers:
        raise ValueError(
            "what='channels' draws gates with one weight a channel, and there are none here; draw what='heads'"
        )
    seen = [selection.pick(recording, n, sample, None) for n in numbers[:_GATES]]
    cells = [one.cells(_BARS)[:, 0] for one in seen]
    signed = any(selection.differs(one.one) for one in seen)
    low = min(0.0, *(float(one.min()) for one in cells))
    high = max(0.01 if signed else 1.0, *(float(one.max()) for one in cells))
    rulers = [ruler([str(i) for i in range(one.map.shape[0])], _WIDE, path) for one in seen]
    rulers = [replace(one, size=min(each.size for each in rulers)) for one in rulers]
    pitch = _ABOVE + _HIGH + max(one.below for one in rulers) + 0.04
    title = ("difference of the weight" if signed else "weight") + f" of each channel of {_of(seen)}"
    names = [f"{selection.called(one.one)}, {one.map.shape[0]} channels{selection.mark(one.one)}" for one in seen]
    notes = [*_notes(seen, signed), f"the first {_GATES} of {len(numbers)}; pass layer= for another"]
    notes = [selection.said(recording, sample), *(notes if len(numbers) > _GATES else notes[:-1])]
    with board(path, title, notes, names, _LEFT + _WIDE, pitch * len(seen)) as b:
        for n, (name, bars, below) in enumerate(zip(names, cells, rulers, strict=True)):
            axes = b.place(_LEFT, n * pitch + _ABOVE, _WIDE, _HIGH)
            wide = len(below.labels) / len(bars)
            # one shape: a step up and a step down a bar
            edges = [(i + part) * wide - 0.5 for i in range(len(bars)) for part in (0.1, 0.9)]
            steps = [step for weight in bars.tolist() for step in (weight, 0.0)][:-1]
            axes.stairs(steps, edges, fill=True, color=_COLOUR, linewidth=0)
            axes.axhline(0.0 if signed else 1.0, color="#888888", linewidth=0.5, linestyle=":")
            axes.set(xlim=(-0.5, len(below.labels) - 0.5), ylim=(1.04 * low, 1.04 * high))
            axes.spines[["top", "right"]].set_visible(False)
            below.lay(axes.xaxis)
            b.write(name, _LEFT, n * pitch + _ABOVE - 0.05, LEAST + 1.5)
    return Path(path)


def _of(seen: Sequence[SelectedMap]) -> str:
    unsure = "" if all(one.one.verified for one in seen) else " (unverified)"
    return (f"{len(seen)} gates" if len(seen) > 1 else selection.called(seen[0].one)) + unsure


def _notes(seen: Sequence[SelectedMap], signed: bool) -> list[str]:
    plain = "" if signed else "; 1 leaves a channel as it is, 0 silences it"
    many = any(one.map.shape[0] > _BARS for one in seen)
    return [
        f"gates of whole channels, which know no places{plain}",
        selection.trust(max((one.one for one in seen), key=selection.worry)),
        f"a bar is the mean of several channels where there are more than {_BARS}" if many else "",
    ]
