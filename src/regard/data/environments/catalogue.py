"""ENVIRONMENTS: the games by name."""

from regard.data.environments.base import Environment
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
}
