"""The command line in this process: torch is imported once, and a run of a few steps serves all tests that read one."""

import io
import sys
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

import pytest

from regard.cli.main import main

# words of one letter, in threes, and the same backwards: so little that a training takes a moment
LINES = [" ".join(word) for word in permutations("abcde", 3)]
TINY = ["--tokens", "words", "--width", "6", "--hidden", "8", "--batch", "96", "--threads", "1", "--warmup", "1"]


class Ran(NamedTuple):
    code: int
    out: str
    err: str


Regard = Callable[..., Ran]
Refused = Callable[..., str]
Pipe = Callable[[bytes], None]


@pytest.fixture
def regard(capsys: pytest.CaptureFixture[str]) -> Regard:
    def run(*args: object) -> Ran:
        capsys.readouterr()
        return Ran(main([str(word) for word in args]), *capsys.readouterr())

    return run


@pytest.fixture
def refused(regard: Regard) -> Refused:
    """The sentence of a command that is refused, the last line on stderr; nothing is on stdout."""

    def run(*args: object) -> str:
        ran = regard(*args)
        assert (ran.code, ran.out) == (2, "")
        *notes, last = ran.err.splitlines()
        assert all(line.startswith("regard: ") for line in (*notes, last)), ran.err
        return last.removeprefix("regard: ")

    return run


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Pipe:
    """Takes the bytes that a command reads from stdin."""

    def give(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="ascii"))

    return give


def train(out: Path, task: str, options: str, *words: object) -> Path:
    """Trains a new run into the folder `out`; the further words may have spaces."""
    assert main(["train", task, *options.split(), *map(str, words), "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    path.write_text("".join(f"{line}\t{line[::-1]}\n" for line in LINES), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def trained(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps; tests read it and leave it as it is."""
    args = ["--train", pairs, *TINY, "--steps", 4, "--validate-every", 2]
    return train(tmp_path_factory.mktemp("trained") / "run", "translate", "", *args)


@pytest.fixture(scope="session")
def unattended(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a decoder that does not attend."""
    args = ["--train", pairs, *TINY, "--steps", 1, "--decoder", "fixed"]
    return train(tmp_path_factory.mktemp("unattended") / "run", "translate", "", *args)
