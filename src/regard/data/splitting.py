"""Splits of data: which examples are held out, deterministically by a seed.  No torch here."""

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from regard.common.wording import plural
from regard.data.unseen_labels import renumber

Item = TypeVar("Item")
Data = TypeVar("Data", covariant=True)
Split = Literal["train", "valid", "test"]
# the names of folders and of parts of a file with the examples of a split
SPLIT_NAMES: dict[str, tuple[str, ...]] = {
    "train": ("train",),
    "valid": ("val", "valid", "validation", "dev"),
    "test": ("test",),
}


class Parts(NamedTuple, Generic[Data]):
    """The data to train on, to choose the best weights by, and to test on; no example of one part is in another."""

    train: Data
    valid: Data
    test: Data


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


def content_hashes(contents: Iterable[str | bytes]) -> NDArray[np.uint64]:  # -> "n"
    """Numbers of examples that depend on their content alone; spellings of one text have one number."""
    return np.fromiter((_content_hash(_spelling(content), b"") for content in contents), np.uint64)


_SPACES, _SEPARATORS = re.compile(r"[^\S\t\n]+"), re.compile(r" ?([\t\n]) ?")


def _spelling(content: str | bytes) -> str | bytes:
    """One spelling of all that differ in case, spaces and the composition of characters; tabs and lines stay apart."""
    if isinstance(content, bytes):
        return content
    return _SEPARATORS.sub(r"\1", _SPACES.sub(" ", normalize("NFC", normalize("NFC", content).casefold()))).strip()


def _content_hash(content: str | bytes, key: bytes) -> int:
    # a lone surrogate, which JSON can hold, is no UTF-8
    data = content.encode(errors="surrogatepass") if isinstance(content, str) else content
    return int.from_bytes(blake2b(data, key=key, digest_size=8).digest())


def held_out(
    contents: Iterable[str | bytes],
    share: float,
    seed: int,
    *,
    labels: NDArray[np.int64] | None = None,  # "n"
    least: int = 1,
) -> NDArray[np.bool_]:  # -> "n"
    """Whether each example is held out: about this share of them, or of every class if there are `labels`.

    Examples with the same content, and texts that differ in case, spaces or composed characters alone, stay together,
    and neither the order of the examples nor other examples decide where one belongs, except at the margin of the
    share. Contents with more copies than are still wanted are passed over; if all are, the rarest one is held out. At
    least `least` different contents are held out, and as many stay; a class with fewer than twice as many stays whole.
    Copies with several labels belong to the first class.
    """
    if not 0 < share < 1:
        raise ValueError(f"share must be above 0 and below 1, got {share}; try share=0.2")
    key = str(seed).encode()
    pairs = ((_content_hash(each, key), _content_hash(_spelling(each), key)) for each in contents)
    hashes = np.fromiter(pairs, np.dtype((np.uint64, 2)))
    _, group_of, sizes = np.unique(hashes[:, 1], return_inverse=True, return_counts=True)
    # copies have the place of the spelling that comes first
    places = np.full(len(sizes), np.iinfo(np.uint64).max)
    np.minimum.at(places, group_of, hashes[:, 0])
    order = np.argsort(places)
    group_of, sizes = np.argsort(order)[group_of], sizes[order]
    strata = np.zeros(len(sizes), np.int64)
    if labels is not None:
        strata[:] = np.iinfo(np.int64).max
        np.minimum.at(strata, group_of, labels)
    is_chosen = np.zeros(len(sizes), bool)
    for stratum in np.unique(strata).tolist():
        members = np.flatnonzero(strata == stratum)
        is_chosen[members[_choose(sizes[members], share, least)]] = True
    return is_chosen[group_of]


def _choose(sizes: NDArray[np.int64], share: float, least: int) -> list[int]:
    """Indices of groups of these sizes, in their order, that have about a share of all members together."""
    if len(sizes) < 2 * least:
        return []
    wanted = max(round(share * int(sizes.sum())), 1)
    chosen: list[int] = []
    for group in np.flatnonzero(sizes <= wanted).tolist():
        if len(chosen) == len(sizes) - least or not wanted:
            break
        if sizes[group] <= wanted:
            chosen.append(group)
            wanted -= int(sizes[group])
    rest = np.setdiff1d(np.arange(len(sizes)), chosen)
    rarest = rest[np.argsort(sizes[rest], kind="stable")[: max(least - len(chosen), 0)]]
    return [*chosen, *rarest.tolist()]


def split_items(items: Sequence[Item], held: NDArray[np.bool_]) -> tuple[list[Item], list[Item]]:  # "n"
    """The items that stay, and those that are held out."""
    parts: tuple[list[Item], list[Item]] = ([], [])
    for item, is_held in zip(items, held.tolist(), strict=True):
        parts[is_held].append(item)
    return parts


def require_held_out(held: NDArray[np.bool_], name: object, examples: str) -> None:
    """Raises if no example is held out; `name` is that of the data, `examples` a plural."""
    if not held.any():
        raise ValueError(
            f"{name} has {plural(len(held), examples.removesuffix('s'))} and too few different ones to hold some out; "
            f"give more {examples}, or --valid as well"
        )


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
