"""Labelled texts: files with one label and one text per line, and their split into two parts.  No torch here.

label, tab, text             one per line; where the file has no tab, the first space separates them
TSV with a header            the columns `label` and `text`; other columns are ignored
JSON lines                   objects with the keys `label` and `text`; other keys are ignored
JSON with parts              one object whose keys `train`, `val` and `test` have lists of [text, label] (CLINC150);
                             other keys, such as texts that are out of scope, are ignored
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.common import json_files
from regard.common.suggestions import known
from regard.common.wording import shortened
from regard.data.splitting import check_labels, relabel, stratified_split
from regard.data.text.pairs import read_lines

_HOLDS = "label, tab, text, one of each per line, or JSON lines with the keys label and text"
_JSON = (".jsonl", ".ndjson", ".json")
Part = Literal["train", "valid", "test"]
# the names of each part in a file with parts
_PART_NAMES: dict[str, tuple[str, ...]] = {
    "train": ("train",),
    "valid": ("val", "valid", "validation", "dev"),
    "test": ("test",),
}


@dataclass(frozen=True, eq=False)
class LabelledTexts:
    """Texts with one class each and, where it is known, the number of the sentence that decides the class."""

    texts: Sequence[str]
    labels: NDArray[np.int64]  # "n"
    classes: tuple[str, ...]
    evidence: NDArray[np.int64] | None = None  # "n"
    num_latin1: int = 0  # lines of the file that are not UTF-8 and were read as Latin-1

    def __post_init__(self) -> None:
        for name, numbers in (("labels", self.labels), ("evidence", self.evidence)):
            if numbers is not None and len(numbers) != len(self.texts):
                raise ValueError(
                    f"{name} must be one per text, got {len(numbers)} for {len(self.texts)} texts; give as many"
                )
        check_labels(self.labels, self.classes, "text")

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: NDArray[np.int64]) -> "LabelledTexts":
        evidence = None if self.evidence is None else self.evidence[index]
        texts = [self.texts[n] for n in index.tolist()]
        return LabelledTexts(texts, self.labels[index], self.classes, evidence, self.num_latin1)


@dataclass(frozen=True)
class LabelledSplits:
    """Texts to train on, to choose the best weights by, and to test on: no text of one part is in another."""

    train: LabelledTexts
    valid: LabelledTexts
    test: LabelledTexts


def split(data: LabelledTexts, share: float, seed: int) -> tuple[LabelledTexts, LabelledTexts]:
    """Two parts, the second with this share of every class; texts that are equal go to the same part."""
    groups = np.unique(np.array(data.texts, dtype=object), return_inverse=True)[1]
    rest, held_out = stratified_split(data, share, seed, groups=groups)
    if not len(held_out):
        raise ValueError(
            f"there is no text to hold out: of {len(data)} texts no class has two that differ; "
            "give more texts, or a file to validate on as well"
        )
    return rest, held_out


def read_labelled(path: Path, classes: Sequence[str] | None = None, part: Part = "train") -> LabelledTexts:
    """The texts of a UTF-8 file, `.gz` unpacked, in any of the four formats; the first line decides which. Of a file
    with parts it is this `part`.

    Classes are the labels in the file, sorted. With `classes`, such as those of a trained model, labels must be among
    them and have their numbers. Lines that are not UTF-8 are read as Latin-1, as older collections (TREC) need it, and
    counted in `num_latin1`.
    """
    latin1: list[int] = []
    rows = list(_rows(path, latin1.append, part))
    if classes is None:
        classes = sorted({label for _, label, _ in rows})
    else:
        for number, label, _ in rows:
            try:
                known("label", label, classes)
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}") from error
    numbers = {label: n for n, label in enumerate(classes)}
    labels = np.array([numbers[label] for _, label, _ in rows], np.int64)
    return LabelledTexts([text for _, _, text in rows], labels, tuple(classes), num_latin1=len(latin1))


def with_classes(data: LabelledTexts, classes: Sequence[str], name: str) -> LabelledTexts:
    """The same texts with the numbers of these classes, which must have all labels of the data called `name`."""
    labels = relabel(data.labels, data.classes, classes, name)
    return LabelledTexts(data.texts, labels, tuple(classes), data.evidence, data.num_latin1)


def _rows(path: Path, on_latin1: Callable[[int], object], part: Part) -> Iterator[tuple[int, str, str]]:
    """The number of every line, its label and its text."""
    lines = list(read_lines(path, _HOLDS, on_latin1))
    if (parts := _parts(lines)) is not None:
        yield from _part_rows(path, parts, part)
        return
    parse, header = _format(lines, is_json=path.name.removesuffix(".gz").endswith(_JSON))
    if len(lines) == header:
        raise ValueError(f"{path} has a header and no texts; it must hold {_HOLDS}")
    for number, line in enumerate(lines[header:], header + 1):
        try:
            label, text = parse(line)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from error
        if not label or not text:
            raise ValueError(
                f"{path}:{number}: the {'text' if label else 'label'} is empty, got {shortened(line)}; "
                "fill it in, or delete the line"
            )
        yield number, label, text


def _parts(lines: Sequence[str]) -> dict[str, Any] | None:
    """The object of a file with parts; None if every line is a text of its own."""
    if not lines[0].lstrip().startswith("{") or (len(lines) > 1 and lines[0].rstrip().endswith("}")):
        return None
    try:
        content = json_files.parse("\n".join(lines))
    except ValueError:
        return None
    return content if isinstance(content, dict) and "train" in content else None


def _part_rows(path: Path, parts: Mapping[str, Any], part: Part) -> Iterator[tuple[int, str, str]]:
    name = next((name for name in _PART_NAMES[part] if name in parts), None)
    if name is None:
        found = ", ".join(sorted(parts))
        raise ValueError(f"{path} has no part {_PART_NAMES[part][0]!r}, only {found}; name a file that has one")
    rows = parts[name]
    if not isinstance(rows, list) or not rows:
        raise ValueError(f"{path}: the part {name!r} must be a list of [text, label], got {shortened(repr(rows))}")
    for number, row in enumerate(rows, 1):
        is_pair = (
            isinstance(row, list) and len(row) == 2 and all(isinstance(each, str) and each.strip() for each in row)
        )
        if not is_pair:
            raise ValueError(
                f"{path}: item {number} of the part {name!r} must be [text, label], two strings that are not empty, "
                f"got {shortened(repr(row))}; correct it"
            )
        yield number, row[1].strip(), row[0].strip()


def _format(lines: Sequence[str], is_json: bool) -> tuple[Callable[[str], tuple[str, str]], int]:
    """How a line is parsed into label and text, and how many lines are a header."""
    if is_json or lines[0].lstrip().startswith("{"):
        return _parse_json, 0
    columns = [column.strip().lower() for column in lines[0].split("\t")]
    if {"label", "text"} <= set(columns):
        positions = columns.index("label"), columns.index("text")
        return functools.partial(_parse_columns, positions=positions, count=len(columns)), 1
    return (_parse_tab if any("\t" in line for line in lines) else _parse_space), 0


def _parse_json(line: str) -> tuple[str, str]:
    try:
        row = json_files.parse(line)
    except ValueError as error:
        raise ValueError(f"a line must be one JSON object, got {shortened(line)} ({error}); fix the line") from error
    if not isinstance(row, dict) or not {"label", "text"} <= row.keys():
        raise ValueError(f"a line must be a JSON object with the keys label and text, got {shortened(line)}")
    label, text = row["label"], row["text"]
    if isinstance(label, bool) or not isinstance(label, str | int) or not isinstance(text, str):
        raise ValueError(
            f"label must be a string or a whole number and text a string, got {shortened(line)}; quote them"
        )
    return str(label).strip(), text.strip()


def _parse_columns(line: str, positions: tuple[int, int], count: int) -> tuple[str, str]:
    cells = line.split("\t")
    if len(cells) != count:
        raise ValueError(
            f"a line must have {count} columns, as the header has, got {len(cells)} in {shortened(line)}; "
            "replace tabs inside a text by spaces"
        )
    return cells[positions[0]].strip(), cells[positions[1]].strip()


def _parse_tab(line: str) -> tuple[str, str]:
    if "\t" not in line:
        raise ValueError(f"a line must be label, tab, text, got no tab in {shortened(line)}; other lines have one")
    label, text = line.split("\t", 1)
    return label.strip(), text.strip()


def _parse_space(line: str) -> tuple[str, str]:
    label, _, text = line.strip().partition(" ")
    return label, text.strip()
