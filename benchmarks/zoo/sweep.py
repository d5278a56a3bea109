"""A sweep over all classes of transformers: each within its limits, one line of JSON as soon as it is known."""

import argparse
import json
import resource
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from benchmarks.measured import About
from benchmarks.zoo.tiny_models import CannotBuild, TinyModel, build, class_names

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

    # seconds of this process, so that others that keep the machine busy take nothing from a class
    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


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


@dataclass(frozen=True)
class SweepCommand(Generic[O]):
    """`python -m benchmarks.zoo.NAME_sweep [names ...] [--again] [--docs]`."""

    name: str  # of the result
    about: str
    attempt: Callable[[str, str], O]
    outcome: type[O]
    page: Callable[[Sweep[O]], str]

    def run(self, arguments: Sequence[str] | None, results: Path, page: Path) -> int:
        """1 if an outcome is WRONG."""
        parser = argparse.ArgumentParser(prog=f"python -m benchmarks.zoo.{self.name}_sweep", description=self.about)
        parser.add_argument("names", nargs="*", help="classes to try and print; if left out, all, to write a result")
        parser.add_argument("--again", action="store_true", help="forget the outcomes of a sweep that was stopped")
        parser.add_argument("--docs", action="store_true", help=f"write docs/{page.name} from the result, and stop")
        given = parser.parse_args(arguments)
        result = results / f"{self.name}.json"
        if given.docs:
            page.write_text(self.page(Sweep.read(result, self.outcome)), encoding="utf-8")
            return 0
        prepare()
        outcomes = self._tried(given.names) if given.names else self._swept(result, given.again)
        print(", ".join(f"{count} {verdict}" for verdict, count in Counter(o.verdict for o in outcomes).items()))
        return int(any(outcome.verdict == "WRONG" for outcome in outcomes))

    def _tried(self, names: Sequence[str]) -> list[O]:
        known = class_names()
        outcomes = [self.attempt(name, known.get(name, "unknown")) for name in names]
        for outcome in outcomes:
            print(f"{outcome.name}: {outcome.verdict} {outcome.reason[:200]}")
        return outcomes

    def _swept(self, result: Path, again: bool) -> list[O]:
        """The outcomes of all classes, which are written to `result`."""
        result.parent.mkdir(parents=True, exist_ok=True)
        lines = result.with_suffix(".jsonl")
        if again:
            lines.unlink(missing_ok=True)
        outcomes = sweep(class_names(), lines, self.attempt, self.outcome)
        Sweep(About.now(("transformers", "numpy")), outcomes).write(result)
        lines.unlink()
        return outcomes
