"""inspect_file: what would be read from a file of texts, and what looks wrong about it.

    inspection = inspect_file(Path("tickets.csv"))                      the task is that of its form
    inspection = inspect_file(path, "classify-text", TextColumns("Text", "Kategorie"), other=Path("test.csv"))

The readers are those of the tasks, so that a file that cannot be read raises their sentences.  No torch here.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from regard.common.suggestions import known
from regard.data.spreadsheets.json_lines import has_json_name, parse_object
from regard.data.spreadsheets.label_columns import LABEL_NAMES, TEXT_NAMES, TextColumns, find_places
from regard.data.spreadsheets.pair_columns import KNOWN_COLUMNS, Columns
from regard.data.spreadsheets.rows import fallback_encoding, is_sheet, read_sheet
from regard.data.spreadsheets.text_pairs import SOURCE_NAMES, TARGET_NAMES, parse_columns
from regard.data.tagging.tagged import read_tagged
from regard.data.text.labelled import read_labelled
from regard.data.text.pairs import read_lines, read_pairs, read_records
from regard.data.text.sentence_pairs import read_labelled_pairs

TASKS = ("classify-text", "match", "tag", "translate", "language-model")
_TAGGED = (".conll", ".conllu", ".iob", ".bio", ".iob2")
# lines that decide the form of a file, characters that are counted for scripts, and names that a list shows
_HEAD, _COUNTED, _SHOWN = 100, 1_000_000, 5
# classes that are compared with each other, since that takes the square of their number
_MAX_COMPARED = 500


@dataclass(frozen=True)
class Inspection:
    """The examples of a file, in numbers."""

    file: str
    task: str
    columns: Mapping[str, str]  # what is read -> the column or key that has it
    examples: int
    classes: Mapping[str, int]  # the most frequent first
    words: Sequence[int]  # words of a text: least, median, 95 of 100, most
    characters: Sequence[int]  # the same of characters
    scripts: Mapping[str, float]  # shares of the letters
    duplicates: int  # examples whose text came before
    conflicts: int  # texts that have several labels or targets
    overlap: int | None  # texts that another file has, too
    suspicious: Sequence[str]  # sentences
    example: Mapping[str, str]


@dataclass(frozen=True)
class _Examples:
    texts: Sequence[str]
    targets: Sequence[str]  # labels, tags, translations; empty for lines
    classes: Counter[str]


def inspect_file(
    path: Path,
    task: str | None = None,
    columns: TextColumns | Columns | str | None = None,
    other: Path | None = None,
) -> Inspection:
    """Reads a file as a task does; without a task, as its form says.

    Columns of pairs to translate are "SOURCE,TARGET".
    """
    if task is None:
        task = recognise_task(path, columns)
    known("task", task, TASKS)
    examples = _read(path, task, columns)
    texts = examples.texts
    counts = Counter(texts)
    pairs = Counter(zip(texts, examples.targets, strict=True)) if examples.targets else Counter()
    targets_of = Counter(text for text, _ in pairs)
    first = {"text": texts[0]} | ({"target": examples.targets[0]} if examples.targets else {})
    return Inspection(
        file=str(path),
        task=task,
        columns=_named_columns(path, task, columns),
        examples=len(texts),
        classes=dict(examples.classes.most_common()),
        words=_quantiles([len(text.split()) for text in texts]),
        characters=_quantiles([len(text) for text in texts]),
        scripts=script_shares(texts),
        duplicates=sum(count - 1 for count in counts.values()),
        conflicts=sum(count > 1 for count in targets_of.values()),
        overlap=None if other is None else len(set(counts) & set(_read(other, task, columns).texts)),
        suspicious=list(_suspicious(examples)),
        example=first,
    )


def recognise_task(path: Path, columns: TextColumns | Columns | str | None = None) -> str:
    """The task whose reader the form of a file is for."""
    if isinstance(columns, Columns):
        return "match"
    if isinstance(columns, str):
        return "translate"
    if isinstance(columns, TextColumns) and columns.is_set:
        return "classify-text"
    if path.name.removesuffix(".gz").lower().endswith(_TAGGED):
        return "tag"
    lines = list(islice(read_records(path, "texts", lambda n: None, reads_utf16=True), _HEAD))
    names = {name.lower() for name in _column_names(path, lines)}
    if all(names & set(each) for each in KNOWN_COLUMNS):
        return "match"
    if names & set(SOURCE_NAMES) and names & set(TARGET_NAMES):
        return "translate"
    cells = [line.split("\t") for line in lines if line.strip()]
    knows_columns = any(names & set(each) for each in (TEXT_NAMES, LABEL_NAMES))
    if all(len(row) == 2 for row in cells) and not knows_columns:
        # labels are short and come again
        firsts = Counter(first for first, _ in cells)
        return "classify-text" if 2 * len(firsts) <= len(cells) else "translate"
    return "classify-text" if has_json_name(path) or is_sheet(path) or knows_columns else "language-model"


def _read(path: Path, task: str, columns: TextColumns | Columns | str | None) -> _Examples:
    if task == "classify-text":
        data = read_labelled(path, columns=columns if isinstance(columns, TextColumns) else TextColumns())
        labels = [data.classes[n] for n in data.labels.tolist()]
        return _Examples(list(data.texts), labels, Counter(labels))
    if task == "match":
        pairs = read_labelled_pairs(path, None, columns if isinstance(columns, Columns) else None)
        texts = [f"{first}\t{second}" for first, second in zip(pairs.first, pairs.second, strict=True)]
        labels = [pairs.classes[n] for n in pairs.labels.tolist()]
        return _Examples(texts, labels, Counter(labels))
    if task == "tag":
        sentences = read_tagged(path)
        tags = Counter(tag for each in sentences for tag in each.tags)
        return _Examples([each.text for each in sentences], [" ".join(each.tags) for each in sentences], tags)
    if task == "translate":
        both = read_pairs([path], names=columns if isinstance(columns, str) else None)
        return _Examples(list(both.source), list(both.target), Counter())
    return _Examples(list(read_lines(path)), [], Counter())


def _column_names(path: Path, lines: Sequence[str]) -> Sequence[str]:
    """The names of the columns of a sheet, or the keys of JSON lines; none if the first row is no header."""
    if has_json_name(path) or lines[0].startswith("{"):
        return list(parse_object(lines[0]))
    sheet = read_sheet(path, _whole_rows(lines), has_names=False)
    return [cell.strip() for cell in sheet.rows[0].cells] if sheet is not None and sheet.rows else []


def _whole_rows(lines: Sequence[str]) -> Sequence[str]:
    """The first lines of a file without a quoted cell that they do not end."""
    return lines[:1] if sum(line.count('"') for line in lines) % 2 else lines


def _named_columns(path: Path, task: str, columns: TextColumns | Columns | str | None) -> dict[str, str]:
    """The columns that are read, by what they hold."""
    if isinstance(columns, Columns):
        return {"first text": columns.first, "second text": columns.second, "label": columns.label}
    if isinstance(columns, str):
        return dict(zip(("source", "target"), parse_columns(columns), strict=True))
    if task not in ("classify-text", "match") or not (is_sheet(path) or has_json_name(path)):
        return {}
    lines = list(
        islice(read_records(path, "texts", lambda n: None, reads_utf16=True, fallback=fallback_encoding(path)), _HEAD)
    )
    names = _column_names(path, lines)
    if task == "match":
        lower = [name.lower() for name in names]
        columns_of_pairs = [
            next((names[lower.index(each)] for each in choices if each in lower), "") for choices in KNOWN_COLUMNS
        ]
        return {
            kind: name
            for kind, name in zip(("first text", "second text", "label"), columns_of_pairs, strict=True)
            if name
        }
    places = find_places(names, columns if isinstance(columns, TextColumns) else TextColumns())
    named = {"text": places.text, "label": places.label}
    return {kind: names[n] if places.has_header else f"column {n + 1}" for kind, n in named.items() if n is not None}


def _quantiles(lengths: Sequence[int]) -> list[int]:
    ordered = sorted(lengths)
    last = len(ordered) - 1
    return [ordered[round(last * share)] for share in (0, 0.5, 0.95, 1)]


def script_shares(texts: Sequence[str]) -> dict[str, float]:
    """The shares of the scripts among the letters, by the names of Unicode, the most frequent first."""
    counts: Counter[str] = Counter()
    left = _COUNTED
    for text in texts:
        counts.update(text[:left])
        left -= len(text)
        if left <= 0:
            break
    scripts: Counter[str] = Counter()
    for character, count in counts.items():
        if character.isalpha():
            scripts[_script(character)] += count
    total = sum(scripts.values())
    return {name: count / total for name, count in scripts.most_common()}


def _script(letter: str) -> str:
    """The script of a letter: the first word of its name, which of Chinese characters is CJK."""
    name = unicodedata.name(letter, "UNKNOWN")
    return name.partition(" ")[0].removesuffix("-").capitalize() if name[:3] != "CJK" else "CJK"


def _suspicious(examples: _Examples) -> Iterator[str]:
    """Sentences about what is probably a mistake of the file."""
    classes = examples.classes
    if len(classes) == 1:
        yield f"all examples have the label {next(iter(classes))!r}, and a model tells two or more apart"
    folded: dict[str, str] = {}
    for name in classes:
        key = unicodedata.normalize("NFKC", " ".join(name.split())).casefold()
        if key in folded:
            yield f"the labels {folded[key]!r} and {name!r} differ by case or blanks alone"
        folded.setdefault(key, name)
    if len(classes) <= _MAX_COMPARED:
        for name, count in classes.items():
            for near, other in classes.items():
                if len(name) > 3 and 10 * count <= other and _is_one_edit(name.casefold(), near.casefold()):
                    yield f"the label {name!r} ({count:,}) may be a misspelling of {near!r} ({other:,})"
    if rare := [name for name, count in classes.items() if count == 1 and len(classes) > 1]:
        shown = ", ".join(map(repr, rare[:_SHOWN])) + (", …" if len(rare) > _SHOWN else "")
        yield f"{len(rare):,} of {len(classes):,} labels have one example: {shown}"
    if long_names := [name for name in classes if len(name) > 40 or name.count(" ") > 5]:
        yield f"the label {long_names[0][:60]!r} looks like a text"
    blank = sum(not text.strip() for text in examples.texts)
    if blank:
        yield f"{blank:,} texts are empty"
    odd = sum("\ufffd" in text for text in examples.texts)
    if odd:
        yield f"{odd:,} texts hold U+FFFD, the sign of a character that was lost when the file was converted"
    mojibake = sum(
        "Ã¤" in text or "Ã¶" in text or "Ã¼" in text or "Ã©" in text or "â€" in text for text in examples.texts
    )
    if mojibake:
        yield f"{mojibake:,} texts look like UTF-8 that was read as Windows-1252, such as Ã¤; convert the file again"
    longest = max(map(len, examples.texts))
    if longest > 100_000:
        yield f"a text has {longest:,} characters; its quotes may not be closed"


def _is_one_edit(a: str, b: str) -> bool:
    """Whether one insertion, deletion or replacement turns the first into the second."""
    if a == b or abs(len(a) - len(b)) > 1:
        return False
    start = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return a[start + (len(a) >= len(b)) :] == b[start + (len(b) >= len(a)) :]
