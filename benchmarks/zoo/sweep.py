"""A sweep over all classes of transformers: each within its limits, one line of JSON as soon as it is known."""

import json
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from benchmarks.measured import About
from benchmarks.zoo.tiny_models import CannotBuild, TinyModel, build

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "zoo"
SECONDS, MEMORY = 30, 8 << 30
SEED = 3


@dataclass(frozen=True)
class Outcome:
    """The result of one class."""

    name: str
    model_type: str
    verdict: str
    reason: str = ""  # why it was not built, what is wrong, or the warning


O = TypeVar("O", bound=Outcome)


class OutOfTime(BaseException):
    """A class took more than its seconds."""


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise OutOfTime

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def try_class(name: str, model_type: str, compare: Callable[[str, str, TinyModel], O], outcome: type[O]) -> O:
    """The outcome of a class within its limits."""
    try:
        with limited(SECONDS):
            return compare(name, model_type, build(name))
    except CannotBuild as error:
        return outcome(name, model_type, "not built", str(error))
    except OutOfTime:
        return outcome(name, model_type, "not built", f"time: more than {SECONDS} s")
    except MemoryError:
        return outcome(name, model_type, "not built", f"memory: more than {MEMORY >> 30} GB")


def set_seed() -> None:
    torch.manual_seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002 - models draw from it


def prepare() -> None:
    """One thread, a limit of memory, and no notes of transformers."""
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


@dataclass(frozen=True)
class Sweep(Generic[O]):
    """The outcomes of all classes, with date and versions."""

    about: About
    outcomes: list[O]

    def write(self, path: Path) -> Path:
        """One line per class."""
        lines = ",\n".join(json.dumps(asdict(outcome), ensure_ascii=False) for outcome in self.outcomes)
        about = json.dumps(asdict(self.about), ensure_ascii=False)
        path.write_text(f'{{"about": {about},\n"outcomes": [\n{lines}\n]}}\n', encoding="utf-8")
        return path

    @staticmethod
    def read(path: Path, outcome: type[O]) -> "Sweep[O]":
        content = json.loads(path.read_text(encoding="utf-8"))
        return Sweep(About(**content["about"]), [outcome(**fields) for fields in content["outcomes"]])


def read_lines(path: Path, outcome: type[O]) -> dict[str, O]:
    """The outcomes of a sweep that is not finished."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {fields["name"]: outcome(**fields) for fields in map(json.loads, lines)}


def sweep(known: dict[str, str], path: Path, attempt: Callable[[str, str], O], outcome: type[O]) -> list[O]:
    """The outcomes of all classes; those that an earlier sweep wrote to `path` are read from it."""
    done = read_lines(path, outcome)
    for n, (name, model_type) in enumerate(known.items(), 1):
        if name not in done:
            done[name] = found = attempt(name, model_type)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(found), ensure_ascii=False) + "\n")
            print(f"[{n}/{len(known)}] {name}: {found.verdict} {found.reason[:200]}", flush=True)
    return [done[name] for name in known]
