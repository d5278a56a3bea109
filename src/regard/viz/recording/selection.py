"""Which map of a recording is looked at: its layer, sample and head, its rows and columns in words, its name."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attn import checks
from regard.attn.maps.attention_map import AttentionMap
from regard.attn.terms.read import entropy as entropy_of
from regard.recording.analysis.derived_maps import Difference, HeadMean, Mean
from regard.recording.recorded_map import HARD, RecordedMap
from regard.recording.recording import Recording
from regard.viz.text import labels

# how far a weight in low precision may lie below nothing
_SLACK = 1e-2
# rows that stand for all when only a mean is wanted
ROWS = 64
# how many weights are looked at together
_AT_ONCE = 1 << 22
KINDS = {
    "self": "self attention",
    "cross": "cross attention",
    "alignment": "alignment",
    "gate": "gate",
    "glimpse": "glimpse",
    "hop": "memory hop",
}


@dataclass(frozen=True)
class SelectedMap:
    """One map, "q k": of one head, or the mean of all; `number` is its place in the recording."""

    one: RecordedMap
    number: int
    map: AttentionMap  # "q k"
    head: str  # "head 3 of 12", "mean of 12 heads", or nothing where there is one
    rows: list[str]
    columns: list[str]

    @property
    def named(self) -> str:
        """The module, its call where there were several, and the head."""
        return " · ".join(part for part in (called(self.one), self.head) if part)

    def asked(self, row: int) -> str:
        """A query by its position and, if it is known, its piece."""
        number = str(positions(self.one)[row])
        return f"query {number}" + ("" if self.rows[row] == number else f" '{self.rows[row]}'")

    def cells(self, most: int) -> Tensor:  # -> "height width"
        """The weights to be drawn, or the differences, in at most `most` cells a side."""
        long = max(self.map.shape) > most
        return sane(self.map.coarse(most, most) if long else self.map.dense(), self.one, signed=differs(self.one))

    def pooled(self, most: int) -> str:
        """What to say of a map in few cells; nothing if all are there."""
        q, k = self.map.shape
        if max(q, k) <= most:
            return ""
        return f"pooled from {q} × {k}: a cell is what an average row of it gives to all its columns"


def called(one: RecordedMap) -> str:
    """The name of a map: its module, and which call that was, if not the first."""
    return labels.legible(one.name or "model") + (f" · call {one.call}" if one.call else "")


def mark(one: RecordedMap) -> str:
    """What a title says of a map that is not sure."""
    return "" if one.verified else " (unverified)"


def worry(one: RecordedMap) -> float:
    """Greatest for the map that is least sure."""
    return math.inf if one.certificate is None else one.certificate / one.tolerance if one.tolerance else math.inf


def trust(one: RecordedMap) -> str:
    """How far a map is sure, in words."""
    if one.verified:
        return f"certificate {one.certificate:.1g}"
    return "unverified: " + (
        "nothing could be checked" if one.certificate is None else f"|P·V − out| up to {one.certificate:.1g}"
    )


def differs(one: RecordedMap) -> bool:
    """Is it the difference of two maps, or made of one? Then its cells are signed, however small they are."""
    # also after it was saved: a map tells how it was made, "mean of difference of sdpa"
    return isinstance(one.weights, Difference) or re.search(r"\bdifference of\b", one.captured_from) is not None


def weighs_channels(one: RecordedMap) -> bool:
    """Is it a gate that knows no places, with one weight a channel?"""
    return one.kind == "gate" and one.grid is None and one.shape[-1] == 1 and one.shape[-2] > 0


def hard(one: RecordedMap) -> bool:
    """Was the likeliest key alone read, whatever weight the others have?"""
    return one.captured_from == HARD


def said(recording: Recording, sample: int) -> str:
    """What the model answered, where the recording knows it: that of sample 0."""
    return (
        f"the model says: {labels.legible(recording.about['said'])}" if "said" in recording.about and not sample else ""
    )


def axes(recording: Recording, one: RecordedMap, usual: tuple[str, str] = ("queries", "keys")) -> tuple[str, str]:
    """What the rows and the columns of a map are: a gate's channels and places, or what the recording is told about."""
    if one.kind == "gate":
        return "channels", "places"
    rows, columns = (recording.about.get(name, other) for name, other in zip(("queries", "keys"), usual, strict=True))
    return labels.legible(rows), labels.legible(columns)


def sane(cells: Tensor, one: RecordedMap, *, signed: bool = False) -> Tensor:
    """The cells on the CPU in float32, if they can be drawn; a figure of weights takes no differences."""
    if differs(one) and not signed:
        raise ValueError(
            f"{called(one)!r} is a difference, and this figure is one of weights; draw what='map', 'heads' or "
            "'difference'"
        )
    cells = cells.detach().to("cpu", torch.float32)
    if not bool(torch.isfinite(cells).all()):
        raise ValueError(
            f"weights of {called(one)!r} must be finite to be drawn, got {cells[~torch.isfinite(cells)][0].item()}; "
            "leave that map out, recording['name'] picks some"
        )
    if not signed and cells.numel() and float(cells.min()) < -_SLACK:
        raise ValueError(
            f"weights of {called(one)!r} must not be negative, got {float(cells.min()):.3g}; "
            "make differences with recording.difference(other)"
        )
    return cells if signed else cells.clamp_min(0.0)


