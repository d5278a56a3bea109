"""The result of a device as a file, as a text to paste into an issue, and as a row of docs/gpu.md."""

import json
import platform
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks import machine, measured
from benchmarks.gpu.parity import Parity
from benchmarks.gpu.speed import Speed

FOLDER = Path(__file__).parents[1] / "results" / "gpu"
LIBRARIES = ("triton", "xformers", "entmax", "adasplash")


@dataclass(frozen=True)
class Report:
    """What was measured on a device."""

    date: str
    device: Mapping[str, str]
    versions: Mapping[str, str]
    parity: Sequence[Parity]
    speed: Sequence[Speed]

    @property
    def failures(self) -> list[Parity]:
        return [each for each in self.parity if not each.holds]

    def write(self, folder: Path = FOLDER) -> Path:
        slug = re.sub(r"[^a-z0-9]+", "-", self.device["name"].lower()).strip("-")
        parity = [{**asdict(each), "holds": each.holds} for each in self.parity]
        value = {**asdict(self), "parity": parity, "speed": [each._asdict() for each in self.speed]}
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{slug}-{self.date}.json"
        path.write_text(measured.dumps(value) + "\n", encoding="utf-8")
        return path

    def text(self) -> str:
        """Markdown for an issue."""
        facts = [f"{name} {value}" for name, value in (*self.device.items(), *self.versions.items())]
        lines = [f"## make bench-gpu on {self.device['name']}, {self.date}", "", *(f"- {fact}" for fact in facts), ""]
        lines += [f"Parity with the CPU: {len(self.parity) - len(self.failures)} of {len(self.parity)} calls."]
        lines += [f"- {failure}" for failure in self.failures]
        lines += ["", measured.table(HEADINGS, [_cells(each) for each in self.speed])] if self.speed else []
        return "\n".join(lines)


HEADINGS = ("case", "mode", "call", "ms [quartiles]", "MB", "difference")


def _cells(row: Speed) -> list[str]:
    if row.median is None:
        return [row.case, row.mode, row.call, row.error, "", ""]
    memory = "" if row.megabytes is None else f"{row.megabytes:,.0f}"
    time = f"{row.median:.3g} [{row.low:.3g}, {row.high:.3g}]"
    return [row.case, row.mode, row.call, time, memory, f"{row.difference:.0e}"]


def device_facts(device: torch.device) -> dict[str, str]:
    """The device, its driver and its size."""
    if device.type != "cuda":
        return {"name": machine.processor(), "kind": device.type}
    properties = torch.cuda.get_device_properties(device)
    return {
        "name": properties.name,
        "compute capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": str(properties.multi_processor_count),
        "memory": f"{properties.total_memory / 2**30:.0f} GiB",
        "driver": _driver(),
    }


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def versions() -> dict[str, str]:
    core = {"regard": machine.versions()["regard"], "python": platform.python_version(), "torch": torch.__version__}
    return {**core, "CUDA": str(torch.version.cuda or torch.version.hip), **measured.installed(LIBRARIES)}


def devices(folder: Path = FOLDER) -> Iterator[str]:
    """The devices that have results: rows of docs/gpu.md."""
    files: list[dict[str, Any]] = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]
    if not files:
        yield "No device has results yet."
        return
    rows = []
    for told in files:
        held = sum(each["holds"] for each in told["parity"])
        rows.append(
            [told["device"]["name"], told["date"], told["versions"]["torch"], f"{held} of {len(told['parity'])}"]
        )
    yield from measured.table(("device", "date", "torch", "calls equal to the CPU's"), rows).splitlines()
