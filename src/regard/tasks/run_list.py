"""list_runs: the runs in a folder, with their scores, dates and curves, read from their records.  No torch here."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from regard.tasks.registry import config_from_record
from regard.training.run_folder import BEST, LAST, METRICS, RECORD, RunRecord

# folders below the one that is named
_DEPTH = 3
# bytes of a metrics.jsonl that are read, from its end
_MAX_METRICS = 1 << 24


@dataclass(frozen=True)
class RunSummary:
    """A run, or the error that its record raises."""

    run: str
    task: str = ""
    model: str = ""
    data: str = ""
    metric: str = ""
    higher_is_better: bool = True
    best: float | None = None  # the deciding score of the best validation
    best_step: int | None = None
    step: int | None = None  # the last that was logged or validated
    changed: str = ""  # date and time of the last change, UTC
    curve: Sequence[float] = ()  # the deciding score of every validation
    has_weights: bool = False
    error: str = ""


def list_runs(folder: Path) -> list[RunSummary]:
    """The runs in a folder, and in the folders below it, the latest first."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder; name one that has runs in it")
    summaries = [_summary(path) for path in _run_folders(folder, _DEPTH)]
    return sorted(summaries, key=lambda run: run.changed, reverse=True)


def _run_folders(folder: Path, depth: int) -> Iterator[Path]:
    """Folders with a record; what is inside a run is part of it."""
    if (folder / RECORD).is_file():
        yield folder
        return
    try:
        inside = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:  # not readable, or removed meanwhile
        return
    for path in inside if depth else ():
        yield from _run_folders(path, depth - 1)


def _summary(run: Path) -> RunSummary:
    try:
        record = RunRecord.read(run)
        config = config_from_record(record, run)
        metric, higher = config.metric, config.metrics[config.metric]
        lines = _metrics(run)
        files = [path for name in (RECORD, METRICS, LAST, BEST) if (path := run / name).exists()]
        changed = max(path.stat().st_mtime for path in files)
        validations = [
            (float(line[metric]), line["step"]) for line in lines
            if line.get("kind") == "validation" and isinstance(line.get(metric), int | float)
        ]  # fmt: skip
    except (ValueError, OSError, TypeError, KeyError, OverflowError) as error:
        return RunSummary(str(run), error=str(error))
    best, best_step = max(validations, key=lambda each: each[0] if higher else -each[0], default=(None, None))
    return RunSummary(
        str(run),
        record.task,
        config.model_name,
        config.dataset_label,
        metric,
        higher,
        best,
        best_step,
        max((line["step"] for line in lines), default=None),
        datetime.fromtimestamp(changed, UTC).strftime("%Y-%m-%d %H:%M"),
        [value for value, _ in validations],
        (run / BEST).exists() or (run / LAST).exists(),
    )


def _metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl that are whole."""
    path = run / METRICS
    if not path.is_file():
        return []
    with open(path, "rb") as file:
        file.seek(max(path.stat().st_size - _MAX_METRICS, 0))
        content = file.read(_MAX_METRICS)
    lines = []
    for line in content.splitlines():
        try:
            parsed = json.loads(line)
        except (ValueError, RecursionError):  # the end of a line, or of a process that was killed
            continue
        if isinstance(parsed, dict) and type(parsed.get("step")) is int:
            lines.append(parsed)
    return lines
