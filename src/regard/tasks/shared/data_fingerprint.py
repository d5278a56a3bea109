"""DataFingerprint: the numbers and hashes of a run's examples, which a resumed run compares with its files."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from regard.common import atomic_files
from regard.common.dataclass_json import dataclass_from_file
from regard.training.run_folder import initial_folder


class TrainingSplits(Protocol):
    """The data that a run trains on and validates on, each with a length."""

    @property
    def train(self) -> Any: ...
    @property
    def valid(self) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class DataFingerprint(ABC):
    """The data that a run began with; a task adds the facts that it learned from the data, such as classes."""

    file: ClassVar[str]  # in the folder of a run
    unit: ClassVar[str]  # the plural of what `train` and `valid` count

    train: int = 0
    valid: int = 0
    train_sha256: str = ""
    valid_sha256: str = ""

    @staticmethod
    @abstractmethod
    def digest(data: Any, /) -> str:
        """The hash of the examples to train on, or of those to validate on, in their order."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        return dataclass_from_file(cls, folder / cls.file, "the data of a run")

    @classmethod
    def of_initial(cls, folder: Path) -> Self | None:
        """The facts of the run that this run starts from; None if it starts from none."""
        return None if (initial := initial_folder(folder)) is None else cls.read(initial)

    @classmethod
    def is_saved(cls, folder: Path) -> bool:
        return (folder / cls.file).exists()

    def write(self, folder: Path) -> None:
        content = json.dumps(asdict(self), ensure_ascii=False)
        atomic_files.write_atomically(folder / self.file, [content.encode(), b"\n"])

    def for_data(self, splits: TrainingSplits) -> Self:
        """The same facts for these data."""
        train, valid = splits.train, splits.valid
        hashes = self.digest(train), self.digest(valid)
        return replace(self, train=len(train), valid=len(valid), train_sha256=hashes[0], valid_sha256=hashes[1])

    def saved(self, folder: Path, new: bool) -> Self:
        """The facts of the run, which a new run saves; raises if a resumed run began with other data."""
        # a run that was killed while it read its data has nothing to load yet
        if new or not self.is_saved(folder):
            self.write(folder)
            return self
        return self.check_same(folder)

    def check_same(self, folder: Path) -> Self:
        """The fingerprint that the run of the folder saved; raises if it began with other data."""
        before = self.read(folder)
        for name in ("train", "valid"):
            if getattr(before, f"{name}_sha256") != getattr(self, f"{name}_sha256"):
                raise ValueError(
                    f"the {name} data of {folder} has changed: it had {getattr(before, name):,} {self.unit}, now "
                    f"{getattr(self, name):,}, and other content; put the files back as they were, or train in another "
                    "folder"
                )
        return before


def sha256_of(parts: Iterable[str]) -> str:
    """The hash of these texts in their order."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode())
    return digest.hexdigest()
