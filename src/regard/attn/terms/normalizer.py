"""Normalizers: how do scores become weights?  In float32 at least; a row that may look at nothing gives zeros."""

import math
from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn import checks
from regard.attn.terms.learnable import Learnable, of_heads, say
from regard.kernels import sparsemax


class Normalizer(nn.Module):
    """weights = normalize(scores, allowed) over the last axis.  One of your own: subclass, write `weights`.

    Keys that no query of a block may look at may be left out of the scores: count by `allowed`, not by their width.
    """

    # do the weights of a row that may look somewhere sum to one?
    distribution: bool = True
    # does a score of −inf get weight zero, and a row of them all zeros, without being told?
    hides_infinite: bool = False

    @abstractmethod
    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:  # "*b q k", bool -> "*b q k", float32 at least
        """The weights; zero, with zero gradient, where `allowed` is False and in rows with nothing allowed."""

    def forward(self, scores: Tensor, allowed: Tensor | None = None) -> Tensor:  # "*b q k" -> "*b q k"
        """The weights of scores in which −inf, too, means: may not look."""
        if self.hides_infinite:
            return self.weights(scores, allowed).to(scores.dtype)
        seen = scores > -math.inf
        return self.weights(scores, seen if allowed is None else seen & allowed).to(scores.dtype)


class Softmax(Normalizer):
    """exp(s_j / T) / Σ exp(s / T)  (Bahdanau et al. 2015, eq. 6; T is the temperature of Hinton et al. 2015)."""

    def __init__(self, temperature: float | Learnable = 1.0) -> None:
        super().__init__()
        self.log_temperature: nn.Parameter | None = None
        self.temperature: float | None = None
        if isinstance(temperature, Learnable):
            checks.positive("temperature", temperature.init, "Softmax")
            self.log_temperature = temperature.parameter(math.log(temperature.init))
        else:
            checks.positive("temperature", temperature, "Softmax")
            self.temperature = temperature

    def scaled(self, scores: Tensor) -> Tensor:
        """s / T, in float32 at least."""
        scores = scores.to(checks.widened(scores.dtype))
        if self.log_temperature is not None:
            return scores * torch.exp(-of_heads(self.log_temperature, scores, self))
        assert self.temperature is not None
        return scores if self.temperature == 1.0 else scores / self.temperature

    def _seen(self, scores: Tensor, hidden: Tensor) -> Tensor:
        """Without what is hidden, where the temperature is trained: its gradient would meet an infinite score."""
        return scores if self.log_temperature is None else scores.masked_fill(hidden, 0.0)

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        if allowed is None:
            return torch.softmax(self.scaled(scores), dim=-1)
        hidden = ~allowed
        scores = self.scaled(self._seen(scores, hidden))
        # the least number instead of -inf: an empty row stays finite, and the second fill makes it zero
        return torch.softmax(scores.masked_fill(hidden, torch.finfo(scores.dtype).min), dim=-1).masked_fill(hidden, 0.0)

    def lse(self, scores: Tensor, allowed: Tensor | None) -> Tensor:  # "*b q k" -> "*b q"
        """log Σ exp(s / T), the rows' constant: −inf for a row that may look at nothing."""
        if allowed is None:
            return torch.logsumexp(self.scaled(scores), dim=-1)
        scores = self.scaled(self._seen(scores, ~allowed))
        empty = ~allowed.any(-1)
        least = torch.finfo(scores.dtype).min
        return torch.logsumexp(scores.masked_fill(~allowed, least), dim=-1).masked_fill(empty, -math.inf)

    def extra_repr(self) -> str:
        return "" if self.temperature == 1.0 else f"temperature={say(self.temperature or Learnable(1.0))}"


class Sigmoid(Normalizer):
    """σ(s_j + b): every key for itself; b = −log k keeps the sum near one  (Ramapuram et al. 2024)."""

    distribution = False

    def __init__(self, bias: float | Learnable = 0.0) -> None:
        super().__init__()
        self.bias = bias.parameter(bias.init) if isinstance(bias, Learnable) else bias

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        scores = scores.to(checks.widened(scores.dtype))
        bias = of_heads(self.bias, scores, self) if isinstance(self.bias, Tensor) else self.bias
        if allowed is None:
            return torch.sigmoid(scores + bias)
        # filled before, too: the slope of an infinite score must not meet a zero gradient
        return torch.sigmoid(scores.masked_fill(~allowed, 0.0) + bias).masked_fill(~allowed, 0.0)

    def extra_repr(self) -> str:
        return f"bias={say(self.bias)}"


class NormalizedSigmoid(Normalizer):
    """σ(s_j) / Σ σ(s): several keys may be looked at alike  (Chorowski et al. 2015, 2.3)."""

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        # as a softmax of logarithms it neither overflows nor divides by zero
        scores = scores.to(checks.widened(scores.dtype))
        hidden = scores if allowed is None else scores.masked_fill(~allowed, 0.0)
        return Softmax().weights(F.logsigmoid(hidden), allowed)


