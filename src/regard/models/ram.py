"""RAM: the recurrent attention model, which looks at a picture through a few glimpses and learns where to."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attn import checks, observer
from regard.attn.mechanisms.retina import Retina

State = tuple[Tensor, ...]  # h, or h and c, each "b h"


class GlimpseOutput(NamedTuple):
    """What RAM saw: its answer, and the path of its glimpses."""

    logits: Tensor  # "b k", after the last glimpse
    places: Tensor  # "b t 2", (x, y) of every glimpse; no gradient
    log_prob: Tensor  # "b t", of the draws; 0 where the mean was taken instead
    baseline: Tensor  # "b t", the reward to be expected before each draw


class GlimpseNetwork(nn.Module):
    """g = relu(W₁ relu(W_ρ ρ) + W₂ relu(W_l l) + b): what was seen, and where  (Mnih et al. 2014, 4)."""

    def __init__(self, pixels: int, what: int, where: int, out: int) -> None:
        super().__init__()
        self.what, self.where = nn.Linear(pixels, what), nn.Linear(2, where)
        self.what_out, self.where_out = nn.Linear(what, out), nn.Linear(where, out, bias=False)

    def forward(self, seen: Tensor, place: Tensor) -> Tensor:  # "b n", "b 2" -> "b g"
        what, where = torch.relu(self.what(seen)), torch.relu(self.where(place))
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


# the core, and how many tensors its state has
CORES: dict[str, tuple[type[RNNCore] | type[LSTMCore], int]] = {"rnn": (RNNCore, 1), "lstm": (LSTMCore, 2)}


class RAM(nn.Module):
    """h_t = core(g(ρ(x, l_t), l_t), h_{t−1}), l_t ~ N(tanh(W h_{t−1} + b), σ²); logits = W h_T + b  (Mnih et al. 2014).

    In training places are drawn, in evaluation their means are taken; `look(x, draw=True)` draws in either. A draw that
    leaves the picture is moved to its border, and `log_prob` is that of the draw itself: the density of what was moved
    would be another one's. The first place too is a draw, of a mean that is learned.

    The location network and the baseline read h, and no gradient of theirs reaches it; no gradient reaches a place
    through what was seen there. So the answer teaches glimpses and core, and REINFORCE alone teaches where to look:

        seen = model.look(x)
        reward = (seen.logits.argmax(-1) == y).float().unsqueeze(-1).expand_as(seen.log_prob)
        loss = cross_entropy(seen.logits, y) + reinforce(seen.log_prob, reward, seen.baseline)
        loss = loss + mse_loss(seen.baseline, reward)

    `baseline[:, t]` is of h_{t−1}, as place t is: one that knew of the draw would bend the gradient.
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
    ) -> None:
        super().__init__()
        checks.sizes("RAM", channels=channels, classes=classes, glimpses=glimpses, what=what, where=where)
        checks.sizes("RAM", glimpse=glimpse, hidden=hidden)
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

    def forward(self, x: Tensor) -> Tensor:  # "b c h w" -> "b k"
        return self.look(x).logits

    def look(self, x: Tensor, *, draw: bool | None = None) -> GlimpseOutput:  # "b c h w"
        """The answer and how it was found; None draws in training."""
        if x.ndim != 4 or x.shape[1] != self.channels:
            raise ValueError(
                f"x must be (images, {self.channels} channels, height, width), got {checks.shape(x)}; "
                "grey images have one channel, x.unsqueeze(1)"
            )
        draw = self.training if draw is None else draw
        state: State = tuple(x.new_zeros(len(x), self.hidden) for _ in range(self._parts))
        places, logs, expected = [], [], []
        with observer.aligned():
            for _ in range(self.glimpses):
                before = state[0].detach()
                place, log_prob = self._place(before, draw)
                expected.append(self.expect(before).squeeze(-1).to(log_prob.dtype))
                seen = self.retina(x, place)
                state = self.core(self.glimpse(seen.flatten(1), place.to(seen.dtype)), state)
                places.append(place)
                logs.append(log_prob)
        return GlimpseOutput(
            self.head(state[0]), torch.stack(places, 1), torch.stack(logs, 1), torch.stack(expected, 1)
        )

    def _place(self, h: Tensor, draw: bool) -> tuple[Tensor, Tensor]:  # "b h" -> "b 2", "b"
        # a place is a number to be exact about, also where products are narrow
        mean = torch.tanh(self.locate(h).to(checks.widened(h.dtype)))
        if not draw:
            return mean.detach(), mean.new_zeros(len(mean))
        drawn = mean.detach() + self.std * torch.randn_like(mean)
        far = ((drawn - mean) / self.std).square().sum(-1)
        return drawn.clamp(-1, 1), -far / 2 - 2 * math.log(self.std * math.sqrt(2 * math.pi))
