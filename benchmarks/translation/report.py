"""Tables and plots of all existing results: a dated file in benchmarks/results, and docs/translation.md."""

import datetime
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import measured
from benchmarks.measured import About
from benchmarks.translation import decoding, growth, resume
from benchmarks.translation.cases import UNITS, Case, command
from benchmarks.translation.trained import Result, course
from regard.experiments.demo_dates import aligned_dates
from regard.tasks.loading import load_run
from regard.tasks.translate.options import Translate
from regard.tasks.translate.predictor import Translator
from regard.tasks.translate.task import read
from regard.viz.alignment.alignment import draw
from regard.viz.plots.curve import curve, scatter

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "translation.md"
IMAGES = ROOT / "docs" / "images"

_COMPARED = "compare-"
# cases whose curves are drawn
_DRAWN = ("additive", "transformer", "conv")

INTRO = """\
This page lists the results of translators trained by `regard train translate` on a CPU, measured by `python -m
benchmarks.translation`.
"""

HOW = """\
Each evaluation uses the weights of the best validation. Embedded data is evaluated on its test split, which is not used
in training. Multi30k is evaluated on `val`, the split that also selected the best weights, because its test sets are
kept apart; BLEU and chrF are sacrebleu's (13a, cased). CPU minutes are the CPU time of the training process, including
validations and the steps that were repeated after an interruption: an hour on two cores has 120 of them.
"""

BUDGET = """\
A budget can be equal in data or in time. Here it is equal in data: every mechanism gets the same
{steps:,} batches in the same order, at the same learning rates, so that the score does not depend on the load of
the machine; the cost of a mechanism is given in CPU minutes. All have the same encoder, Luong's decoder without input
feeding and the same sizes; without attention ("none") every step gets the last state of the encoder instead. These are
short trainings of small models; compare them only with one another.
"""

REPEAT = """\
```bash
python -m benchmarks.translation --list                                 # names of the benchmarks
python -m benchmarks.translation additive transformer --data multi30k   # two trainings; --runs sets their folder
python -m benchmarks.translation dates reverse pronounce                # embedded data
python -m benchmarks.translation compare --data multi30k                # the mechanisms
python -m benchmarks.translation.resume --kills 100
python -m benchmarks.translation.growth
python -m benchmarks.translation.decoding runs/additive runs/transformer
python -m benchmarks.peers.joeynmt --peer ENVIRONMENT --source train.en.gz --target train.de.gz   # --setup creates it
python -m benchmarks.translation conv --data multi30k --add             # one training, added to this page
python -m benchmarks.translation --report                               # this page
```

`multi30k` is a folder with `train.en.gz`, `train.de.gz`, `val.en` and `val.de`. An interrupted training
is resumed; a finished one is only evaluated.
"""

# files of the plots
_BLEU, _LOSS, _MECHANISMS = "translation-bleu.png", "translation-loss.png", "translation-compare.png"
# shown in the README: one training, four scripts
_DATES, _LANGUAGES = "dates.png", ("en", "el", "ru", "ar_EG")
_SHOWN = {
    _BLEU: "BLEU of validations against CPU minutes",
    _LOSS: "Loss of training and validation against CPU minutes",
    _MECHANISMS: "BLEU and CPU minutes of every mechanism",
}


