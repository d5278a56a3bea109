"""MetricsLog: the metrics of a run, one line of JSON per event, and optionally for TensorBoard."""

import errno
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.common import atomic_files, json_files
from regard.training.events import StepLogged, Validated
from regard.training.run_folder import METRICS, TENSORBOARD
from regard.training.state import TrainingState


class MetricsLog:
    """Appends to metrics.jsonl; lines that a killed process wrote after its last checkpoint are removed first."""

    def __init__(self, run: Path, state: TrainingState, tensorboard: bool) -> None:
        self._path = run / METRICS
        self._summary_writer = _summary_writer(run, state.step) if tensorboard else None
        if self._path.exists():
            _remove_later_lines(self._path, state)
        try:
            # unbuffered, so that closing the file writes nothing
            self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise atomic_files.write_error(error, self._path) from error

    def step(self, event: StepLogged) -> None:
        line = {name: getattr(event, name) for name in ("step", "epoch", "loss", "lr", "norm")}
        self._write("step", event.step, {**line, **event.values}, event)

    def validation(self, event: Validated) -> None:
        kind = "validation" if event.of == "step" else "average"
        line = {"step": event.step, **event.score.values, "improved": event.improved}
        self._write(kind, event.step, line, event)

    def _write(self, kind: str, step: int, line: Mapping[str, Any], event: StepLogged | Validated) -> None:
        time = (
            {"tokens_per_second": event.tokens_per_second, "elapsed": event.elapsed}
            if isinstance(event, StepLogged)
            else {"seconds": event.seconds}
        )
        entry = {"kind": kind, **line, **time}
        try:
            text = json.dumps({name: _json_value(value) for name, value in entry.items()}).encode() + b"\n"
            if self._file.write(text) != len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise atomic_files.write_error(error, self._path) from error
        if self._summary_writer is not None:
            for name, value in entry.items():
                if name not in ("kind", "step") and isinstance(value, int | float):
                    self._summary_writer.add_scalar(f"{kind}/{name}", value, step)

    def sync(self) -> None:
        """Forces the lines to the disk, before the checkpoint that refers to them."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise atomic_files.write_error(error, self._path) from error
        if self._summary_writer is not None:
            self._summary_writer.flush()

    def close(self) -> None:
        self._file.close()
        if self._summary_writer is not None:
            self._summary_writer.close()


def _remove_later_lines(path: Path, state: TrainingState) -> None:
    """Keeps the complete lines up to the steps that the checkpoint has logged and validated.

    A line that cannot be read is half written if no line that is kept comes after it, else the file is damaged.
    """
    until = {"step": state.logged_at, "validation": state.validated_at, "average": state.averaged_at}
    kept, unreadable = [], 0
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        try:
            entry = json_files.parse(line)
            keep = entry["step"] <= until[entry["kind"]]
        except (ValueError, KeyError, TypeError):
            unreadable = unreadable or number
            continue
        if not keep or not line.endswith(b"\n"):
            continue
        if unreadable:
            raise ValueError(
                f"{path}:{unreadable}: the line is damaged, and lines after it are not; correct or delete it, "
                "nothing else depends on it"
            )
        kept.append(line)
    atomic_files.write_atomically(path, kept)


def _json_value(value: Any) -> Any:
    """The value, or None for NaN and infinity, which JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _summary_writer(run: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError("tensorboard=True needs tensorboard; install it with: pip install 'regard[train]'") from error
    return SummaryWriter(str(run / TENSORBOARD), purge_step=step + 1 if step else None)
