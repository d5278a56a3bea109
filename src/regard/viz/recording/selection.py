"""The map of a recording that a figure shows: its layer, sample and head, its labels and its name."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap
from regard.attn.terms.read import entropy
from regard.common import checks
from regard.recording.analysis.derived_maps import Difference, HeadMean, Mean
from regard.recording.recorded_map import HARD, KINDS, RecordedMap
from regard.recording.recording import Recording
from regard.viz.text import labels

# the distance below zero to which rounding may take a weight in low precision
_ROUNDING = 1e-2
# rows that an entropy is averaged over, evenly spaced
ENTROPY_ROWS = 64
# weights that are computed together
_WEIGHTS_PER_STEP = 1 << 22


@dataclass(frozen=True)
class SelectedMap:
    """One map, "q k", of one head or of the mean over heads; `number` is its index in the recording."""

    recorded_map: RecordedMap
    number: int
    map: AttentionMap  # "q k"
    head: str  # "head 3 of 12", "mean of 12 heads", or "" where there is one head
    rows: list[str]
    columns: list[str]
    sample: int = 0

    @property
    def title(self) -> str:
        """The module, its call if there were several, and the head."""
        return " · ".join(part for part in (display_name(self.recorded_map), self.head) if part)

    def query_label(self, row: int) -> str:
        """The position of a query and, if it is known, its token."""
        position = str(query_positions(self.recorded_map)[row])
        return f"query {position}" + ("" if self.rows[row] == position else f" '{self.rows[row]}'")

    def cells(self, max_side: int) -> Tensor:  # -> "height width"
        """The weights or differences to draw, in at most `max_side` cells per side."""
        is_long = max(self.map.shape) > max_side
        cells = self.map.pooled(max_side, max_side) if is_long else self.map.dense()
        return drawable_cells(cells, self.recorded_map, signed=is_difference(self.recorded_map))

    def pooling_note(self, max_side: int) -> str:
        """A note that the map was pooled to `max_side` cells per side; "" if it was not."""
        q, k = self.map.shape
        if max(q, k) <= max_side:
            return ""
        return f"pooled from {q} × {k}: a cell is its mean row, summed over its columns"


def display_name(recorded_map: RecordedMap) -> str:
    """The module of a map, and the number of its call unless it is the first."""
    call = f" · call {recorded_map.call}" if recorded_map.call else ""
    return labels.printable(recorded_map.name or "model") + call


def unverified_suffix(*recorded_maps: RecordedMap) -> str:
    """The end of a title: " (unverified)" if one of the maps is, else nothing."""
    return "" if all(recorded_map.verified for recorded_map in recorded_maps) else " (unverified)"


def uncertainty(recorded_map: RecordedMap) -> float:
    """The certificate in units of the tolerance, infinite where there is none."""
    if recorded_map.certificate is None or not recorded_map.tolerance:
        return math.inf
    return recorded_map.certificate / recorded_map.tolerance


def verification_label(*recorded_maps: RecordedMap) -> str:
    """The certificate of the least certain of the maps in words."""
    recorded_map = max(recorded_maps, key=uncertainty)
    certificate = recorded_map.certificate
    if recorded_map.verified:
        return f"certificate {certificate:.1g}"
    return "unverified: " + (
        "nothing could be checked" if certificate is None else f"|P·V − out| up to {certificate:.1g}"
    )


def is_difference(recorded_map: RecordedMap) -> bool:
    """Whether the map is a difference of two maps, or derived from one: its cells are signed, however small."""
    # a map that was saved and loaded is known by its origin, "mean of difference of sdpa"
    derived = re.search(r"\bdifference of\b", recorded_map.captured_from) is not None
    return isinstance(recorded_map.weights, Difference) or derived


def is_channel_gate(recorded_map: RecordedMap) -> bool:
    """Whether the map is that of a gate with one weight per channel and no positions."""
    q, k = recorded_map.shape[-2:]
    return recorded_map.kind == "gate" and recorded_map.grid is None and k == 1 and q > 0


def has_class_token(recorded_map: RecordedMap) -> bool:
    """Whether this is self attention over patches of an image with tokens before them, such as a class token."""
    q, k = recorded_map.shape[-2:]
    grid = recorded_map.grid
    return recorded_map.kind == "self" and grid is not None and q == k > grid[0] * grid[1] > 0


def is_hard(recorded_map: RecordedMap) -> bool:
    """Whether hard attention read the key of the greatest weight alone."""
    return recorded_map.captured_from == HARD


def prediction_note(recording: Recording, sample: int) -> str:
    """The model's prediction, which a recording knows for sample 0 only; "" if it does not."""
    if sample or "said" not in recording.about:
        return ""
    return f"prediction: {labels.printable(recording.about['said'])}"


