"""Dataclasses that a run wrote into files: one sentence names a file that is missing or damaged."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.for_each import for_each

from regard.common.dataclass_json import dataclass_from_file


@dataclass(frozen=True)
class Facts:
    count: int


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "facts.json").write_text('{"count": 3}')
    assert dataclass_from_file(Facts, tmp_path / "facts.json", "facts") == Facts(3)


@for_each("content", ["", "[", "[]", "{}", '{"count": "x"}', '{"colour": 1}', "\ud800", '{"count":' * 100_000], ids=len)
def test_a_damaged_file_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "facts.json").write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(ValueError, match=r"facts.json does not describe facts \(.*\); restore it, or train in another"):
        dataclass_from_file(Facts, tmp_path / "facts.json", "facts")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no facts.json; name the folder of a training run"):
        dataclass_from_file(Facts, tmp_path / "facts.json", "facts")
