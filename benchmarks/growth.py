"""The same training on increasing numbers of pairs: steps per second and memory against the size of the corpus.

    python -m benchmarks.growth [--pairs 30000 300000 3000000] [--steps 400] [--mapped N]

Text files are filled with words of an artificial language, Zipf-distributed, 10 to 30 per line; a corpus is the
beginning of every larger one. Each size is trained in a separate process by the task that trains on any files; the
processes alternate, so that other load on the machine affects all of them. Memory is that which the system counts for a
process: its own (anonymous) memory and, separately, pages of mapped files, which the system may reclaim at any time.
"""

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.peers.talk import Answer, Worker, serve
from benchmarks.result import RESULTS, Result, Row, Table
from benchmarks.table import Bound
from benchmarks.training import Say
from regard.tasks.translate.options import Translate
from regard.training.config import TrainingConfig

if TYPE_CHECKING:
    from regard.tasks.translate.task import TranslateProblem

PAIRS = (30_000, 300_000, 3_000_000)
# the lowest rate as a share of the highest: the CPU time of equal work varies by as much
EVEN = 0.9
# bytes per pair that own memory may grow by beyond the token arrays: the plan of an epoch and the lengths behind it
GROWS = 32

SAID = """ of an artificial
language, one thread, interleaved. Own memory is the memory that the process does not share; token arrays in files are
paged in and out.
"""
_WORDS, _SHORTEST, _LONGEST = 20_000, 10, 30
_CHUNK = 1000
_TURN = 20  # steps


@dataclass(frozen=True)
class Size:
    """One corpus and the cost of its training. Memory in megabytes."""

    pairs: int
    tokens: int  # of both sides
    arrays: float  # ids and starts of both sides
    mapped: bool  # whether they live in files
    batches: int  # of an epoch
    reading_seconds: float  # CPU seconds until the first step: reading, vocabulary, encoding, the plan
    reading_peak: float  # the peak memory until then, mapped pages included
    own: float  # the largest own memory after any turn
    mapped_pages: float  # pages of files in memory at that time, libraries included
    rates: list[float]  # steps per second of CPU time, of every turn
    tokens_per_step: float

    @property
    def steps_per_second(self) -> float:
        return median(self.rates)

    @property
    def beyond(self) -> float:
        """Own memory beyond the token arrays."""
        return self.own - (0.0 if self.mapped else self.arrays)


def evenness(sizes: Sequence[Size]) -> float:
    """Steps per second of the slowest size as a share of the fastest, each relative to the first size."""
    first = sizes[0].rates
    beside = [median(ours / theirs for ours, theirs in zip(size.rates, first, strict=True)) for size in sizes]
    return min(beside) / max(beside)


def bytes_per_pair(sizes: Sequence[Size]) -> float:
    """The growth of own memory beyond the token arrays, from the smallest to the largest size, per pair."""
    first, last = sizes[0], sizes[-1]
    return 1e6 * (last.beyond - first.beyond) / max(last.pairs - first.pairs, 1)


def lines(pairs: int, seed: int) -> Iterator[str]:
    """Lines of an artificial language; fewer lines of the same seed are the beginning of more."""
    draw = np.random.default_rng(seed)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    drawn = draw.integers(0, len(syllables), (_WORDS, 4)).tolist()
    counts = draw.integers(1, 5, _WORDS).tolist()
    words = ["".join(syllables[n] for n in row[:count]) for row, count in zip(drawn, counts, strict=True)]
    chance = 1.0 / np.arange(1, _WORDS + 1)
    edges = np.cumsum(chance / chance.sum())
    # lengths have a separate seed, so that both sides have the same
    lengths = np.random.default_rng(0)
    for at in range(0, pairs, _CHUNK):
        ends = np.cumsum(lengths.integers(_SHORTEST, _LONGEST + 1, _CHUNK)).tolist()
        ranks = np.minimum(np.searchsorted(edges, draw.random(ends[-1])), _WORDS - 1).tolist()
        for first, end in list(pairwise([0, *ends]))[: pairs - at]:
            yield " ".join([words[n] for n in ranks[first:end]])


def files(folder: Path, pairs: int) -> tuple[Path, Path]:
    paths = folder / f"{pairs}.source", folder / f"{pairs}.target"
    for seed, path in enumerate(paths, 1):
        with path.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines(pairs, seed))
    return paths


def memory() -> dict[str, float]:
    """The memory of this process by kind, in megabytes; Linux only."""
    found = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("VmHWM", "RssAnon", "RssFile"):
            found[name] = int(value.split()[0]) * 1024 / 1e6
    return found


@dataclass(frozen=True)
class _KeptTask:
    """A task that keeps its problem for later inspection."""

    task: Translate
    problems: list[Any]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def prepare(self, folder: Path, new: bool = True) -> Any:
        self.problems.append(self.task.prepare(folder, new))
        return self.problems[-1]


