"""The columns of a sheet of labelled texts.  No torch here: a command line reads them."""

from collections.abc import Sequence
from typing import NamedTuple

from regard.common.suggestions import known
from regard.common.wording import shortened

# the names of columns that are recognised; the first of each is meant where there are several
_NAMES = {
    "label": (
        *("label", "labels", "class", "category", "topic", "intent", "sentiment", "tag", "target"),
        *("kategorie", "klasse", "thema", "catégorie", "categoría", "categoria"),
    ),
    "text": (
        *("text", "texts", "sentence", "message", "body", "content", "review", "comment", "question", "utterance"),
        *("title", "subject", "description", "nachricht", "satz", "betreff", "beschreibung", "texte", "texto", "testo"),
    ),
}


# names of columns of texts
TEXT_NAMES = _NAMES["text"]
# names of columns of labels
LABEL_NAMES = _NAMES["label"]


class TextColumns(NamedTuple):
    """The columns or keys of the text and of the label: names, or numbers from 1; None finds them by name."""

    text: str | None = None
    label: str | None = None

    @property
    def is_set(self) -> bool:
        return self.text is not None or self.label is not None


class LabelPlaces(NamedTuple):
    """The columns of the label and of the text, from 0, and whether the first row is a header."""

    label: int | None
    text: int | None
    has_header: bool


def find_places(cells: Sequence[str], columns: TextColumns) -> LabelPlaces:
    """The columns by their names in the first row, or by number; None for a column that is neither set nor known."""
    names = [cell.strip() for cell in cells]
    named = {kind: recognise(names, known_names) for kind, known_names in _NAMES.items()}
    has_header = all(named.values())
    places: dict[str, int | None] = {}
    for kind, column in (("label", columns.label), ("text", columns.text)):
        if column is not None:
            places[kind], is_name = find_column(names, kind, column)
            has_header = has_header or is_name
    for kind, candidates in named.items():
        if kind not in places:
            # a name says nothing in a row that is no header
            places[kind] = only(names, candidates, kind) if candidates and has_header else None
    if places["label"] is None and places["text"] is not None and len(names) == 2:
        places["label"] = 1 - places["text"]
    if places["text"] is None and places["label"] is not None and len(names) == 2:
        places["text"] = 1 - places["label"]
    if places["label"] is not None and places["label"] == places["text"]:
        name = names[places["label"]]
        raise ValueError(
            f"the label and the text have the same column, {shortened(name)}; name another by --text-column"
        )
    return LabelPlaces(places["label"], places["text"], has_header)


def recognise(names: Sequence[str], known_names: Sequence[str]) -> list[int]:
    """The columns with a known name; the first of these alone if it is there."""
    lower = [name.lower() for name in names]
    usual = known_names[0]
    return [lower.index(usual)] if usual in lower else [n for n, name in enumerate(lower) if name in known_names]


def only(names: Sequence[str], candidates: Sequence[int], kind: str) -> int:
    """The only candidate for the column of a kind, "text" or "label"; raises if there are several."""
    if len(candidates) > 1:
        listed, count = " and ".join(repr(names[n]) for n in candidates), "both" if len(candidates) == 2 else "all"
        raise ValueError(f"the columns {listed} may {count} hold the {kind}; name one by --{kind}-column")
    return candidates[0]


def find_column(names: Sequence[str], kind: str, column: str) -> tuple[int, bool]:
    """The place of a column of a kind, "text" or "label", by name or by number, and whether it is by name."""
    lower = [name.lower() for name in names]
    for each, wanted in ((names, column), (lower, column.lower())):
        if (count := list(each).count(wanted)) > 1:
            raise ValueError(f"{count} columns have the name {column!r}; number one from 1, as --{kind}-column 2")
        if count:
            return list(each).index(wanted), True
    if not column.isdecimal():
        known(f"{kind} column", column, names)
    if not 1 <= int(column) <= len(names):
        raise ValueError(f"--{kind}-column must be from 1 to {len(names)}, or a name, got {column}; count from 1")
    return int(column) - 1, False
