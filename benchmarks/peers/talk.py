"""The protocol between a driver and its workers: one JSON object per line, over stdin and stdout.

Only the standard library is imported: the workers run in separate environments.
"""

import atexit
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

ROOT = Path(__file__).parent.parent.parent

Answer = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """One model, its batches and its optimiser, in terms that both systems have."""

    name: str
    kind: Literal["recurrent", "transformer"]
    attention: Literal["bahdanau", "luong", "heads"]
    input_feeding: bool = False
    order: Literal["paper", "peer"] = (
        "paper"  # Bahdanau's steps: as published, or attending after the step as JoeyNMT does
    )
    width: int = 256  # embeddings, states of the decoder, states of each direction of the encoder; the Transformer's d
    layers: int = 1
    heads: int = 4
    feed_forward: int = 512
    sentences: int = 64  # in a batch
    dropout: float = 0.1
    smoothing: float = 0.0
    rate: float = 1e-3
    clip: float = 1.0

    def json(self) -> dict[str, object]:
        return asdict(self)


def scratch() -> Path:
    """A temporary folder that is removed when the worker ends."""
    folder = tempfile.mkdtemp(prefix="peers-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def serve(handlers: Mapping[str, Callable[..., Answer]]) -> None:
    """Answers {"do": name, …} by the handler of that name until stdin ends; other output goes to stderr."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = handlers[asked.pop("do")](**asked)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


class Worker:
    """A worker process as the driver sees it, with one thread; its stderr goes to a file."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.name, self.log = command[-1], log
        self._said: TextIO = log.open("a", encoding="utf-8")
        single = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **single},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            encoding="utf-8",
        )

    def ask(self, do: str, **asked: object) -> Answer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the process ended; the missing answer is reported below
            print(json.dumps({"do": do, **asked}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended at {do!r} without an answer; its output is in {self.log}")
        answer: Answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self.name} failed at {do!r}: {answer['error']}; the traceback is in {self.log}")
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._said.close()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
