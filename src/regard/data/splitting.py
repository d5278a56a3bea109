"""Splits of data: which examples are held out, deterministically by a seed.  No torch here."""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from regard.data.unseen_labels import renumber

# the names of folders and of parts of a file with the examples of a split
SPLIT_NAMES: dict[str, tuple[str, ...]] = {
    "train": ("train",),
    "valid": ("val", "valid", "validation", "dev"),
    "test": ("test",),
}


def split_folder(path: Path, split: str) -> Path | None:
    """The folder of a split; examples to validate on have one of their own only beside a folder `train`."""
    if split == "valid" and not (path / "train").is_dir():
        return None
    return next((path / name for name in SPLIT_NAMES[split] if (path / name).is_dir()), None)


class LabelledExamples(Protocol):
    """Examples with one class each."""

    @property
    def labels(self) -> NDArray[np.int64]: ...  # "n"

    @property
    def classes(self) -> tuple[str, ...]: ...

    def __getitem__(self, index: NDArray[np.int64], /) -> Self: ...


L = TypeVar("L", bound=LabelledExamples)
Item = TypeVar("Item", bound=Any)


def held_out_items(distinct: Sequence[Item], share: float, seed: int, least: int = 1) -> set[Item]:
    """About this share of different items, such as passages or stories; at least `least` of them, and as many stay.

    `distinct` are 2 · `least` items or more, in an order that does not depend on the process.
    """
    count = min(max(least, round(share * len(distinct))), len(distinct) - least)
    return {distinct[n] for n in np.random.default_rng(seed).permutation(len(distinct))[:count].tolist()}


def held_out(contents: Iterable[bytes], share: float, seed: int) -> NDArray[np.bool_]:  # -> "n"
    """Which examples are held out: about this share of the different contents, at least one, and one stays.

    Copies of an example stay together, and neither the order of the examples nor other examples decide where one
    belongs, except at the margin of the share.
    """
    places = [blake2b(content, key=str(seed).encode(), digest_size=16).digest() for content in contents]
    distinct = sorted(set(places))
    count = min(max(round(share * len(distinct)), 1), len(distinct) - 1)
    chosen = set(distinct[: max(count, 0)])
    return np.array([place in chosen for place in places], bool)


def content_groups(contents: Iterable[bytes]) -> NDArray[np.int64]:  # -> "n"
    """Numbers of examples, equal for copies: the `groups` of `stratified_split`."""
    numbers: dict[bytes, int] = {}
    return np.array([numbers.setdefault(blake2b(each).digest(), len(numbers)) for each in contents], np.int64)


def check_labels(labels: NDArray[np.int64], classes: tuple[str, ...], example: str) -> None:
    """Raises if a label is not the number of a class; `example` names one example, such as "image"."""
    wrong = (labels < 0) | (labels >= len(classes))
    if wrong.any():
        n = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"labels must be from 0 to {len(classes) - 1}, got {int(labels[n])} for {example} {n}; "
            "name as many classes as there are"
        )


def relabel(
    labels: NDArray[np.int64], classes: Sequence[str], known: Sequence[str], name: object
) -> NDArray[np.int64]:  # "n" -> "n"
    """Numbers of `classes` as numbers of the classes that a model knows; `name` names the data in the error."""
    used = np.unique(labels).tolist()
    if unknown := [classes[n] for n in used if classes[n] not in known]:
        listed = ", ".join(map(repr, unknown[:5])) + (" and more" if len(unknown) > 5 else "")
        raise ValueError(
            f"{name} has the class {listed}, which the model does not know; it knows {', '.join(known[:20])}"
            f"{' and more' if len(known) > 20 else ''}: take the class out, or train from scratch"
        )
    return renumber(labels, classes, known)


def stratified_split(data: L, share: float, seed: int, *, groups: NDArray[np.int64] | None = None) -> tuple[L, L]:
    """Two parts, the second with this share of every class, at least one example of each class that has two.

    Examples with the same number in `groups`, such as those with the same text, go to the same part. A group belongs to
    the class of its first example.
    """
    if not 0 < share < 1:
        raise ValueError(f"share must be above 0 and below 1, got {share}; try share=0.2")
    rng = np.random.default_rng(seed)
    groups = np.arange(len(data.labels)) if groups is None else groups
    _, first, which = np.unique(groups, return_index=True, return_inverse=True)
    strata = data.labels[first][which]  # "n"
    held_out = np.zeros(len(data.labels), bool)
    for label in range(len(data.classes)):
        members = np.flatnonzero(strata == label)
        if len(np.unique(which[members])) > 1:
            wanted = max(round(share * len(members)), 1)
            held_out[members] = np.isin(which[members], draw_groups(which[members], wanted, rng))
    return data[np.flatnonzero(~held_out)], data[np.flatnonzero(held_out)]


def draw_groups(groups: NDArray[np.int64], wanted: int, rng: np.random.Generator) -> NDArray[np.int64]:  # "n"
    """The numbers of whole groups, drawn at random, that have `wanted` members together, or somewhat fewer.

    `groups` holds the group of every example. A group with more members than are still wanted is passed over; if every
    group is too large, the smallest one is taken.
    """
    numbers, which, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = rng.permutation(which)
    chosen: set[int] = set()
    for group in order[sizes[order] <= wanted].tolist():
        if group not in chosen and sizes[group] <= wanted:
            chosen.add(group)
            wanted -= int(sizes[group])
            if not wanted:
                break
    if len(numbers) and not chosen:
        chosen = {int(sizes.argmin())}
    return numbers[sorted(chosen)]
