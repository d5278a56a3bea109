"""The CPU time of a training, over all processes that took part in it.

Every process appends lines to its own file, RUN/cpu/N.jsonl, so that a kill loses only the time after the last line.
Steps after the last checkpoint are repeated by the next process and count twice, as they should. A run that was
trained by other means may have RUN/cpu.json: {"seconds": …, "steps": [[step, seconds], …]}, with optional steps; it
counts as the first process.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO


@dataclass(frozen=True)
class Spent:
    """The total of CPU seconds, and the CPU seconds at each step."""

    seconds: float
    steps: dict[int, float]

    @staticmethod
    def of(run: Path) -> "Spent | None":
        """The CPU time of a run; None if it was not counted."""
        parts: list[tuple[float, list[tuple[int, float]]]] = []
        if (run / "cpu.json").exists():
            told = json.loads((run / "cpu.json").read_text(encoding="utf-8"))
            parts.append((told["seconds"], [(step, seconds) for step, seconds in told.get("steps", [])]))
        for path in sorted((run / "cpu").glob("*.jsonl"), key=lambda path: int(path.stem)):
            lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
            if lines:
                parts.append((lines[-1]["cpu"], [(line["step"], line["cpu"]) for line in lines]))
        if not parts:
            return None
        total, steps = 0.0, dict[int, float]()
        for seconds, reached in parts:
            steps.update((step, total + at) for step, at in reached)
            total += seconds
        return Spent(total, dict(sorted(steps.items())))


class Meter:
    """Counts the CPU time of this process from now on; the first note creates the file."""

    def __init__(self, run: Path) -> None:
        self.run, self.file = run, None
        self.start = time.process_time()

    file: IO[str] | None

    def note(self, step: int) -> float:
        """Writes the CPU seconds until now, and returns them."""
        if self.file is None:
            folder = self.run / "cpu"
            folder.mkdir(exist_ok=True)
            self.file = (folder / f"{len(list(folder.glob('*.jsonl')))}.jsonl").open("x", encoding="utf-8")
        seconds = time.process_time() - self.start
        self.file.write(json.dumps({"step": step, "cpu": round(seconds, 3)}) + "\n")
        self.file.flush()
        return seconds

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
