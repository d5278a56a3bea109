"""Every game: what it shows does not depend on the games beside it, and its best player gets the best return."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from numpy.typing import NDArray
from tests.for_each import for_each

from regard.data.environments.arm import Arm
from regard.data.environments.base import Environment, State
from regard.data.environments.catalogue import ENVIRONMENTS
from regard.data.environments.games import Games
from regard.data.environments.gymnasium_game import GymnasiumGame
from regard.data.environments.hashing import hashed, uniforms
from regard.data.environments.message import MessageGame
from regard.data.environments.pairs import PairRecall
from regard.data.environments.repeat import RepeatPrevious
from regard.data.environments.target import Target
from regard.data.environments.tmaze import TMaze

every_environment = for_each("name", ENVIRONMENTS)


def best_action(environment: Environment, state: State, t: int) -> Any:
    """The action of a player who sees the state of its game."""
    if isinstance(environment, Arm):
        # the angles of a triangle with two sides of 1
        x, y = state["places"][0, state["named"][0]]
        elbow = np.arccos((x * x + y * y - 2) / 2)
        turn = np.array([np.arctan2(y, x) - elbow / 2, elbow]) - state["joints"][0]
        return ((turn + np.pi) % (2 * np.pi) - np.pi) / 0.3
    if environment.name in ("pairs", "message"):
        return int(state["values"][0, t])
    if environment.name == "repeat":
        return int(state["symbols"][0, max(t - environment.back, 0)])
    if environment.name == "target":
        return int(state["answers"][0, t])
    if state["column"][0] <= environment.length:
        return 1
    return 0 if state["upper"][0] == state["cue"][0] else 2


@every_environment
def test_the_best_player_succeeds_and_the_rules_of_gymnasium_hold(name: str) -> None:
    environment = ENVIRONMENTS[name]()
    for row in range(8):
        games = Games(environment, 3, np.array([row]))
        total, played = 0.0, None
        while played is None or not (played.terminated | played.truncated).any():
            played = games.step(np.array([best_action(environment, games.state, int(games.t[0]))]))
            total += float(played.rewards[0])
        assert played.terminated.all()
        assert total >= environment.goal - 1e-6
        assert total <= 1.0 + 1e-6
    # gymnasium renders games with a specification only, which gymnasium.make gives them
    check_env(GymnasiumGame(environment, "ansi"), skip_render_check=True)


def play(games: Games, steps: int, rows: slice = slice(None)) -> list[tuple[NDArray[np.float32], ...]]:
    """Observations, rewards and ends of these games under random actions that depend on their row."""
    courses = []
    for t in range(steps):
        at = games.rows, np.full(len(games.rows), t)
        actions: NDArray[Any] = (hashed(7, *at) % games.environment.num_actions).astype(np.int64)
        if games.environment.continuous:
            actions = 2 * uniforms(7, *at, games.environment.num_actions) - 1
        played = games.step(actions)
        courses.append(tuple(np.array(part[rows], np.float32) for part in played))
    return courses


@every_environment
def test_a_game_does_not_depend_on_the_games_beside_it(name: str) -> None:
    environment = ENVIRONMENTS[name]()
    together = play(Games(environment, 5, np.arange(6)), 70, slice(4, 5))
    alone = play(Games(environment, 5, np.array([4])), 70)
    assert all(np.array_equal(a, b) for each in zip(together, alone, strict=True) for a, b in zip(*each, strict=True))
    other = play(Games(environment, 6, np.array([4])), 70)
    assert any(not np.array_equal(a[0], b[0]) for a, b in zip(alone, other, strict=True))
    assert all(course[0].min() >= 0 and course[0].max() <= 1 for course in alone)


@every_environment
def test_games_go_on_from_their_arrays(name: str) -> None:
    environment = ENVIRONMENTS[name]()
    games, copy = Games(environment, 5, np.arange(3)), Games(environment, 5, np.arange(3))
    play(games, 9)
    stored = games.arrays()
    before = {key: value.copy() for key, value in stored.items()}
    expected = play(games, 40)
    assert all(np.array_equal(before[key], value) for key, value in stored.items()), "a stored state is never changed"
    copy.load_arrays(stored)
    resumed = play(copy, 40)
    assert all(np.array_equal(a, b) for each in zip(expected, resumed, strict=True) for a, b in zip(*each, strict=True))


def test_an_episode_that_is_cut_off_is_not_terminated() -> None:
    environment = TMaze(3, longest=5)
    games = Games(environment, 0, np.arange(2))
    played = [games.step(np.array([3, 1])) for _ in range(5)]  # into the wall; along the corridor
    assert not any(each.terminated.any() for each in played)
    assert [each.truncated.tolist() for each in played] == [[False, False]] * 4 + [[True, True]]
    # the last observation is that of the end of the corridor, the next one that of a new episode
    assert environment.describe(played[-1].last[1]) in ("█R█/··█/█B█", "█B█/··█/█R█")
    assert environment.describe(played[-1].observations[1]).endswith("/█··/███")
    assert games.t.tolist() == [0, 0]
    assert games.episodes.tolist() == [1, 1]


def test_observations_in_words() -> None:
    pairs = Games(PairRecall(), 0, np.array([0]))
    shown = [PairRecall().describe(pairs.observe()[0])]
    for _ in range(3):
        pairs.step(np.array([0]))
        shown.append(PairRecall().describe(pairs.observe()[0]))
    assert [text[-1].isdecimal() for text in shown] == [True, True, False, False]
    assert {text[0] for text in shown[:2]} == {text[0] for text in shown[2:]}
    message = Games(MessageGame(), 0, np.array([0]))
    assert MessageGame().describe(message.observe()[0]) == f"first: {shown[0]}"
    for _ in range(3):
        played = message.step(np.array([0]))
    assert MessageGame().describe(played.observations[0]) == f"second: {shown[3]}"
    maze = TMaze(3)
    view = maze.describe(maze.observe(Games(maze, 0, np.array([0])).state)[0])
    assert view in ("█R█/█··/███", "█B█/█··/███")
    # without gymnasium's checks
    game = GymnasiumGame(maze)
    game.reset(seed=1)
    assert game.render().endswith("/█··/███")


def test_the_hand_is_where_its_joints_put_it() -> None:
    """By complex numbers: the hand is e^{iα} + e^{i(α+β)}, and offsets are turned back by its angle."""
    arm = Arm(3)
    state = Games(arm, 0, np.arange(5)).state
    shoulder, elbow = state["joints"].T
    hand = np.exp(1j * shoulder) + np.exp(1j * (shoulder + elbow))
    places = state["places"][..., 0] + 1j * state["places"][..., 1]
    offsets = (places - hand[:, None]) * np.exp(-1j * (shoulder + elbow))[:, None]
    for n, observation in enumerate(arm.observe(state)):
        own, name, objects = arm.objects.split(observation)
        np.testing.assert_allclose(own * 2 - 1, [np.cos(elbow[n]), np.sin(elbow[n])], atol=1e-6)
        squashed = objects[:, -2:] * 2 - 1
        np.testing.assert_allclose(squashed, np.tanh(np.stack([offsets[n].real, offsets[n].imag], -1)), atol=1e-6)
        named = arm.named_object(observation)
        assert named == state["named"][n]
        assert np.array_equal(objects[named, :-2], name)
        assert len(set(arm.object_names(observation))) == 3
        assert arm.describe(observation).startswith(f"{arm.object_names(observation)[named]} at ")
        picture = arm.picture(observation)
        assert picture[arm.object_pixel(observation, named)] in (picture.max(), np.float32(0.6))
        assert picture[16, 16] > 0


def test_draws_are_uniform_and_depend_on_every_part() -> None:
    rows, episodes = np.repeat(np.arange(50), 40), np.tile(np.arange(40), 50)
    drawn = uniforms(1, rows, episodes, 5)
    assert len(np.unique(hashed(1, rows, episodes))) == 2000
    assert abs(drawn.mean() - 0.5) < 0.01
    assert abs(drawn.std() - 12**-0.5) < 0.01
    assert np.abs(np.corrcoef(drawn.T) - np.eye(5)).max() < 0.08
    assert not np.array_equal(uniforms(2, rows, episodes, 5), drawn)


@for_each(
    ("make", "message"),
    [
        (lambda: PairRecall(5), "pairs must be 1 to 4, the number of keys, got 5; try pairs=2"),
        (lambda: Target(3, distractors=9), "distractors must be 0 to 8, one per place beside the target, got 9; try"),
        (lambda: Arm(10), "objects must be 1 to 9, one per colour and shape, got 10; try objects=4"),
        (lambda: MessageGame(5), "facts must be 1 to 4, the number of keys, got 5; try facts=2"),
        (lambda: RepeatPrevious(0), "back must be 1 or more, got 0; try back=4"),
        (lambda: TMaze(1), "length must be 2 or more, so that the cue is out of sight at the end, got 1; try length=5"),
    ],
)
def test_sizes_that_make_no_game(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


class Steer(TMaze):
    """A maze that is steered by two numbers: only their words are of interest."""

    continuous = True

    def __init__(self) -> None:
        super().__init__()
        self.action_names = ("speed", "angle")


def test_actions_of_numbers_and_of_names() -> None:
    steer, maze = Steer(), TMaze()
    assert steer.no_actions(3).tolist() == [[0.0, 0.0]] * 3
    assert maze.no_actions(3).tolist() == [-1] * 3
    for environment, shape in ((steer, (500, 2)), (maze, (500,))):
        drawn = environment.random_actions(500, np.random.default_rng(0))
        assert drawn.shape == shape
        words = [environment.name_action(action) for action in drawn[:5]]
        assert np.allclose([environment.read_action(word) for word in words], drawn[:5], rtol=1e-2)
    assert -1 <= steer.random_actions(500, np.random.default_rng(0)).min() < -0.9
    space = GymnasiumGame(steer).action_space
    assert (space.low.tolist(), space.high.tolist()) == ([-1, -1], [1, 1])
    for word in ("0.1", "0.1,up", "0.1,nan", ""):
        with pytest.raises(ValueError) as error:  # noqa: PT011
            steer.read_action(word)
        assert str(error.value) == (
            f"an action is speed, angle as numbers with commas between them, got {word!r}; try 0,0"
        )


def test_a_picture_of_five_has_no_target() -> None:
    """And as many rings as the others, so that nothing but the dot tells."""
    games = Games(Target(), 0, np.arange(400))
    pictures, answers = games.observe(), games.state["answers"][:, 0]
    has_target = np.array([games.environment.target(picture) is not None for picture in pictures])
    assert ((answers < 4) == has_target).all()
    assert 0.15 < 1 - has_target.mean() < 0.25
    assert sorted(np.unique(answers)) == [0, 1, 2, 3, 4]
    # a ring has seven pixels, the dot is one more
    assert (pictures.sum((1, 2)) == 7 * 4 + has_target).all()
    shown = {games.environment.describe(picture).split(" in ")[0] for picture in pictures}
    assert shown == {"target", "no target"}
