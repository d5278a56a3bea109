"""Adds trainings to the existing page without the runs of the others: a dated file, and a section of the page."""

import datetime
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks import measured
from benchmarks.translation.cases import Case
from benchmarks.translation.report import PAGE, RESULTS, Report
from regard.training.run_folder import RECORD, RunRecord

_TITLE = "## Trainings that were added: "
# the section of the page that added trainings stand before
_NEXT = "## Mechanisms at equal budget"


def add(
    runs: Path,
    names: Sequence[str],
    cases: Mapping[str, Case],
    *,
    results: Path = RESULTS,
    page: Path = PAGE,
    date: str | None = None,
) -> list[Path]:
    """Writes the results of these trainings; a section of the same names is replaced. Raises if one has no result."""
    report = Report(runs, {name: cases[name] for name in names}, results / "joeynmt")
    if missing := [name for name in names if name not in report.results]:
        raise ValueError(f"{missing[0]} has no result in {runs}; train it first: leave --add out")
    changes = "".join(_changes(runs / name, name) for name in names)
    body = "\n".join([measured.conditions(report.abouts()), report.trainings(names), changes + report.options(names)])
    title = ", ".join(names)
    dated = results / f"translation-{'-'.join(names)}-{date or datetime.date.today().isoformat()}.md"
    results.mkdir(parents=True, exist_ok=True)
    dated.write_text(f"# Translators: {title}\n\n{body}", encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    text = re.sub(rf"{re.escape(_TITLE + title)}\n.*?(?=\n## )", "", text, flags=re.DOTALL).replace("\n\n\n", "\n\n")
    page.write_text(text.replace(_NEXT, f"{_TITLE}{title}\n\n{body}\n{_NEXT}", 1), encoding="utf-8")
    return [dated, page]


def _changes(run: Path, name: str) -> str:
    """The options of training that were others in the first steps of a run, as sentences."""
    if not (run / RECORD).exists():
        return ""
    sentences = []
    history = RunRecord.read(run).history
    for before, after in itertools.pairwise(history):
        new = asdict(after.training)
        for option, old in asdict(before.training).items():
            if old != new[option]:
                sentences.append(
                    f"`{name}` was trained with {option}={_text(old)} until step {after.step:,} and with "
                    f"{option}={_text(new[option])} from there on.\n\n"
                )
    return "".join(sentences)


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