class Sparsemax(Normalizer):
    """max(s_j − τ, 0) with τ such that the row sums to one  (Martins and Astudillo 2016)."""

    hides_infinite = True

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        return sparsemax.sparsemax(scores.to(checks.widened(scores.dtype)), allowed)


# a trained α stays between this and as far below 2: nearer to 1 the power 1/(α − 1) loses its digits
_LEAST = 1.001


class Entmax(Normalizer):
    """max((α−1) s_j − τ, 0)^(1/(α−1))  (Peters et al. 2019; `Learnable(1.5)` learns α in (1, 2), Correia et al. 2019).

    α = 1 is Softmax, α = 2 is Sparsemax, between them weights can be exactly zero.
    """

    hides_infinite = True

    def __init__(self, alpha: float | Learnable = 1.5) -> None:
        super().__init__()
        self.raw_alpha: nn.Parameter | None = None
        self.alpha: float | None = None
        if isinstance(alpha, Learnable):
            if not _LEAST < alpha.init < 3 - _LEAST:
                raise ValueError(
                    f"alpha must start between 1 and 2 when it is trained, got {alpha.init}; try Learnable(1.5)"
                )
            share = (alpha.init - _LEAST) / (3 - 2 * _LEAST)
            self.raw_alpha = alpha.parameter(math.log(share / (1 - share)))
        else:
            checks.number("alpha", alpha, "Entmax")
            if not 1.0 < alpha < math.inf:
                raise ValueError(
                    f"alpha must be above 1 for Entmax, got {alpha}; "
                    "use Softmax() for alpha = 1, Entmax(1.5) or Sparsemax() above it"
                )
            self.alpha = float(alpha)

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        scores = scores.to(checks.widened(scores.dtype))
        if self.raw_alpha is None:
            assert self.alpha is not None
            return sparsemax.entmax(scores, self.alpha, allowed)
        share = torch.sigmoid(of_heads(self.raw_alpha, scores, self))
        return sparsemax.entmax(scores, _LEAST + (3 - 2 * _LEAST) * share, allowed)

    def extra_repr(self) -> str:
        return say(self.alpha or Learnable(1.5))


class Sum(Normalizer):
    """s_j / Σ s: for scores that are nowhere negative, such as Kernel's  (Katharopoulos et al. 2020, eq. 3)."""

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        scores = scores.to(checks.widened(scores.dtype))
        if allowed is not None:
            scores = scores.masked_fill(~allowed, 0.0)
        total = scores.sum(-1, keepdim=True)
        empty = total == 0
        return (scores / total.masked_fill(empty, 1.0)).masked_fill(empty, 0.0)


class Identity(Normalizer):
    """s_j: the scores themselves are the weights, as long as training starts linearly  (Sukhbaatar et al. 2015)."""

    distribution = False

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        scores = scores.to(checks.widened(scores.dtype))
        return scores if allowed is None else scores.masked_fill(~allowed, 0.0)


class TopK(Normalizer):
    """normalize(s) among the k greatest scores of a row, zero elsewhere  (Gupta et al. 2021)."""

    def __init__(self, k: int, normalize: Normalizer | None = None) -> None:
        super().__init__()
        checks.sizes("TopK", k=k)
        self.k = k
        self.normalize = Softmax() if normalize is None else normalize
        self.distribution = self.normalize.distribution

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        if self.k >= scores.shape[-1]:
            return self.normalize.weights(scores, allowed)
        ranked = scores if allowed is None else scores.masked_fill(~allowed, -math.inf)
        least = ranked.topk(self.k, dim=-1).values[..., -1:]
        # among equals the first: torch.topk would choose by where the hidden ones stand
        above, equal = ranked > least, ranked == least
        best = above | (equal & (equal.cumsum(-1) <= self.k - above.sum(-1, keepdim=True)))
        return self.normalize.weights(scores, best if allowed is None else best & allowed)

    def extra_repr(self) -> str:
        return str(self.k)


class WithNullSlot(Normalizer):
    """normalize([s; n]) without its last: a query may look at nothing, at the price of the score n.

    The unaligned word of translation  (Brown et al. 1993, the empty word; with softmax and n = 0 Miller 2023).
    """

    distribution = False

    def __init__(self, normalize: Normalizer | None = None, score: float | Learnable = 0.0) -> None:
        super().__init__()
        self.normalize = Softmax() if normalize is None else normalize
        self.score = score.parameter(score.init) if isinstance(score, Learnable) else score

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        price = of_heads(self.score, scores, self) if isinstance(self.score, Tensor) else self.score
        slot = scores.new_zeros(*scores.shape[:-1], 1) + price
        if allowed is not None:
            allowed = torch.cat([allowed.expand(scores.shape), torch.ones_like(slot, dtype=torch.bool)], dim=-1)
        return self.normalize.weights(torch.cat([scores, slot], dim=-1), allowed)[..., :-1]

    def extra_repr(self) -> str:
        return f"score={say(self.score)}"