def layers(recording: Recording, layer: int | str | None) -> list[int]:
    """The places in the recording that a layer stands for: all, one by its number, or all calls of a module."""
    checks.term("recording", recording, Recording, "tape")
    if not len(recording):
        raise ValueError("recording must hold at least one map, got none; run the model under regard.record first")
    if layer is None:
        return list(range(len(recording)))
    if isinstance(layer, str):
        checks.known("layer", layer, recording.names)
        return [n for n, one in enumerate(recording) if one.name == layer]
    return [_within("layer", layer, len(recording), "maps of the recording")]


def _within(name: str, value: int, count: int, of: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, got {value!r}; try {name}=0")
    if not -count <= value < count:
        raise ValueError(f"{name} must be one of the {count} {of}, 0 to {count - 1}, got {value}; try {name}=0")
    return value % count


def heads(one: RecordedMap, sample: int) -> AttentionMap:  # -> "h q k"
    """The heads of one sample. Of leading axes the first counts samples; all others, if there are several, heads."""
    *lead, _, _ = one.shape
    number = _within("sample", sample, lead[0] if lead else 1, f"samples of {called(one)!r}")
    return one.weights.pick(number) if lead else one.weights


def each(found: AttentionMap) -> Iterator[AttentionMap]:
    """Head by head."""
    lead = found.shape[:-2]
    for n in range(math.prod(lead)):
        yield found.pick(*(int(i) for i in torch.unravel_index(torch.tensor(n), lead))) if lead else found


def query(one: SelectedMap, asked: int) -> int:
    """Which row that is, counted from the front."""
    return _within("query", asked, one.map.shape[0], f"queries of {called(one.one)!r}")


def pick(recording: Recording, number: int, sample: int, head: int | None) -> SelectedMap:
    """One map of a sample: of a head, by the number that it has in the model, or the mean of all."""
    one = recording[number]
    found = heads(one, sample)
    names = numbers(one)
    if head is None:
        said = f"mean of {len(names)} heads" if len(names) > 1 else ""
        shown = _mean(found)
    else:
        if isinstance(head, bool) or not isinstance(head, int):
            raise TypeError(f"head must be a whole number, got {head!r}; try head={names[0]}")
        if head not in names:
            there = ", ".join(map(str, names[:8])) + (f" … {names[-1]}" if len(names) > 8 else "")
            raise ValueError(f"head must be one that {called(one)!r} has, {there}, got {head}; try head={names[0]}")
        said = f"head {head}" + (f" of {len(names)}" if one.heads is None else "")
        shown = list(each(found))[names.index(head)]
    rows, columns = pieces(recording, one, sample)
    return SelectedMap(one, number, shown, said, rows, columns)


def numbers(one: RecordedMap) -> list[int]:
    """The numbers of the heads in the model, of which some may have been recorded."""
    count = math.prod(one.shape[1:-2])
    return list(range(count)) if one.heads is None or len(one.heads) != count else list(one.heads)


def _mean(found: AttentionMap) -> AttentionMap:  # "*h q k" -> "q k"
    if len(found.shape) == 2:
        return found
    return HeadMean(found).pick(0) if len(found.shape) == 3 else Mean(*each(found))


def first(recording: Recording, layer: int | str | None, sample: int, head: int | None) -> SelectedMap:
    """The map of that layer; without one, the first of the recording."""
    numbers = layers(recording, layer)
    if isinstance(layer, str) and len(numbers) > 1:
        raise ValueError(
            f"layer {layer!r} was called {len(numbers)} times; pass the number of one call, layer={numbers[0]} "
            f"to layer={numbers[-1]}"
        )
    return pick(recording, numbers[0], sample, head)


def positions(one: RecordedMap) -> list[int]:
    """Where the queries of a map stand in the text."""
    return [one.step + n for n in (range(one.shape[-2]) if one.rows is None else one.rows)]


def columns(one: RecordedMap) -> tuple[str, ...]:
    """And its keys, in numbers."""
    return tuple(str(one.first + n) for n in range(one.shape[-1]))


def pieces(recording: Recording, one: RecordedMap, sample: int) -> tuple[list[str], list[str]]:
    """What stands at the rows and columns of a map: pieces of the text where they are known, else positions."""
    rows, found = recording.labels(one) if sample == 0 else (None, None)  # the pieces are those of sample 0
    return (
        [str(n) for n in positions(one)] if rows is None else [labels.shown(piece) for piece in rows],
        list(columns(one)) if found is None else [labels.shown(piece) for piece in found],
    )


def entropies(found: AttentionMap, *, signed: bool = False) -> tuple[Tensor, int]:  # -> "h"
    """−Σ w log w in nats, the mean over rows of every head, and of how many rows: all, or some of many.

    Of differences, which are `signed`, there is none: NaN; nor of anything else that is no weight.
    """
    *lead, q, k = found.shape
    count = math.prod(lead)
    rows = torch.linspace(0, q - 1, min(q, ROWS)).round().long().to(found.device)
    step = max(1, _AT_ONCE // max(count * k, 1))
    total = torch.zeros(count)
    for n in range(0, len(rows), step):
        some = found.rows(rows[n : n + step])
        weights = not signed and (not some.numel() or float(some.min()) >= -_SLACK)
        spread = entropy_of(some) if weights else some.sum(-1) * math.nan
        total += spread.reshape(count, -1).sum(-1).to(total)
    return total / max(len(rows), 1), len(rows)
