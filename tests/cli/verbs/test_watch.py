"""regard watch: an agent plays, step by step."""

from pathlib import Path

import pytest
from tests.cli.conftest import Regard

from regard.cli.main import main

OPTIONS = "--width 8 --batch 4 --segment 4 --passes 1 --minibatches 1 --valid-episodes 3 --threads 1 --steps 1"


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("agents")
    runs = {name: folder / name for name in ("gtrxl", "gru")}
    for name, run in runs.items():
        assert main(["train", "agent", "--memory", name, *OPTIONS.split(), "--out", str(run)]) == 0
    return runs


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


def test_bad_input(regard: Regard, agents: dict[str, Path], tmp_path: Path) -> None:
    run = agents["gru"]
    for words, message in (
        ([run, "x"], "episode must be a whole number, got 'x'; write it in digits, such as 10"),
        ([run, "-1"], "an episode is a whole number, 0 or more, got -1; try 0"),
        ([run, "--picture", tmp_path / "a.txt"], "unknown suffix of --picture '.txt'"),
        ([tmp_path], f"{tmp_path} holds neither run.json"),
    ):
        ran = regard("watch", *words)
        assert ran.code == 2
        assert message in ran.err
        assert (ran.out, ran.err.count("\n")) == ("", 1)


def test_other_runs_are_refused(regard: Regard, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = "--hops 1 --width 4 --restarts 1 --steps 1 --threads 1 --validate-every 9"
    (tmp_path / "a_train.txt").write_text("".join(f"1 A went to b{n}.\n2 Where is A?\tb{n}\t1\n" for n in range(9)))
    assert main(["train", "answer", "--train", str(tmp_path / "a_train.txt"), *options.split(), "--out", str(run)]) == 0
    ran = regard("watch", run)
    assert ran.code == 2
    assert f"{run} is a run of answer, and regard watch is for runs of agent; use regard view {run}" in ran.err