class Report:
    """All results of a folder of runs."""

    def __init__(self, runs: Path, cases: Mapping[str, Case], peers: Path) -> None:
        self.runs, self.cases = runs, cases
        found = {name: Result.read(runs / name) for name in cases}
        self.results = {name: result for name, result in found.items() if result is not None}
        self.missing = [name for name, result in found.items() if result is None]
        self.kills = resume.read(runs)
        self.growth = growth.read(runs)
        decoded = {name: decoding.read(runs / name) for name in cases}
        self.decoded = [result for result in decoded.values() if result is not None]
        # the newest report of benchmarks.peers.joeynmt, without its title
        newest = max(peers.glob("*.md"), default=None)
        self.peer = "" if newest is None else newest.read_text(encoding="utf-8").partition("\n\n")[2]
        others = {resume.NAME: self.kills, growth.NAME: self.growth, "decoding": self.decoded, "joeynmt": self.peer}
        self.missing += [name for name, result in others.items() if not result]

    def abouts(self) -> Iterator[tuple[str, About]]:
        """Every measurement with its date and machine."""
        for name, result in self.results.items():
            yield name, result.about
        if self.kills is not None:
            yield resume.NAME, self.kills.about
        if self.growth is not None:
            yield growth.NAME, self.growth.about
        for decoded in self.decoded:
            yield f"decoding of {decoded.run}", decoded.about

    def body(self, pictures: Collection[str] = ()) -> str:
        """The page without its title, with these plots."""
        parts = [measured.conditions(self.abouts()), HOW]
        if self.missing:
            parts.append(f"Not run: {', '.join(self.missing)}.\n")
        named = [name for name in self.results if not name.startswith(_COMPARED)]
        if named:
            parts.append(f"## Trainings\n\n{self.trainings(named)}")
        parts += [_picture(name) for name in (_BLEU, _LOSS) if name in pictures]
        if named:
            parts.append(self.options(named))
        if compared := self.compared():
            steps = max(result.steps for result in compared.values())
            parts.append(f"## Mechanisms at equal budget\n\n{BUDGET.format(steps=steps)}")
            parts.append(_comparison(compared))
            parts += [_picture(_MECHANISMS)] if _MECHANISMS in pictures else []
        if self.kills is not None:
            parts.append(_killed(self.kills))
        if self.growth is not None:
            parts.append(_grown(self.growth))
        if self.decoded:
            parts.append(f"## Batched decoding\n\nBeam 5, one thread.\n\n{decoding.table(self.decoded)}")
        if self.peer:
            parts.append(f"## Comparison with JoeyNMT\n\n{self.peer}")
        return "\n".join([*parts, f"## Reproduction\n\n{REPEAT}"])

    def trainings(self, names: Sequence[str]) -> str:
        """The table of these trainings."""
        rows = []
        for name in names:
            case, result = self.cases[name], self.results[name]
            other = next(search for search in result.scores if search != case.search)
            scores = ", ".join(
                f"{value:.{UNITS[score][1]}f} {UNITS[score][0]}" for score, value in result.scores[other].items()
            )
            cpu = "not counted" if result.cpu_seconds is None else f"{result.cpu_seconds / 60:.1f}"
            rows.append(
                [
                    f"`{name}`",
                    case.what,
                    case.must(),
                    f"{result.reached(case)} ({case.search})",
                    result.verdict(case),
                    f"{scores} ({other})",
                    cpu,
                    f"{result.wall_seconds / 60:.1f}, {result.threads} thread{'s' * (result.threads > 1)}",
                    f"{result.parameters / 1e6:.2f} million",
                    f"{result.steps:,}",
                    f"{result.lines:,}",
                ]
            )
        headings = ["training", "what", "must reach", "reached", "verdict", "other search", "CPU minutes"]
        return measured.table([*headings, "wall-clock minutes", "parameters", "steps", "evaluated pairs"], rows)

    def options(self, names: Sequence[str]) -> str:
        """The commands of these trainings."""
        lines = [_folded(command(name, self.cases[name])) for name in names]
        return "The commands, each with a new folder:\n\n```bash\n" + "\n".join(lines) + "\n```\n"

    def compared(self) -> dict[str, Result]:
        """The results of the mechanisms, best first."""
        some = {
            name.removeprefix(_COMPARED): result for name, result in self.results.items() if name.startswith(_COMPARED)
        }
        return dict(sorted(some.items(), key=lambda item: -item[1].scores["beam 5"]["bleu"]))

    def draw(self, folder: Path) -> list[Path]:
        """Draws the plots of the existing results."""
        folder.mkdir(parents=True, exist_ok=True)
        made = []
        courses = {name: course(self.runs / name) for name in _DRAWN if name in self.results}
        bleu = {name: points["bleu"] for name, points in courses.items() if "bleu" in points}
        if bleu:
            made.append(curve(bleu, folder / _BLEU, "CPU minutes", "BLEU, greedy, val"))
        loss = {
            f"{name}, {what}": points[key]
            for name, points in courses.items()
            for key, what in (("learnt", "training"), ("nll", "validation"))
            if key in points
        }
        if loss:
            made.append(curve(loss, folder / _LOSS, "CPU minutes", "−log p of a token"))
        timed = {
            name: (result.cpu_seconds / 60, result.scores["beam 5"]["bleu"])
            for name, result in self.compared().items()
            if result.cpu_seconds is not None
        }
        if timed:
            made.append(scatter(timed, folder / _MECHANISMS, "CPU minutes", "BLEU, beam 5, val"))
        if "dates" in self.results:
            made.append(_dates(self.runs / "dates", folder / _DATES))
        return made


