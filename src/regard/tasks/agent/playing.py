"""Playing: segments of many games to learn from, and whole episodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.environments.base import Actions
from regard.data.environments.games import VectorGames
from regard.losses.policy_gradient import generalized_advantages
from regard.models.acting.agent import Agent, AgentInputs, AgentOutput
from regard.models.acting.memory import MemoryState
from regard.models.acting.message_memory import MessageMemory
from regard.models.acting.places_memory import PlacesMemory
from regard.models.acting.policy import CategoricalPolicy, gumbel


class PlayedSegment(NamedTuple):
    """Steps of b games, with the memory before them."""

    inputs: AgentInputs
    memory: MemoryState
    actions: Tensor  # "b t", or "b t a"
    places: Tensor  # "b t", that hard reads took; zeros without any
    log_probs: Tensor  # "b t", of actions and places, when they were played
    advantages: Tensor  # "b t"
    returns: Tensor  # "b t", the targets of the values

    def select(self, rows: Tensor, device: torch.device) -> "PlayedSegment":  # "n"
        """The same of these games."""
        inputs = _to(AgentInputs(*(t[rows] for t in self.inputs)), device)
        others = (t[rows].to(device) for t in self[2:])
        return PlayedSegment(inputs, self.memory.select(rows).to(device), *others)


def is_hard(model: Agent) -> bool:
    """Whether the agent draws a place of every picture."""
    return isinstance(model.memory, PlacesMemory) and model.memory.hard


def num_bits(model: Agent) -> int:
    """The bits of the agent's messages; 0 if it sends none."""
    return model.memory.bits if isinstance(model.memory, MessageMemory) else 0


def _to(inputs: AgentInputs, device: torch.device) -> AgentInputs:
    return AgentInputs(*(t.to(device) for t in inputs))


