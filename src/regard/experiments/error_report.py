"""error_report: where a trained model errs: tables of classes and slices, and its worst outputs with their attention.

report = error_report(loaded, options)      options of the task's Evaluate, as `regard evaluate` takes them
report.write(Path("errors.html"))           or .tsv, one line per example, the worst first
"""

import csv
import io
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from regard.common import atomic_files
from regard.common.wording import plural
from regard.data.spreadsheets.safe_cell import safe_cell
from regard.inference.evaluation import EvaluatedExample, Evaluation, ExampleKind
from regard.inference.predictor import Predictor, labelled_recording
from regard.metrics.intervals import mean_interval, share_interval
from regard.tasks.loading import LoadedRun
from regard.viz.html.page import view_document
from regard.viz.text import labels

SUFFIXES = (".html", ".tsv")
# mistakes on a page, those of them with their attention, and the longest attention that is drawn
_SHOWN, _DRAWN, _LONGEST = 50, 20, 200
# classes of a confusion matrix; slices by length
_MAX_CLASSES, _SLICES = 30, 4


@dataclass(frozen=True)
class Table:
    """A table of a report, with a sentence about it."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class ErrorReport:
    """The examples of an evaluation in the order of the data, tables about them, and the worst ones."""

    evaluation: Evaluation
    kind: ExampleKind
    examples: Sequence[EvaluatedExample]
    tables: Sequence[Table]
    worst: Sequence[EvaluatedExample]
    attention: Sequence[Mapping[str, Any] | None]  # that of each of the worst

    def write(self, path: Path) -> None:
        """Writes a page (.html), or all examples (.tsv)."""
        text = self.html() if path.suffix == ".html" else self.tsv()
        atomic_files.write_atomically(path, [text.encode(errors="backslashreplace")])

    def tsv(self) -> str:
        """One line per example, the worst first, as spreadsheets read it."""
        file = io.StringIO()
        writer = csv.writer(file, dialect="excel-tab", lineterminator="\n")
        names = ("score", "input", "target", "output", "probability", "of_target", "missed", "wrong", "source")
        writer.writerow(names)
        for example in sorted(self.examples, key=_badness):
            values = asdict(example)
            writer.writerow([_cell(values[name]) for name in names])
        return file.getvalue()

    def html(self) -> str:
        """The page, which needs nothing else."""
        wrong = sum(each.score < 100 for each in self.examples)
        said = f"{plural(len(self.examples), 'example')} of {self.evaluation.split}, {wrong:,} with errors"
        cards = [{**asdict(each), "attention": drawn} for each, drawn in zip(self.worst, self.attention, strict=True)]
        data = {
            "title": "Errors", "said": said, "kind": self.kind, "tables": [asdict(table) for table in self.tables],
            "cards": cards, "shown": {},
        }  # fmt: skip
        return view_document("Errors", "html/errors", data, f"{said}\n\n{self.text()}")

    def text(self) -> str:
        """The tables as text."""
        return "\n\n".join(map(_as_text, self.tables))


def error_report(
    loaded: LoadedRun, options: Any, progress: Callable[[int, int], object] = lambda done, total: None
) -> ErrorReport:
    """Evaluates a run and looks at its errors; several files of `options.test` become slices."""
    evaluation = loaded.evaluate(options, progress)
    return report_of(evaluation, loaded, options, progress)


def report_of(
    evaluation: Evaluation, loaded: LoadedRun, options: Any, progress: Callable[[int, int], object]
) -> ErrorReport:
    """The errors of an evaluation that was made with these options."""
    kind = evaluation.kind
    if kind is None:
        raise ValueError(
            f"{loaded.folder} is a run of {loaded.config.name}, whose errors are not listed; those of texts, pairs, "
            "tags and translations are"
        )
    examples = list(evaluation.examples())
    # two files of a translator are both sides of its pairs
    files = tuple(getattr(options, "test", None) or ()) if kind == "class" else ()
    if len(files) > 1:
        examples = []
        for file in files:
            # the part that a missing --split stands for was filled in when the options were made
            part = loaded.evaluate(replace(options, test=(file,), split=None), progress)
            examples += [replace(example, source=str(file)) for example in part.examples()]
    tables = {"class": _class_tables, "spans": _span_tables, "text": lambda _: []}[kind](examples)
    tables += _slices(examples, kind)
    worst = sorted((each for each in examples if each.score < 100), key=_badness)[:_SHOWN]
    attention = [_attention(loaded.predictor, each) if n < _DRAWN else None for n, each in enumerate(worst)]
    return ErrorReport(evaluation, kind, examples, tables, worst, attention)


def _badness(example: EvaluatedExample) -> tuple[float, float]:
    """Lower is worse: first a low score, then a high probability of what is wrong."""
    return example.score, -(example.probability or 0.0) if example.score < 100 else (example.probability or 0.0)


def _class_tables(examples: Sequence[EvaluatedExample]) -> list[Table]:
    counts = Counter((each.target, each.output) for each in examples)
    targets, outputs = Counter(each.target for each in examples), Counter(each.output for each in examples)
    names = [name for name, _ in (targets + outputs).most_common()]
    rows = []
    for name in sorted(names, key=lambda name: _f1(counts, targets, outputs, name)):
        right = counts[name, name]
        rows.append([
            name, f"{targets[name]:,}", _share(right, outputs[name]), _share(right, targets[name]),
            f"{_f1(counts, targets, outputs, name):.1f}",
        ])  # fmt: skip
    scores = Table(
        "Classes", ("class", "examples", "precision [95 %]", "recall [95 %]", "F1"), rows, "the lowest F1 first"
    )
    kept = names[:_MAX_CLASSES]
    note = "rows are right classes, columns those of the model"
    if len(names) > len(kept):
        note += f"; the {len(kept)} most frequent of {len(names):,} classes"
    matrix = [[name, *(str(counts[name, other] or "") for other in kept)] for name in kept]
    pairs = [(pair, count) for pair, count in counts.most_common() if pair[0] != pair[1]][:10]
    return [
        scores,
        Table("Confusion matrix", ("", *kept), matrix, note),
        Table(
            "Most frequent confusions", ("right", "model", "times"), [[*pair, f"{count:,}"] for pair, count in pairs]
        ),
    ]


def _f1(counts: Counter[tuple[str, str]], targets: Counter[str], outputs: Counter[str], name: str) -> float:
    return 200.0 * counts[name, name] / max(targets[name] + outputs[name], 1)


def _span_tables(examples: Sequence[EvaluatedExample]) -> list[Table]:
    missed = Counter(span.partition(":")[0] for each in examples for span in each.missed)
    wrong = Counter(span.partition(":")[0] for each in examples for span in each.wrong)
    rows = [[name, f"{missed[name]:,}", f"{wrong[name]:,}"] for name, _ in (missed + wrong).most_common()]
    return [Table("Spans", ("label", "missed", "wrong"), rows, "a span with wrong borders is missed and wrong")]


def _slices(examples: Sequence[EvaluatedExample], kind: ExampleKind) -> list[Table]:
    """The scores by the length of the input, and by its file if there are several."""
    lengths = sorted(len(each.input.split()) for each in examples)
    if not lengths:
        return []
    ends = sorted({lengths[math.ceil(len(lengths) * part / _SLICES) - 1] for part in range(1, _SLICES + 1)})
    by_length: dict[int, list[EvaluatedExample]] = defaultdict(list)
    by_file: dict[str, list[EvaluatedExample]] = defaultdict(list)
    for each in examples:
        by_length[next(n for n, end in enumerate(ends) if len(each.input.split()) <= end)].append(each)
        by_file[each.source].append(each)
    heading = "mean chrF [95 %]" if kind == "text" else "right [95 %]"
    names = [f"{low} to {high}" for low, high in zip((lengths[0], *(end + 1 for end in ends)), ends, strict=False)]
    rows = [[names[n], f"{len(by_length[n]):,}", _mean(by_length[n], kind)] for n in sorted(by_length)]
    tables = [Table("By length", ("words", "examples", heading), rows)]
    if len(by_file) > 1:
        files = [[name, f"{len(part):,}", _mean(part, kind)] for name, part in by_file.items()]
        tables.append(Table("By file", ("file", "examples", heading), files))
    return tables


def _mean(examples: Sequence[EvaluatedExample], kind: ExampleKind) -> str:
    if kind != "text":
        return _share(sum(each.score == 100 for each in examples), len(examples))
    scores = [each.score / 100 for each in examples]
    low, high = mean_interval(scores)
    return f"{100 * sum(scores) / len(scores):.1f} [{low:.1f}, {high:.1f}]"


def _share(count: int, of: int) -> str:
    if not of:
        return "–"
    low, high = share_interval(of, count / of)
    return f"{100 * count / of:.1f} [{low:.1f}, {high:.1f}]"


def _attention(predictor: Predictor[Any, Any], example: EvaluatedExample) -> dict[str, Any] | None:
    """The attention behind an output: the weight of each token of the input, or of each for each token of a text."""
    try:
        predictor.check_attends("--errors")
        output, recording = labelled_recording(predictor, example.input)
    except ValueError:  # no attention, or a text without tokens
        return None
    alignment = predictor.alignment(example.input, output)
    if alignment is not None:
        return _picture(alignment.source, alignment.weights, alignment.target)
    drawn = [(item, *recording.labels(item)) for item in recording]
    for item, _, keys in drawn:
        if keys is None or len(keys) > _LONGEST:
            continue
        weights = item.weights.pick(0).dense()
        return _picture(keys, weights.reshape(-1, weights.shape[-1]).mean(0, keepdim=True), None)
    return None


def _picture(keys: Sequence[str], weights: Any, queries: Sequence[str] | None) -> dict[str, Any] | None:
    if len(keys) > _LONGEST or (queries is not None and len(queries) > _LONGEST):
        return None
    visible = partial(map, labels.visible_label)
    return {
        "keys": list(visible(keys)),
        "queries": None if queries is None else list(visible(queries)),
        "weights": weights.double().cpu().numpy().round(4).tolist(),
    }


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return safe_cell("; ".join(value) if isinstance(value, tuple) else value or "")


def _as_text(table: Table) -> str:
    rows = [list(table.headings), *map(list, table.rows)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(table.headings))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    note = f" ({table.note})" if table.note else ""
    return "\n".join([f"{table.title}{note}", *lines])