def _dates(run: Path, path: Path) -> Path:
    """Dates of the test split, and the attention behind their translations."""
    loaded = load_run(run, "best", "cpu")
    assert isinstance(loaded.config, Translate)
    assert isinstance(loaded.predictor, Translator)
    return draw(aligned_dates(loaded.predictor, read(loaded.config).test, _LANGUAGES), path)


def _folded(text: str) -> str:
    """A long command in several lines, broken only before options."""
    bound = text.replace(" ", "\0").replace("\0--", " --")
    lines = textwrap.wrap(bound, 116, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False)
    return " \\\n".join(lines).replace("\0", " ")


def _picture(name: str) -> str:
    return f"![{_SHOWN[name]}](images/{name})\n"


def _comparison(compared: Mapping[str, Result]) -> str:
    rows = []
    for name, result in compared.items():
        cpu = "not counted" if result.cpu_seconds is None else f"{result.cpu_seconds / 60:.1f}"
        beam, greedy = result.scores["beam 5"], result.scores["greedy"]
        rows.append([name, f"{beam['bleu']:.1f}", f"{greedy['bleu']:.1f}", f"{beam['chrf']:.1f}", cpu])
    return measured.table(["mechanism", "BLEU, beam 5", "BLEU, greedy", "chrF, beam 5", "CPU minutes"], rows)


def _killed(found: resume.Result) -> str:
    said = (
        "A small training is killed (-9) at random moments and resumed until it ends, repeatedly. All its checkpoints\n"
        "are read after every kill; at the end weights, moments and metrics are compared with those of an\n"
        "uninterrupted training.\n"
    )
    return f"## Kill and resume\n\n{said}\n{resume.table(found)}\nVerdict: {found.verdict}.\n"


def _grown(found: growth.Result) -> str:
    said = (
        f"The first {found.steps} steps of the same small training on increasing numbers of pairs of an artificial\n"
        "language, one thread, interleaved. Own memory is the memory that the process does not share; token arrays\n"
        "in files are paged in and out.\n"
    )
    return f"## Corpus size\n\n{said}\n{growth.table(found)}\n{growth.summary(found)}\n"


def write(
    runs: Path,
    cases: Mapping[str, Case],
    *,
    results: Path = RESULTS,
    page: Path = PAGE,
    images: Path = IMAGES,
    date: str | None = None,
) -> list[Path]:
    """Writes the dated file, the plots and the page; returns their paths."""
    report = Report(runs, cases, results / "joeynmt")
    date = date or datetime.date.today().isoformat()
    pictures = report.draw(images)
    results.mkdir(parents=True, exist_ok=True)
    dated = results / f"translation-{date}.md"
    dated.write_text(f"# Translators, measured until {date}\n\n{report.body()}", encoding="utf-8")
    page.write_text(
        f"# Translation results\n\n{INTRO}\n{report.body([path.name for path in pictures])}", encoding="utf-8"
    )
    return [dated, page, *pictures]