class Grown:
    """The worker of one size: reads the corpus, then trains some steps per turn."""

    def load(self, train: Sequence[str], valid: Sequence[str], folder: str, mapped: int | None) -> Answer:
        from regard.data.text.corpus import Corpus
        from regard.training.events import Started, StepLogged
        from regard.training.fit import fit

        if mapped is not None:
            # No task has an option for this limit; here a small corpus must be mapped like a large one.
            Corpus.of.__func__.__kwdefaults__["mapped"] = mapped  # type: ignore[attr-defined]
        self.task = _KeptTask(
            Translate.of(
                train=tuple(map(Path, train)),
                valid=tuple(map(Path, valid)),
                vocabulary=2000,
                decoder="luong",
                width=64,
                hidden=64,
                batch=1024,
            ),
            [],
        )
        never = 10**9
        training = TrainingConfig(
            steps=never, log_every=1, validate_every=never, save_every=never, threads=1, device="cpu"
        )
        begun = time.process_time()
        events = fit(self.task, Path(folder), training)
        self.batches = next(event.batches for event in events if isinstance(event, Started))
        self.reading = time.process_time() - begun, memory()["VmHWM"]
        self.steps = (event for event in events if isinstance(event, StepLogged))
        self.notes, self.rates = [memory()], list[float]()
        return {}

    def train(self, steps: int) -> Answer:
        begun = time.process_time()
        for _ in itertools.islice(self.steps, steps):
            pass
        self.rates.append(steps / (time.process_time() - begun))
        self.notes.append(memory())
        return {}

    def tell(self) -> Answer:
        """The result; without the first turn, which includes the setup of the first step."""
        problem: TranslateProblem = self.task.problems[0]
        sides = problem.corpus.source, problem.corpus.target
        own = max(self.notes, key=lambda note: note["RssAnon"])
        size = Size(
            pairs=len(problem.corpus),
            tokens=sum(len(side.ids) for side in sides),
            arrays=sum(side.ids.nbytes + side.starts.nbytes for side in sides) / 1e6,
            mapped=all(isinstance(side.ids, np.memmap) for side in sides),
            batches=self.batches,
            reading_seconds=self.reading[0],
            reading_peak=self.reading[1],
            own=own["RssAnon"],
            mapped_pages=own["RssFile"],
            rates=self.rates[1:],
            tokens_per_step=len(sides[1].ids) / self.batches,
        )
        return asdict(size)


def measure(pairs: Sequence[int], steps: int, mapped: int | None = None, say: Say = print) -> list[Size]:
    """Measures every size, in a separate process and folder, turn by turn."""
    if steps < 2 * _TURN or steps % _TURN:
        raise ValueError(f"steps must be a multiple of {_TURN}, at least {2 * _TURN}, got {steps}; try steps=400")
    with ExitStack() as stack:
        workers = []
        for count in sorted(pairs):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            say(f"{count:,} pairs: writing files")
            train, valid = files(folder, count), files(folder, 20)
            say(f"{count:,} pairs: reading")
            log = Path(tempfile.gettempdir()) / "benchmarks-growth.log"
            worker = stack.enter_context(Worker([sys.executable, "-m", "benchmarks.growth", "--child"], log))
            texts = {"train": [*map(str, train)], "valid": [*map(str, valid)]}
            worker.ask("load", **texts, folder=str(folder / "run"), mapped=mapped)
            workers.append(worker)
        turns = steps // _TURN
        for turn in range(turns):
            say(f"turn {turn + 1} of {turns}")
            first = turn % len(workers)
            for worker in workers[first:] + workers[:first]:
                worker.ask("train", steps=_TURN)
        return [Size(**worker.ask("tell")) for worker in workers]


def result(sizes: Sequence[Size], steps: int) -> Result:
    lines = [
        [
            f"{size.pairs:,}",
            f"{size.tokens / 1e6:,.2f} million",
            f"{size.arrays:,.1f} MB, {'in files' if size.mapped else 'in memory'}",
            f"{size.steps_per_second:.1f}",
            f"{size.own:,.0f} MB",
            f"{size.beyond:,.0f} MB",
            f"{size.reading_peak:,.0f} MB",
            f"{size.reading_seconds:,.0f} s",
        ]
        for size in sizes
    ]
    headings = ["pairs", "tokens", "token arrays", "steps per CPU second", "own memory while training"]
    headings += ["beyond the token arrays", "peak while reading", "CPU time of reading"]
    share, grows = 100 * evenness(sizes), bytes_per_pair(sizes)
    even, most = Bound("least", 100 * EVEN), Bound("most", GROWS)
    rows = [
        Row("steps per CPU second of the slowest size", share, "% of the fastest", even, digits=0),
        Row("growth of memory beyond the token arrays", grows, "bytes per pair", most, digits=0),
    ]
    said = f"The first {steps} steps of the same small training on increasing numbers of pairs{SAID}"
    command = f"python -m benchmarks.growth --steps {steps}"
    return Result("growth", "Corpus size", said, rows, [Table("By size", headings, lines)], commands=[command])


def main(arguments: Sequence[str] | None = None, results: Path = RESULTS / "translation") -> int:
    parsing = argparse.ArgumentParser(
        prog="python -m benchmarks.growth", description="The same training on increasing numbers of pairs."
    )
    parsing.add_argument("--pairs", type=int, nargs="+", default=PAIRS, help="sizes of the corpus (%(default)s)")
    parsing.add_argument("--steps", type=int, default=400, help="steps of every training (%(default)s)")
    parsing.add_argument(
        "--mapped", type=int, help="tokens per side above which they are kept in files (default: that of the task)"
    )
    parsing.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parsing.parse_args(arguments)
    if given.child:
        grown = Grown()
        serve({"load": grown.load, "train": grown.train, "tell": grown.tell})
        return 0
    try:
        found = result(measure(given.pairs, given.steps, given.mapped), given.steps)
    except ValueError as error:
        parsing.error(str(error))
    for line in (*found.tables[0].rows, *(row.cells() for row in found.rows)):
        print(" | ".join(line))
    if tuple(given.pairs) == PAIRS:
        print(f"written: {found.write(results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
