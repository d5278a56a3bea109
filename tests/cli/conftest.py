"""The command line in this process: torch is imported once, and a run of a few steps serves all tests that read one."""

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


@pytest.fixture
def regard(capsys: pytest.CaptureFixture[str]) -> Regard:
    def run(*args: object) -> Ran:
        capsys.readouterr()
        return Ran(main([str(word) for word in args]), *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    path.write_text("".join(f"{line}\t{line[::-1]}\n" for line in LINES), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def trained(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps; tests read it and leave it as it is."""
    run = tmp_path_factory.mktemp("trained") / "run"
    args = ["train", "translate", "--train", str(pairs), *TINY, "--steps", "4", "--validate-every", "2"]
    assert main([*args, "--out", str(run)]) == 0
    return run


@pytest.fixture(scope="session")
def unattended(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a decoder that does not attend."""
    run = tmp_path_factory.mktemp("unattended") / "run"
    args = ["train", "translate", "--train", str(pairs), *TINY, "--steps", "1", "--decoder", "fixed"]
    assert main([*args, "--out", str(run)]) == 0
    return run
