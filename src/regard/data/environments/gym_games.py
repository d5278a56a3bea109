"""GymEnvironment and GymGames: environments of gymnasium as games of agents."""

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.common.suggestions import known
from regard.data.environments.base import Actions, EnvironmentSpec
from regard.data.environments.games import Played, VectorGames
from regard.data.environments.hashing import hashed

PREFIX = "gym:"
# moves of an episode in an environment without a limit of its own
_LONGEST = 1000


def _gymnasium() -> Any:
    try:
        import gymnasium
    except ImportError as error:
        raise ImportError(f"env={PREFIX}ID needs gymnasium; install it with: pip install 'regard[gym]'") from error
    return gymnasium


def _are_numbers(space: Any) -> bool:
    """Whether the space consists of boxes and numbers of n."""
    spaces = _gymnasium().spaces
    if isinstance(space, spaces.Tuple | spaces.Dict):
        parts = space.spaces
        return all(map(_are_numbers, parts.values() if isinstance(parts, Mapping) else parts))
    return isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)


class GymEnvironment(EnvironmentSpec):
    """The environment `gym:ID` of gymnasium, or `gym:MODULE:ID` of a module that registers it.

    Observations become one row of numbers: those of boxes as they are, one of n as n numbers with a one. Actions are
    one of n, or a box, whose bounds −1 and 1 stand for.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._identifier = name.removeprefix(PREFIX)
        self._check_known()
        env = self.make()
        self._seen, self._done = env.observation_space, env.action_space
        env.close()
        self.observation = (self._num_numbers(),)
        self.continuous = self._are_actions_numbers()
        if self.continuous:
            self.action_names = tuple(f"number {n + 1}" for n in range(int(np.prod(self._done.shape))))
        else:
            self.action_names = tuple(str(self._done.start + n) for n in range(int(self._done.n)))
        self.longest = env.spec.max_episode_steps or _LONGEST
        self.goal = float("inf") if env.spec.reward_threshold is None else float(env.spec.reward_threshold)

    def _check_known(self) -> None:
        """Raises if no such environment is registered, also after the import of its module."""
        registry = _gymnasium().registry
        module, _, identifier = self._identifier.rpartition(":")
        if module:
            try:
                importlib.import_module(module)
            except Exception as error:  # the module itself may raise anything
                raise ValueError(
                    f"env={self.name!r} needs the module {module}, which cannot be imported: {error}; install or mend "
                    "it"
                ) from error
        start = f"{PREFIX}{module}:" if module else PREFIX
        known("env", f"{start}{identifier}", [start + each for each in registry], start)

    def make(self) -> Any:
        """One environment of gymnasium."""
        gymnasium = _gymnasium()
        try:
            return gymnasium.make(self._identifier, disable_env_checker=True)
        except (gymnasium.error.Error, ImportError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(
                f"env={self.name!r} cannot be made: {reason}; install what it needs, or name another"
            ) from error

    def _num_numbers(self) -> int:
        if not _are_numbers(self._seen):
            raise ValueError(
                f"env={self.name!r} shows {self._seen}, and agents read boxes, numbers of n, and tuples and dicts of "
                "these; register it with a wrapper, such as gymnasium's TransformObservation, or name another"
            )
        return int(_gymnasium().spaces.flatdim(self._seen))

    def _are_actions_numbers(self) -> bool:
        spaces = _gymnasium().spaces
        if isinstance(self._done, spaces.Box) and self._done.is_bounded():
            return True
        if isinstance(self._done, spaces.Discrete):
            return False
        raise ValueError(
            f"env={self.name!r} takes {self._done}, and agents choose one of n (Discrete) or numbers with bounds "
            "(Box); register it with a wrapper, such as gymnasium's TransformAction, or name another"
        )

    def numbers(self, observation: Any) -> NDArray[np.float32]:  # -> "o"
        """An observation as a row of numbers."""
        return np.asarray(_gymnasium().spaces.flatten(self._seen, observation), np.float32)

    def action(self, chosen: Any) -> Any:
        """An action of the agent as gymnasium takes it; numbers beyond −1 and 1 are cut to them."""
        if not self.continuous:
            return self._done.start + int(chosen)
        low, high = self._done.low.astype(np.float64), self._done.high.astype(np.float64)
        share = (np.clip(chosen, -1.0, 1.0).reshape(low.shape) + 1.0) / 2.0
        return (low + share * (high - low)).astype(self._done.dtype)

    def describe(self, observation: NDArray[np.float32]) -> str:
        return " ".join(f"{number:.2f}" for number in observation[:6]) + (" …" if len(observation) > 6 else "")

    def picture(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray((1 + np.tanh(observation[:, None] / 2)) / 2, np.float32)


class GymGames(VectorGames):
    """One environment of gymnasium per row, reset with a hash of (seed, row, episode).

    The state of an episode is the actions since its beginning: a game goes on from its arrays by repeating them.
    """

    environment: GymEnvironment

    def __init__(self, environment: GymEnvironment, seed: int, rows: NDArray[np.int64]) -> None:
        super().__init__(seed, rows)
        self.environment = environment
        self._envs = [environment.make() for _ in rows]
        none = environment.no_actions(len(rows))
        self._taken = np.repeat(none[:, None], environment.longest, 1)  # "n t", or "n t a"
        self._now = np.stack([self._reset(n) for n in range(len(rows))])

    def _reset(self, n: int) -> NDArray[np.float32]:
        seed = hashed(self.seed, self.rows[n : n + 1], self.episodes[n : n + 1])[0]
        return self.environment.numbers(self._envs[n].reset(seed=int(seed >> np.uint64(33)))[0])

    def observe(self) -> NDArray[np.float32]:
        return self._now

    def step(self, actions: Actions) -> Played:
        count = len(self.rows)
        last, rewards = np.empty_like(self._now), np.zeros(count, np.float32)
        terminated, truncated = np.zeros((2, count), bool)
        for n, env in enumerate(self._envs):
            seen, reward, ends, cut, _ = env.step(self.environment.action(actions[n]))
            self._taken[n, self.t[n]] = actions[n]
            last[n], rewards[n], terminated[n] = self.environment.numbers(seen), reward, ends
            truncated[n] = not ends and (cut or self.t[n] + 1 >= self.environment.longest)
        self.t = self.t + 1
        self._now = last.copy()
        for n in np.flatnonzero(terminated | truncated).tolist():
            self.episodes[n] += 1
            self.t[n] = 0
            self._now[n] = self._reset(n)
        return Played(self._now, rewards, terminated, truncated, last)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "episodes": self.episodes.copy(),
            "t": self.t,
            "game.taken": self._taken.copy(),
            "game.now": self._now,
        }

    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.episodes, self.t = arrays["episodes"].copy(), arrays["t"]
        self._taken, self._now = arrays["game.taken"].copy(), np.empty_like(self._now)
        for n, env in enumerate(self._envs):
            self._now[n] = self._reset(n)
            for action in self._taken[n, : self.t[n]]:
                self._now[n] = self.environment.numbers(env.step(self.environment.action(action))[0])
        if not np.array_equal(self._now, arrays["game.now"], equal_nan=True):
            raise ValueError(
                f"env={self.environment.name!r} shows something else when the same actions are repeated from the same "
                "seed, so its games cannot go on; train a new run"
            )
