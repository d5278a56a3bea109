"""One sampled token per row of scores, and how close the choice was: a margin, as `Margins` has them."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from regard.common import checks
from regard.decoding.margins import NOISE
from regard.kernels.continuations import gap
from regard.kernels.stable_topk import stable_topk

# the constants of splitmix64 as signed numbers (Steele et al. 2014)
_GOLDEN, _FIRST, _SECOND = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15
_BITS = 52  # bits of the uniform numbers: half a unit more is still a double


@dataclass(frozen=True)
class TokenSampler:
    """The options by which the tokens of a text are sampled; `sample` describes each number."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None

    def __post_init__(self) -> None:
        checks.positive("temperature", self.temperature, "sample")
        if self.top_k is not None:
            checks.positive_ints("sample", top_k=self.top_k)
        if self.top_p is not None:
            checks.number("top_p", self.top_p, "sample")
            if not 0 < self.top_p <= 1:
                raise ValueError(
                    f"top_p must be above 0 and at most 1, got {self.top_p}; 1 keeps everything, try top_p=0.9"
                )
        if self.min_p is not None:
            checks.number("min_p", self.min_p, "sample")
            if not 0 <= self.min_p <= 1:
                raise ValueError(f"min_p must be from 0 to 1, got {self.min_p}; 0 keeps everything, try min_p=0.05")
        if self.repetition_penalty is not None:
            checks.positive("repetition_penalty", self.repetition_penalty, "sample")

    @property
    def penalty(self) -> float | None:
        """The penalty of repeated tokens; None: none, or one that changes nothing."""
        return None if self.repetition_penalty == 1.0 else self.repetition_penalty


class SampledTokens(NamedTuple):
    """The result of `sample_tokens`."""

    tokens: Tensor  # "r"
    margins: Tensor | None  # "r", if requested


def sample_tokens(
    scores: Tensor, sampler: TokenSampler, chance: Tensor, *, need_margins: bool = False
) -> SampledTokens:  # "r v", "r 1"
    """argmax over the tokens that are left of score / temperature + g, g ~ Gumbel: a sample of their softmax
    (Maddison et al. 2014).

    g is a function of `chance`, a number from 0 to 1 per row, and of the token. Of two tokens one is chosen by the
    difference of their scores, whatever the others are: noise in the scores rarely decides. A margin is a bound: the
    same token is sampled if no score changes, relative to 1 + |score|, by more than half the margin or half of `NOISE`.
    """
    values, ids = truncate(scores, sampler.temperature, sampler.top_k, sampler.top_p, sampler.min_p)
    is_kept = values > -torch.inf
    if ids is None:
        ids = torch.arange(scores.shape[-1], device=scores.device).expand_as(scores)
    best = (values.double() + gumbels(chance, ids)).masked_fill(~is_kept, -torch.inf).argmax(-1, keepdim=True)
    tokens = ids.gather(-1, best)
    margins = None
    if need_margins:
        kept = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, ids, is_kept)
        margins = _margins(scores, sampler, chance, kept, tokens)
    return SampledTokens(tokens.squeeze(-1), margins)


def gumbels(chance: Tensor, ids: Tensor) -> Tensor:  # "r 1", "r k" -> "r k"
    """−log(−log u), u the uniform number that a hash makes of the bits of `chance` and of an id."""
    hashed = _mix(_mix(chance.double().view(torch.long)) + (ids + 1) * _GOLDEN)
    u = (_shift_right(hashed, 64 - _BITS).double() + 0.5) / 2**_BITS
    return -(-u.log()).log()


def _mix(bits: Tensor) -> Tensor:  # int64, whose products wrap around
    bits = (bits ^ _shift_right(bits, 30)) * _FIRST
    bits = (bits ^ _shift_right(bits, 27)) * _SECOND
    return bits ^ _shift_right(bits, 31)


def _shift_right(bits: Tensor, count: int) -> Tensor:
    """Shifted to the right, with zeros from the left."""
    return (bits >> count) & ((1 << (64 - count)) - 1)


