"""CSRA: class-specific residual attention, a classifier that attends to other positions for every class."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn.call import NOTHING, Attended, Need
from regard.common import checks
from regard.gates.base import check_map, check_only_weights

# the softmax is a maximum from this temperature on
MAXIMUM = 99.0
# the authors' temperatures by number of heads
TEMPERATURES: dict[int, tuple[float, ...]] = {
    1: (1.0,),
    2: (1.0, 99.0),
    4: (1.0, 2.0, 4.0, 99.0),
    6: (1.0, 2.0, 3.0, 4.0, 5.0, 99.0),
    8: (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 99.0),
}


class CSRA(nn.Module):
    """Σ_heads (mean_j s_kj + λ Σ_j softmax_j(T s_k)_j s_kj), s_kj = m_k · x_j / ‖m_k‖  (Zhu and Wu 2021, eq. 2-7).

    Replaces global pooling and a linear layer: "b c *s" -> logits "b classes". Every head has its own classifiers and
    temperature; 99 means the maximum of the scores. λ = 0 is average pooling and a linear layer.
    """

    def __init__(
        self,
        channels: int,
        classes: int,
        *,
        heads: int = 1,
        strength: float = 0.1,
        temperatures: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        checks.positive_ints("CSRA", channels=channels, classes=classes, heads=heads)
        checks.number("strength", strength, "CSRA")
        if temperatures is None:
            if heads not in TEMPERATURES:
                raise ValueError(
                    f"heads must be one of {', '.join(map(str, TEMPERATURES))} for CSRA, got {heads}; "
                    "for another number pass as many temperatures="
                )
            temperatures = TEMPERATURES[heads]
        if len(temperatures) != heads:
            raise ValueError(
                f"temperatures must be one per head: got {len(temperatures)} for {heads}; try heads={len(temperatures)}"
            )
        for temperature in temperatures:
            checks.positive("temperatures", temperature, "CSRA")
        self.channels, self.classes, self.strength = channels, classes, float(strength)
        self.temperatures = tuple(float(t) for t in temperatures)
        self.weight = nn.Parameter(torch.randn(heads, classes, channels) / channels**0.5)

    def forward(self, x: Tensor) -> Tensor:  # "b c *s" -> "b classes"
        return self.attend(x).out

    def attend(self, x: Tensor, *, need: Need = NOTHING) -> Attended:
        """`forward` with the weights "b heads classes n" of the scores s if `need` asks for them."""
        check_map(x, self.channels, None, self)
        check_only_weights(need, self)
        dtype = checks.accumulate_dtype(x.dtype)
        directions = F.normalize(self.weight.to(dtype), dim=-1).flatten(0, 1)
        scores = (
            (directions.to(x.dtype) @ x.flatten(2)).unflatten(1, self.weight.shape[:2]).to(dtype)
        )  # "b h classes n"
        weights = torch.stack(
            [self._class_weights(s, t) for s, t in zip(scores.unbind(1), self.temperatures, strict=True)], 1
        )
        weights = 1 / scores.shape[-1] + self.strength * weights
        out = (weights * scores).sum((1, 3)).to(x.dtype)
        return Attended(out, weights.to(x.dtype) if need.weights else None)

    @staticmethod
    def _class_weights(scores: Tensor, temperature: float) -> Tensor:  # "b classes n" -> "b classes n"
        if temperature < MAXIMUM:
            return torch.softmax(temperature * scores, -1)
        argmax = scores.argmax(-1, keepdim=True)
        return torch.zeros_like(scores).scatter(-1, argmax, 1.0)

    def extra_repr(self) -> str:
        heads = len(self.temperatures)
        return f"channels={self.channels}, classes={self.classes}, heads={heads}, strength={self.strength:g}"
