"""DataFingerprint: the numbers and hashes of a run's examples, which a resumed run compares with its files."""

import hashlib
import json
from abc import ABC
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, Self

from regard.common import atomic_files
from regard.common.dataclass_json import dataclass_from_file


@dataclass(frozen=True, kw_only=True)
class DataFingerprint(ABC):
    """The data that a run began with; a task adds the facts that it learned from the data, such as classes."""

    file: ClassVar[str]  # in the folder of a run
    unit: ClassVar[str]  # the plural of what `train` and `valid` count

    train: int
    valid: int
    train_sha256: str
    valid_sha256: str

    @classmethod
    def read(cls, folder: Path) -> Self:
        return dataclass_from_file(cls, folder / cls.file, "the data of a run")

    @classmethod
    def is_saved(cls, folder: Path) -> bool:
        return (folder / cls.file).exists()

    def write(self, folder: Path) -> None:
        content = json.dumps(asdict(self), ensure_ascii=False)
        atomic_files.write_atomically(folder / self.file, [content.encode(), b"\n"])

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
