"""The task agent: exact resumes, several processes, truncation, and options in one sentence each."""

import copy
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from tests.for_each import for_each

import regard
from regard.cli.main import main
from regard.data.environments.catalogue import ENVIRONMENTS
from regard.data.environments.games import Games
from regard.data.environments.tmaze import TMaze
from regard.inference.predictor import labelled_recording
from regard.models.acting.agent import Agent
from regard.tasks.agent.options import ENVIRONMENT_NAMES, AgentConfig
from regard.tasks.agent.playing import Player, play_episodes
from regard.tasks.agent.predictor import AgentPredictor
from regard.training.checkpoint import read
from regard.training.config import TrainingConfig
from regard.training.fit import fit
from regard.training.run_folder import RunRecord

SMALL: dict[str, Any] = {"width": 8, "batch": 6, "segment": 5, "passes": 2, "minibatches": 2, "valid_episodes": 4}
TRAINING = {"threads": 1, "device": "cpu", "warmup": 1, "schedule": "constant", "validate_every": 3, "save_every": 1}

# of gymnasium, with episodes that a test has time for
for game in ("CartPole", "Pendulum"):
    gymnasium.register(f"Short{game}-v0", f"gymnasium.envs.classic_control:{game}Env", max_episode_steps=6)


def small(**options: Any) -> AgentConfig:
    return AgentConfig.of(**{**SMALL, **options})


