"""The message game: it is learned with messages, and is chance without them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.cli.main import main
from regard.inference.predictor import labelled_recording
from regard.tasks.agent.options import AgentConfig
from regard.training.config import TrainingConfig
from regard.training.fit import fit

TRAINING: dict[str, Any] = {**AgentConfig.training, "threads": 1, "device": "cpu", "lr": 4e-3, "warmup": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One fact of 4 keys and 4 values: the message alone tells the value."""
    path = tmp_path_factory.mktemp("message") / "run"
    task = AgentConfig.of(env="message", facts=1, width=32, segment=8, passes=4, batch=64, minibatches=2)
    list(fit(task, path, TrainingConfig(**TRAINING | {"steps": 160, "validate_every": 160})))
    return path


def test_messages_are_learned_and_needed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run), "--episodes", "300", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["scores"]["return"] >= 0.9
    assert found["silent"] == pytest.approx(0.25, abs=0.08)
    assert found["random"] == pytest.approx(0.25, abs=0.08)


def test_messages_are_watched_and_recorded(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(run), "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith("attends to")
    predictor = regard.load(run, device="cpu")
    (episode,) = predictor.predict([3])
    assert episode.messages.shape == (2, 16)
    assert set(np.unique(episode.messages)) <= {0.0, 1.0}
    bits = "".join(str(int(bit)) for bit in episode.messages[0])
    assert f"sends {bits}" in lines[2]
    assert lines[3].split("first")[1].endswith("100 %")
    recording = labelled_recording(predictor, 3)[1]
    assert [item.shape for item in recording] == [(1, 2, 2)]
    assert bits in recording.queries[0]
