"""A file of dialogues, and runs that were trained on it."""

from pathlib import Path

import pytest
from tests.tasks.respond.runs import MODELS, WORDS, train


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dialogues") / "dialogues.tsv"
    lines = [f"{a} {b}\t{'' if n % 5 == 0 else b}\t{b} {a} {n}\t{n}" for n, a in enumerate(WORDS) for b in WORDS]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture(scope="session")
def runs(file: Path) -> dict[str, Path]:
    folders = {name: file.parent / name for name in ("flat", "flat, pointer", "hierarchical")}
    for name, folder in folders.items():
        train(file, MODELS[name], folder, 2)
    return folders
