"""Gates that weigh whole channels without positions, such as squeeze and excitation: one bar per channel."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from regard.recording.recording import Recording
from regard.viz.plots.canvas import MIN_FONT, axis_labels, open_canvas
from regard.viz.recording import selection
from regard.viz.recording.selection import SelectedMap

# bars per gate, pooled if there are more channels, and gates per figure
_MAX_BARS, _MAX_GATES = 512, 24
# inches: the bars of a gate, the space above them and at their left
_WIDTH, _HEIGHT, _ABOVE, _LEFT = 5.2, 0.9, 0.2, 0.3
_COLOUR = "#00427D"


def channels_figure(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None) -> Path:
    """The weight of each channel, gate by gate; for differences, bars around zero."""
    numbers = [n for n in selection.layer_numbers(recording, layer) if selection.is_channel_gate(recording[n])]
    if not numbers:
        raise ValueError(
            "what='channels' draws gates with one weight per channel, and there are none here; draw what='heads'"
        )
    gates = [selection.select_map(recording, n, sample, None) for n in numbers[:_MAX_GATES]]
    weights = [gate.cells(_MAX_BARS)[:, 0] for gate in gates]
    signed = any(selection.is_difference(gate.recorded_map) for gate in gates)
    low = min(0.0, *(float(bars.min()) for bars in weights))
    high = max(0.01 if signed else 1.0, *(float(bars.max()) for bars in weights))
    axes_labels = [axis_labels([str(i) for i in range(gate.map.shape[0])], _WIDTH, path) for gate in gates]
    font_size = min(numbers_below.font_size for numbers_below in axes_labels)
    axes_labels = [replace(numbers_below, font_size=font_size) for numbers_below in axes_labels]
    pitch = _ABOVE + _HEIGHT + max(numbers_below.height for numbers_below in axes_labels) + 0.04
    title = ("difference of the weight" if signed else "weight") + f" of each channel of {_gates_label(gates)}"
    names = [_gate_name(gate) for gate in gates]
    notes = [selection.prediction_note(recording, sample), *_notes(gates, signed)]
    if len(numbers) > _MAX_GATES:
        notes.append(f"the first {_MAX_GATES} of {len(numbers)}; pass layer= for another")
    with open_canvas(path, title, notes, names, _LEFT + _WIDTH, pitch * len(gates)) as canvas:
        for n, (name, bars, numbers_below) in enumerate(zip(names, weights, axes_labels, strict=True)):
            axes = canvas.add_axes(_LEFT, n * pitch + _ABOVE, _WIDTH, _HEIGHT)
            channels = len(numbers_below.labels)
            bar = channels / len(bars)
            # one shape with a step up and a step down per bar
            edges = [(i + part) * bar - 0.5 for i in range(len(bars)) for part in (0.1, 0.9)]
            steps = [step for weight in bars.tolist() for step in (weight, 0.0)][:-1]
            axes.stairs(steps, edges, fill=True, color=_COLOUR, linewidth=0)
            axes.axhline(0.0 if signed else 1.0, color="#888888", linewidth=0.5, linestyle=":")
            axes.set(xlim=(-0.5, channels - 0.5), ylim=(1.04 * low, 1.04 * high))
            axes.spines[["top", "right"]].set_visible(False)
            numbers_below.set_on(axes.xaxis)
            canvas.write(name, _LEFT, n * pitch + _ABOVE - 0.05, MIN_FONT + 0.5)
    return Path(path)


def _gate_name(gate: SelectedMap) -> str:
    name, suffix = selection.display_name(gate.recorded_map), selection.unverified_suffix(gate.recorded_map)
    return f"{name}, {gate.map.shape[0]} channels{suffix}"


def _gates_label(gates: Sequence[SelectedMap]) -> str:
    suffix = selection.unverified_suffix(*(gate.recorded_map for gate in gates))
    return (f"{len(gates)} gates" if len(gates) > 1 else selection.display_name(gates[0].recorded_map)) + suffix


def _notes(gates: Sequence[SelectedMap], signed: bool) -> list[str]:
    meaning = "" if signed else "; 1 leaves a channel as it is, 0 silences it"
    is_pooled = any(gate.map.shape[0] > _MAX_BARS for gate in gates)
    return [
        f"gates of whole channels, without positions{meaning}",
        selection.verification_label(*(gate.recorded_map for gate in gates)),
        f"a bar is the mean of several channels where there are more than {_MAX_BARS}" if is_pooled else "",
    ]
