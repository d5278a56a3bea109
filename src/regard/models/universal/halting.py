"""Halting: adaptive computation time, which repeats a step for each position until that position has halted."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.common import checks

HALTINGS = ("adaptive", "fixed")
# s_{n−1} and n − 1 -> the states of step n, and further outputs of it whose mean is wanted, or None
StepFunction = Callable[[Tensor, int], tuple[Tensor, Tensor | None]]


class HaltingOutput(NamedTuple):
    """The states of positions that have halted, all zero where a position is absent."""

    out: Tensor  # "*b d", Σ_n p_n s_n
    last: Tensor  # "*b d", s_N; the state before the first step where a position is absent
    steps: Tensor  # int64 "*b", N
    remainder: Tensor  # "*b", R
    further: Tensor | None  # "*b k", Σ_n p_n of the further outputs

    @property
    def ponder(self) -> Tensor:  # scalar
        """Σ over positions of N + R, the ponder cost; R has its gradient."""
        return (self.steps + self.remainder).sum()


class Halting(nn.Module):
    """Σ_n p_n s_n, p_n = h_n = σ(w · s_n + b) for n < N, p_N = R = 1 − Σ_{n<N} h_n  (Graves 2016, eq. 5 to 9).

    N is the first step with Σ_{n≤N} h_n ≥ 1 − ε, at most `max_steps`; a position that has halted keeps its state s_N,
    which others may read. With `halting` "fixed" there is no h: N is `max_steps` and R is 1 everywhere. b begins at 1.
    """

    def __init__(self, dim: int, max_steps: int, *, halting: str = "adaptive", epsilon: float = 0.01) -> None:
        super().__init__()
        checks.positive_ints("Halting", dim=dim, max_steps=max_steps)
        checks.known("halting", halting, HALTINGS)
        if not 0 < epsilon < 1:
            raise ValueError(f"epsilon must be above 0 and below 1, got {epsilon}; try epsilon=0.01")
        self.max_steps, self.epsilon = max_steps, epsilon
        self.unit = nn.Linear(dim, 1) if halting == "adaptive" else None
        if self.unit is not None:
            nn.init.ones_(self.unit.bias)

    def forward(self, s: Tensor, step: StepFunction, present: Tensor) -> HaltingOutput:  # "*b d", bool "*b"
        """Repeats `step` until all positions that are `present` have halted, at least once."""
        running = present
        spent = remainder = torch.zeros(present.shape, dtype=checks.accumulate_dtype(s.dtype), device=s.device)
        steps = torch.zeros_like(present, dtype=torch.long)
        out, further = torch.zeros_like(s, dtype=spent.dtype), None
        for n in range(self.max_steps):
            if n and not running.any():
                break
            new, more = step(s, n)
            s = torch.where(running.unsqueeze(-1), new, s)
            h = self._probability(s, spent)
            halts = running & (spent + h >= 1 - self.epsilon) if n + 1 < self.max_steps else running
            rest = (1 - spent).masked_fill(~halts, 0)
            p = torch.where(halts, rest, h.masked_fill(~running, 0))
            out = out + p.unsqueeze(-1) * s
            if more is not None:
                mean = p.unsqueeze(-1) * more
                further = mean if further is None else further + mean
            spent, remainder, steps = spent + p, remainder + rest, steps + running
            running = running & ~halts
        return HaltingOutput(out.to(s.dtype), s, steps, remainder, None if further is None else further.to(s.dtype))

    def _probability(self, s: Tensor, spent: Tensor) -> Tensor:  # "*b d" -> "*b"
        if self.unit is None:
            return torch.zeros_like(spent)
        return self.unit(s).squeeze(-1).to(spent.dtype).sigmoid()

    def extra_repr(self) -> str:
        return f"max_steps={self.max_steps}, epsilon={self.epsilon}"
