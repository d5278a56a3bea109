"""Rows with their bounds, and the table of rows: in the terminal, as Markdown, as JSON."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from benchmarks.timing import Effort, Spread, Timed

Unit = Literal["× the time", "× as fast", "× the memory", "MB", "ms", "µs"]


@dataclass(frozen=True)
class Bound:
    """The bound that a measured value must reach."""

    at: Literal["most", "least"]
    value: float

    def holds(self, measured: float) -> bool:
        return measured <= self.value if self.at == "most" else measured >= self.value

    def __str__(self) -> str:
        return f"{'≤' if self.at == 'most' else '≥'} {self.value:,g}"


@dataclass(frozen=True)
class Row:
    """One measurement; `measured` is None if it could not be measured, and `note` gives the reason."""

    case: str
    compared: str
    unit: Unit | None = None
    measured: Spread | None = None
    bound: Bound | None = None
    clock: str = ""
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        if self.bound is None:
            return ""
        return "reached" if self.bound.holds(self.measured.median) else "falls short"

    def cells(self) -> list[str]:
        bound = "" if self.bound is None else _united(str(self.bound), self.unit)
        return [self.case, self.compared, bound, self._result(), self.verdict, self.clock, self.note]

    def _result(self) -> str:
        if self.measured is None:
            return ""
        median, low, high = map(_short, self.measured)
        return _united(median, self.unit) + (f" [{low}, {high}]" if self.measured.low != self.measured.high else "")

    def json(self) -> dict[str, object]:
        fields = asdict(self)
        fields["measured"] = None if self.measured is None else self.measured._asdict()
        return {**fields, "verdict": self.verdict}


Case = Callable[[Effort], Iterator[Row]]

HEADINGS = ["case", "compared", "must reach", "measured [quartiles]", "verdict", "clock", "remarks"]


def _short(value: float) -> str:
    """The number with three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _united(number: str, unit: Unit | None) -> str:
    if unit is None:
        return number
    return f"{number}{'' if unit[0] == '×' else ' '}{unit}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs" if seconds < 1e-3 else f"{_short(seconds * 1e3)} ms"


def cost(case: str, timed: Timed, mine: str, other: str, at_most: float | None = None, note: str = "") -> Row:
    """Our time as a multiple of the other's time."""
    bound = None if at_most is None else Bound("most", at_most)
    return _row(case, timed, mine, other, "× the time", timed.ratio(mine, other), bound, note)


def gain(case: str, timed: Timed, mine: str, other: str, at_least: float | None = None, note: str = "") -> Row:
    """Our speed as a multiple of the other's speed."""
    bound = None if at_least is None else Bound("least", at_least)
    return _row(case, timed, mine, other, "× as fast", timed.ratio(other, mine), bound, note)


def _row(
    case: str, timed: Timed, mine: str, other: str, unit: Unit, measured: Spread, bound: Bound | None, note: str
) -> Row:
    times = f"{_milliseconds(timed.of(mine).median)} to {_milliseconds(timed.of(other).median)}"
    return Row(case, f"{mine} : {other}", unit, measured, bound, timed.clock, f"{times}; {note}" if note else times)


def amount(
    case: str,
    compared: str,
    unit: Unit,
    value: float | Spread,
    at_most: float | None = None,
    *,
    clock: str = "",
    note: str = "",
) -> Row:
    """A single quantity."""
    measured = value if isinstance(value, Spread) else Spread(value, value, value)
    return Row(case, compared, unit, measured, None if at_most is None else Bound("most", at_most), clock, note)


def absent(case: str, compared: str, why: str) -> Row:
    """A row that could not be measured."""
    return Row(case, compared, note=why)


def markdown(rows: Sequence[Row]) -> str:
    lines = [HEADINGS, ["---"] * len(HEADINGS), *[row.cells() for row in rows]]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def summary(rows: Sequence[Row]) -> str:
    bound = [row for row in rows if row.bound is not None]
    reached = sum(row.verdict == "reached" for row in bound)
    failed = sum(row.measured is None for row in rows)
    said = f"{reached} of {len(bound)} bounds are reached, {len(bound) - reached} fall short."
    return said + (f" {failed} rows could not be measured." if failed else "")


# widths of the columns in the terminal; longer cells shift the rest of their line
WIDTHS = [52, 68, 17, 30, 12, 29, 0]


def line(cells: Sequence[str]) -> str:
    """One line of the table in the terminal."""
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()
