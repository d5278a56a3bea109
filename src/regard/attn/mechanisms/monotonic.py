"""Monotonic attention and MoChA: trained as an expectation, decoded by hard stops."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn.call import AttentionCall
from regard.attn.kv_cache import KVCache
from regard.attn.mechanisms.explicit_weights import score_pairs, whole_mask
from regard.attn.mechanisms.recurrent import RecurrentAttention, run_rows
from regard.attn.terms.normalizer import Softmax
from regard.attn.terms.score import Score
from regard.common import checks


class ChunkwiseSoftmax(nn.Module):
    """β_j = Σ_t α_t softmax(u_{t−w+1}, …, u_t)_j: the `width` keys ending at the stop  (Chiu and Raffel 2018)."""

    def __init__(self, score: Score, width: int = 2) -> None:
        super().__init__()
        checks.positive("width", width, "ChunkwiseSoftmax")
        self.score = score
        self.width = width

    def key_weights(self, alignment: Tensor, scores: Tensor, allowed: Tensor | None) -> Tensor:  # all "*b q k"
        """The weights of the keys, from those of the stops. Each window has its own softmax: nothing underflows."""
        keys, w = scores.shape[-1], self.width
        if keys == 0:
            return alignment
        allowed = torch.ones_like(scores, dtype=torch.bool) if allowed is None else allowed
        windows, allowed = (F.pad(t, (w - 1, 0)).unfold(-1, w, 1) for t in (scores, allowed))  # (*b, q, k, w)
        share = Softmax().weights(windows, allowed) * alignment.unsqueeze(-1)
        # the key m positions before a stop has index w - 1 - m in the window
        return torch.stack([F.pad(share[..., m:, w - 1 - m], (0, m)) for m in range(min(w, keys))]).sum(0)

    def extra_repr(self) -> str:
        return f"width={self.width}"


class StopRule(ABC):
    """log α_i from log α_{i−1} and the energies of a step: the rule by which the steps of Monotonic stop."""

    @abstractmethod
    def after(self, energies: Tensor, allowed: Tensor | None, state: Tensor) -> Tensor:  # "*b k" each -> "*b k"
        """The state after a step. A masked key is never stopped at and always passed."""


@dataclass(frozen=True)
class FirstStop(StopRule):
    """At the first j with p_j ≥ 1/2 from the last stop on; if there is none, this and all later steps stop nowhere.

    (Raffel et al. 2017, algorithm 1, with a threshold instead of a sample.)
    """

    def after(self, energies: Tensor, allowed: Tensor | None, state: Tensor) -> Tensor:
        # p ≥ 1/2 is e ≥ 0; a NaN before the stop makes everything from there on NaN, in all later steps
        ready = (state.exp().cumsum(-1) > 0.5) & ~(energies < 0)
        if allowed is not None:
            ready = ready & allowed
        first = ready & (ready.cumsum(-1) == 1)
        is_nan = ((first & energies.isnan()) | state.isnan()).cumsum(-1) > 0
        return torch.zeros_like(state).masked_fill(~first, -math.inf).masked_fill(is_nan, math.nan)


@dataclass(frozen=True)
class ExpectedStop(StopRule):
    """log α_j = log σ(e_j) + L_j + log Σ_{l≤j} exp(log α_prev,l − L_l), L_j = Σ_{l<j} log(1 − σ(e_l)).

    The closed form of the paper's recursion, in logarithms: the products of 1 − p by which other implementations divide
    vanish after a few hundred keys, their logarithms do not.
    """

    def after(self, energies: Tensor, allowed: Tensor | None, state: Tensor) -> Tensor:
        energies = energies.to(state.dtype)
        stop, go = F.logsigmoid(energies), F.logsigmoid(-energies)
        # instead of -inf: far below every sum, and its differences are finite
        least = torch.finfo(state.dtype).min / 8
        if allowed is not None:
            stop, go = stop.masked_fill(~allowed, least), go.masked_fill(~allowed, 0.0)
        log_passed = go.cumsum(-1) - go
        return stop + log_passed + torch.logcumsumexp(state.clamp_min(least) - log_passed, dim=-1)


class Monotonic(RecurrentAttention[Tensor]):
    """α_ij = p_ij q_ij, q_ij = (1 − p_{i,j−1}) q_{i,j−1} + α_{i−1,j}, p = σ(score + r)  (Raffel et al. 2017).

    From the last stop, a step moves on key by key and stops at j with probability p_ij; α is the expectation of the
    stops. A step may pass the last key: its weights then sum to less than one. With `chunk` the step attends to the
    keys that end at the stop  (MoChA, Chiu and Raffel 2018). In training, energies get Gaussian noise of deviation
    `noise`, which drives p to 0 and 1; `offset` is the initial value of r. In evaluation there is no noise, and `stop`
    decides where a step stops: `FirstStop()`, hard, by default; `ExpectedStop()` keeps the expectation. The state of
    both is the logarithm of the last step's alignment, "*b k", at first that of a stop at the first key; a step past
    the last key reads zeros, as do all later steps.

        cache = layer.project_kv(h);  state = layer.start(cache)
        attended, state = layer.step(s, cache, state)          "*b 1 d" -> "*b 1 v"

    `layer(q, h)` runs all steps in order.
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
        """Projects the keys once, with those of the chunk behind them, for many steps."""
        keys = [self.score.keys(k)] + ([] if self.chunk is None else [self.chunk.score.keys(k)])
        return KVCache(torch.cat(keys, dim=-1), k if v is None else v)

    def first_state(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        # sums over the keys are long: float64 wherever the device has it
        dtype = torch.float32 if like.device.type == "mps" else torch.float64
        state = torch.full(shape, -math.inf, dtype=dtype, device=like.device)
        state[..., :1] = 0.0
        return state

    def run_steps(self, call: AttentionCall, is_cached: bool, state: Tensor) -> tuple[Tensor, Tensor]:
        energies, scores = self._energies(call, is_cached)
        allowed = whole_mask(call)
        # a hard stop has no gradient: training uses the expectation
        stop = ExpectedStop() if self.training else self.stop

        def step(before: Tensor, row: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
            after = stop.after(row, mask, before)
            return after, after.exp()

        rows = [energies] if allowed is None else [energies, allowed]
        weights, state = run_rows(step, state, rows, state.unsqueeze(-2)[..., :0, :])
        if self.chunk is not None and scores is not None:
            weights = self.chunk.key_weights(weights, scores.to(weights.dtype), allowed)
        return weights, state

    def _energies(self, call: AttentionCall, is_cached: bool) -> tuple[Tensor, Tensor | None]:  # "*b q k" both
        """The energy of stopping at each key, and the chunk's score of it."""
        all_scores = [self.score] + ([] if self.chunk is None else [self.chunk.score])
        queries = []
        for score in all_scores:
            score.check(call.q, None if is_cached else call.keys)
            queries.append(score.queries(call.q))
        if is_cached:
            keys = list(call.keys.split([q.shape[-1] for q in queries], dim=-1))
        else:
            keys = [score.keys(call.keys) for score in all_scores]
        energies, *scores = [
            score_pairs(score, score_queries, call.expand_kv_heads(score_keys))
            for score, score_queries, score_keys in zip(all_scores, queries, keys, strict=True)
        ]
        energies = energies + self.offset.to(energies.dtype)
        if self.training and self.noise:
            energies = energies + self.noise * torch.empty_like(energies).normal_(generator=call.generator)
        return energies, scores[0] if scores else None

    def extra_repr(self) -> str:
        return f"noise={self.noise:g}, stop={self.stop}"
