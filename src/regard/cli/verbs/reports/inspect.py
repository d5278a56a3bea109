"""regard inspect: what would be read from a file, before a model is trained on it."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.parsing.parser import parse
from regard.common.options.fields import flag, option, positional
from regard.common.wording import plural, shortened
from regard.data.spreadsheets.label_columns import TextColumns
from regard.data.spreadsheets.pair_columns import Columns

if TYPE_CHECKING:
    from regard.data.inspection import Inspection

# classes that are printed
_SHOWN = 20


@dataclass(frozen=True)
class InspectOptions:
    """Show what would be read from a file of texts: columns, classes with counts, lengths, scripts, duplicates, texts
    that another file has too, labels that look wrong, an example, and the command that trains on it.

    Example: regard inspect tickets.csv --other test.csv
    """

    file: Path = positional(metavar="FILE")
    """A sheet, JSON lines, columns of tags, pairs with a tab between, or lines, as the task reads them."""
    task: str | None = None
    """The task that would read it: classify-text, match, tag, translate or language-model; if left out, by its form."""
    text_column: str | None = option(None, metavar="NAME")
    """The column or key of the text, by name or by number from 1."""
    label_column: str | None = option(None, metavar="NAME")
    """The column or key of the label, by name or by number from 1."""
    columns: str | None = option(None, metavar="A,B[,LABEL]")
    """The columns of pairs: of both texts and the label for match, of source and target for translate."""
    other: Path | None = option(None, metavar="FILE")
    """Count the texts that this file has too, such as that of --test."""
    json: bool = flag()
    """Print one JSON object instead."""


def run(args: Sequence[str]) -> int:
    options = parse(InspectOptions, "regard inspect", args)
    columns: TextColumns | Columns | str | None = None
    if options.columns is not None:
        if options.text_column is not None or options.label_column is not None:
            raise ValueError("--columns and --text-column or --label-column exclude each other; give one of them")
        columns = options.columns if options.columns.count(",") < 2 else Columns.parse(options.columns)
    elif options.text_column is not None or options.label_column is not None:
        columns = TextColumns(options.text_column, options.label_column)
    from regard.data.inspection import inspect_file

    inspection = inspect_file(options.file, options.task, columns, options.other)
    command = _command(options, inspection)
    if options.json:
        print(json.dumps({**asdict(inspection), "command": command}, indent=2, ensure_ascii=False))
        return 0
    for line in _lines(inspection, options.other):
        print(line)
    print(f"\nTrain on it: {command}")
    return 0


def _lines(inspection: "Inspection", other: Path | None) -> list[str]:
    lines = [f"{plural(inspection.examples, 'example')} for {inspection.task} in {inspection.file}"]
    if inspection.columns:
        lines.append("columns: " + ", ".join(f"{kind} {name!r}" for kind, name in inspection.columns.items()))
    for name, (least, median, most95, most) in (("words", inspection.words), ("characters", inspection.characters)):
        lines.append(f"{name} per text: {least:,} to {most:,}, half up to {median:,}, 95 % up to {most95:,}")
    if inspection.scripts:
        scripts = (f"{name} {100 * share:.1f} %" for name, share in list(inspection.scripts.items())[:_SHOWN])
        lines.append("letters: " + ", ".join(scripts))
    lines.append(f"duplicates: {inspection.duplicates:,}")
    if inspection.conflicts:
        lines.append(f"texts with several labels or targets: {inspection.conflicts:,}")
    if inspection.overlap is not None:
        lines.append(f"texts that are in {other} too: {inspection.overlap:,}")
    if inspection.classes:
        noun = "tags" if inspection.task == "tag" else "classes"
        lines += ["", f"{len(inspection.classes):,} {noun}"]
        width = max(len(shortened(name)) for name in list(inspection.classes)[:_SHOWN]) + 2
        total = sum(inspection.classes.values())
        lines += [
            f"  {shortened(name):{width}}{count:>9,}  {100 * count / total:5.1f} %"
            for name, count in list(inspection.classes.items())[:_SHOWN]
        ]
        if len(inspection.classes) > _SHOWN:
            lines.append(f"  and {len(inspection.classes) - _SHOWN:,} more")
    if inspection.suspicious:
        lines += ["", "Look at these", *(f"  {sentence}" for sentence in inspection.suspicious)]
    example = [f"  {kind}: {shortened(text)}" for kind, text in inspection.example.items()]
    return [*lines, "", "An example", *example]


def _command(options: InspectOptions, inspection: "Inspection") -> str:
    words = ["regard", "train", inspection.task, "--train", str(options.file)]
    if options.other is not None and inspection.task != "language-model":
        words += ["--test", str(options.other)]
    for flag_name in ("text_column", "label_column", "columns"):
        if (value := getattr(options, flag_name)) is not None:
            words += [f"--{flag_name.replace('_', '-')}", value]
    return shlex.join([*words, "--out", f"runs/{options.file.name.partition('.')[0] or 'run'}"])