class Player:
    """Games that go on from segment to segment, and their memory; `arrays` and the memory are all of their state."""

    def __init__(self, games: VectorGames, memory: MemoryState) -> None:
        self.games, self.memory = games, memory
        count = len(games.rows)
        self.actions, self.rewards = games.environment.no_actions(count), np.zeros(count, np.float32)
        self.returns = np.zeros(count, np.float32)  # returns of the episodes that go on
        self.mean_return = 0.0  # mean of the episodes that ended last

    def state_dict(self) -> dict[str, Tensor]:
        arrays = {"actions": self.actions, "rewards": self.rewards, "returns": self.returns}
        tensors = {name: torch.from_numpy(np.array(value)) for name, value in (arrays | self.games.arrays()).items()}
        memory = {f"memory.{n}": t for n, t in enumerate(self.memory.tensors)}
        mean = torch.tensor(self.mean_return, dtype=torch.float64)
        return {**tensors, **memory, "memory.episodes": self.memory.episodes, "mean_return": mean}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        arrays = {name: t.cpu().numpy().copy() for name, t in state.items() if not name.startswith("memory.")}
        self.actions, self.rewards, self.returns = (arrays.pop(name) for name in ("actions", "rewards", "returns"))
        self.mean_return = float(arrays.pop("mean_return"))
        self.games.load_arrays(arrays)
        count = len(self.memory.tensors)
        self.memory = MemoryState(tuple(state[f"memory.{n}"] for n in range(count)), state["memory.episodes"])

    @torch.no_grad()
    def play(
        self, model: Agent, steps: int, seed: int, segment: int, *, discount: float, trace: float, spread: float = 0.0
    ) -> PlayedSegment:
        """Plays the next steps with sampled actions; `spread` is that of the noise on messages."""
        device = next(model.parameters()).device
        before = self.memory.to(device)
        acting = model.memory.begin_acting(before, steps)
        num_places = model.memory.places if isinstance(model.memory, PlacesMemory) else 0
        count = len(self.actions)
        generator = torch.Generator().manual_seed((seed * 1_000_003 + segment + 1) % (1 << 63))
        noise = model.policy.draw_noise(steps, count, generator=generator)
        draws = gumbel(steps, count, num_places, generator=generator)
        message_noise = spread * torch.randn(steps, count, 1, num_bits(model), generator=generator)
        observations = self.games.observe()
        shown: list[AgentInputs] = []
        outputs: list[AgentOutput] = []
        taken: list[Actions] = []
        rewards, terminated, ended = (np.empty((steps, len(self.actions)), kind) for kind in ("f4", bool, bool))
        # the values after episodes that were cut off
        last_values: dict[int, tuple[NDArray[np.int64], Tensor]] = {}
        finished: list[NDArray[np.float32]] = []
        for t in range(steps):
            inputs = self._inputs(observations)._replace(noise=message_noise[t])
            output = model.act(acting, _to(inputs, device), draws[t].to(device))
            acting.advance()
            shown.append(inputs)
            outputs.append(output)
            taken.append(model.policy.sample(output.policy[:, 0].float().cpu(), noise[t]).numpy())
            played = self.games.step(taken[t])
            rewards[t], terminated[t], ended[t] = (
                played.rewards,
                played.terminated,
                played.terminated | played.truncated,
            )
            self.actions, self.rewards, self.returns = taken[t], played.rewards, self.returns + played.rewards
            if played.truncated.any():
                cut = self._inputs(played.last)._replace(episodes=inputs.episodes)
                last_values[t] = (
                    np.flatnonzero(played.truncated),
                    model.act(acting, _to(cut, device)).values[:, 0].cpu(),
                )
            if ended[t].any():
                finished.append(self.returns[ended[t]])
                over = ended[t]
                self.actions = self.actions.copy()
                self.actions[over] = self.games.environment.no_actions(int(over.sum()))
                self.rewards, self.returns = np.where(over, 0, self.rewards), np.where(over, 0, self.returns)
            observations = played.observations
        following = model.act(acting, _to(self._inputs(observations), device)).values.float().cpu()
        self.memory = acting.state()
        if finished:
            self.mean_return = float(np.concatenate(finished).mean())
        policies, values = (
            torch.cat(each, 1).float().cpu()
            for each in ([output.policy for output in outputs], [output.values for output in outputs])
        )
        next_values = torch.cat([values[:, 1:], following], 1)
        for t, (rows, of_last) in last_values.items():
            next_values[rows, t] = of_last[rows].float()
        actions = torch.from_numpy(np.stack(taken, 1))
        advantages = generalized_advantages(
            torch.from_numpy(rewards.T.copy()),
            values,
            next_values,
            torch.from_numpy(terminated.T.copy()),
            torch.from_numpy(ended.T.copy()),
            discount=discount,
            trace=trace,
        )
        log_probs = model.policy.log_prob(policies, actions)
        joined = AgentInputs(*(torch.cat(each, 1) for each in zip(*shown, strict=True)))
        places = torch.zeros(actions.shape[:2], dtype=torch.int64)
        if is_hard(model):
            place_read = [output.place_read for output in outputs if output.place_read is not None]
            places = torch.cat([each.place for each in place_read], 1).cpu()
            log_probs = log_probs + torch.cat([each.log_prob for each in place_read], 1).float().cpu()
        return PlayedSegment(joined, before, actions, places, log_probs, advantages, advantages + values)

    def _inputs(self, observations: NDArray[np.float32]) -> AgentInputs:
        return _step_inputs(observations, self.actions, self.rewards, self.games.episodes)


def _step_inputs(
    observations: NDArray[np.float32],
    actions: Actions,
    rewards: NDArray[np.float32],
    episodes: NDArray[np.int64],
) -> AgentInputs:  # "b 1 …"
    """The inputs of one step, with discrete messages; numbers of episodes are copied, because games count them on."""
    none = np.empty((len(actions), 0), np.float32), np.zeros(len(actions), np.float32)
    parts = observations, actions, rewards, episodes.copy(), *none
    return AgentInputs(*(torch.from_numpy(part).unsqueeze(1) for part in parts))


