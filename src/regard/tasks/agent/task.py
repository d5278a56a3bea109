"""The task agent: its training problem and its evaluation."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.common import atomic_files, json_files
from regard.common.wording import plural
from regard.data.environments.base import AnsweredEnvironment, EnvironmentSpec, ObjectEnvironment
from regard.data.environments.catalogue import begin_games
from regard.inference.evaluation import Evaluation, Progress
from regard.losses.policy_gradient import ppo_terms
from regard.models.acting.agent import Agent, AgentInputs
from regard.models.acting.memory import MemoryState
from regard.models.acting.places_memory import FeatureMap
from regard.tasks.agent.options import AgentConfig, EvaluateAgent
from regard.tasks.agent.playing import Episode, PlayedSegment, Player, is_hard, num_bits, play_episodes
from regard.tasks.agent.predictor import AgentPredictor, held_out_games
from regard.tasks.agent.recorded import RecordedProblem, gap, mean_return, requests
from regard.tasks.base import Task
from regard.training.protocol import Loss, TrainingProblem, ValidationResult
from regard.training.run_folder import initial_folder

FILE = "environment.json"
# streams of random numbers: of the games to train on, and of the games that a validation plays
_TRAINING, _VALIDATION = 0, 1
_SAMPLES = 3
# games that an evaluation plays at once
_CHUNK = 256


class PlannedGames(NamedTuple):
    """Games of a segment, to learn from in one update."""

    segment: int
    rows: NDArray[np.int64]  # "n"


class GameBatch(NamedTuple):
    """The games of a planned batch that this process learns from, and all of them, which norm the advantages."""

    segment: int
    rows: Tensor  # "n"
    all_rows: Tensor  # "m"

    def to(self, device: torch.device) -> "GameBatch":
        """The same: the steps are in the problem, and move when they are learned from."""
        return self


@dataclass(eq=False)
class AgentProblem(TrainingProblem[Agent, GameBatch]):
    """PPO: policy + value − entropy · H per move  (Schulman et al. 2017), on segments that the policy itself plays.

    The first loss of a segment plays it, with the weights of that moment. Under torchrun every process plays all games
    and learns from its own share of them, so their states are equal.
    """

    config: AgentConfig
    environment: EnvironmentSpec
    player: Player
    held: PlayedSegment
    segment: int = -1  # the number of the segment that is held; −1: none yet
    summary: str = ""
    unit: str = "moves"

    @staticmethod
    def of(config: AgentConfig, environment: EnvironmentSpec) -> "AgentProblem":
        with torch.random.fork_rng(devices=[]):
            memory = config.model.build(environment).memory.init_state(config.batch)
        player = Player(begin_games(environment, _stream(config.seed, _TRAINING), np.arange(config.batch)), memory)
        shape = f"{environment.observation[0]} numbers" if len(environment.observation) == 1 else "pictures"
        actions = f"{plural(environment.num_actions, 'number')} per action" if environment.continuous else ""
        summary = (
            f"{plural(config.batch, 'game')} of {config.env}, {shape} per move, "
            f"{actions or plural(environment.num_actions, 'action')}, "
            f"episodes of up to {environment.longest} moves"
        )
        held = _empty_segment(environment, memory)
        return AgentProblem(config, environment, player, held, summary=summary)

    def build_model(self) -> Agent:
        agent: Agent = self.config.model.build(self.environment)
        return agent

    def warnings(self) -> Sequence[str]:
        """One sentence for options of another memory than that of the agent."""
        model = self.config.model
        if not (ignored := self.config.ignored_options()):
            return ()
        reads = "" if model.places == "none" else f" and --places {model.places}"
        return (f"an agent with --memory {model.memory}{reads} ignores {' and '.join(ignored)}; leave that out",)

    def plan_epoch(self, epoch: int) -> Sequence[PlannedGames]:
        """One segment: every pass has each game once."""
        rng = np.random.default_rng([self.config.seed, epoch])
        parts = [
            part
            for _ in range(self.config.passes)
            for part in np.array_split(rng.permutation(self.config.batch), self.config.minibatches)
        ]
        return [PlannedGames(epoch, part) for part in parts]

    def load_batch(self, planned: PlannedGames, rank: int, world: int) -> GameBatch:
        if len(planned.rows) < world:
            raise ValueError(
                f"an update learns from {len(planned.rows)} games, and {world} processes need one each; give a larger "
                "--batch, or fewer --minibatches"
            )
        rows = torch.from_numpy(planned.rows)
        return GameBatch(planned.segment, rows[rank::world], rows)

    def num_terms(self, batch: GameBatch) -> int:
        return len(batch.rows) * self.config.segment

    def loss(self, model: Agent, batch: GameBatch) -> Loss:
        if batch.segment != self.segment:
            config = self.config
            self.held = self.player.play(
                model,
                config.segment,
                config.seed,
                batch.segment,
                discount=config.discount,
                trace=config.trace,
                spread=config.model.noise,
            )
            self.segment = batch.segment
        batch_advantages = self.held.advantages[batch.all_rows]
        device = next(model.parameters()).device
        held = self.held.select(batch.rows, device)
        advantages = (held.advantages - batch_advantages.mean().to(device)) / (batch_advantages.std().to(device) + 1e-8)
        hard = is_hard(model)
        output = model(held.inputs, held.memory, held.places if hard else None)
        place_read = output.place_read if hard else None
        policy = output.policy.float()
        log_probs, entropy = model.policy.log_prob(policy, held.actions), model.policy.entropy(policy)
        if place_read is not None:
            log_probs, entropy = log_probs + place_read.log_prob.float(), entropy + place_read.entropy.float()
        terms = ppo_terms(log_probs, held.log_probs, output.values.float(), advantages, held.returns, self.config.ratio)
        count = self.num_terms(batch)
        total = (terms.policy + terms.value - self.config.entropy * entropy).sum()
        return Loss(total, count, {"return": self.player.mean_return * count, "entropy": entropy.sum()})

    def validate(self, model: Agent) -> ValidationResult:
        seed = _stream(self.config.seed, _VALIDATION)
        episodes = play_episodes(model, begin_games(self.environment, seed, np.arange(self.config.valid_episodes)))
        scores = _scores(self.environment, episodes)
        sample = AgentPredictor(model, self.environment, self.config).text(episodes[0])
        metric = self.config.metric
        return ValidationResult(scores, metric, self.config.metrics[metric], sample)

    def locate(self, planned: Sequence[PlannedGames]) -> str:
        return f"segment {planned[0].segment} of {self.config.env}"

    # The state of the games, of their memory, and of the segment that is held

    def state_dict(self) -> dict[str, Tensor]:
        inputs = {f"held.{name}": t for name, t in self.held.inputs._asdict().items()}
        memory = {f"held.memory.{n}": t for n, t in enumerate(self.held.memory.tensors)}
        played = dict(zip(_PLAYED, self.held[2:], strict=True))
        number = torch.tensor(self.segment)
        episodes = {"held.memory.episodes": self.held.memory.episodes}
        games = {f"player.{name}": t for name, t in self.player.state_dict().items()}
        return {"segment": number, **inputs, **memory, **episodes, **played, **games}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        # tensors of a file lie at any address, and a product may depend on it in its last bit
        state = {name: t.clone() for name, t in state.items()}
        self.segment = int(state["segment"])
        count = len(self.held.memory.tensors)
        memory = MemoryState(tuple(state[f"held.memory.{n}"] for n in range(count)), state["held.memory.episodes"])
        inputs = AgentInputs(*(state[f"held.{name}"] for name in AgentInputs._fields))
        self.held = PlayedSegment(inputs, memory, *(state[name] for name in _PLAYED))
        prefix = "player."
        self.player.load_state_dict({n.removeprefix(prefix): t for n, t in state.items() if n.startswith(prefix)})


# the tensors of a segment behind its inputs and its memory
_PLAYED = ("held.taken", "held.places", "held.log_probs", "held.advantages", "held.returns")


def _empty_segment(environment: EnvironmentSpec, memory: MemoryState) -> PlayedSegment:
    """A segment of no steps."""
    numbers, whole = torch.empty(0, 0), torch.empty(0, 0, dtype=torch.int64)
    actions = torch.from_numpy(environment.no_actions(0)).unsqueeze(1)
    inputs = AgentInputs(
        torch.empty(0, 0, *environment.observation), actions, numbers, whole, torch.empty(0, 0, 0), numbers
    )
    return PlayedSegment(inputs, memory, actions, whole, numbers, numbers, numbers)


def _stream(seed: int, use: int) -> int:
    """The seed of the games of one use, which no other use plays."""
    return 3 * seed + use


def _facts(config: AgentConfig, environment: EnvironmentSpec) -> dict[str, Any]:
    return {
        "env": config.env,
        "observation": list(environment.observation),
        "actions": list(environment.action_names),
        "continuous": environment.continuous,
        "longest": environment.longest,
    }


def _record_facts(config: AgentConfig, environment: EnvironmentSpec, folder: Path, new: bool) -> None:
    """Writes the facts of the environment into the folder of a run, or raises if those of it are others."""
    facts = _facts(config, environment)
    initial = initial_folder(folder)
    for source in [] if initial is None else [initial / FILE]:
        _check_same(facts, source)
    if new or not (folder / FILE).exists():
        atomic_files.write_atomically(folder / FILE, [json.dumps(facts).encode(), b"\n"])
    else:
        _check_same(facts, folder / FILE)


def _check_same(facts: Mapping[str, Any], path: Path) -> None:
    """Raises if the file describes another environment."""
    stored = json_files.parse(path.read_bytes())
    for name, value in facts.items():
        if stored.get(name) != value:
            raise ValueError(
                f"{path} is of an environment with {name} {stored.get(name)}, and this one has {value}; "
                "train in another folder"
            )


def _scores(environment: EnvironmentSpec, episodes: Sequence[Episode]) -> dict[str, float]:
    totals = np.array([episode.total for episode in episodes])
    scores = {
        "return": float(totals.mean()),
        # an environment of gymnasium may have no goal
        **({"success": float((totals >= environment.goal - 1e-6).mean())} if np.isfinite(environment.goal) else {}),
        "length": float(np.mean([len(episode) for episode in episodes])),
    }
    on_target = np.concatenate([_on_target(environment, episode) for episode in episodes])
    if len(on_target):
        scores |= {
            "pointing": float(on_target[:, 1].mean()),
            "on target": float(on_target[:, 0].mean()),
        }
    return scores


def _on_target(environment: EnvironmentSpec, episode: Episode) -> NDArray[np.float64]:  # -> "t 2"
    """The weight of the target's place, or of the named object, and whether it is the likeliest one, at the moves that
    have a target."""
    shares = []
    for observation, weights in zip(episode.observations, episode.places, strict=True):
        place = _target_place(environment, observation)
        if place is None or not len(weights):
            continue
        shares.append((weights[place], weights.argmax() == place))
    return np.array(shares, np.float64).reshape(-1, 2)


def _target_place(environment: EnvironmentSpec, observation: NDArray[np.float32]) -> int | None:
    """The number of the place or object that an observation asks for; None if it asks for none."""
    if isinstance(environment, ObjectEnvironment):
        return environment.named_object(observation)
    target = environment.target(observation)
    if target is None:
        return None
    row, column = (pixel // FeatureMap.side for pixel in target)
    return row * (observation.shape[1] // FeatureMap.side) + column


class AgentTask(Task[AgentConfig, AgentPredictor]):
    """Trains, loads and evaluates agents."""

    def prepare(self, folder: Path, new: bool) -> AgentProblem | RecordedProblem:
        environment = self.config.environment()
        _record_facts(self.config, environment, folder, new)
        if isinstance(environment, AnsweredEnvironment) and self.config.is_recorded:
            seeds = _stream(self.config.seed, _TRAINING), _stream(self.config.seed, _VALIDATION)
            return RecordedProblem.of(self.config, environment, *seeds)
        return AgentProblem.of(self.config, environment)

    def sketch(self) -> nn.Module:
        return self.config.model.build(self.config.environment())

    def predictor(self, folder: Path) -> AgentPredictor:
        environment = self.config.environment()
        _check_same(_facts(self.config, environment), folder / FILE)
        model = self.config.model.build(environment)
        return AgentPredictor(model, environment, self.config)

    def evaluate(
        self, predictor: AgentPredictor, folder: Path, options: EvaluateAgent, progress: Progress
    ) -> Evaluation:
        count = options.episodes

        def play(*, silent: bool = False, wanted: float | None = None) -> Iterator[list[Episode]]:
            for first in range(0, count, _CHUNK):
                yield predictor.play(range(first, min(first + _CHUNK, count)), silent=silent, wanted=wanted)

        start = time.perf_counter()
        episodes: list[Episode] = []
        for chunk in play():
            episodes += chunk
            progress(len(episodes), count)
        seconds = time.perf_counter() - start
        chance = _random_return(self.config, predictor.environment, count)
        notes = [f"random actions have a return of {chance:.3f} in the same episodes"]
        facts: dict[str, Any] = {"random": chance}
        if num_bits(predictor.model):
            facts["silent"] = mean_return([*chain.from_iterable(play(silent=True))])
            notes.append(f"with all bits of all messages at 0 the return is {facts['silent']:.3f}")
        scores = _scores(predictor.environment, episodes)
        if isinstance(predictor.environment, AnsweredEnvironment) and predictor.is_asked:
            asked = {wanted: [*chain.from_iterable(play(wanted=wanted))] for wanted in requests(predictor.environment)}
            scores = {"gap": gap(asked), **scores}
            facts["asked"] = {f"{wanted:g}": mean_return(played) for wanted, played in asked.items()}
            notes += [f"asked for {wanted:.2f}: obtained {mean_return(asked[wanted]):.3f}" for wanted in asked]
        return Evaluation(
            scores,
            len(episodes),
            "episodes",
            f"held-out episodes of {self.config.env}",
            seconds,
            predictions=[predictor.text(episode) for episode in episodes],
            samples=[predictor.text(episode) for episode in episodes[:_SAMPLES]],
            notes=notes,
            facts=facts,
        )

    def example(self, folder: Path) -> str:
        return "0"


def _random_return(config: AgentConfig, environment: EnvironmentSpec, count: int) -> float:
    """The mean return of uniformly random actions in the held-out episodes."""
    games = held_out_games(environment, config, np.arange(count))
    rng = np.random.default_rng(config.seed)
    totals, over = np.zeros(count), np.zeros(count, bool)
    while not over.all():
        played = games.step(environment.random_actions(count, rng))
        totals += np.where(over, 0.0, played.rewards)
        over |= played.terminated | played.truncated
    return float(totals.mean())
