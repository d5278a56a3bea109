"""Monotonic: attention that only moves forward, as an expectation to train and by hard stops to decode."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn import checks
from regard.attn.base import AttentionModule
from regard.attn.call import NOTHING, Attended, AttentionCall, AttentionInputs, Need
from regard.attn.explicit_weights import attended, compared, looked, one_step, whole_mask
from regard.attn.kv_cache import KVCache
from regard.attn.terms.mask import Mask
from regard.attn.terms.normalizer import Softmax
from regard.attn.terms.position import Positions
from regard.attn.terms.score import Score


class ChunkwiseSoftmax(nn.Module):
    """β_j = Σ_t α_t softmax(u_{t−w+1}, …, u_t)_j: the `width` keys ending at the stop  (Chiu and Raffel 2018)."""

    def __init__(self, score: Score, width: int = 2) -> None:
        super().__init__()
        checks.positive("width", width, "ChunkwiseSoftmax")
        self.score = score
        self.width = width

    def spread(self, alignment: Tensor, scores: Tensor, allowed: Tensor | None) -> Tensor:  # all "*b q k"
        """The weights of keys, given those of the stops. Each window has its own softmax: nothing underflows."""
        keys, w = scores.shape[-1], self.width
        if keys == 0:
            return alignment
        seen = torch.ones_like(scores, dtype=torch.bool) if allowed is None else allowed
        windows, inside = (F.pad(t, (w - 1, 0)).unfold(-1, w, 1) for t in (scores, seen))  # (*b, q, k, w)
        share = Softmax().weights(windows, inside) * alignment.unsqueeze(-1)
        # the key m places before a stop has the window's place w - 1 - m
        return torch.stack([F.pad(share[..., m:, w - 1 - m], (0, m)) for m in range(min(w, keys))]).sum(0)

    def extra_repr(self) -> str:
        return f"width={self.width}"


class StopRule(ABC):
    """log α_i from log α_{i−1} and the energies of a step: where do the steps of Monotonic stop?"""

    @abstractmethod
    def after(self, energies: Tensor, allowed: Tensor | None, state: Tensor) -> Tensor:  # "*b k" each -> "*b k"
        """The state after a step. A key that may not be looked at is never stopped at and always passed."""


@dataclass(frozen=True)
class FirstStop(StopRule):
    """At the first j with p_j ≥ 1/2 from the last stop on, there alone; nowhere if there is none, nor ever after.

    (Raffel et al. 2017, algorithm 1, with the threshold in place of the draw.)
    """

    def after(self, energies: Tensor, allowed: Tensor | None, state: Tensor) -> Tensor:
        # p ≥ 1/2 is e ≥ 0; who meets NaN on the way cannot say, and all from there on is NaN, ever after
        ready = (state.exp().cumsum(-1) > 0.5) & ~(energies < 0)
        if allowed is not None:
            ready = ready & allowed
        first = ready & (ready.cumsum(-1) == 1)
        lost = ((first & energies.isnan()) | state.isnan()).cumsum(-1) > 0
        return torch.zeros_like(state).masked_fill(~first, -math.inf).masked_fill(lost, math.nan)


@dataclass(frozen=True)
class ExpectedStop(StopRule):
    """log α_j = log σ(e_j) + L_j + log Σ_{l≤j} exp(log α_prev,l − L_l), L_j = Σ_{l<j} log(1 − σ(e_l)).

    The recursion of the paper, closed and in logarithms: the products of 1 − p by which others divide vanish after a
    few hundred keys, their logarithms do not.
    """

    def after(self, energies: Tensor, allowed: Tensor | None, state: Tensor) -> Tensor:
        energies = energies.to(state.dtype)
        stop, go = F.logsigmoid(energies), F.logsigmoid(-energies)
        # instead of -inf: far below all that adds up here, and its differences are numbers
        least = torch.finfo(state.dtype).min / 8
        if allowed is not None:
            stop, go = stop.masked_fill(~allowed, least), go.masked_fill(~allowed, 0.0)
        passed = go.cumsum(-1) - go
        return stop + passed + torch.logcumsumexp(state.clamp_min(least) - passed, dim=-1)


class Monotonic(AttentionModule):
    """α_ij = p_ij q_ij, q_ij = (1 − p_{i,j−1}) q_{i,j−1} + α_{i−1,j}, p = σ(score + r)  (Raffel et al. 2017).

    From where the last step stopped, a step goes on key by key and stops at j with probability p_ij; α is the
    expectation of its stops. A step may go past the end: its weights then sum to less than one. With `chunk` the step
    looks at the keys that end at the stop  (MoChA, Chiu and Raffel 2018). In training, energies get Gaussian noise of
    deviation `noise`, which drives p to 0 and 1; `offset` is what r starts from. In evaluation there is no noise, and a
    step stops by `stop`: `FirstStop()`, hard, unless told; `ExpectedStop()` keeps the expectation. The state of both is
    the logarithm of the last step's alignment, "*b k".

        memory = layer.project_kv(h);  state = layer.start(memory)
        got, state = layer.step(s, memory, state)          "*b 1 d" -> "*b 1 v"

    `layer(q, h)` takes all steps in turn.
    """

    def __init__(
        self,
        score: Score,
        *,
        chunk: ChunkwiseSoftmax | None = None,
        offset: float = -4.0,
        noise: float = 1.0,
        stop: StopRule | None = None,
    ) -> None:
        super().__init__()
        if noise < 0:
            raise ValueError(f"noise must be 0 or more for Monotonic, got {noise}; try noise=1.0")
        if stop is not None and not isinstance(stop, StopRule):
            raise TypeError(f"stop must be a StopRule for Monotonic, got {stop!r}; try FirstStop() or ExpectedStop()")
        self.score = score
        self.chunk = chunk
        self.offset = nn.Parameter(torch.tensor(offset))
        self.noise = noise
        self.stop = FirstStop() if stop is None else stop

    def project_kv(self, k: Tensor, v: Tensor | None = None) -> KVCache:  # "*b k e", "*b k v"
        """Keys projected once, the chunk's beside the others, to be looked at by many steps."""
        keys = [self.score.keys(k)] + ([] if self.chunk is None else [self.chunk.score.keys(k)])
        return KVCache(torch.cat(keys, dim=-1), k if v is None else v)

    def start(self, memory: KVCache) -> Tensor:  # -> "*b k"
        """The state before the first step: stopped at the first key."""
        return _start(memory.values.shape[:-1], memory.values)

    def step(
        self,
        q: Tensor,
        memory: KVCache,
        state: Tensor,
        *,
        mask: Mask | Tensor | None = None,
        positions: Positions | None = None,
        need: Need = NOTHING,
    ) -> tuple[Attended, Tensor]:  # "*b 1 d", "*b k" -> "*b 1 v"
        """One step, and the state after it; a step past the end reads zeros, as do all that follow."""
        one_step(q)
        call, felt = looked(q, memory, None, mask, positions)
        energies, scores = self._energies(call, kept=True)
        allowed = whole_mask(call)
        state = self._after(energies.squeeze(-2), None if allowed is None else allowed.squeeze(-2), state)
        weights = self._weights(state.exp().unsqueeze(-2), scores, allowed)
        return attended(call, weights, felt, need, self), state

    def attend_inputs(self, inputs: AttentionInputs) -> Attended:
        """All energies at once, then step after step."""
        q, k, v, mask, positions, need = inputs
        call, felt = looked(q, k, v, mask, positions)
        energies, scores = self._energies(call, kept=isinstance(k, KVCache))
        allowed = whole_mask(call)
        state = _start((*call.batch, energies.shape[-1]), energies)
        steps = [state.unsqueeze(-2)[..., :0, :]]
        for n in range(q.shape[-2]):
            state = self._after(energies[..., n, :], None if allowed is None else allowed[..., n, :], state)
            steps.append(state.exp().unsqueeze(-2))
        weights = self._weights(torch.cat(steps, dim=-2), scores, allowed)
        return attended(call, weights, felt, need, self)

    def _after(self, energies: Tensor, allowed: Tensor | None, state: Tensor) -> Tensor:  # "*b k" each
        # what stops hard has no slope: training expects
        stop = ExpectedStop() if self.training else self.stop
        return stop.after(energies, allowed, state)

    def _energies(self, call: AttentionCall, kept: bool) -> tuple[Tensor, Tensor | None]:  # "*b q k" both
        """The energies of stopping at a key, and the chunk's scores of it."""
        parts = [self.score] + ([] if self.chunk is None else [self.chunk.score])
        queries = []
        for score in parts:
            score.check(call.q, None if kept else call.keys)
            queries.append(score.queries(call.q))
        if kept:
            keys = list(call.keys.split([q.shape[-1] for q in queries], dim=-1))
        else:
            keys = [score.keys(call.keys) for score in parts]
        energies, *scores = [
            compared(score, one, call.spread(two)) for score, one, two in zip(parts, queries, keys, strict=True)
        ]
        energies = energies + self.offset.to(energies.dtype)
        if self.training and self.noise:
            energies = energies + self.noise * torch.randn_like(energies)
        return energies, scores[0] if scores else None

    def _weights(self, alignment: Tensor, scores: Tensor | None, allowed: Tensor | None) -> Tensor:
        if self.chunk is None or scores is None:
            return alignment
        return self.chunk.spread(alignment, scores.to(alignment.dtype), allowed)

    def extra_repr(self) -> str:
        return f"noise={self.noise:g}, stop={self.stop}"


def _precise(t: Tensor) -> torch.dtype:
    """Sums over the keys grow long: float64 wherever there is one."""
    return torch.float32 if t.device.type == "mps" else torch.float64


def _start(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """log of one at the first key and zero elsewhere."""
    state = torch.full(shape, -math.inf, dtype=_precise(like), device=like.device)
    state[..., :1] = 0.0
    return state