def axis_names(recording: Recording, recorded_map: RecordedMap) -> tuple[str, str]:
    """The names of the rows and columns, by the kind of attention; `about` may name the queries and keys otherwise."""
    kind = KINDS[recorded_map.kind]
    rows, columns = (recording.about.get(name, name) for name in (kind.rows, kind.columns))
    if recorded_map.is_reversed:
        rows, columns = columns, rows
    return labels.printable(rows), labels.printable(columns)


def drawable_cells(cells: Tensor, recorded_map: RecordedMap, *, signed: bool = False) -> Tensor:
    """The cells on the CPU in float32; raises if they are not finite, or negative in a figure that is not `signed`."""
    name = display_name(recorded_map)
    if is_difference(recorded_map) and not signed:
        raise ValueError(
            f"{name!r} is a difference, and this figure is one of weights; draw what='map', 'heads' or 'difference'"
        )
    cells = cells.detach().to("cpu", torch.float32)
    if not bool(torch.isfinite(cells).all()):
        raise ValueError(
            f"weights of {name!r} must be finite to be drawn, got {cells[~torch.isfinite(cells)][0].item()}; "
            "leave that map out, recording['name'] picks some"
        )
    if not signed and cells.numel() and float(cells.min()) < -_ROUNDING:
        raise ValueError(
            f"weights of {name!r} must not be negative, got {float(cells.min()):.3g}; "
            "make differences with recording.difference(other)"
        )
    return cells if signed else cells.clamp_min(0.0)


def layer_numbers(recording: Recording, layer: int | str | None) -> list[int]:
    """The indices of the maps of a layer: all (None), one by its index, or all calls of a module by its name."""
    checks.instance_of("recording", recording, Recording, "Recording(maps)")
    if not len(recording):
        raise ValueError("recording must hold at least one map, got none; run the model under regard.record first")
    if layer is None:
        return list(range(len(recording)))
    if isinstance(layer, str):
        checks.known("layer", layer, recording.names)
        return [n for n, recorded_map in enumerate(recording) if recorded_map.name == layer]
    return [_checked_index("layer", layer, len(recording), "maps of the recording")]


