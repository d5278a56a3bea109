"""Recordings of known weights, and figures as they stand before they are written."""

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure

from regard.attn.maps.attention_map import DenseMap
from regard.recording.recorded_map import Kind, RecordedMap
from regard.recording.recording import Recording

TEXT = ("The", "cat", "that", "the", "dog", "chased", "sat", "on", "the", "mat", ".")


def weights(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.softmax(2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), -1)


def of(cells: torch.Tensor, kind: str = "cross") -> Recording:
    """One map of these weights, "q k"."""
    return Recording((RecordedMap("a", kind, DenseMap(cells), certificate=0.0),))  # type: ignore[arg-type]


def attended(
    layers: int = 2, heads: int = 3, n: int = 5, *, seed: int = 0, samples: int = 2, **known: Any
) -> Recording:
    """Self attention, (sample, head, query, key), with the words of TEXT as far as there are."""
    told = {"certificate": 1e-7, **known}
    maps = [
        RecordedMap(f"layers.{l}", "self", DenseMap(weights(samples, heads, n, n, seed=seed + l)), **told)
        for l in range(layers)
    ]
    recording = Recording(tuple(maps))
    return recording.with_labels(TEXT[:n]) if n <= len(TEXT) else recording.with_labels([f"w{i}" for i in range(n)])


def seen(high: int = 3, wide: int = 4, before: int = 2, queries: int | None = None, **known: Any) -> Recording:
    """Self attention over a grid with some tokens before it, or so many queries of a decoder."""
    k = before + high * wide
    kind = "self" if queries is None else "cross"
    told = {"certificate": 0.0, "grid": (high, wide), **known}
    return Recording((RecordedMap("vit.3", kind, DenseMap(weights(1, 2, queries or k, k)), **told),))


def glimpsed(*boxes: tuple[int, int, int, int], high: int = 7, wide: int = 11) -> Recording:
    """A call a glimpse; left, top, right and bottom of each window."""
    maps = []
    for call, (left, top, right, bottom) in enumerate(boxes):
        one = torch.zeros(high, wide)
        one[top:bottom, left:right] = 1 / max((right - left) * (bottom - top), 1)
        maps.append(
            RecordedMap("eye", "glimpse", DenseMap(one.reshape(1, 1, -1)), call, certificate=0.0, grid=(high, wide))
        )
    return Recording(tuple(maps))


def weighed(*channels: int, **known: Any) -> Recording:
    """Gates of so many channels, which know no places."""
    maps = [
        RecordedMap(
            f"blocks.{n}.gate",
            "gate",
            DenseMap(torch.rand(1, 1, c, 1, generator=seeded(n))),
            **{"certificate": 0.0, **known},
        )
        for n, c in enumerate(channels)
    ]
    return Recording(tuple(maps))


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def hopped(hops: int = 3, slots: int = 5, queries: int = 1) -> Recording:
    maps = [
        RecordedMap(f"hops.{n}", "hop", DenseMap(weights(1, queries, slots, seed=n)), certificate=0.0)
        for n in range(hops)
    ]
    return Recording(tuple(maps)).with_labels(["where ?"] * queries, [f"slot {n}" for n in range(slots)])


# a recording that each figure can draw, and with what
def remembered(*locations: int, steps: int = 5, count: int = 13, heads: int = 1, **known: Any) -> Recording:
    """Heads that write and read at these locations alone, the reads before the writes."""
    maps = []
    kinds: tuple[Kind, ...] = ("read", "write")
    for n, kind in enumerate(kinds):
        cells = torch.zeros(1, heads, steps, count)
        cells[..., list(locations)] = weights(1, heads, steps, len(locations), seed=n)
        maps.append(RecordedMap(f"heads.{kind}", kind, DenseMap(cells), **{"certificate": 0.0, **known}))
    return Recording(tuple(maps)).with_labels(["a", "b", "<eos>", "a", "b"][:steps])


DRAWN: dict[str, tuple[Callable[[], Recording], dict[str, Any]]] = {
    "map": (attended, {"head": 1}),
    "heads": (attended, {}),
    "lines": (attended, {}),
    "text": (attended, {"query": 2}),
    "texts": (attended, {"query": 2}),
    "channels": (lambda: weighed(5, 7), {}),
    "overlay": (seen, {"query": 0, "image": torch.rand(3, 9, 12, generator=torch.Generator().manual_seed(1))}),
    "class-token": (lambda: seen(before=1), {}),
    "glimpses": (lambda: glimpsed((0, 0, 3, 3), (4, 2, 8, 7)), {"image": torch.zeros(14, 22)}),
    "captions": (lambda: seen(queries=5), {"image": torch.zeros(3, 9, 12, dtype=torch.uint8)}),
    "saliency": (lambda: seen(queries=5), {"image": torch.rand(3, 9, 12, generator=torch.Generator().manual_seed(1))}),
    "hops": (hopped, {}),
    "memory": (lambda: remembered(1, 2, 5), {}),
    "difference": (attended, {"other": attended(seed=7)}),
}


class Caught:
    """The figures that were written while this was in place."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.figures: list[Figure] = []
        plain = Figure.savefig

        def caught(figure: Figure, *given: Any, **named: Any) -> None:
            self.figures.append(figure)
            plain(figure, *given, **named)

        monkeypatch.setattr(Figure, "savefig", caught)

    @property
    def last(self) -> Figure:
        return self.figures[-1]


def said(path: Path) -> str:
    """All text of an SVG, each line of it on one."""
    return "\n".join(unescape(found) for found in re.findall(r">([^<>]+)</text>", path.read_text(encoding="utf-8")))
