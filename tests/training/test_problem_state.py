"""A problem with a state of its own: a stopped run goes on as if it had not stopped."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.toy import StatefulProblem, StatefulToy, Toy, run, same

from regard.training.checkpoint import collect, read
from regard.training.config import TrainingConfig
from regard.training.events import Saved
from regard.training.fit import fit
from regard.training.runtime import threads
from regard.training.runtime.signals import Interrupts

TRAINING: dict[str, Any] = {"steps": 23, "save_every": 5, "validate_every": 6, "log_every": 4, "warmup": 3}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that is never stopped."""
    folder = tmp_path_factory.mktemp("alone")
    run(folder, StatefulToy(), **TRAINING)
    return folder


def kill_and_resume(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves a run two steps after a checkpoint, as a killed process does, and resumes it from the files."""
    steps = 0
    load = StatefulProblem.load_batch

    def killed(self: StatefulProblem, *args: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == 15:
            raise KeyboardInterrupt
        return load(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(StatefulProblem, "load_batch", killed)
        with pytest.raises(KeyboardInterrupt):
            run(folder, StatefulToy(), **TRAINING)
    assert read(folder / "last.safetensors").facts["step"] == 12
    run(folder, StatefulToy(), resume=True, **TRAINING)


def test_a_killed_run_goes_on_with_the_state(tmp_path: Path, alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kill_and_resume(tmp_path, monkeypatch)
    assert "problem.generator" in read(alone / "last.safetensors").tensors
    same(alone, tmp_path)


def test_without_the_state_it_would_differ(tmp_path: Path, alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StatefulProblem, "load_state_dict", lambda self, state: None)
    kill_and_resume(tmp_path, monkeypatch)
    a, b = (read(folder / "last.safetensors").tensors for folder in (alone, tmp_path))
    assert a.keys() == b.keys()
    assert not torch.equal(a["model.embed.weight"], b["model.embed.weight"])


def test_a_stop_request_loads_no_batch_in_vain(tmp_path: Path, alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal amid step 8: the checkpoint holds the state after the batches of step 8, not after those of step 9."""
    losses = 0
    loss = StatefulProblem.loss
    interrupts: list[Interrupts] = []
    enter = Interrupts.__enter__
    monkeypatch.setattr(Interrupts, "__enter__", lambda self: [interrupts.append(self), enter(self)][1])

    def signalled(self: StatefulProblem, *args: Any) -> Any:
        nonlocal losses
        losses += 1
        if losses == 8:
            interrupts[0].stop_requested = True
        return loss(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(StatefulProblem, "loss", signalled)
        assert run(tmp_path, StatefulToy(), **TRAINING)[-1].step == 8
    run(tmp_path, StatefulToy(), resume=True, **TRAINING)
    same(alone, tmp_path)


def test_timing_threads_leaves_the_state(tmp_path: Path, alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "available", lambda: 2)
    monkeypatch.setattr(threads, "fastest", lambda times: 1)
    run(tmp_path, StatefulToy(), **{**TRAINING, "threads": None})
    same(alone, tmp_path)


def test_only_the_checkpoint_to_resume_from_holds_the_state(alone: Path, tmp_path: Path) -> None:
    assert not read(alone / "best.safetensors").under("problem.")
    run(tmp_path, Toy(), steps=2)
    assert not read(tmp_path / "last.safetensors").under("problem."), "a problem without state changes no file"


def test_a_checkpoint_without_the_state_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(StatefulProblem, "state_dict", lambda self: {})
        run(tmp_path, StatefulToy(), steps=2)
    message = (
        "last.safetensors holds no state of StatefulProblem, and its batches depend on one; resume with the version"
    )
    with pytest.raises(ValueError, match=message):
        run(tmp_path, StatefulToy(), resume=True, steps=4)


def test_a_state_of_other_values_is_refused() -> None:
    model = Toy().prepare(Path()).build_model()
    message = "seed of the problem's state_dict is a int, and checkpoints hold tensors only; make it a tensor"
    with pytest.raises(TypeError, match=message):
        collect(model, None, {"seed": 3})


def test_every_checkpoint_holds_the_state_of_its_step(tmp_path: Path) -> None:
    states = []
    for event in fit(StatefulToy(), tmp_path, TrainingConfig(steps=6, save_every=2, threads=1, device="cpu")):
        if isinstance(event, Saved) and event.path.name == "last.safetensors":
            states.append((event.step, read(event.path).tensors["problem.generator"]))
    problem = StatefulToy().prepare(tmp_path)
    for step, state in states:
        while problem.loaded < step:
            problem.load_batch(problem.plan_epoch(0)[problem.loaded], 0, 1)
        assert torch.equal(problem.generator.get_state(), state), step
    assert [step for step, _ in states] == [2, 4, 6, 6]
