"""The numbers of a run, a line of JSON each, and for TensorBoard if asked for."""

import errno
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.common import atomic_files
from regard.training.events import StepLogged, Validated
from regard.training.run_folder import METRICS
from regard.training.state import TrainingState


class MetricsLog:
    """Appends to metrics.jsonl; what a killed process wrote beyond its last checkpoint is cut away first."""

    def __init__(self, run: Path, progress: TrainingState, tensorboard: bool) -> None:
        self._path = run / METRICS
        self._board = _board(run, progress.step) if tensorboard else None
        if self._path.exists():
            _cut(self._path, progress)
        try:
            # unbuffered: nothing is left to write when it is closed
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
        told = {"kind": kind, **line, **time}
        try:
            text = json.dumps({name: _plain(value) for name, value in told.items()}).encode() + b"\n"
            if self._file.write(text) != len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise atomic_files.write_error(error, self._path) from error
        if self._board is not None:
            for name, value in told.items():
                if name not in ("kind", "step") and isinstance(value, int | float):
                    self._board.add_scalar(f"{kind}/{name}", value, step)

    def settle(self) -> None:
        """To the disk, before the checkpoint that counts on these lines."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise atomic_files.write_error(error, self._path) from error
        if self._board is not None:
            self._board.flush()

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def _cut(path: Path, progress: TrainingState) -> None:
    """Keeps the whole lines of what the checkpoint knows of."""
    until = {"step": progress.logged_at, "validation": progress.validated_at, "average": progress.averaged_at}
    kept = []
    for line in path.read_bytes().splitlines(keepends=True):
        try:
            told = json.loads(line)
            keep = told["step"] <= until[told["kind"]]
        except (ValueError, KeyError, TypeError):
            # half a line, the last that was written
            continue
        if keep and line.endswith(b"\n"):
            kept.append(line)
    atomic_files.write_atomically(path, kept)


def _plain(value: Any) -> Any:
    """JSON knows no NaN and no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _board(run: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError("tensorboard=True needs tensorboard; install it with: pip install 'regard[train]'") from error
    return SummaryWriter(str(run / "tensorboard"), purge_step=step + 1 if step else None)
