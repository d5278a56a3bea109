"""EvaluationSplit: the data that an evaluation reads, compared with the examples that its run was trained on.

    warnings = record_splits(config, folder, splits, "texts", contents, new)     in `prepare`
    split = EvaluationSplit.of(config, options, folder, "texts", read_files=…, read_part=…, contents=…)

A run on files keeps a hash of the content of every example that it is trained on and validated on. So an evaluation
knows how many of its examples were trained on, whatever has happened to the files since.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from regard.common import atomic_files, safetensors_files
from regard.common.options.fields import as_paths
from regard.data.splitting import content_hashes
from regard.inference.evaluation import EXAMPLES, Evaluation

_KEY, _FORMAT = "regard-examples", 1
_PARTS = ("train", "valid", "test", "initial")
# the folder in a run with files of the run that it started from
_INITIAL = "initial"

_NO_HASHES: NDArray[np.int64] = np.zeros(0, np.int64)

Data = TypeVar("Data")
Part = TypeVar("Part", covariant=True)
Contents = Iterable[str | bytes]
HeldOutPart = Literal["valid", "test"]
PathOrPaths = Path | tuple[Path, ...] | None


class FileConfig(Protocol):
    """Options of a task that name its data."""

    @property
    def dataset(self) -> str: ...
    @property
    def train(self) -> PathOrPaths: ...
    @property
    def valid(self) -> PathOrPaths: ...
    @property
    def test(self) -> PathOrPaths: ...


class SplitOptions(Protocol):
    """Options of `regard evaluate` and `regard attack` that name data."""

    @property
    def split(self) -> HeldOutPart: ...
    @property
    def test(self) -> PathOrPaths: ...


class DataSplits(Protocol[Part]):
    """The data of a run; `test` is `valid` where there are no test data."""

    @property
    def train(self) -> Part: ...
    @property
    def valid(self) -> Part: ...
    @property
    def test(self) -> Part: ...


@dataclass(frozen=True, eq=False)
class RecordedExamples:
    """Hashes of the contents of the examples that a run was trained on, of those that chose its weights, of those that
    it left for a test where they are from the training files, and of those that earlier runs were trained on, whose
    weights it started with.
    """

    train: NDArray[np.int64]  # "n", sorted, each once
    valid: NDArray[np.int64]  # "n", sorted
    test: NDArray[np.int64]  # "n", sorted
    initial: NDArray[np.int64] = field(default_factory=lambda: _NO_HASHES)  # "n", sorted, each once

    @staticmethod
    def read(folder: Path) -> "RecordedExamples | None":
        """The record of a run; None for a run of embedded data."""
        if not (folder / EXAMPLES).exists():
            return None
        tensors, _ = safetensors_files.read_tagged(folder / EXAMPLES, _KEY, _FORMAT, "record of examples")
        return RecordedExamples(*(tensors[name].numpy() for name in _PARTS))

    def write(self, folder: Path) -> None:
        tensors = {name: torch.tensor(getattr(self, name)) for name in _PARTS}
        chunks = safetensors_files.encode(tensors, {_KEY: f'{{"format": {_FORMAT}}}'})
        atomic_files.write_atomically(folder / EXAMPLES, chunks)


def example_hashes(contents: Contents) -> NDArray[np.int64]:  # -> "n"
    """Sorted hashes of contents; the dtype is one that torch and safetensors know."""
    return np.sort(content_hashes(contents).view(np.int64))


def record_splits(
    config: FileConfig,
    folder: Path,
    splits: DataSplits[Data],
    examples: str,
    contents: Callable[[Data], Contents],
    new: bool,
) -> list[str]:
    """Keeps hashes of the examples of a run on files, and returns warnings about examples that its files share."""
    if config.dataset != "files":
        return []
    train, valid = (example_hashes(contents(part)) for part in (splits.train, splits.valid))
    files = {"--train": train}
    if config.valid:
        files["--valid"] = valid
    if config.test:
        files["--test"] = example_hashes(contents(splits.test))
    return record_examples(folder, train, valid, files, examples, new)


def record_examples(
    folder: Path,
    train: NDArray[np.int64],  # "n", sorted hashes
    valid: NDArray[np.int64],
    files: Mapping[str, NDArray[np.int64]],
    examples: str,
    new: bool,
    test: NDArray[np.int64] = _NO_HASHES,
) -> list[str]:
    """Keeps the hashes of examples in the run, and returns warnings about those that files share, and about those to
    validate on that the run to start from was trained on.

    `test` are examples that are held out from the training files for a test; `examples` is the plural of an example.
    """
    before = RecordedExamples.read(folder / _INITIAL)
    initial = _NO_HASHES if before is None else np.union1d(before.train, before.initial)
    if new or not (folder / EXAMPLES).exists():
        RecordedExamples(np.unique(train), valid, test, initial).write(folder)
    learned = _count_shared(valid, initial)
    return [
        *([_initial_note(learned, len(valid), f"{examples} to validate on")] if learned else []),
        *_shared_warnings(files, examples),
    ]


def _initial_note(count: int, total: int, examples: str) -> str:
    return (
        f"the run that this one starts from was trained on {count:,} of the {total:,} {examples}, so these scores are "
        "too good; take others, or train with the seed of that run"
    )


def _shared_warnings(files: Mapping[str, NDArray[np.int64]], examples: str) -> list[str]:
    return [
        f"{shared:,} of {len(files[name]):,} {examples} of {name} are also in {other}, and a model is not to be judged "
        "by examples that it has seen; take them out of one of them"
        for other, name in combinations(files, 2)
        if (shared := _count_shared(files[name], files[other]))
    ]


def record_folder(
    source: Path | None,
    folder: Path,
    splits: DataSplits[Data],
    examples: str,
    contents: Callable[[Data], Contents],
    new: bool,
    parts_with_files: Collection[str],
) -> list[str]:
    """Keeps hashes as `record_splits` does, where all data are in one folder; None is embedded.

    `parts_with_files` are "valid" and "test" where the folder has separate files of them.
    """
    if source is None:
        return []
    train, valid, test = (example_hashes(contents(part)) for part in (splits.train, splits.valid, splits.test))
    files = {"the training split": train if "valid" in parts_with_files else np.concatenate([train, valid])}
    if "valid" in parts_with_files:
        files["the validation split"] = valid
    if "test" in parts_with_files:
        files["the test split"] = test
    return record_examples(folder, train, valid, files, examples, new, test)


def _count_shared(hashes: NDArray[np.int64], others: NDArray[np.int64]) -> int:  # "n", "m"
    return int(np.isin(hashes, others).sum())


@dataclass(frozen=True)
class EvaluationSplit(Generic[Data]):
    """The data of an evaluation, their name and files, and a comparison with the examples that were trained on."""

    data: Data
    name: str
    files: tuple[Path, ...] = ()  # none for embedded data
    notes: tuple[str, ...] = ()
    num_trained: int = 0  # examples that the run was trained on

    @property
    def title(self) -> str:
        """The name, and the number of examples that the run was trained on, if any."""
        return f"{self.name}, {self.num_trained:,} of them trained on" if self.num_trained else self.name

    @staticmethod
    def of(
        config: FileConfig,
        options: SplitOptions,
        folder: Path,
        examples: str,
        *,
        read_files: Callable[[tuple[Path, ...]], Data],
        read_part: Callable[[HeldOutPart], Data],
        contents: Callable[[Data], Contents],
        check: Callable[[Data], object] | None = None,
        has_embedded_test: bool = True,
    ) -> "EvaluationSplit[Data]":
        """The files of --test, or else those of the run, or else the part of its data that was held out.

        `examples` is the plural of an example. `read_part` reads "valid" or "test" of embedded data, "valid" alone
        unless they have test data (`has_embedded_test`), and "valid" of a run that held it out from its training files.
        Raises if examples that the run was trained on would be held out now, as its training file has changed; `check`
        raises in its place where contents do not tell.
        """
        is_test, is_embedded = options.split == "test", config.dataset != "files"
        has_test = is_test and (has_embedded_test if is_embedded else bool(config.test))
        name = f"the {'test' if has_test else 'validation'} {examples} of {config.dataset if is_embedded else folder}"
        name += f", which has no test {examples}" if is_test and not has_test else ""
        if is_embedded and not options.test:
            data = read_part("test" if has_test else "valid")
            if check is not None:
                check(data)
            return EvaluationSplit(data, name)
        files = as_paths(options.test or (config.test if has_test else None) or config.valid or ())
        if files:
            split = EvaluationSplit(read_files(files), " ".join(map(str, files)) if options.test else name, files)
            return split.compare(folder, examples, contents)
        split = EvaluationSplit(read_part("valid"), name, as_paths(config.train or ()))
        if check is not None:
            check(split.data)
            return split
        return split.check_held_out(folder, examples, contents)

    @staticmethod
    def of_folder(
        data: Data,
        part: HeldOutPart,
        source: Path | None,
        folder: Path,
        examples: str,
        contents: Callable[[Data], Contents],
        parts_with_files: Collection[str],
    ) -> "EvaluationSplit[Data]":
        """The split of a run whose data are all in one folder; None is embedded.

        `parts_with_files` are "valid" and "test" where the folder has separate files of them.
        """
        if source is None:
            return EvaluationSplit(data, f"the {part} split")
        split = EvaluationSplit(data, f"the {part} split", (source,))
        if part in parts_with_files:
            return split.compare(folder, examples, contents)
        way_out = f"put {examples} that it has not seen into a folder test"
        return split.check_held_out(folder, examples, contents, part, way_out)

    def check_held_out(
        self,
        folder: Path,
        examples: str,
        contents: Callable[[Data], Contents],
        part: HeldOutPart = "valid",
        way_out: str = "give others by --test",
    ) -> "EvaluationSplit[Data]":
        """The split, whose data are the part of the training files that is held out now.

        Raises if the run was trained on some of them; a note names other changes.
        """
        recorded, files = RecordedExamples.read(folder), " ".join(map(str, self.files))
        if recorded is None:
            raise ValueError(
                f"{folder} has lost {EXAMPLES}, the record of the {examples} that it was trained on, and other "
                f"{examples} of {files} may be held out now; restore it, or {way_out}"
            )
        hashes = example_hashes(contents(self.data))
        if num_trained := _count_shared(hashes, recorded.train):
            raise ValueError(
                f"{files} has changed since {folder} was trained: {num_trained:,} of the {len(hashes):,} {examples} "
                f"that are held out now were trained on; put the files back as they were, or {way_out}"
            )
        before, notes = recorded.valid if part == "valid" else recorded.test, []
        if learned := _count_shared(hashes, recorded.initial):
            notes.append(f"Warning: {_initial_note(learned, len(hashes), examples)}")
        if not np.array_equal(hashes, before):
            notes.append(
                f"{files} has changed since the training: {len(hashes):,} {examples} are held out now, and were "
                f"{len(before):,}; none of them was trained on"
            )
        return replace(self, notes=tuple(notes), num_trained=learned)

    def compare(self, folder: Path, examples: str, contents: Callable[[Data], Contents]) -> "EvaluationSplit[Data]":
        """The split, whose data have separate files, with a note if some of them were trained on."""
        if (recorded := RecordedExamples.read(folder)) is None:
            return self
        hashes = example_hashes(contents(self.data))
        if not (num_trained := _count_shared(hashes, np.union1d(recorded.train, recorded.initial))):
            return self
        note = (
            f"Warning: the run was trained on {num_trained:,} of the {len(hashes):,} {examples} of "
            f"{' '.join(map(str, self.files))}, so these scores are too good; take them out"
        )
        return replace(self, notes=(note,), num_trained=num_trained)

    def annotate(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation with the notes of the split before the others."""
        facts = {**evaluation.facts, "trained_on": self.num_trained} if self.num_trained else evaluation.facts
        return replace(evaluation, notes=[*self.notes, *evaluation.notes], facts=facts)
