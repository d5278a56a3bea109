"""PointerGenerator: a vocabulary layer that can also copy tokens of what was read, by attention."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn.call import Need
from regard.attn.layer import Attention
from regard.attn.terms.mask import BooleanMask
from regard.common import checks


class CopySource(NamedTuple):
    """The tokens that can be copied."""

    keys: Tensor  # "b s d", of PointerGenerator.keys
    tokens: Tensor  # "b s"
    mask: Tensor  # bool, broadcasts to "b t s": which of them each step may copy

    def select(self, index: Tensor) -> "CopySource":  # "b2"
        return CopySource(*(part[index] for part in self))


class CopyMixture(NamedTuple):
    """The two parts of p at every step."""

    log_generate: Tensor  # "b t", log g
    copied: Tensor  # "b t s", (1 − g) α
    weights: Tensor  # "b t s", α


class PointerGenerator(nn.Module):
    """p(w) = g softmax(logits)_w + (1 − g) Σ_{j: x_j = w} α_j, α = softmax(Q s · K h_j / √d), g = σ(u · s + c).

    (See et al. 2017, eq. 8 and 9; there g also reads the input and the context, which here are in the state s of the
    decoder.) h_j are states at the tokens x_j that can be copied. Where there are none, g = 1.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        checks.positive_ints("PointerGenerator", dim=dim)
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim, bias=False)
        self.gate = nn.Linear(dim, 1)
        self.attention = Attention()
        for layer in (self.query, self.key):
            nn.init.normal_(layer.weight, std=dim**-0.5)
        nn.init.zeros_(self.query.bias)
        nn.init.normal_(self.gate.weight, std=0.02)
        # mostly the vocabulary at first: g = 0.88
        nn.init.constant_(self.gate.bias, 2.0)

    def keys(self, states: Tensor) -> Tensor:  # "b s d" -> "b s d"
        return self.key(states)

    def mixture(self, states: Tensor, source: CopySource) -> CopyMixture:  # "b t d"
        mask = source.mask.expand(*states.shape[:2], -1)
        has_source = mask.any(-1)  # "b t"
        if not source.keys.shape[1]:
            weights = states.new_zeros(*states.shape[:2], 0)
        else:
            attended = self.attention.attend(
                self.query(states), source.keys, mask=BooleanMask(mask), need=Need(weights=True)
            )
            assert attended.weights is not None
            weights = attended.weights
        gate = self.gate(states).squeeze(-1)
        log_generate = F.logsigmoid(gate).masked_fill(~has_source, 0.0)
        return CopyMixture(log_generate, torch.sigmoid(-gate).unsqueeze(-1) * weights, weights)

    def log_probs(self, logits: Tensor, mixture: CopyMixture, source: CopySource) -> Tensor:  # "b t v" -> "b t v"
        """log p of all tokens: logits whose softmax is p."""
        places = source.tokens.unsqueeze(1).expand_as(mixture.copied)
        dtype = _wide(logits.dtype)
        copied = torch.zeros_like(logits, dtype=dtype).scatter_add(2, places, mixture.copied.to(dtype))
        log_generated = mixture.log_generate.unsqueeze(-1) + logits.log_softmax(-1, dtype)
        return _log_sum(log_generated, copied).to(logits.dtype)

    def token_log_probs(
        self, log_p: Tensor, mixture: CopyMixture, source: CopySource, targets: Tensor
    ) -> Tensor:  # "b t", "b t" -> "b t"
        """log p of the targets, by their log p in the softmax of the vocabulary."""
        is_target = source.tokens.unsqueeze(1) == targets.unsqueeze(-1)
        copied = (mixture.copied * is_target).sum(-1, dtype=_wide(log_p.dtype))
        return _log_sum(mixture.log_generate + log_p, copied).to(log_p.dtype)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """A type whose least number is no probability that counts, as it is in float16."""
    return torch.promote_types(dtype, torch.float32)


def _log_sum(log_generated: Tensor, copied: Tensor) -> Tensor:
    """log(exp(log_generated) + copied), where `copied` may be zero, with finite gradients."""
    return torch.logaddexp(log_generated, copied.clamp_min(torch.finfo(copied.dtype).tiny).log())
