"""MessageMemory: a few bits per step are all that later steps read, by attention."""

import torch
from torch import Tensor, nn

from regard.attn.layer import Attention
from regard.attn.terms.mask import BooleanMask
from regard.attn.terms.score import Additive
from regard.models.acting.memory import ActingSteps, AgentMemory, MemoryState, SegmentSteps


def discretise_regularise(logits: Tensor, noise: Tensor) -> Tensor:  # "*b n", "*b n" or "*b 0" -> "*b n"
    """DRU(m) = logistic(m + ε), ε ~ N(0, σ²), in training, and 1{m > 0} in play  (Foerster et al. 2016, 5.2).

    Without noise, a last axis of 0, messages are discrete. Noise of −∞ silences them: all bits are 0.
    """
    return torch.sigmoid(logits + noise) if noise.shape[-1] else (logits > 0).to(logits.dtype)


class MessageMemory(AgentMemory):
    """out_t = max(0, W [x_t; Σ_s α_s m_s]), m_s = DRU(M x_s), α = softmax over s < t of v · tanh(A x_t + B m_s).

    Differentiable inter-agent learning: the gradient of the reader goes through its attention and the noisy message
    into the sender, another player of the same weights  (Foerster et al. 2016). Inputs are x and the noise of the
    message behind it; messages are discrete if there is none. The first step of an episode reads nothing: zeros.
    """

    def __init__(self, width: int, window: int, bits: int) -> None:
        super().__init__()
        self.width, self.window, self.bits = width, window, bits
        self.message = nn.Linear(width, bits)
        self.attention = Attention(Additive(width, bits, width))
        self.join = nn.Linear(width + bits, width)
        # a large random code: the reader learns from bits that differ before the sender changes them
        nn.init.orthogonal_(self.message.weight, 8.0)
        nn.init.zeros_(self.message.bias)

    def send(self, x: Tensor) -> Tensor:  # "*b d+n" -> "*b n"
        """The messages of steps."""
        x, noise = x[..., : self.width], x[..., self.width :]
        return discretise_regularise(self.message(x), noise)

    def init_state(self, count: int) -> MemoryState:
        return MemoryState.empty([self.message.weight.new_empty(count, 0, self.bits)])

    def forward(self, x: Tensor, state: MemoryState, episodes: Tensor) -> Tensor:
        messages = torch.cat([state.tensors[0].to(x.dtype), self.send(x)], 1)
        ids = torch.cat([state.episodes, episodes], 1)
        places = torch.arange(ids.shape[1], device=x.device)
        distance = places[state.episodes.shape[1] :].unsqueeze(-1) - places  # "t m"
        is_earlier = (distance > 0) & (distance <= self.window)
        mask = BooleanMask(is_earlier & (ids.unsqueeze(1) == episodes.unsqueeze(-1)))
        x = x[..., : self.width]
        read = self.attention(x, messages, mask=mask)
        return torch.relu(self.join(torch.cat([x, read], -1)))

    def begin_acting(self, state: MemoryState, steps: int) -> ActingSteps:
        return SegmentSteps(self, state, self.window, self.send)
