"""RAM: the recurrent attention model, which classifies an image by a few glimpses at learned locations."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attn import observer
from regard.attn.mechanisms.retina import Retina
from regard.common import checks
from regard.gates.catalogue import GateFactory, optional_gate

State = tuple[Tensor, ...]  # h, or h and c, each "b h"


class GlimpseOutput(NamedTuple):
    """The logits of RAM and the path of its glimpses."""

    logits: Tensor  # "b k", after the last glimpse
    places: Tensor  # "b t 2", (x, y) of every glimpse; no gradient
    log_prob: Tensor  # "b t", of the sampled locations; 0 where the mean was used instead
    baseline: Tensor  # "b t", the expected reward before each sample


class GlimpseNetwork(nn.Module):
    """g = relu(W₁ relu(W_ρ ρ) + W₂ relu(W_l l) + b): the contents and the location of a glimpse  (Mnih et al. 2014,
    4).
    """

    def __init__(self, pixels: int, what: int, where: int, out: int) -> None:
        super().__init__()
        self.what, self.where = nn.Linear(pixels, what), nn.Linear(2, where)
        self.what_out, self.where_out = nn.Linear(what, out), nn.Linear(where, out, bias=False)

    def forward(self, contents: Tensor, place: Tensor) -> Tensor:  # "b n", "b 2" -> "b g"
        what, where = torch.relu(self.what(contents)), torch.relu(self.where(place))
        return torch.relu(self.what_out(what) + self.where_out(where))


class RNNCore(nn.Module):
    """h' = relu(W g + U h + b)  (Mnih et al. 2014, 4)."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.past, self.present = nn.Linear(hidden, hidden, bias=False), nn.Linear(dim, hidden)

    def forward(self, x: Tensor, state: State) -> State:
        return (torch.relu(self.present(x) + self.past(state[0])),)


class LSTMCore(nn.Module):
    """c' = f ∘ c + i ∘ tanh(…), h' = o ∘ tanh(c')  (Hochreiter & Schmidhuber 1997)."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(dim, hidden)

    def forward(self, x: Tensor, state: State) -> State:
        return self.cell(x, state)


# the core, and the number of tensors in its state
CORES: dict[str, tuple[type[RNNCore] | type[LSTMCore], int]] = {"rnn": (RNNCore, 1), "lstm": (LSTMCore, 2)}


class RAM(nn.Module):
    """h_t = core(g(ρ(x, l_t), l_t), h_{t−1}), l_t ~ N(tanh(W h_{t−1} + b), σ²); logits = W h_T + b  (Mnih et al. 2014).

    In training locations are sampled, in evaluation their means are used; `look(x, draw=True)` samples in both. A
    sample outside of the image is moved to its border, and `log_prob` is that of the sample before: the moved one would
    have another density. The first location is sampled too, from a learned mean.

    The location network and the baseline read h, but their gradients do not reach it; no gradient reaches a location
    through the contents of its glimpse. So the classification loss trains glimpse network and core, and REINFORCE alone
    trains the locations:

        glimpses = model.look(x)
        reward = (glimpses.logits.argmax(-1) == y).float().unsqueeze(-1).expand_as(glimpses.log_prob)
        loss = cross_entropy(glimpses.logits, y) + reinforce(glimpses.log_prob, reward, glimpses.baseline)
        loss = loss + mse_loss(glimpses.baseline, reward)

    `baseline[:, t]` depends on h_{t−1}, as location t does: a baseline that knew the sample would bias the gradient.
    `gate`, a name of GATES or a factory like those in it, weights the image before any glimpse.
    """

    def __init__(
        self,
        channels: int,
        classes: int,
        *,
        glimpses: int = 6,
        patch: int = 8,
        scales: int = 1,
        what: int = 128,
        where: int = 128,
        glimpse: int = 256,
        hidden: int = 256,
        core: str = "rnn",
        std: float = 0.15,
        outside: str = "zeros",
        gate: str | GateFactory | None = None,
    ) -> None:
        super().__init__()
        checks.positive_ints("RAM", channels=channels, classes=classes, glimpses=glimpses, what=what, where=where)
        checks.positive_ints("RAM", glimpse=glimpse, hidden=hidden)
        checks.known("core", core, CORES)
        checks.positive("std", std, "RAM")
        self.channels, self.glimpses, self.hidden, self.std = channels, glimpses, hidden, std
        self.retina = Retina(patch, scales, outside=outside)
        self.glimpse = GlimpseNetwork(channels * scales * patch**2, what, where, glimpse)
        make, self._parts = CORES[core]
        self.core = make(glimpse, hidden)
        self.locate = nn.Linear(hidden, 2)
        self.expect = nn.Linear(hidden, 1)
        self.head = nn.Linear(hidden, classes)
        make_gate = optional_gate(gate)
        self.gate = nn.Identity() if make_gate is None else make_gate(channels)

    def forward(self, x: Tensor) -> Tensor:  # "b c h w" -> "b k"
        return self.look(x).logits

    def look(self, x: Tensor, *, draw: bool | None = None) -> GlimpseOutput:  # "b c h w"
        """The logits and the path of the glimpses; draw=None samples in training only."""
        if x.ndim != 4 or x.shape[1] != self.channels:
            raise ValueError(
                f"x must be (images, {self.channels} channels, height, width), got {checks.shape(x)}; "
                "grey images have one channel, x.unsqueeze(1)"
            )
        x = self.gate(x)
        draw = self.training if draw is None else draw
        state: State = tuple(x.new_zeros(len(x), self.hidden) for _ in range(self._parts))
        places, log_probs, baselines = [], [], []
        with observer.alignment_steps():
            for _ in range(self.glimpses):
                previous = state[0].detach()
                place, log_prob = self._next_location(previous, draw)
                baselines.append(self.expect(previous).squeeze(-1).to(log_prob.dtype))
                glimpse = self.retina(x, place)
                state = self.core(self.glimpse(glimpse.flatten(1), place.to(glimpse.dtype)), state)
                places.append(place)
                log_probs.append(log_prob)
        return GlimpseOutput(
            self.head(state[0]), torch.stack(places, 1), torch.stack(log_probs, 1), torch.stack(baselines, 1)
        )

    def _next_location(self, h: Tensor, draw: bool) -> tuple[Tensor, Tensor]:  # "b h" -> "b 2", "b"
        # locations keep their precision under autocast
        mean = torch.tanh(self.locate(h).to(checks.accumulate_dtype(h.dtype)))
        if not draw:
            return mean.detach(), mean.new_zeros(len(mean))
        location = mean.detach() + self.std * torch.randn_like(mean)
        distance = ((location - mean) / self.std).square().sum(-1)
        return location.clamp(-1, 1), -distance / 2 - 2 * math.log(self.std * math.sqrt(2 * math.pi))
