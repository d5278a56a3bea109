"""regard watch: an agent plays, step by step."""

from pathlib import Path

import pytest
from tests.cli.conftest import Refused, Regard, train

OPTIONS = "--width 8 --batch 4 --segment 4 --passes 1 --minibatches 1 --valid-episodes 3 --threads 1 --steps 1"


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("agents")
    return {name: train(folder / name, "agent", f"--memory {name} {OPTIONS}") for name in ("gtrxl", "gru")}


def test_an_episode_is_printed_and_drawn(regard: Regard, agents: dict[str, Path], tmp_path: Path) -> None:
    picture, page = tmp_path / "episode.png", tmp_path / "episode.html"
    ran = regard("watch", agents["gtrxl"], 3, "--picture", picture)
    lines = ran.out.splitlines()
    assert lines[0].startswith("pairs, episode 3, memory gtrxl: ")
    assert lines[1].endswith("attends to")
    assert [line.split()[0] for line in lines[2:6]] == ["0", "1", "2", "3"]
    assert "itself 100 %" in lines[2]
    assert lines[6].startswith("return ")
    assert lines[6].endswith(" in 4 moves")
    assert f"the episode is drawn in {picture}" in ran.err
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert regard("watch", agents["gtrxl"], 3, "--picture", page).out == ran.out
    assert page.read_text().startswith("<!doctype html>")
    # a memory without attention, and the first episode
    lines = regard("watch", agents["gru"], "--picture", picture).out.splitlines()
    assert lines[0].startswith("pairs, episode 0, memory gru: ")
    assert lines[1].endswith("value")


def test_bad_input(refused: Refused, agents: dict[str, Path], trained: Path, tmp_path: Path) -> None:
    run = agents["gru"]
    for words, sentence in (
        ([run, "x"], "episode must be a whole number, got 'x'; write it in digits, such as 10"),
        ([run, "-1"], "an episode is a whole number, 0 or more, got -1; try 0"),
        ([run, "--picture", tmp_path / "a.txt"], "unknown suffix of --picture '.txt'"),
        ([tmp_path], f"{tmp_path} holds neither run.json"),
        ([trained], f"{trained} is a run of translate, and regard watch is for runs of agent; use regard translate "),
    ):
        assert refused("watch", *words).startswith(sentence)