@dataclass(frozen=True, eq=False)
class Episode:
    """One episode that was played to its end."""

    number: int
    terminated: bool
    observations: NDArray[np.float32]  # "t *o"
    actions: Actions  # "t", or "t a"
    rewards: NDArray[np.float32]  # "t"
    values: NDArray[np.float32]  # "t", what the agent expected
    probabilities: NDArray[np.float32]  # "t", of the actions; densities of numbers
    margins: NDArray[np.float32]  # "t", by which the likeliest action leads the next one; 0 of numbers
    places: NDArray[np.float32]  # "t p", weights of places or objects; p is 0 if it attends to none
    messages: NDArray[np.float32]  # "t n", bits; n is 0 if it sends none
    wanted: NDArray[np.float32]  # "t", the return that was asked for from each step on; zeros if none was

    @property
    def total(self) -> float:
        return float(self.rewards.sum())

    def __len__(self) -> int:
        return len(self.actions)


@torch.no_grad()
def play_episodes(
    model: Agent, games: VectorGames, forced: NDArray[Any] | None = None, *, silent: bool = False, wanted: float = 0.0
) -> list[Episode]:  # "n t …"
    """One episode of every game: with these actions, as long as there are any, then with the likeliest.

    If `silent`, all bits of all messages are 0. `wanted` is the return that an agent is asked for.
    """
    device = next(model.parameters()).device
    longest = games.environment.longest
    count = len(games.rows)
    acting = model.memory.begin_acting(model.memory.init_state(count), longest)
    last, reward = games.environment.no_actions(count), np.zeros(count, np.float32)
    lengths, terminated = np.zeros(count, np.int64), np.zeros(count, bool)
    columns: list[tuple[NDArray[np.float32], ...]] = []
    rest = np.full(count, wanted, np.float32)
    observations = games.observe()
    while not lengths.all():
        inputs = _step_inputs(observations, last, reward, games.episodes)
        inputs = inputs._replace(wanted=torch.from_numpy(rest).unsqueeze(1))
        if silent:
            inputs = inputs._replace(noise=torch.full((count, 1, num_bits(model)), -torch.inf))
        output = model.act(acting, _to(inputs, device))
        acting.advance()
        policy = output.policy[:, 0].float().cpu()
        actions = model.policy.likeliest(policy).numpy()
        t = len(columns)
        if forced is not None and t < forced.shape[1]:
            actions = forced[:, t].astype(actions.dtype)
        played = games.step(actions)
        chosen = model.policy.log_prob(policy, torch.from_numpy(actions)).exp().numpy()
        value = output.values[:, 0].float().cpu().numpy()
        places = _or_empty(output.objects if output.place_read is None else output.place_read.weights, count)
        messages = _or_empty(output.messages, count)
        margins = _margins(model, policy)
        columns.append((observations, actions, played.rewards, value, chosen, margins, places, messages, rest))
        rest = rest - played.rewards
        over = (played.terminated | played.truncated) & (lengths == 0)
        lengths[over], terminated[over] = len(columns), played.terminated[over]
        # a game that is over plays on, unseen, until all are
        last, reward, observations = actions, played.rewards, played.observations
    stacked: list[Any] = [np.stack(each, 1) for each in zip(*columns, strict=True)]
    return [
        Episode(int(number), bool(terminated[n]), *(each[n, :t] for each in stacked))
        for n, (number, t) in enumerate(zip(games.rows, lengths, strict=True))
    ]


def _margins(model: Agent, policy: Tensor) -> NDArray[np.float32]:  # "b p" -> "b"
    if isinstance(model.policy, CategoricalPolicy):
        return lead(policy.softmax(-1).numpy())
    return np.zeros(len(policy), np.float32)


def lead(shares: NDArray[np.float32]) -> NDArray[np.float32]:  # "*b n" -> "*b"
    """The greatest share minus the next one; infinite if there is one alone."""
    if shares.shape[-1] == 1:
        return np.full(shares.shape[:-1], np.inf, np.float32)
    ordered = np.sort(shares, -1)
    difference: NDArray[np.float32] = ordered[..., -1] - ordered[..., -2]
    return difference


def _or_empty(t: Tensor | None, count: int) -> NDArray[np.float32]:  # "b 1 p" -> "b p"
    """The tensor of the only step; no columns if there is none."""
    return np.empty((count, 0), np.float32) if t is None else t[:, 0].float().cpu().numpy()
