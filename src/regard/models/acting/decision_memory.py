"""DecisionMemory: the blocks of GPT-2 over the returns, observations and actions of an episode."""

import torch
from torch import Tensor, nn

from regard.attn.multihead import MultiHead
from regard.attn.terms.sequence_masks import Documents
from regard.models.acting.memory import ActingSteps, AgentMemory, MemoryState, SegmentSteps
from regard.models.gpt2 import gpt2_stack
from regard.models.language_model import init_weights

# the tokens of a step: the action before it, the return that is asked for from it on, its observation
_TOKENS = 3


class DecisionTokens(nn.Module):
    """[W_a a_{t−1}; W_R R_t; W_s o_t]: the three tokens of a step, one behind the other."""

    def __init__(self, observation: int, actions: int, width: int) -> None:
        super().__init__()
        self.action, self.wanted = nn.Linear(actions, width), nn.Linear(1, width)
        self.observation = nn.Linear(observation, width)

    def forward(self, actions: Tensor, wanted: Tensor, observations: Tensor) -> Tensor:  # "*b a", "*b", "*b o"
        parts = self.action(actions), self.wanted(wanted.unsqueeze(-1)), self.observation(observations)
        return torch.cat(parts, -1)  # "*b 3·d"


class DecisionMemory(AgentMemory):
    """out_t = GPT-2 at the token of o_t in R_0, o_0, a_0, R_1, o_1, a_1, …  (Chen et al. 2021, Decision Transformer).

    R_t is the return that is asked for from step t on. All tokens of a step have the same learned position, the number
    of the step in its episode; a_{−1}, no action, stands before the first.
    """

    def __init__(self, width: int, window: int, layers: int, heads: int) -> None:
        super().__init__()
        self.width, self.window = width, window
        self.time = nn.Embedding(window + 1, width)
        self.stack = gpt2_stack(width, 4 * width, layers, lambda layer: MultiHead(width, heads))
        init_weights(self, residual_std=0.02 / (2 * layers) ** 0.5)

    def init_state(self, count: int) -> MemoryState:
        return MemoryState.empty([self.time.weight.new_empty(count, 0, _TOKENS * self.width)])

    def forward(self, x: Tensor, state: MemoryState, episodes: Tensor) -> Tensor:  # "b t 3·d", "b t" -> "b t d"
        past = state.episodes.shape[1]
        ids = torch.cat([state.episodes, episodes], 1)
        steps = torch.cat([state.tensors[0].to(x.dtype), x], 1).unflatten(-1, (_TOKENS, self.width))  # "b n 3 d"
        times = _places_in_episodes(ids).clamp_max(self.window)
        # an action is one of the step before
        places = torch.stack([(times - 1).clamp_min(0), times, times], -1)  # "b n 3"
        tokens = (steps + self.time(places)).flatten(1, 2)
        states = self.stack(tokens, mask=Documents(ids.repeat_interleave(_TOKENS, 1))).states
        return states[:, _TOKENS - 1 :: _TOKENS][:, past:]

    def begin_acting(self, state: MemoryState, steps: int) -> ActingSteps:
        return SegmentSteps(self, state, self.window, lambda x: x)


def _places_in_episodes(ids: Tensor) -> Tensor:  # "b n" -> "b n"
    """The number of every step in its episode, from 0."""
    is_same = ids.unsqueeze(-1) == ids.unsqueeze(-2)
    return is_same.tril(-1).sum(-1)


def attended_steps(weights: Tensor) -> Tensor:  # "3·t 3·t" -> "t t"
    """The weights of the tokens of observations to all tokens of a step; an action is one of the step before."""
    count = weights.shape[-1] // _TOKENS
    places = torch.arange(weights.shape[-1], device=weights.device)
    steps = places // _TOKENS - (places % _TOKENS == 0).long()
    empty = weights.new_zeros(count, count)
    return empty.index_add(1, steps.clamp_min(0), weights[_TOKENS - 1 :: _TOKENS])
