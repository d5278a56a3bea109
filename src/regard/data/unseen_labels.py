"""Labels of data to evaluate that a run never saw: they count as missed, as scikit-learn, seqeval and conlleval count.

No torch here.
"""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.common.suggestions import known, listed
from regard.common.wording import shortened
from regard.data.spreadsheets.rows import check_classes

# unseen labels that a sentence lists
_LISTED = 5


def unseen(labels: Iterable[str], known: Collection[str]) -> list[str]:
    """The labels that a run does not know, sorted."""
    return sorted(set(labels) - set(known))


def extend_classes(labels: Iterable[str], known: Sequence[str], name: object) -> tuple[str, ...]:
    """The classes of a run, and behind them the labels that it never saw, so that no prediction can equal these.

    Raises as `check_any_known` does.
    """
    labels = set(labels)
    check_any_known("label", labels, known, name)
    return (*known, *unseen(labels, known))


def number_labels(
    path: Path,
    lines: Sequence[tuple[int, str]],
    classes: Sequence[str] | None,
    refuses_unseen: bool,
    unit: str,
    way_out: str,
) -> tuple[NDArray[np.int64], tuple[str, ...]]:  # -> "n"
    """The numbers of the labels in these lines of a file, and their classes: the labels, sorted, or those of a run.

    Labels that a run never saw are classes behind its own, or an error if it `refuses_unseen`. Raises if most labels
    differ: then they are no classes of the `unit`, a plural, and the error names the way out.
    """
    if classes is None:
        classes = sorted({label for _, label in lines})
        check_classes(path, classes, len(lines), unit, way_out)
    elif not refuses_unseen:
        classes = extend_classes((label for _, label in lines), classes, path)
    numbers = {label: n for n, label in enumerate(classes)}
    for line, label in lines:
        if label not in numbers:
            try:
                known("label", label, classes)
            except ValueError as error:
                raise ValueError(f"{path}:{line}: {error}") from error
    return np.array([numbers[label] for _, label in lines], np.int64), tuple(classes)


def check_any_known(kind: str, labels: Iterable[str], known: Sequence[str], name: object) -> None:
    """Raises if a run knows none of the labels: then the data called `name` are of another kind, or read wrongly."""
    labels = set(labels)
    if labels and not labels & set(known):
        raise ValueError(
            f"{name} has no {kind} that the run knows, only {_shown(sorted(labels))}; the run knows {listed(known)}: "
            "name other data, or correct them"
        )


def renumber(labels: NDArray[np.int64], classes: Sequence[str], others: Sequence[str]) -> NDArray[np.int64]:  # "n"
    """Numbers of `classes` as numbers of `others`, which have all that occur."""
    numbers = {each: n for n, each in enumerate(others)}
    return np.array([numbers.get(each, -1) for each in classes], np.int64)[labels]


def unseen_notes(kind: str, labels: Sequence[str], left_out: str = "") -> list[str]:
    """A sentence about unseen labels, called `kind`, and the examples that nll leaves out; none if there are none."""
    if not labels:
        return []
    rest = f"; nll leaves out {left_out} with them" if left_out else ""
    return [f"{kind} that the run never saw count as missed: {len(labels):,} ({_shown(labels)}){rest}"]


def _shown(labels: Sequence[str]) -> str:
    return ", ".join(map(shortened, labels[:_LISTED])) + (" and more" if len(labels) > _LISTED else "")
