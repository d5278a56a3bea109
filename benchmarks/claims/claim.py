"""A claim, the numbers measured for it, and the verdict that follows from them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import measured
from benchmarks.measured import About

Settings = Mapping[str, Any]


class Number(NamedTuple):
    """One measured number: the panel it is drawn in, its curve there, and where on the curve."""

    panel: str
    series: str
    x: float | str
    value: float


# the numbers of one seed
Measure = Callable[[int, Settings], Iterable[Number]]


@dataclass(frozen=True)
class Point:
    """The numbers of all seeds at one place of a curve."""

    panel: str
    series: str
    x: float | str
    values: Sequence[float]

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)


@dataclass(frozen=True)
class Measured:
    """The result of one claim, as its file holds it."""

    name: str
    seeds: int
    settings: Settings
    points: Sequence[Point]
    cpu: float  # seconds, of all seeds
    about: About = field(default_factory=lambda: About.now(("numpy",)))

    def at(self, panel: str, series: str, x: float | str) -> Point:
        """The numbers at one place."""
        for point in self.points:
            if (point.panel, point.series, point.x) == (panel, series, x):
                return point
        raise KeyError(f"{self.name} has no number of {series!r} at {x!r} in {panel!r}")

    def has(self, panel: str, series: str, x: float | str) -> bool:
        return any((point.panel, point.series, point.x) == (panel, series, x) for point in self.points)

    def curve(self, panel: str, series: str) -> list[Point]:
        return [point for point in self.points if (point.panel, point.series) == (panel, series)]

    def series(self, panel: str) -> list[str]:
        return list(dict.fromkeys(point.series for point in self.points if point.panel == panel))

    def xs(self, panel: str) -> list[float | str]:
        places = dict.fromkeys(point.x for point in self.points if point.panel == panel)
        return list(places) if any(isinstance(x, str) for x in places) else sorted(places)  # type: ignore[type-var]

    def write(self, folder: Path) -> Path:
        return measured.write(folder / f"{self.name}.json", self)

    @staticmethod
    def read(path: Path) -> "Measured | None":
        """The result in a file; None if there is none."""
        told = measured.read(path)
        return None if told is None else Measured(**{**told, "points": [Point(**point) for point in told["points"]]})


@dataclass(frozen=True)
class Panel:
    """The axes of one panel of the figure."""

    x: str
    y: str
    log_x: bool = False
    log_y: bool = False
    digits: int = 1


@dataclass(frozen=True)
class Criterion:
    """A sentence that the claim implies, and whether the numbers agree with it."""

    text: str
    is_met: Callable[[Measured], bool]


@dataclass(frozen=True)
class Claim:
    """A claim with its source, its experiment, and what would confirm it.

    `setup` describes the experiment, with the names of settings in braces. `quick` are settings of a moment, which show
    that the command runs.
    """

    name: str
    title: str
    says: str
    source: str
    setup: str
    settings: Settings
    quick: Settings
    measure: Measure
    panels: Mapping[str, Panel]
    criteria: Sequence[Criterion]

    def verdict(self, result: Measured) -> str:
        met = sum(criterion.is_met(result) for criterion in self.criteria)
        return "holds" if met == len(self.criteria) else "holds in part" if met else "does not hold here"


def gather(rows: Sequence[Iterable[Number]]) -> list[Point]:
    """The points of several seeds, each of which measured the same places."""
    points: dict[tuple[str, str, float | str], list[float]] = {}
    for numbers in rows:
        for number in numbers:
            points.setdefault(number[:3], []).append(float(number.value))
    return [Point(*place, values) for place, values in points.items()]