def truncate(
    scores: Tensor, temperature: float, top_k: int | None, top_p: float | None, min_p: float | None = None
) -> tuple[Tensor, Tensor | None]:  # "r v" -> "r k", "r k"
    """The log-probabilities that are sampled from, and their ids (None: 0, 1, …)."""
    # The largest is subtracted first, so that no temperature, however small, makes an infinity of it.
    info = torch.finfo(scores.dtype)
    scaled = (scores - scores.amax(-1, keepdim=True)) / min(max(temperature, info.tiny), info.max)
    ids = None
    if top_k is not None and top_k < scaled.shape[-1]:
        scaled, ids = stable_topk(scaled, top_k)
    elif top_p is not None and top_p < 1:
        scaled, ids = scaled.sort(dim=-1, descending=True, stable=True)
    scaled = scaled.log_softmax(-1)
    if top_p is not None and top_p < 1:
        p = scaled.exp()
        scaled = scaled.masked_fill(p.cumsum(-1) - p >= max(top_p, info.tiny), -torch.inf).log_softmax(-1)
    if min_p is not None:
        p = scaled.exp()
        scaled = scaled.masked_fill(p < min_p * p.amax(-1, keepdim=True), -torch.inf).log_softmax(-1)
    return scaled, ids


def _margins(
    scores: Tensor, sampler: TokenSampler, chance: Tensor, kept: Tensor, tokens: Tensor
) -> Tensor:  # "r v", …, "r 1", bool "r v", "r 1" -> "r"
    """The noise that each sampled token withstands: its lead over all others that are left, or that noise might leave.

    Whether noise drops or adds a token matters only if it is the sampled one, or would have been.
    """
    exact, ids = scores.double(), torch.arange(scores.shape[-1], device=scores.device)
    size = (1 + exact.abs()).masked_fill(exact == -torch.inf, 0.0)
    is_open = _is_open(exact, size, sampler, kept)
    scaled = exact + sampler.temperature * gumbels(chance, ids.expand_as(scores))
    lead = 2 * (scaled.gather(-1, tokens) - scaled) / (size.gather(-1, tokens) + size)
    is_rival = (kept | is_open) & (ids != tokens)
    lead = lead.masked_fill(~is_rival, torch.inf).amin(-1, keepdim=True)
    return lead.clamp(min=0.0).masked_fill(is_open.gather(-1, tokens), 0.0).squeeze(-1)


def _is_open(scores: Tensor, size: Tensor, sampler: TokenSampler, kept: Tensor) -> Tensor:  # "r v" each -> bool "r v"
    """The tokens that are kept or dropped by so little that noise may decide it."""
    is_open = torch.zeros_like(kept)
    temperature = max(sampler.temperature, torch.finfo(scores.dtype).tiny)
    best = scores.amax(-1, keepdim=True)
    scaled = (scores - best) / temperature
    has_top_p = sampler.top_p is not None and sampler.top_p < 1
    if has_top_p or sampler.top_k is not None:
        # a cut in the order of scores lies between the lowest that is kept and the highest that is dropped
        lowest = scores.masked_fill(~kept, torch.inf).amin(-1, keepdim=True)
        highest = scores.masked_fill(kept, -torch.inf).amax(-1, keepdim=True)
        is_open |= gap(scores, torch.where(kept, highest, lowest)) <= NOISE
    if has_top_p:
        assert sampler.top_p is not None
        ranked, order = scaled.sort(dim=-1, descending=True)
        p = ranked[:, : sampler.top_k].softmax(-1)
        order = order[:, : sampler.top_k]
        # derivative of a sum of p with respect to the scores
        rate = (p * size.gather(-1, order)).sum(-1, keepdim=True) / temperature
        is_near = (p.cumsum(-1) - p - sampler.top_p).abs() <= NOISE * rate
        is_near[:, 0] = False  # always kept
        is_open |= torch.zeros_like(kept).scatter(-1, order, is_near)
    if sampler.min_p:
        excess = scaled - math.log(sampler.min_p)
        is_open |= excess.abs() <= NOISE * (size + 1 + best.abs()) / temperature
    return is_open
