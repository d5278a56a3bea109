"""AgentPredictor: the number of an episode in, the course of the episode out."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.attn.maps.attention_map import DenseMap
from regard.common.eval_mode import eval_mode
from regard.data.environments.base import EnvironmentSpec, ObjectEnvironment
from regard.data.environments.catalogue import begin_games
from regard.data.environments.games import VectorGames
from regard.inference.predictor import Observe, Predictor, predict_recorded
from regard.models.acting.agent import Agent, AgentInputs
from regard.models.acting.attention_memory import AttentionMemory
from regard.models.acting.decision_memory import DecisionMemory, attended_steps
from regard.models.acting.message_memory import MessageMemory
from regard.models.acting.objects_encoder import ObjectsEncoder
from regard.models.acting.places_memory import FeatureMap, PlacesMemory
from regard.recording.analysis.derived_maps import derive
from regard.recording.recording import Recording
from regard.tasks.agent.options import AgentConfig, PredictAgent
from regard.tasks.agent.playing import Episode, is_hard, lead, play_episodes
from regard.viz.episode import AttendedObject, EpisodeView

# the number of the games that are neither trained on nor validated on, beside the seed
_HELD_OUT = 2


def held_out_games(environment: EnvironmentSpec, config: AgentConfig, numbers: NDArray[np.int64]) -> VectorGames:
    """The held-out episodes of these numbers."""
    return begin_games(environment, 3 * config.seed + _HELD_OUT, numbers)


def _checked(number: int) -> int:
    """The number of an episode, which is hashed as 64 bits."""
    if not 0 <= number < 1 << 62:
        raise ValueError(f"an episode is a whole number, 0 or more and below 2^62, got {number}; try 0")
    return number


class AgentPredictor(Predictor[int, Episode]):
    """number of a held-out episode -> the episode, played with the likeliest actions."""

    input_key: ClassVar[str] = "episode"

    def __init__(self, model: Agent, environment: EnvironmentSpec, config: AgentConfig) -> None:
        self.model: Agent = model
        self.environment, self.config = environment, config

    def read(self, argument: str) -> int:
        if not argument.strip().isdecimal():
            raise ValueError(f"an episode is a whole number, 0 or more, got {argument!r}; try 0")
        return _checked(int(argument))

    def play(
        self,
        numbers: Sequence[int],
        forced: NDArray[Any] | None = None,
        *,
        silent: bool = False,
        wanted: float | None = None,
    ) -> list[Episode]:
        """These episodes, played move by move; `silent` without messages.

        `wanted` is the return that a Decision Transformer is asked for; None: the greatest.
        """
        with eval_mode(self.model):
            checked = np.array([_checked(number) for number in numbers], np.int64)
            games = held_out_games(self.environment, self.config, checked)
            wanted = self.environment.goal if wanted is None else wanted
            return play_episodes(self.model, games, forced, silent=silent, wanted=wanted if self.is_asked else 0.0)

    def _wanted(self, options: PredictAgent | None) -> float | None:
        """The return that is asked for; raises if the agent cannot be asked for any."""
        wanted = None if options is None else options.wanted
        if wanted is not None and not self.is_asked:
            raise ValueError(
                f"wanted={wanted:g} asks for a return, and the memory {self.config.model.memory} was not trained to "
                "obtain one; leave it out"
            )
        return wanted

    @property
    def is_asked(self) -> bool:
        """Whether the agent is asked for a return."""
        return isinstance(self.model.memory, DecisionMemory)

    def predict(
        self, inputs: Sequence[int], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[Episode]:
        if not inputs:
            return []
        episodes = self.play(inputs, wanted=self._wanted(options))
        with observe(), torch.no_grad(), eval_mode(self.model):
            self._policies(episodes)
        return episodes

    def _policies(self, episodes: Sequence[Episode]) -> Tensor:  # -> "b t p"
        """The policy at every move, of whole episodes at once; moves behind the end of one mean nothing."""
        longest = max(map(len, episodes))

        def padded(arrays: Sequence[NDArray[Any]]) -> Tensor:
            rows = [np.concatenate([a, np.zeros((longest - len(a), *a.shape[1:]), a.dtype)]) for a in arrays]
            return torch.from_numpy(np.stack(rows)).to(self.device)

        before = self.environment.no_actions(1)
        inputs = AgentInputs(
            padded([episode.observations for episode in episodes]),
            padded([np.concatenate([before, episode.actions[:-1]]) for episode in episodes]),
            padded([np.concatenate([[0], episode.rewards[:-1]]).astype(np.float32) for episode in episodes]),
            torch.zeros(len(episodes), longest, dtype=torch.int64, device=self.device),
            torch.empty(len(episodes), longest, 0, device=self.device),
            padded([episode.wanted for episode in episodes]),
        )
        return self.model(inputs, self.model.memory.init_state(len(episodes))).policy

    def text(self, output: Episode) -> str:
        names = " ".join(self.environment.name_action(action) for action in output.actions)
        return f"return {output.total:.3f} in {len(output)} moves\t{names}"

    def json(self, output: Episode) -> dict[str, Any]:
        return {
            "return": output.total,
            "terminated": output.terminated,
            "moves": [
                {
                    "observation": self.environment.describe(observation),
                    "action": self.environment.name_action(action),
                    "density" if self.environment.continuous else "probability": probability,
                    "reward": reward,
                    "value": value,
                }
                for observation, action, probability, reward, value in zip(
                    output.observations,
                    output.actions.tolist(),
                    output.probabilities.tolist(),
                    output.rewards.tolist(),
                    output.values.tolist(),
                    strict=True,
                )
            ],
        }

    def margin(self, output: Episode) -> float:
        margin = output.margins.min()
        return float(min(margin, lead(output.places).min()) if is_hard(self.model) else margin)

    def loss(self, inputs: Sequence[int], targets: Sequence[str]) -> Tensor:  # -> "b"
        """The mean −log π of the target's actions, named one behind the other, in the episode that they lead to."""
        losses = []
        for number, target in zip(inputs, targets, strict=True):
            actions = np.array([self.environment.read_action(word) for word in target.split()])
            (episode,) = self.play([number], actions[None])
            if not 0 < len(actions) <= len(episode):
                raise ValueError(
                    f"a target names actions of an episode, and episode {number} then ends after {len(episode)}, got "
                    f"{len(actions)}; name 1 to {len(episode)}"
                )
            with eval_mode(self.model):
                policy = self._policies([episode])[0, : len(actions)]
            taken = torch.from_numpy(episode.actions[: len(actions)]).to(self.device)
            losses.append(-self.model.policy.log_prob(policy, taken).mean())
        return torch.stack(losses)

    # The attention behind an episode

    def check_attends(self, what: str) -> None:
        attends = isinstance(self.model.memory, AttentionMemory | DecisionMemory | MessageMemory | PlacesMemory)
        if not attends and not isinstance(self.model.encode, ObjectsEncoder):
            raise ValueError(
                f"{what} needs attention, and the memory {self.config.model.memory} has none; leave it out, or name "
                "another run"
            )

    def steps(self, episode: Episode) -> tuple[str, ...]:
        """A name for every move: what was seen, and what was done."""
        deeds = self.deeds(episode)
        return tuple(
            f"{n} {self.environment.describe(observation)} → {deed}"
            for n, (observation, deed) in enumerate(zip(episode.observations, deeds, strict=True))
        )

    def deeds(self, episode: Episode) -> list[str]:
        """The action of every move, and the bits that it sends."""
        bits = ["".join(f"{bit:.0f}" for bit in row) for row in episode.messages]
        names = [self.environment.name_action(action) for action in episode.actions]
        return [f"{name}, sends {sent}" if sent else name for name, sent in zip(names, bits, strict=True)]

    def label(self, recording: Recording, example: int, output: Episode) -> Recording:
        about = {**recording.about, "text": f"episode {example}", "said": self.text(output), "queries": "moves"}
        keys = None
        if isinstance(self.model.encode, FeatureMap) and len(recording) == len(output):
            # one map with a row per move, in place of one per move
            rows = torch.cat([item.weights.dense().flatten(0, -3)[:1] for item in recording], -2)  # "1 t p"
            recording = replace(
                recording, maps=(derive("places", recording[0].kind, DenseMap(rows), recording.maps, "places"),)
            )
            height, width = self.model.encode.grid
            keys = tuple(f"row {y + 1}, column {x + 1}" for y in range(height) for x in range(width))
            about["keys"] = "places"
        of_objects = [item for item in recording if item.name.startswith("encode")]
        if isinstance(self.environment, ObjectEnvironment) and of_objects:
            # one map with a row per move; maps of a memory, whose keys are moves, have names only without it
            rows = of_objects[0].weights.dense().flatten(0, -2).unsqueeze(0)  # "1 t o"
            recording = replace(
                recording, maps=(derive("objects", of_objects[0].kind, DenseMap(rows), of_objects[:1], "objects"),)
            )
            keys = self.environment.object_names(output.observations[0])
            about["keys"] = "objects"
        queries = self.steps(output)
        if self.is_asked:
            about["queries"], queries = "tokens", self._tokens(output)
        return replace(recording, queries=queries, keys=keys, about=about)

    def _tokens(self, episode: Episode) -> tuple[str, ...]:
        """The tokens of a Decision Transformer: the action before, the return that is asked for, what was seen."""
        actions = ["none", *(self.environment.name_action(action) for action in episode.actions[:-1])]
        descriptions = [self.environment.describe(observation) for observation in episode.observations]
        steps = zip(actions, episode.wanted.tolist(), descriptions, strict=True)
        return tuple(word for action, wanted, text in steps for word in (f"→ {action}", f"R {wanted:.2f}", text))

    def attended(self, recording: Recording) -> Tensor | None:  # -> "t t"
        """The weights of every move to the moves of the episode, the mean of all layers and heads; None without any."""
        is_memory = isinstance(self.model.memory, AttentionMemory | DecisionMemory | MessageMemory)
        maps = [item for item in recording if is_memory and item.name.startswith("memory")]
        if not maps:
            return None
        mean = torch.stack([item.weights.dense().flatten(0, -3).mean(0) for item in maps]).mean(0).cpu()
        return attended_steps(mean) if self.is_asked else mean

    def view(self, recording: Recording, episode: Episode) -> EpisodeView:
        """The episode, drawable, with the attention that was recorded in it."""
        outcome = ": success" if episode.total >= self.environment.goal - 1e-6 else ": no success"
        outcome = outcome if np.isfinite(self.environment.goal) else ""
        outcome = f", asked for {episode.wanted[0]:g}" if self.is_asked else outcome
        title = f"{self.config.env}, episode {episode.number}, memory {self.config.model.memory}{outcome}"
        grid = self.model.encode.grid if isinstance(self.model.encode, FeatureMap) else None
        return EpisodeView(
            title,
            np.stack([self.environment.picture(observation) for observation in episode.observations]),
            [self.environment.describe(observation) for observation in episode.observations],
            self.deeds(episode),
            episode.rewards.tolist(),
            (episode.wanted if self.is_asked else episode.values).tolist(),
            self.attended(recording),
            None if grid is None else episode.places.reshape(len(episode), *grid),
            self._attended_objects(episode),
            self.environment.cell_names,
        )

    def _attended_objects(self, episode: Episode) -> list[AttendedObject] | None:
        """The object with the greatest weight of every move; None in games without objects."""
        environment = self.environment
        if not isinstance(environment, ObjectEnvironment):
            return None
        return [
            AttendedObject(
                environment.object_names(observation)[n], float(weights[n]), environment.object_pixel(observation, n)
            )
            for observation, weights in zip(episode.observations, episode.places, strict=True)
            for n in [int(weights.argmax())]
        ]

    def watch(self, number: int, options: PredictAgent | None = None) -> tuple[EpisodeView, str]:
        """A held-out episode, and its outcome in a sentence."""
        (episode,), recording = predict_recorded(self, [number], options)
        end = "" if episode.terminated else ", then cut off"
        return self.view(recording, episode), f"return {episode.total:.3f} in {len(episode)} moves{end}"

    def draw(self, recording: Recording, example: int, output: Episode, path: Path) -> Path:
        return self.view(recording, output).save(path)