@for_each(
    "options",
    [
        {"env": "tmaze", "memory": "gtrxl", "window": 7},
        {"env": "repeat", "memory": "lstm"},
        {"env": "pairs", "memory": "none"},
        {"env": "gym:ShortCartPole-v0", "memory": "gru"},
        {"env": "gym:ShortPendulum-v0", "memory": "additive", "window": 3},
        {"env": "target", "memory": "dot"},
        {"env": "target", "memory": "gru", "places": "soft"},
        {"env": "target", "memory": "lstm", "places": "hard"},
        {"env": "message", "bits": 3},
        {"env": "arm", "memory": "dot"},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
    share=0.4,
)
def test_a_resume_within_a_segment_reaches_the_same_bits(options: dict[str, Any], tmp_path: Path) -> None:
    """Of four updates per segment, after the second and after the fifth."""
    task = small(**options)
    list(fit(task, tmp_path / "once", TrainingConfig(steps=9, **TRAINING)))
    for steps in (2, 5, 9):
        list(fit(task, tmp_path / "thrice", TrainingConfig(steps=steps, **TRAINING), resume=steps > 2))
    once, thrice = (read(tmp_path / name / "last.safetensors").tensors for name in ("once", "thrice"))
    assert once.keys() == thrice.keys()
    assert [name for name in once if not torch.equal(once[name], thrice[name])] == []
    assert any(name.startswith("problem.player.game.") for name in once)


def test_two_processes_learn_what_one_learns(tmp_path: Path) -> None:
    """Over three updates, of two segments: sums of losses and gradients."""
    task = small(memory="additive", passes=1)
    torch.manual_seed(0)
    model = task.load().prepare(tmp_path, True).build_model()
    alone = task.prepare(tmp_path)
    pair = [task.prepare(tmp_path, new=False) for _ in range(2)]
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    plan = [*alone.plan_epoch(0), *alone.plan_epoch(1)]
    for planned in plan[:3]:
        batch = alone.load_batch(planned, 0, 1)
        loss = alone.loss(model, batch)
        (loss.total / loss.count).backward()
        parts = [each.loss(model, each.load_batch(planned, rank, 2)) for rank, each in enumerate(pair)]
        assert sum(part.count for part in parts) == loss.count
        gradients = torch.autograd.grad(sum(part.total for part in parts) / loss.count, list(model.parameters()))
        for p, gradient in zip(model.parameters(), gradients, strict=True):
            torch.testing.assert_close(p.grad, gradient, rtol=0, atol=1e-6)
        optimizer.step()
        optimizer.zero_grad()
    with pytest.raises(ValueError) as error:  # noqa: PT011
        alone.load_batch(plan[0], 0, 4)
    assert str(error.value) == (
        "an update learns from 3 games, and 4 processes need one each; give a larger --batch, or fewer --minibatches"
    )


def test_options_of_another_memory_give_a_warning(tmp_path: Path) -> None:
    def warnings(**options: Any) -> Sequence[str]:
        return small(**options).prepare(tmp_path).warnings()

    assert warnings(memory="gtrxl", heads=2, layers=1) == ()
    assert warnings(memory="lstm") == ()
    assert warnings(memory="additive", channels=4) == (
        "an agent with --memory additive ignores --channels 4; leave that out",
    )
    assert warnings(memory="gru", env="target", heads=2, layers=3, channels=4) == (
        "an agent with --memory gru and --places soft ignores --layers 3 and --heads 2; leave that out",
    )
    assert warnings(memory="dot", recorded=9, env="gym:ShortCartPole-v0") == (
        "an agent with --memory dot ignores --recorded 9; leave that out",
    )


def test_a_comparison_trains_the_variants_that_it_checks() -> None:
    """On pictures, recurrent memories attend to places, and the others do not, in the arguments of a training too."""
    for chosen, expected in ((None, "soft"), ("soft", "soft"), ("hard", "hard")):
        variants = small(env="target", places=chosen).variants(["lstm", "gru", "dot", "none"])
        places = {"lstm": expected, "gru": expected, "dot": "none", "none": "none"}
        assert {name: task.model.places for name, task in variants.items()} == places
    assert small(env="pairs").variants(["lstm"])["lstm"].model.places == "none"
    # a window is of those that attend to moves
    windows = {name: task.model.window for name, task in small(window=2).variants(["gru", "dot"]).items()}
    assert windows == {"gru": None, "dot": 2}
    assert AgentConfig.replaced("memory", "gru", {}) == ("window",)
    assert AgentConfig.replaced("memory", "dot", {}) == ()
    # a Decision Transformer reads whole episodes, however long
    longer = small(env="repeat", back=70).variants(["gtrxl", "decision-transformer"])
    assert {name: task.model.window for name, task in longer.items()} == {"gtrxl": 64, "decision-transformer": 81}
    assert AgentConfig.replaced("memory", "decision-transformer", {}) == ("window",)


def test_a_margin_is_the_lead_of_the_closest_decision(tmp_path: Path) -> None:
    """An agent whose policy is its bias."""
    task = small(memory="none")
    problem = task.prepare(tmp_path)
    model = problem.build_model().eval()
    torch.nn.init.zeros_(model.policy.logits.weight)
    with torch.no_grad():
        model.policy.logits.bias.copy_(torch.tensor([0.4, 0.1, 0.3, 0.2]).log())
    predictor = AgentPredictor(model, task.environment(), task)
    (episode,) = predictor.predict([0])
    assert predictor.margin(episode) == pytest.approx(0.1)


def test_options_name_every_environment() -> None:
    assert tuple(ENVIRONMENTS) == ENVIRONMENT_NAMES
    assert {name: make().name for name, make in ENVIRONMENTS.items()} == {name: name for name in ENVIRONMENTS}


def test_a_validation_leaves_the_games_as_they_are(tmp_path: Path) -> None:
    problem = small(memory="additive").prepare(tmp_path)
    model = problem.build_model()
    problem.loss(model, problem.load_batch(problem.plan_epoch(0)[0], 0, 1))
    before = {name: t.clone() for name, t in problem.state_dict().items()}
    problem.validate(model.eval())
    assert all(torch.equal(t, before[name]) for name, t in problem.state_dict().items())


def test_the_value_behind_a_cut_is_that_of_the_last_observation() -> None:
    """An agent that is worth 10 everywhere, in episodes of 4 steps without a reward."""
    environment = TMaze(5, longest=4)
    torch.manual_seed(0)
    model = Agent(environment.observation, 4, memory="additive", width=8, window=3)
    torch.nn.init.zeros_(model.value.weight)
    torch.nn.init.constant_(model.value.bias, 10.0)
    player = Player(Games(environment, 0, np.arange(2)), model.memory.init_state(2))
    played = player.play(model, 6, 0, 0, discount=0.5, trace=0.0)
    # r + γ v − v at every step, at that of the cut too
    torch.testing.assert_close(played.advantages, torch.full((2, 6), -5.0))
    assert played.inputs.episodes.tolist() == [[0] * 4 + [1] * 2] * 2
    # nothing of an episode enters the next one
    assert played.inputs.actions[:, 4].tolist() == [-1, -1]
    assert played.inputs.actions[:, 0].tolist() == [-1, -1]
    assert (played.inputs.actions[:, 1:4] == played.actions[:, :3]).all()


def test_the_value_behind_a_cut_has_the_memory_of_its_episode() -> None:
    """By an agent that plays the same episode on, without the cut."""
    torch.manual_seed(0)
    model = Agent(TMaze(5).observation, 4, memory="gtrxl", width=8, window=8)
    cut, whole = (Player(Games(TMaze(5, longest=n), 0, np.arange(3)), model.memory.init_state(3)) for n in (4, 30))
    short, long = (each.play(model, 5, 0, 0, discount=1.0, trace=0.0) for each in (cut, whole))
    assert torch.equal(short.actions[:, :4], long.actions[:, :4])
    torch.testing.assert_close(short.advantages[:, :4], long.advantages[:, :4], rtol=0, atol=1e-6)


def test_an_episode_is_the_same_alone_and_among_others() -> None:
    torch.manual_seed(0)
    model = Agent(TMaze().observation, 4, memory="gtrxl", width=8)
    together = play_episodes(model, Games(TMaze(), 4, np.arange(9)))
    (alone,) = play_episodes(model, Games(TMaze(), 4, np.array([6])))
    assert alone.actions.tolist() == together[6].actions.tolist()
    assert not alone.terminated
    assert len(alone) == TMaze().longest


def sentence(options: list[str], capsys: pytest.CaptureFixture[str], *verb: str) -> str:
    capsys.readouterr()
    assert main([*(verb or ("train", "agent")), *options]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err.removeprefix("regard: ").strip()


@for_each(
    ("options", "message"),
    [
        (
            "--env pair",
            "unknown --env 'pair'; did you mean 'pairs'? known are: pairs, repeat, tmaze, target, message, arm, gym:ID",
        ),
        (
            "--env pairs --window 9",
            "--window 9 is longer than an episode of pairs, whose last move has 3 before it; try --window 3",
        ),
        (
            "--env pairs --memory lstm --window 2",
            "--window 2 counts the moves that attention reads, and --memory lstm has no attention to moves; leave it "
            "out, or take --memory additive",
        ),
        (
            "--env repeat --length 5",
            "--length 5 belongs to --env tmaze, not to 'repeat'; leave it out or choose the other env",
        ),
        (
            "--env pairs --memory lstm --places soft",
            "--places soft attends to a picture, and observations are 9 numbers; take --places none",
        ),
        (
            "--env target --memory gtrxl --places hard",
            "--places hard is chosen by a recurrent state, and --memory gtrxl has none; take --memory lstm",
        ),
        (
            "--env message --memory lstm",
            "--memory lstm would give every player of --env message what the others saw; take --memory message, or "
            "'none'",
        ),
        (
            "--env arm --objects 10",
            "--objects must be 1 to 9, one per colour and shape, got 10; try --objects 4",
        ),
        (
            "--env arm --places soft",
            "--places soft attends to a picture, and observations are 40 numbers; take --places none",
        ),
        (
            "--env target --distractors 16",
            "--distractors must be 0 to 15, one per place beside the target, got 16; try --distractors 3",
        ),
        (
            "--batch 7 --segment 1",
            "--segment 1 and --minibatches 4 of --batch 7 games leave an update of one move, whose advantage has no "
            "spread to be divided by; try --segment 32",
        ),
        ("--batch 3", "--minibatches 4 divide the games, and --batch 3 has fewer; try --minibatches 3"),
    ],
)
def test_bad_options(options: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert sentence([*options.split(), "--steps", "1", "--out", str(out)], capsys) == message
    assert not out.exists()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("agent") / "run"
    list(fit(small(memory="lstm"), path, TrainingConfig(steps=1, **TRAINING)))
    return path


def test_a_run_keeps_its_environment(run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "--env was fixed when the run began" in sentence(
        ["--resume", str(run), "--env", "tmaze", "--steps", "2"], capsys, "train"
    )
    assert main(["train", "agent", "--init-from", str(run), "--env", "tmaze", "--out", str(tmp_path / "out")]) == 2
    assert f"--env tmaze conflicts with --env pairs of {run}, whose weights" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    # a version whose game has other actions
    other = tmp_path / "other"
    shutil.copytree(run, other)
    facts = json.loads((other / "environment.json").read_text())
    (other / "environment.json").write_text(json.dumps({**facts, "actions": ["0"]}))
    with pytest.raises(ValueError) as error:  # noqa: PT011
        small(memory="lstm").load().predictor(other)
    assert str(error.value) == (
        f"{other}/environment.json is of an environment with actions ['0'], and this one has "
        "['0', '1', '2', '3']; train in another folder"
    )


def test_inputs_and_memories_without_attention(run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert sentence([str(run), "first"], capsys, "predict") == (
        "an episode is a whole number, 0 or more, got 'first'; try 0"
    )
    assert sentence([str(run), "0"], capsys, "record") == (
        "a recording needs attention, and the memory lstm has none; leave it out, or name another run"
    )
    assert sentence([str(run), "0", "--picture", str(tmp_path / "a.png")], capsys, "predict") == (
        "--picture needs attention, and the memory lstm has none; leave it out, or name another run"
    )
    predictor = regard.load(run, device="cpu")
    with pytest.raises(ValueError) as error:  # noqa: PT011
        predictor.loss([0], ["0 9"])
    assert str(error.value) == "unknown action '9'; known are: 0, 1, 2, 3"
    for target, count in (("", 0), ("0 1 2 3 0", 5)):
        with pytest.raises(ValueError) as error:  # noqa: PT011
            predictor.loss([7], [target])
        assert str(error.value) == (
            f"a target names actions of an episode, and episode 7 then ends after 4, got {count}; name 1 to 4"
        )
    assert predictor.predict([]) == []
    for number in (-1, 1 << 62):
        with pytest.raises(ValueError) as error:  # noqa: PT011
            predictor.predict([number])
        assert str(error.value) == (f"an episode is a whole number, 0 or more and below 2^62, got {number}; try 0")


def test_evaluate_names_the_return_of_random_actions(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run), "--episodes", "300", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["scores"].keys() == {"return", "success", "length"}
    assert found["random"] == pytest.approx(0.25, abs=0.06)
    assert "--episodes must be 1 or more" in sentence([str(run), "--episodes", "0"], capsys, "evaluate")


def test_a_problem_can_be_copied_with_its_state(tmp_path: Path) -> None:
    """A state that was loaded is not changed by the games that go on from it."""
    problem = small(env="tmaze", memory="gru").prepare(tmp_path)
    model = problem.build_model()
    plan = problem.plan_epoch(0)
    problem.loss(model, problem.load_batch(plan[0], 0, 1))
    stored = {name: t.clone() for name, t in problem.state_dict().items()}
    kept = copy.deepcopy(stored)
    problem.load_state_dict(stored)
    # tensors of a file lie at any address, which a product may depend on in its last bit
    addresses = {t.data_ptr() for t in stored.values()}
    assert not addresses & {t.data_ptr() for t in problem.state_dict().values() if t.numel()}
    for _ in range(2):
        problem.load_state_dict(stored)
        first = problem.loss(model, problem.load_batch(problem.plan_epoch(1)[0], 0, 1)).total.detach()
        assert all(torch.equal(kept[name], t) for name, t in stored.items())
        problem.load_state_dict(stored)
        again = problem.loss(model, problem.load_batch(problem.plan_epoch(1)[0], 0, 1)).total.detach()
        assert torch.equal(first, again)


@pytest.mark.parametrize("places", ["soft", "hard"])
def test_attention_to_places_is_scored_recorded_and_shown(
    places: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    task = small(env="target", memory="gru", places=places, channels=4)
    list(fit(task, path, TrainingConfig(steps=1, **TRAINING)))
    assert main(["evaluate", str(path), "--episodes", "3", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert 0 <= scores["on target"] <= 1
    assert 0 <= scores["pointing"] <= 1
    assert main(["watch", str(path), "2"]) == 0
    # seen and attended, of three pictures, and attended in one without a target
    assert capsys.readouterr().out.count(", column ") == 7
    predictor = regard.load(path, device="cpu")
    recording = labelled_recording(predictor, 2)[1]
    assert [item.shape for item in recording] == [(1, 4, 16)]
    assert recording[0].verified
    (episode,) = predictor.predict([2])
    assert np.abs(recording[0].weights.dense()[0].numpy() - episode.places).max() < 1e-6
    # pointing by hand: the target is the ring with a dot
    environment = task.environment()
    row, column = environment.target(episode.observations[0])  # type: ignore[misc]
    assert environment.describe(episode.observations[0]) == f"target in row {row // 5 + 1}, column {column // 5 + 1}"
    assert task.variants(["none", "lstm"])["none"].model.places == "none"


def test_opening_a_run_imports_no_module_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module may be a file of the run folder; a typed one is imported."""
    run = tmp_path / "hostile_run"
    run.mkdir()
    (run / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    monkeypatch.syspath_prepend(tmp_path)
    record = RunRecord.of(small(), TrainingConfig(steps=1))
    replace(record, options={**record.options, "env": "gym:hostile_run.code:CartPole-v1"}).write(run)
    sentence = (
        f"{run / 'run.json'} names the module hostile_run.code, and opening a run imports no module; if you trust it, "
        "add --trust-module hostile_run.code, or in Python import it first"
    )
    with pytest.raises(ValueError, match=re.escape(sentence)):
        regard.load(run)
    assert main(["watch", str(run)]) == 2
    assert not (tmp_path / "ran").exists()
    assert main(["watch", str(run), "--trust-module", "hostile_run.code"]) == 2
    assert (tmp_path / "ran").exists()


def test_a_trusted_module_that_cannot_be_imported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--trust-module=no_such_module"]) == 2
    assert capsys.readouterr().err == (
        "regard: --trust-module 'no_such_module' cannot be imported: No module named 'no_such_module'; install it, or "
        "name the module that a run needs\n"
    )
