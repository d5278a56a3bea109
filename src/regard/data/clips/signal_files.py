"""Signals from text: CSV, the .tsv files of the UCR archive, and .ts files of sktime and aeon.  No torch here."""

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SUFFIXES = (".csv", ".tsv", ".ts")
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_TRUE = ("true", "yes")


class Signal(NamedTuple):
    """A signal, its class, if it has one, and the line that holds it."""

    values: NDArray[np.float32]  # "t c"
    label: str | None
    line: int


def read_signals(path: Path, labelled: bool) -> list[Signal]:
    """The signals of a file, one per line.

    A line of .csv and .tsv is a class, if `labelled`, and the samples of one channel. A .ts file says in its head
    whether its lines end with a class; its channels are separated by colons. Samples behind the end of a shorter
    signal may be empty or NaN.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text in UTF-8 ({error}); save it as text") from error
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}); name a file that is there") from error
    lines = [(number, line.strip("\r")) for number, line in enumerate(text.split("\n"), 1)]
    signals = _ts(path, lines, labelled) if path.suffix.lower() == ".ts" else _separated(path, lines, labelled)
    if not signals:
        raise ValueError(f"{path} holds no signal; give one per line, its class first")
    channels = signals[0].values.shape[1]
    for signal in signals:
        if signal.values.shape[1] != channels:
            raise ValueError(
                f"{path}, line {signal.line}: the signal has {signal.values.shape[1]} channels, the first one has "
                f"{channels}; give all the same"
            )
    return signals


def _separated(path: Path, lines: list[tuple[int, str]], labelled: bool) -> list[Signal]:
    separator = _SEPARATORS[path.suffix.lower()]
    rows = [(number, [cell.strip() for cell in line.split(separator)]) for number, line in lines if line.strip()]
    # names of columns have no number among them
    if rows and not any(map(_is_number, rows[0][1][labelled:])):
        rows = rows[1:]
    if not labelled and len(rows) > 1 and all(len(cells) == 1 for _, cells in rows):
        # one sample per line
        return [Signal(_channel(path, rows[0][0], [cells[0] for _, cells in rows])[:, None], None, rows[0][0])]
    signals = []
    for number, cells in rows:
        label = cells[0] if labelled else None
        if labelled and not label:
            raise ValueError(
                f"{path}, line {number}: the first cell should be a class, and it is empty; name the class"
            )
        signals.append(Signal(_channel(path, number, cells[labelled:])[:, None], label, number))
    return signals


def _ts(path: Path, lines: list[tuple[int, str]], labelled: bool) -> list[Signal]:
    """The format of sktime: lines with @ describe the data that follows @data; # begins a comment."""
    kept = [(number, line.strip()) for number, line in lines if line.strip() and not line.lstrip().startswith("#")]
    starts = [n for n, (_, line) in enumerate(kept) if line.lower() == "@data"]
    if not starts:
        raise ValueError(f"{path} has no line @data, behind which the signals of a .ts file stand; add it")
    head = {words[0].lower(): words[1:] for _, line in kept[: starts[0]] if (words := line.split())}
    if head.get("@timestamps", ["false"])[0].lower() in _TRUE:
        raise ValueError(f"{path} gives a time with every sample (@timeStamps true); save samples at equal distances")
    has_label = head.get("@classlabel", ["false"])[0].lower() in _TRUE
    if labelled and not has_label:
        raise ValueError(f"{path} has no classes (no line @classLabel true); give a file with classes")
    signals = []
    for number, line in kept[starts[0] + 1 :]:
        parts = [part.strip() for part in line.split(":")]
        label = parts.pop() if has_label else None
        if has_label and (not label or not parts or "," in label):
            raise ValueError(f"{path}, line {number}: the line should end with a colon and its class; add the class")
        channels = [_channel(path, number, part.split(",")) for part in parts]
        if len({len(channel) for channel in channels}) != 1:
            raise ValueError(
                f"{path}, line {number}: its channels differ in length, "
                f"{', '.join(str(len(each)) for each in channels)} samples; fill in those that are missing"
            )
        signals.append(Signal(np.stack(channels, -1), label, number))
    return signals


def _channel(path: Path, number: int, cells: list[str]) -> NDArray[np.float32]:  # -> "t"
    """The samples of one channel; those behind its end are left out."""
    values = []
    for cell in cells:
        if cell and cell != "?" and not _is_number(cell):
            raise ValueError(f"{path}, line {number}: a sample should be a number, got {cell[:40]!r}; fix it")
        values.append(float(cell) if cell and cell != "?" else math.nan)
    while values and math.isnan(values[-1]):
        values.pop()
    for n, value in enumerate(values):
        if not math.isfinite(np.float32(value)):
            raise ValueError(
                f"{path}, line {number}: sample {n + 1} is {'missing' if math.isnan(value) else value}; fill in a "
                "finite number"
            )
    if len(values) < 2:
        raise ValueError(
            f"{path}, line {number}: the signal has {len(values)} sample{'s' if len(values) != 1 else ''}, and two or "
            "more are needed; give more, or take the line out"
        )
    return np.array(values, np.float32)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
