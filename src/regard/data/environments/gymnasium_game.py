"""GymnasiumGame: one game of an environment, as gymnasium's users call it."""

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from regard.data.environments.base import Environment
from regard.data.environments.hashing import uniforms


class GymnasiumGame(gymnasium.Env[NDArray[np.float32], Any]):
    """reset(seed) and step(action) of one game. Episodes after a reset without a seed count on from the last one."""

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012

    def __init__(self, environment: Environment, render_mode: str | None = None) -> None:
        self.environment, self.render_mode = environment, render_mode
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, environment.observation, np.float32)
        self.action_space: Any = (
            gymnasium.spaces.Box(-1.0, 1.0, (environment.num_actions,), np.float32)
            if environment.continuous
            else gymnasium.spaces.Discrete(environment.num_actions)
        )
        self._seed, self._episode, self._t = 0, -1, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self._seed, self._episode = (self._seed, self._episode + 1) if seed is None else (seed, 0)
        draws = uniforms(self._seed, np.zeros(1, np.int64), np.array([self._episode]), self.environment.num_draws)
        self._state, self._t = self.environment.begin(draws), 0
        return self._observe(), {}

    def _observe(self) -> NDArray[np.float32]:
        return self.environment.observe(self._state)[0]

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        rewards, terminated = self.environment.act(self._state, np.array([action]), np.array([self._t]))
        self._t += 1
        ended = bool(terminated[0])
        return self._observe(), float(rewards[0]), ended, not ended and self._t >= self.environment.longest, {}

    def render(self) -> str:
        return self.environment.describe(self._observe())
