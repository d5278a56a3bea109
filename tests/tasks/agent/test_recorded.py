"""Learning from recorded episodes: the returns that are asked for are obtained, and resumes are exact."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.cli.main import main
from regard.data.environments.pairs import PairRecall
from regard.data.environments.repeat import RepeatPrevious
from regard.inference.predictor import labelled_recording
from regard.tasks.agent.options import AgentConfig, PredictAgent
from regard.tasks.agent.recorded import RecordedEpisodes, requests, returns_to_go
from regard.training.config import TrainingConfig
from regard.training.fit import fit

MEMORY = "decision-transformer"
TRAINING: dict[str, Any] = {**AgentConfig.training, "threads": 1, "device": "cpu", "lr": 4e-3, "warmup": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One pair: the right answer if 1 is asked for, another one if 0 is."""
    path = tmp_path_factory.mktemp("recorded") / "run"
    task = AgentConfig.of(env="pairs", pairs=1, memory=MEMORY, width=32, layers=1, heads=2, batch=64, recorded=1024)
    list(fit(task, path, TrainingConfig(**TRAINING | {"steps": 160, "validate_every": 160})))
    return path


def test_the_return_that_is_asked_for_is_obtained(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run), "--episodes", "100", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["scores"]["gap"] < 0.25
    assert found["asked"]["0"] < 0.3
    assert found["asked"]["1"] > 0.8
    assert found["scores"]["return"] == found["asked"]["1"]


def test_an_episode_is_watched_and_recorded(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(run), "3", "--wanted", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"pairs, episode 3, memory {MEMORY}, asked for 0"
    assert lines[1].endswith("attends to")
    assert lines[-1].startswith("return 0.000")
    predictor = regard.load(run, device="cpu")
    (episode,) = predictor.predict([3], PredictAgent(wanted=1.0))
    assert episode.wanted.tolist() == [1.0, 1.0]
    recording = labelled_recording(predictor, 3)[1]
    assert [item.shape for item in recording] == [(1, 2, 6, 6)]
    assert recording.queries[:2] == ("→ none", "R 1.00")
    assert main(["predict", str(run), "0", "--wanted", "nan"]) == 2
    assert capsys.readouterr().err.strip() == "regard: --wanted must be a finite number, got nan; try --wanted 1"


def test_other_agents_are_asked_for_no_return(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    options = {**TRAINING, "steps": 1, "validate_every": 1}
    list(fit(AgentConfig.of(memory="none", width=8, batch=4, valid_episodes=2), run, TrainingConfig(**options)))
    assert main(["watch", str(run), "0", "--wanted", "0.5"]) == 2
    assert capsys.readouterr().err.strip() == (
        "regard: --wanted 0.5 asks for a return, and the memory none was not trained to obtain one; leave it out"
    )


def test_returns_to_go_are_sums_of_later_rewards() -> None:
    rewards = np.array([[0.0, 1.0, 0.5], [2.0, 0.0, -1.0]], np.float32)
    assert returns_to_go(rewards).tolist() == [[1.5, 1.5, 0.5], [1.0, -1.0, -1.0]]


def test_recorded_players_differ_in_skill() -> None:
    environment = PairRecall(pairs=2)
    episodes = RecordedEpisodes.play(environment, 5, 600)
    totals = episodes.rewards.sum(1)
    assert {0.0, 0.5, 1.0} == set(totals.tolist())
    # right with a probability of p + (1 − p) / 4, p from 0 to 1: 5 / 8 of all answers
    assert totals.mean() == pytest.approx(0.625, abs=0.05)
    alone = RecordedEpisodes.play(environment, 5, 3)
    assert all(np.array_equal(a[:3], b) for a, b in zip(episodes, alone, strict=True))
    assert requests(environment) == [0.0, 0.5, 1.0]
    assert requests(RepeatPrevious(answers=12)) == [-1.0, -0.5, 0.0, 0.5, 1.0]


def test_a_batch_shows_what_a_play_shows(tmp_path: Path) -> None:
    """The action before, the return from the step on, and as targets the actions of the steps."""
    problem = AgentConfig.of(memory=MEMORY, width=8, heads=2, batch=5, recorded=20).prepare(tmp_path)
    planned = problem.plan_epoch(0)
    assert [len(rows) for rows in planned] == [5] * 4
    batch = problem.load_batch(planned[0], 0, 1)
    assert batch.inputs.actions[:, 0].tolist() == [-1] * 5
    assert torch.equal(batch.inputs.actions[:, 1:], batch.actions[:, :-1])
    rest = batch.inputs.wanted[:, :1] - batch.inputs.rewards.cumsum(1)
    torch.testing.assert_close(batch.inputs.wanted, rest)
    parts = [problem.load_batch(planned[0], rank, 2) for rank in range(2)]
    assert [len(part.actions) for part in parts if part is not None] == [3, 2]
    assert problem.load_batch(planned[0][:1], 1, 2) is None
    assert problem.locate(planned) == "5 recorded episodes of pairs"


def test_options_of_ppo_and_of_other_memories_give_a_warning(tmp_path: Path) -> None:
    def warnings(**options: Any) -> object:
        return AgentConfig.of(memory=MEMORY, recorded=4, **options).prepare(tmp_path).warnings()

    assert warnings() == ()
    assert warnings(segment=8, ratio=0.1) == (
        "an agent that learns from recorded episodes ignores --segment 8 and --ratio 0.1; leave that out",
    )
    assert warnings(bits=3, channels=4, layers=1, heads=2) == (
        "an agent that learns from recorded episodes ignores --bits 3 and --channels 4; leave that out",
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "--env tmaze",
            "--memory decision-transformer learns from recorded players of pairs and repeat, got --env tmaze; take "
            "--env pairs",
        ),
        (
            "--window 2",
            "--window 2 is less than the 3 moves before the last one of an episode, which --memory "
            "decision-transformer reads; leave it out",
        ),
        ("--recorded 0", "--recorded must be 1 or more, got 0; try --recorded 4000"),
    ],
)
def test_bad_options(options: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ["train", "agent", "--memory", MEMORY, *options.split(), "--steps", "1", "--out", str(out)]
    assert main(arguments) == 2
    assert capsys.readouterr().err.strip() == f"regard: {message}"
    assert not out.exists()
