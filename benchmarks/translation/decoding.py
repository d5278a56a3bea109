"""Decoding in batches against one sentence at a time: sentences per CPU second, and whether the translations agree.

    python -m benchmarks.translation.decoding RUN [RUN …] [--lines 1000] [--rounds 2]

The best weights of a run translate its test sentences with beam 5. Both ways alternate, and the ratio is computed
within each round.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks import measured
from benchmarks.measured import About
from benchmarks.table import Bound
from benchmarks.timing import Spread, spread
from regard.decoding.search import Beam
from regard.tasks.registry import config_from_record
from regard.tasks.shared.text_generation import GeneratedText
from regard.tasks.translate.options import Translate
from regard.tasks.translate.predictor import Translator
from regard.tasks.translate.task import read as read_splits
from regard.training import checkpoint
from regard.training.run_folder import BEST, RunRecord

RESULT = "decoding.json"
BATCH, SIZE = 64, 5
GOAL = Bound("least", 6)


@dataclass(frozen=True)
class Result:
    about: About
    run: str
    lines: int
    together: float  # sentences per CPU second
    alone: float
    ratio: Spread  # of each round
    different: int  # lines with different translations
    tied: int  # of those, lines whose two translations have equal scores

    @property
    def verdict(self) -> str:
        return "reached" if GOAL.holds(self.ratio.median) and self.different == self.tied else "falls short"


def measure(run: Path, lines: int, rounds: int, say: Callable[[str], None] = print) -> Result:
    """Translates the first test sentences of the run with its best weights, `rounds` times."""
    record = RunRecord.read(run)
    task = config_from_record(record, run) if record.task == Translate.name else None
    if not isinstance(task, Translate):
        raise ValueError(f"{run} is a run of {record.task}, which does not translate; name another")
    translator = task.load().predictor(run)
    checkpoint.load(translator.model, run / BEST)
    source = list(read_splits(task).test.source[:lines])
    ways = {
        size: Translator(
            translator.model,
            translator.vocabularies,
            batch=size,
            stretch=translator.stretch,
            longest=translator.longest,
        )
        for size in (BATCH, 1)
    }
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for way in ways.values():
            _timed(way, source[:2])
        return _measured(run, ways, source, rounds, say)
    finally:
        torch.set_num_threads(threads)


def _measured(
    run: Path, ways: dict[int, Translator], source: list[str], rounds: int, say: Callable[[str], None]
) -> Result:
    seconds: dict[int, list[float]] = {size: [] for size in ways}
    said: dict[int, list[GeneratedText]] = {}
    for number in range(1, rounds + 1):
        # the first way changes from round to round
        for size in (*ways,) if number % 2 else (*reversed(ways),):
            taken, said[size] = _timed(ways[size], source)
            seconds[size].append(taken)
        rate = seconds[1][-1] / seconds[BATCH][-1]
        say(f"{run.name}: round {number} of {rounds}, {len(source)} lines, {rate:.1f} × as fast in batches")
    unlike = [(a, b) for a, b in zip(said[BATCH], said[1], strict=True) if a.text != b.text]
    return Result(
        about=About.now(),
        run=run.name,
        lines=len(source),
        together=len(source) * rounds / sum(seconds[BATCH]),
        alone=len(source) * rounds / sum(seconds[1]),
        ratio=spread([one / many for one, many in zip(seconds[1], seconds[BATCH], strict=True)]),
        different=len(unlike),
        tied=sum(abs(a.score - b.score) < 1e-5 * max(1.0, abs(a.score)) for a, b in unlike),
    )


def _timed(way: Translator, lines: Sequence[str]) -> tuple[float, list[GeneratedText]]:
    start = time.process_time()
    found = way.translate(lines, Beam(SIZE))
    return time.process_time() - start, [best[0] for best in found]


def table(results: Sequence[Result]) -> str:
    rows = []
    for found in results:
        same = (
            "the same" if not found.different else f"{found.different} differ, {found.tied} of them with equal scores"
        )
        ratio = found.ratio
        rows.append(
            [
                found.run,
                f"{found.lines:,}",
                f"{found.together:.1f}",
                f"{found.alone:.1f}",
                f"{ratio.median:.1f} × [{ratio.low:.1f}, {ratio.high:.1f}]",
                same,
                f"{GOAL} ×, the same",
                found.verdict,
            ]
        )
    headings = ["run", "sentences", f"batch of {BATCH}, per CPU second", "one by one", "ratio [quartiles]"]
    return measured.table([*headings, "translations", "must reach", "verdict"], rows)


def read(run: Path) -> Result | None:
    told = measured.read(run / RESULT)
    return None if told is None else Result(**{**told, "ratio": Spread(*told["ratio"])})


def main(arguments: Sequence[str] | None = None) -> int:
    parsing = argparse.ArgumentParser(
        prog="python -m benchmarks.translation.decoding",
        description="Compare decoding in batches with one sentence at a time.",
    )
    parsing.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="the folder of a run")
    parsing.add_argument("--lines", type=int, default=1000, help="sentences to translate (%(default)s)")
    parsing.add_argument("--rounds", type=int, default=2, help="number of rounds (%(default)s)")
    given = parsing.parse_args(arguments)
    for name in ("lines", "rounds"):
        if getattr(given, name) < 1:
            parsing.error(f"--{name} must be 1 or more, got {getattr(given, name)}")
    results = []
    for run in given.runs:
        try:
            results.append(measure(run, given.lines, given.rounds))
        except (ValueError, OSError) as error:
            print(f"{run}: {error}", file=sys.stderr)
            return 1
        measured.write(run / RESULT, results[-1])
    print(table(results), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