def _checked_index(name: str, value: int, count: int, items: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, got {value!r}; try {name}=0")
    if not -count <= value < count:
        raise ValueError(f"{name} must be one of the {count} {items}, 0 to {count - 1}, got {value}; try {name}=0")
    return value % count


def sample_heads(recorded_map: RecordedMap, sample: int) -> AttentionMap:  # -> "*h q k"
    """The heads of one sample: the first leading axis counts samples, all others count heads."""
    *lead, _, _ = recorded_map.shape
    items = f"samples of {display_name(recorded_map)!r}"
    index = _checked_index("sample", sample, lead[0] if lead else 1, items)
    return recorded_map.weights.pick(index) if lead else recorded_map.weights


def iter_heads(heads: AttentionMap) -> Iterator[AttentionMap]:  # "*h q k" -> "q k"
    """The heads one by one."""
    lead = heads.shape[:-2]
    for n in range(math.prod(lead)):
        yield heads.pick(*(int(i) for i in torch.unravel_index(torch.tensor(n), lead))) if lead else heads


def query_row(selected: SelectedMap, query: int) -> int:
    """The row of a query, counted from the front."""
    items = f"queries of {display_name(selected.recorded_map)!r}"
    return _checked_index("query", query, selected.map.shape[0], items)


def select_map(recording: Recording, number: int, sample: int, head: int | None) -> SelectedMap:
    """One map of a sample: of a head, by the number that it has in the model, or the mean over heads."""
    recorded_map = recording[number]
    heads = sample_heads(recorded_map, sample)
    numbers = head_numbers(recorded_map)
    if head is None:
        label = f"mean of {len(numbers)} heads" if len(numbers) > 1 else ""
        weights = _head_mean(heads)
    else:
        if isinstance(head, bool) or not isinstance(head, int):
            raise TypeError(f"head must be a whole number, got {head!r}; try head={numbers[0]}")
        if head not in numbers:
            head_list = ", ".join(map(str, numbers[:8])) + (f" … {numbers[-1]}" if len(numbers) > 8 else "")
            raise ValueError(
                f"head must be one that {display_name(recorded_map)!r} has, {head_list}, got {head}; "
                f"try head={numbers[0]}"
            )
        label = f"head {head}" + (f" of {len(numbers)}" if recorded_map.heads is None else "")
        weights = list(iter_heads(heads))[numbers.index(head)]
    rows, columns = row_and_column_labels(recording, recorded_map, sample)
    return SelectedMap(recorded_map, number, weights, label, rows, columns, sample)


def head_numbers(recorded_map: RecordedMap) -> list[int]:
    """The numbers of the heads in the model, some of which may not have been recorded."""
    count = math.prod(recorded_map.shape[1:-2])
    numbers = recorded_map.heads
    return list(range(count)) if numbers is None or len(numbers) != count else list(numbers)


def _head_mean(heads: AttentionMap) -> AttentionMap:  # "*h q k" -> "q k"
    if len(heads.shape) == 2:
        return heads
    return HeadMean(heads).pick(0) if len(heads.shape) == 3 else Mean(*iter_heads(heads))


def select_layer(recording: Recording, layer: int | str | None, sample: int, head: int | None) -> SelectedMap:
    """The map of a layer; without a layer, the first map of the recording."""
    numbers = layer_numbers(recording, layer)
    if isinstance(layer, str) and len(numbers) > 1:
        raise ValueError(
            f"layer {layer!r} was called {len(numbers)} times; pass the number of one call, layer={numbers[0]} "
            f"to layer={numbers[-1]}"
        )
    return select_map(recording, numbers[0], sample, head)


def query_positions(recorded_map: RecordedMap) -> list[int]:
    """The absolute positions of the queries of a map."""
    rows = range(recorded_map.shape[-2]) if recorded_map.rows is None else recorded_map.rows
    return [recorded_map.step + row for row in rows]


def key_positions(recorded_map: RecordedMap) -> tuple[str, ...]:
    """The absolute positions of the keys of a map, as labels."""
    return tuple(str(recorded_map.first + n) for n in range(recorded_map.shape[-1]))


def row_and_column_labels(recording: Recording, recorded_map: RecordedMap, sample: int) -> tuple[list[str], list[str]]:
    """The labels of rows and columns: tokens where they are known, which is for sample 0 only, else positions."""
    rows, columns = recording.labels(recorded_map) if sample == 0 else (None, None)
    return (
        list(map(str, query_positions(recorded_map))) if rows is None else [labels.visible_label(row) for row in rows],
        list(key_positions(recorded_map)) if columns is None else [labels.visible_label(column) for column in columns],
    )


def head_entropies(heads: AttentionMap, *, signed: bool = False) -> tuple[Tensor, int]:  # -> "h"
    """−Σ w log w in nats per head, the mean over rows, and how many rows were averaged: all, or some of many.

    Differences (`signed`) and anything else with negative entries have no entropy: NaN.
    """
    *lead, q, k = heads.shape
    count = math.prod(lead)
    rows = torch.linspace(0, q - 1, min(q, ENTROPY_ROWS)).round().long().to(heads.device)
    step = max(1, _WEIGHTS_PER_STEP // max(count * k, 1))
    total = torch.zeros(count)
    for n in range(0, len(rows), step):
        weights = heads.rows(rows[n : n + step])
        has_entropy = not signed and (not weights.numel() or float(weights.min()) >= -_ROUNDING)
        nats = entropy(weights) if has_entropy else weights.sum(-1) * math.nan
        total += nats.reshape(count, -1).sum(-1).to(total)
    return total / max(len(rows), 1), len(rows)
