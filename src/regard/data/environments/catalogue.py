"""ENVIRONMENTS: the games by name; gym:ID names an environment of gymnasium."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.environments.arm import Arm
from regard.data.environments.base import Environment, EnvironmentSpec
from regard.data.environments.games import Games, VectorGames
from regard.data.environments.gym_games import PREFIX, GymEnvironment, GymGames
from regard.data.environments.message import MessageGame
from regard.data.environments.pairs import PairRecall
from regard.data.environments.repeat import RepeatPrevious
from regard.data.environments.target import Target
from regard.data.environments.tmaze import TMaze

ENVIRONMENTS: dict[str, type[Environment]] = {
    "pairs": PairRecall,
    "repeat": RepeatPrevious,
    "tmaze": TMaze,
    "target": Target,
    "message": MessageGame,
    "arm": Arm,
}


def make_environment(name: str, options: Mapping[str, Any]) -> EnvironmentSpec:
    """A game by its name, with its options."""
    if name.startswith(PREFIX):
        return GymEnvironment(name)
    make: Any = ENVIRONMENTS[name]
    environment: Environment = make(**options)
    return environment


def begin_games(environment: EnvironmentSpec, seed: int, rows: NDArray[np.int64]) -> VectorGames:
    """Games of these rows, each at its first episode."""
    if isinstance(environment, GymEnvironment):
        return GymGames(environment, seed, rows)
    assert isinstance(environment, Environment)
    return Games(environment, seed, rows)
