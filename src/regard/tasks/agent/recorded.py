"""Learning from recorded episodes: a policy that obtains the return that it is asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.common.wording import plural
from regard.data.environments.base import AnsweredEnvironment
from regard.data.environments.games import Games
from regard.data.environments.hashing import uniforms
from regard.models.acting.agent import Agent, AgentInputs
from regard.tasks.agent.options import AgentConfig
from regard.tasks.agent.playing import Episode, play_episodes
from regard.tasks.agent.predictor import AgentPredictor
from regard.training.protocol import Loss, TrainingProblem, ValidationResult

# returns that a validation and an evaluation ask for, at most
_REQUESTS = 5


def requests(environment: AnsweredEnvironment) -> list[float]:
    """Possible returns from the least to the greatest, evenly chosen."""
    returns = environment.returns
    chosen = np.linspace(0, len(returns) - 1, min(len(returns), _REQUESTS)).round().astype(int)
    return [returns[n] for n in chosen]


def returns_to_go(rewards: NDArray[np.float32]) -> NDArray[np.float32]:  # "n t" -> "n t"
    """R̂_t = Σ_{s ≥ t} r_s  (Chen et al. 2021)."""
    return np.flip(np.flip(rewards, 1).cumsum(1), 1).astype(np.float32)


def mean_return(episodes: Sequence[Episode]) -> float:
    return float(np.mean([episode.total for episode in episodes]))


def gap(played: Mapping[float, Sequence[Episode]]) -> float:
    """The mean distance of the obtained returns from those that were asked for, over all episodes."""
    return float(np.mean([abs(each.total - wanted) for wanted, episodes in played.items() for each in episodes]))


class RecordedEpisodes(NamedTuple):
    """Episodes of n games, of t steps each, of players who differ in skill."""

    observations: NDArray[np.float32]  # "n t *o"
    actions: NDArray[np.int64]  # "n t"
    rewards: NDArray[np.float32]  # "n t"

    @staticmethod
    def play(environment: AnsweredEnvironment, seed: int, count: int) -> "RecordedEpisodes":
        """Episode n has a player of its own, who gives the right answer with a probability from 0 to 1, and otherwise a
        random one."""
        rows = np.arange(count)
        games = Games(environment, seed, rows)
        steps = environment.longest
        # other numbers than those of the games: no game has so many episodes
        skills, luck, others = np.split(uniforms(seed, rows, np.full(count, -1), 1 + 2 * steps), [1, 1 + steps], axis=1)
        columns = []
        for t in range(steps):
            observations = games.observe()
            wrong = (others[:, t] * environment.num_actions).astype(np.int64)
            actions = np.where(luck[:, t] < skills[:, 0], environment.right_actions(games.state, games.t), wrong)
            columns.append((observations, actions, games.step(actions).rewards))
        return RecordedEpisodes(*(np.stack(each, 1) for each in zip(*columns, strict=True)))


class EpisodeBatch(NamedTuple):
    """Recorded episodes to learn from."""

    inputs: AgentInputs
    actions: Tensor  # "b t"

    def to(self, device: torch.device) -> "EpisodeBatch":
        return EpisodeBatch(AgentInputs(*(t.to(device) for t in self.inputs)), self.actions.to(device))


@dataclass(eq=False)
class RecordedProblem(TrainingProblem[Agent, EpisodeBatch]):
    """Σ_t −log π(a_t | R̂_0, o_0, a_0, …, R̂_t, o_t) of recorded episodes  (Chen et al. 2021, Decision Transformer).

    Validations ask for several returns and score the mean distance of the obtained ones from them.
    """

    config: AgentConfig
    environment: AnsweredEnvironment
    episodes: RecordedEpisodes
    validation_seed: int
    summary: str = ""
    unit: str = "moves"

    @staticmethod
    def of(config: AgentConfig, environment: AnsweredEnvironment, training_seed: int, seed: int) -> "RecordedProblem":
        episodes = RecordedEpisodes.play(environment, training_seed, config.recorded)
        mean = episodes.rewards.sum(1).mean()
        summary = f"{plural(config.recorded, 'recorded episode')} of {config.env} with a mean return of {mean:.2f}"
        return RecordedProblem(config, environment, episodes, seed, summary)

    def build_model(self) -> Agent:
        agent: Agent = self.config.model.build(self.environment)
        return agent

    def warnings(self) -> Sequence[str]:
        """One sentence for options of PPO and of other memories."""
        if not (ignored := self.config.ignored_options()):
            return ()
        return (f"an agent that learns from recorded episodes ignores {' and '.join(ignored)}; leave that out",)

    def plan_epoch(self, epoch: int) -> Sequence[NDArray[np.int64]]:
        order = np.random.default_rng([self.config.seed, epoch]).permutation(len(self.episodes.actions))
        count = max(len(order) // self.config.batch, 1)
        return [order[n * self.config.batch : (n + 1) * self.config.batch] for n in range(count)]

    def load_batch(self, planned: NDArray[np.int64], rank: int, world: int) -> EpisodeBatch | None:
        rows = planned[rank::world]
        if not len(rows):
            return None
        episodes = self.episodes
        actions, rewards = episodes.actions[rows], episodes.rewards[rows]
        none = self.environment.no_actions(len(rows))[:, None]
        before = np.concatenate([none, actions[:, :-1]], 1), np.concatenate([0 * rewards[:, :1], rewards[:, :-1]], 1)
        noise = np.empty((*actions.shape, 0), np.float32)
        parts = episodes.observations[rows], *before, np.zeros_like(actions), noise, returns_to_go(rewards)
        return EpisodeBatch(AgentInputs(*(torch.from_numpy(part) for part in parts)), torch.from_numpy(actions))

    def num_terms(self, batch: EpisodeBatch) -> int:
        return batch.actions.numel()

    def loss(self, model: Agent, batch: EpisodeBatch) -> Loss:
        policy = model(batch.inputs, model.memory.init_state(len(batch.actions))).policy.float()
        return Loss(-model.policy.log_prob(policy, batch.actions).sum(), self.num_terms(batch))

    def validate(self, model: Agent) -> ValidationResult:
        asked, rows = requests(self.environment), np.arange(self.config.valid_episodes)
        played = {
            wanted: play_episodes(model, Games(self.environment, self.validation_seed, rows), wanted=wanted)
            for wanted in asked
        }
        scores = {"gap": gap(played), "return": mean_return(played[asked[-1]])}
        sample = AgentPredictor(model, self.environment, self.config).text(played[asked[-1]][0])
        return ValidationResult(scores, "gap", False, sample)

    def locate(self, planned: Sequence[NDArray[np.int64]]) -> str:
        return f"{plural(len(planned[0]), 'recorded episode')} of {self.config.env}"
