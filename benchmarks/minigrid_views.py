"""MiniGrid's memory mazes seen through 3 × 3 cells, for `--env gym:benchmarks.minigrid_views:MemoryS7View3-v0`.

Needs minigrid (`pip install '.[minigrid]'`). With its own view of 7 × 7 cells, the small mazes can be solved without a
memory. An observation is the kind of every cell and the direction, as zeros and ones; all 7 actions are left.
"""

from typing import Any

import gymnasium
import numpy as np
from minigrid.core.constants import OBJECT_TO_IDX
from minigrid.envs.memory import MemoryEnv
from numpy.typing import NDArray

VIEW, KINDS, DIRECTIONS = 3, len(OBJECT_TO_IDX), 4
SIZES = (7, 9, 11)


class MemoryView(gymnasium.ObservationWrapper[NDArray[np.float32], Any, Any]):
    """The kinds of the cells in view, and the direction."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (VIEW * VIEW * KINDS + DIRECTIONS,), np.float32)

    def observation(self, observation: dict[str, Any]) -> NDArray[np.float32]:
        kinds = observation["image"][..., 0].reshape(-1, 1) == np.arange(KINDS)
        direction = observation["direction"] == np.arange(DIRECTIONS)
        return np.concatenate([kinds.ravel(), direction], dtype=np.float32, casting="unsafe")


def make(size: int) -> gymnasium.Env[NDArray[np.float32], Any]:
    return MemoryView(MemoryEnv(size, agent_view_size=VIEW))


for size in SIZES:
    # a return above 0 is a success: the right object, reached with the last move, is worth 0.1
    gymnasium.register(
        f"MemoryS{size}View{VIEW}-v0", make, kwargs={"size": size}, max_episode_steps=5 * size**2, reward_threshold=0.1
    )
