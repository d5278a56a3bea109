"""The arm: attention to the named object is learned, scored, recorded and shown."""

import json
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.cli.main import main
from regard.inference.predictor import labelled_recording
from regard.tasks.agent.options import AgentConfig
from regard.training.config import TrainingConfig
from regard.training.fit import fit


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("arm") / "run"
    task = AgentConfig.of(env="arm", objects=2, width=32, batch=64, segment=24, passes=4)
    options = {**AgentConfig.training, "threads": 1, "device": "cpu", "lr": 4e-3, "warmup": 1}
    list(fit(task, path, TrainingConfig(**options | {"steps": 128, "validate_every": 128})))
    return path


def test_it_learns_to_attend_to_the_named_object(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run), "--episodes", "100", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["scores"]["return"] > found["random"] + 0.05
    assert found["scores"]["pointing"] > 0.6


def test_it_is_watched_and_recorded(run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "arm.png"
    assert main(["watch", str(run), "2", "--picture", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    lines = capsys.readouterr().out.splitlines()
    predictor = regard.load(run, device="cpu")
    (episode,) = predictor.predict([2])
    assert len(lines) == 3 + len(episode)
    names = predictor.environment.object_names(episode.observations[0])
    best = int(episode.places[0].argmax())
    assert lines[2].endswith(f"{names[best]} {100 * episode.places[0, best]:.0f} %")
    recording = labelled_recording(predictor, 2)[1]
    assert [item.shape for item in recording] == [(1, len(episode), 2)]
    assert recording[0].verified
    assert recording.keys == names
    assert np.abs(recording[0].weights.dense()[0].numpy() - episode.places).max() < 1e-6
    # a target of numbers
    assert predictor.loss([2], [predictor.text(episode).split("\t")[1]]).isfinite().all()


def test_the_memory_of_an_arm_is_recorded_alone(tmp_path: Path) -> None:
    task = AgentConfig.of(env="arm", memory="gtrxl", width=8, heads=2, layers=1, batch=4, segment=6, valid_episodes=2)
    options = {**AgentConfig.training, "threads": 1, "device": "cpu", "steps": 1, "validate_every": 1}
    list(fit(task, tmp_path / "run", TrainingConfig(**options)))
    predictor = regard.load(tmp_path / "run", device="cpu")
    (episode,) = predictor.predict([1])
    count = len(episode)
    for layers, shape in (("memory*", (1, 2, count, count)), ("encode*", (1, count, 4))):
        recording = labelled_recording(predictor, 1, layers=[layers])[1]
        assert [item.shape for item in recording] == [shape]
        assert recording.queries is not None
        assert len(recording.queries) == count
