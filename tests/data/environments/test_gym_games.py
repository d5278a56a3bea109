"""Environments of gymnasium: hashed resets, exact resumes, and sentences for those that cannot be played."""

import sys
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from tests.for_each import for_each

from regard.cli.main import main
from regard.data.environments.catalogue import begin_games, make_environment


class Dice(gymnasium.Env[Any, Any]):
    """Rolls numbers that no seed decides, with the spaces that are given."""

    def __init__(self, seen: Any = None, done: Any = None) -> None:
        self.observation_space = spaces.Box(0, 1, (2,)) if seen is None else seen
        self.action_space = spaces.Discrete(2) if done is None else done
        self._rng = np.random.default_rng()

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return self._rng.random(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._rng.random(2, np.float32), 0.0, False, False, {}


SPACES = {
    "Dice-v0": {},
    "Words-v0": {"seen": spaces.Text(5)},
    "Levers-v0": {"done": spaces.MultiBinary(3)},
    "Engine-v0": {"done": spaces.Box(-np.inf, np.inf, (2,))},
}


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    for name, given in SPACES.items():
        gymnasium.register(name, Dice, kwargs=given)
    gymnasium.register("Broken-v0", "no_such_module:Broken")
    yield
    for name in (*SPACES, "Broken-v0"):
        del gymnasium.registry[name]


@pytest.mark.parametrize("name", ["gym:CartPole-v1", "gym:Blackjack-v1", "gym:Pendulum-v1"])
def test_games_do_not_depend_on_each_other_and_go_on_from_their_arrays(name: str) -> None:
    environment = make_environment(name, {})
    together, alone = begin_games(environment, 3, np.arange(3)), begin_games(environment, 3, np.array([2]))
    rng = np.random.default_rng(0)
    drawn = [environment.random_actions(3, rng) for _ in range(60)]
    for actions in drawn[:30]:
        a, b = together.step(actions), alone.step(actions[2:])
        assert np.array_equal(a.observations[2:], b.observations)
        assert np.array_equal(a.rewards[2:], b.rewards)
    assert a.observations.shape == (3, *environment.observation)
    stored = together.arrays()
    before = {key: value.copy() for key, value in stored.items()}
    resumed = begin_games(environment, 3, np.arange(3))
    resumed.load_arrays(stored)
    for actions in drawn[30:]:
        a, b = together.step(actions), resumed.step(actions)
        assert all(np.array_equal(*parts) for parts in zip(a, b, strict=True))
    assert all(np.array_equal(before[key], value) for key, value in stored.items()), "a stored state is never changed"


def test_an_episode_that_gymnasium_cuts_off_is_not_terminated() -> None:
    games = begin_games(make_environment("gym:MountainCar-v0", {}), 0, np.array([0]))
    played = [games.step(np.array([1])) for _ in range(200)]
    assert [bool(each.truncated[0]) for each in played] == [False] * 199 + [True]
    assert not any(each.terminated.any() for each in played)
    assert games.environment.goal == -110.0
    # the last observation is of the episode that was cut off, the next one of a new episode
    assert not np.array_equal(played[-1].last, played[-1].observations)


def test_numbers_stand_for_the_bounds_of_a_box() -> None:
    environment: Any = make_environment("gym:Pendulum-v1", {})
    assert [environment.action(np.array([x])).tolist() for x in (-1, 0, 0.5, 7)] == [[-2.0], [0.0], [1.0], [2.0]]
    assert environment.action_names == ("number 1",)
    assert environment.describe(np.array([0.5, -1.0])) == "0.50 -1.00"
    assert environment.picture(np.array([0.0, 99.0])).tolist() == [[0.5], [1.0]]
    assert make_environment("gym:Dice-v0", {}).longest == 1000


def test_an_environment_that_does_not_repeat_itself_cannot_go_on() -> None:
    games = begin_games(make_environment("gym:Dice-v0", {}), 0, np.arange(2))
    games.step(np.zeros(2, int))
    with pytest.raises(ValueError) as error:  # noqa: PT011
        games.load_arrays(games.arrays())
    assert str(error.value) == (
        "env='gym:Dice-v0' shows something else when the same actions are repeated from the same seed, so its games "
        "cannot go on; train a new run"
    )


@for_each(
    ("name", "message"),
    [
        ("gym:Qux", "unknown --env 'gym:Qux'; known are: gym:CartPole-v0, "),
        ("gym:CartPole-v9", "unknown --env 'gym:CartPole-v9'; did you mean 'gym:CartPole-v1'? known are: gym:"),
        ("gym:no_such_module:Maze-v0", "--env gym:no_such_module:Maze-v0 needs the module no_such_module, which"),
        (
            "gym:Broken-v0",
            "--env gym:Broken-v0 cannot be made: No module named 'no_such_module'; install what it needs",
        ),
        ("gym:Words-v0", "--env gym:Words-v0 shows Text(1, 5, charset="),
        ("gym:Levers-v0", "--env gym:Levers-v0 takes MultiBinary(3), and agents choose one of n (Discrete) or"),
        ("gym:Engine-v0", "--env gym:Engine-v0 takes Box(-inf, inf, (2,), float32), and agents choose one of n"),
    ],
)
def test_environments_that_cannot_be_played(name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "agent", "--env", name]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"regard: {message}")
    assert printed.err.count("\n") == 1


def test_the_sentence_for_words_names_the_way_out() -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        make_environment("gym:Words-v0", {})
    assert str(error.value) == (
        f"env='gym:Words-v0' shows {spaces.Text(5)}, and agents read boxes, numbers of n, and tuples and dicts of "
        "these; register it with a wrapper, such as gymnasium's TransformObservation, or name another"
    )


def test_without_gymnasium(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    assert main(["train", "agent", "--env", "gym:CartPole-v1"]) == 2
    assert capsys.readouterr().err == (
        "regard: --env gym:ID needs gymnasium; install it with: pip install 'regard[gym]'\n"
    )
