"""Normalizers: functions from scores to weights, in float32 at least. A row without an allowed key gets zeros."""

import math
from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn.terms.learnable import Learnable, format_number, per_head
from regard.common import checks
from regard.kernels import sparsemax
from regard.kernels.precision import widen

__all__ = [
    "Entmax",
    "Identity",
    "NormalizedSigmoid",
    "Normalizer",
    "ReLU",
    "Sigmoid",
    "Softmax",
    "Softpick",
    "Sparsemax",
    "StickBreaking",
    "Sum",
    "TopK",
    "WithNullSlot",
]


class Normalizer(nn.Module):
    """weights = normalize(scores, allowed) over the last axis.  To define one, subclass and implement `weights`.

    Keys that are masked for all queries of a block may be missing from the scores: count keys by `allowed`, not by the
    shape.
    """

    # whether the weights of a row with an allowed key sum to one
    distribution: bool = True
    # whether the weights depend on the order of the keys
    reads_order: bool = False
    # whether the weights of a head depend on those of others
    mixes_heads: bool = False
    # whether a score of −inf gets weight zero, and a row of them all zeros, without a mask
    hides_infinite: bool = False

    @abstractmethod
    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:  # "*b q k", bool -> "*b q k", float32 at least
        """The weights; zero, with zero gradient, where `allowed` is False and in rows without an allowed key."""

    def forward(self, scores: Tensor, allowed: Tensor | None = None) -> Tensor:  # "*b q k" -> "*b q k"
        """The weights of scores in which −inf also means masked."""
        if self.hides_infinite:
            return self.weights(scores, allowed).to(scores.dtype)
        is_finite = scores > -math.inf
        return self.weights(scores, is_finite if allowed is None else is_finite & allowed).to(scores.dtype)


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
        scores = widen(scores)
        if self.log_temperature is not None:
            return scores * torch.exp(-per_head(self.log_temperature, scores, self))
        assert self.temperature is not None
        return scores if self.temperature == 1.0 else scores / self.temperature

    def _zero_masked(self, scores: Tensor, masked: Tensor) -> Tensor:
        """With a trained temperature, zeroes the masked scores: its gradient must not meet an infinite score."""
        return scores if self.log_temperature is None else scores.masked_fill(masked, 0.0)

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        if allowed is None:
            return torch.softmax(self.scaled(scores), dim=-1)
        masked = ~allowed
        scores = self.scaled(self._zero_masked(scores, masked))
        # the least finite number instead of -inf: an empty row stays finite, and the second fill makes it zero
        return torch.softmax(scores.masked_fill(masked, torch.finfo(scores.dtype).min), dim=-1).masked_fill(masked, 0.0)

    def lse(self, scores: Tensor, allowed: Tensor | None) -> Tensor:  # "*b q k" -> "*b q"
        """log Σ exp(s / T) of every row: −inf for a row without an allowed key."""
        if allowed is None:
            return torch.logsumexp(self.scaled(scores), dim=-1)
        scores = self.scaled(self._zero_masked(scores, ~allowed))
        empty = ~allowed.any(-1)
        least = torch.finfo(scores.dtype).min
        return torch.logsumexp(scores.masked_fill(~allowed, least), dim=-1).masked_fill(empty, -math.inf)

    def extra_repr(self) -> str:
        return "" if self.temperature == 1.0 else f"temperature={format_number(self.temperature or Learnable(1.0))}"


class Sigmoid(Normalizer):
    """σ(s_j + b): an independent weight per key; b = −log k keeps the sum near one  (Ramapuram et al. 2024)."""

    distribution = False

    def __init__(self, bias: float | Learnable = 0.0) -> None:
        super().__init__()
        self.bias = bias.parameter(bias.init) if isinstance(bias, Learnable) else bias

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        scores = widen(scores)
        bias = per_head(self.bias, scores, self) if isinstance(self.bias, Tensor) else self.bias
        if allowed is None:
            return torch.sigmoid(scores + bias)
        # filled before the sigmoid, too: the derivative of an infinite score must not meet a zero gradient
        return torch.sigmoid(scores.masked_fill(~allowed, 0.0) + bias).masked_fill(~allowed, 0.0)

    def extra_repr(self) -> str:
        return f"bias={format_number(self.bias)}"


class NormalizedSigmoid(Normalizer):
    """σ(s_j) / Σ σ(s): several keys can get equally great weights  (Chorowski et al. 2015, 2.3)."""

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        # as a softmax of logarithms it neither overflows nor divides by zero
        scores = widen(scores)
        scores = scores if allowed is None else scores.masked_fill(~allowed, 0.0)
        return Softmax().weights(F.logsigmoid(scores), allowed)


class Sparsemax(Normalizer):
    """max(s_j − τ, 0) with τ such that the row sums to one  (Martins and Astudillo 2016)."""

    hides_infinite = True

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        return sparsemax.sparsemax(widen(scores), allowed)


# bounds of a trained α: _MIN_ALPHA and 3 − _MIN_ALPHA; nearer to 1 the power 1/(α − 1) loses precision
_MIN_ALPHA = 1.001


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
            if not _MIN_ALPHA < alpha.init < 3 - _MIN_ALPHA:
                raise ValueError(
                    f"alpha must start between 1 and 2 when it is trained, got {alpha.init}; try Learnable(1.5)"
                )
            share = (alpha.init - _MIN_ALPHA) / (3 - 2 * _MIN_ALPHA)
            self.raw_alpha = alpha.parameter(math.log(share / (1 - share)))
        else:
            checks.number("alpha", alpha, "Entmax", "1.5")
            if not 1.0 < alpha < math.inf:
                raise ValueError(
                    f"alpha must be above 1 for Entmax, got {alpha}; "
                    "use Softmax() for alpha = 1, Entmax(1.5) or Sparsemax() above it"
                )
            self.alpha = float(alpha)

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        scores = widen(scores)
        if self.raw_alpha is None:
            assert self.alpha is not None
            return sparsemax.entmax(scores, self.alpha, allowed)
        share = torch.sigmoid(per_head(self.raw_alpha, scores, self))
        return sparsemax.entmax(scores, _MIN_ALPHA + (3 - 2 * _MIN_ALPHA) * share, allowed)

    def extra_repr(self) -> str:
        return format_number(self.alpha or Learnable(1.5))


def divide_by_greatest(t: Tensor, dim: int | tuple[int, ...] = -1) -> Tensor:
    """t over its greatest magnitude along `dim`, so that no sum overflows; zeros stay zeros.

    Denormal numbers get no gradient: it would exceed every number of the type.
    """
    if 0 in t.shape:
        return t
    fixed = t.detach()
    greatest = torch.maximum(fixed.amax(dim, keepdim=True), -fixed.amin(dim, keepdim=True))
    if t.requires_grad and torch.is_grad_enabled():
        t = torch.where(greatest < torch.finfo(t.dtype).tiny, t.detach(), t)
    return t / greatest.masked_fill(greatest == 0, 1.0)


class Sum(Normalizer):
    """s_j / Σ s: for scores that are nowhere negative, such as Kernel's  (Katharopoulos et al. 2020, eq. 3)."""

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        scores = widen(scores)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, 0.0)
        scores = divide_by_greatest(scores)
        total = scores.sum(-1, keepdim=True)
        empty = total == 0
        return (scores / total.masked_fill(empty, 1.0)).masked_fill(empty, 0.0)


class Identity(Normalizer):
    """s_j: the scores are the weights, out = (QKᵀ) V; training may start linearly so  (Sukhbaatar et al. 2015)."""

    distribution = False

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        scores = widen(scores)
        return scores if allowed is None else scores.masked_fill(~allowed, 0.0)


class ReLU(Normalizer):
    """max(s_j, 0)^p / n, n the number of allowed keys  (Wortsman et al. 2023, p = 1; relu² as Hua et al. 2022, p = 2).

    Rows do not sum to one: keys do not compete, and a key with a score below 0 gets nothing.
    """

    distribution = False

    def __init__(self, power: float = 1.0) -> None:
        super().__init__()
        checks.number("power", power, "ReLU", "2.0")
        if not 1.0 <= power < math.inf:
            raise ValueError(f"power must be 1 or more for ReLU, got {power}; try ReLU() or ReLU(2.0)")
        self.power = power

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        scores = widen(scores)
        if allowed is None:
            count: Tensor | int = max(scores.shape[-1], 1)
        else:
            scores, allowed = torch.broadcast_tensors(scores, allowed)
            count = allowed.sum(-1, keepdim=True).clamp_min(1)
            scores = scores.masked_fill(~allowed, 0.0)
        positive = torch.relu(scores)
        return (positive if self.power == 1.0 else positive**self.power) / count

    def extra_repr(self) -> str:
        return "" if self.power == 1.0 else f"power={self.power:g}"


class Softpick(Normalizer):
    """max(e^{s_j} − 1, 0) / (Σ |e^s − 1| + ε), over the allowed keys  (Zuhri et al. 2025).

    A score below 0 gets the weight 0 and still takes from the others: rows sum to at most one, and to zero if no score
    is above 0. No key need serve as a sink.
    """

    distribution = False

    def __init__(self, eps: float = 1e-6) -> None:
        super().__init__()
        checks.positive("eps", eps, "Softpick")
        self.eps = eps

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        scores = widen(scores)
        if scores.shape[-1] == 0:
            return scores
        if allowed is not None:
            scores = scores.masked_fill(~allowed, 0.0)  # e^0 − 1 adds nothing
        # all terms are divided by e^m, m ≥ 0: |e^s − 1| / e^m = e^(max(s, 0) − m) (1 − e^−|s|) neither overflows nor
        # loses the digits of a small s
        greatest = scores.detach().amax(-1, keepdim=True).clamp_min(0.0)
        sizes = torch.exp(torch.relu(scores) - greatest) * -torch.expm1(-scores.abs())
        return sizes * (scores > 0) / (sizes.sum(-1, keepdim=True) + self.eps * torch.exp(-greatest))

    def extra_repr(self) -> str:
        return "" if self.eps == 1e-6 else f"eps={self.eps:g}"


class StickBreaking(Normalizer):
    """σ(s_j) Π_{l > j} (1 − σ(s_l)): the nearest key takes its share first  (Tan et al. 2025, stick-breaking).

    Keys are in the order of their columns, the last allowed one is the nearest. In a causal model mask the query
    itself, too, `~Window(0, None)`: j < i, as the paper does. A row sums to one minus the remainder Π (1 − σ(s)).
    """

    distribution = False
    reads_order = True

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        scores = widen(scores)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, 0.0)
        passed = F.logsigmoid(-scores)
        if allowed is not None:
            passed = passed.masked_fill(~allowed, 0.0)
        # the sum over the later keys alone: the difference of two sums would lose the digits of small ones
        later = F.pad(passed, (0, 1))[..., 1:].flip(-1).cumsum(-1).flip(-1)
        weights = torch.exp(F.logsigmoid(scores) + later)
        return weights if allowed is None else weights.masked_fill(~allowed, 0.0)


class TopK(Normalizer):
    """normalize(s) among the k greatest scores of a row, zero elsewhere  (Gupta et al. 2021)."""

    def __init__(self, k: int, normalize: Normalizer | None = None) -> None:
        super().__init__()
        checks.positive_ints("TopK", k=k)
        self.k = k
        self.normalize = Softmax() if normalize is None else normalize
        self.distribution, self.reads_order = self.normalize.distribution, self.normalize.reads_order

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        is_compiling = torch.compiler.is_compiling()
        if not is_compiling and self.k >= scores.shape[-1]:
            return self.normalize.weights(scores, allowed)
        ranked = scores if allowed is None else scores.masked_fill(~allowed, -math.inf)
        # compiled code would hold either for more than k keys or for fewer
        candidates = F.pad(ranked, (0, self.k), value=-math.inf) if is_compiling else ranked
        least = candidates.topk(self.k, dim=-1).values[..., -1:]
        # ties are broken by position: torch.topk would let masked keys decide
        above, equal = ranked > least, ranked == least
        is_top = above | (equal & (equal.cumsum(-1) <= self.k - above.sum(-1, keepdim=True)))
        return self.normalize.weights(scores, is_top if allowed is None else is_top & allowed)

    def extra_repr(self) -> str:
        return str(self.k)


class WithNullSlot(Normalizer):
    """normalize([s; n]) without its last entry: a null slot with score n takes the weight of a query that matches no
    key.

    The unaligned word of translation  (Brown et al. 1993, the empty word); with softmax and n = 0 softmax1, or off by
    one  (Miller 2023); with one n per head, `Learnable(0.0, heads=8)`, the attention sinks of gpt-oss  (OpenAI 2025).
    """

    distribution = False

    def __init__(self, normalize: Normalizer | None = None, score: float | Learnable | Tensor = 0.0) -> None:
        super().__init__()
        if normalize is not None:
            checks.instance_of("normalize", normalize, Normalizer, "Softmax()")
        if not isinstance(score, Learnable | Tensor):
            checks.number("score", score, "WithNullSlot", "0.0")
        self.normalize = Softmax() if normalize is None else normalize
        self.reads_order = self.normalize.reads_order
        self.score: float | Tensor = score.parameter(score.init) if isinstance(score, Learnable) else score

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        null_score = per_head(self.score, scores, self) if isinstance(self.score, Tensor) else self.score
        if allowed is not None:
            scores, allowed = torch.broadcast_tensors(scores, allowed)  # the mask may have a batch that only v has
        slot = scores.new_zeros(*scores.shape[:-1], 1) + null_score
        if allowed is not None:
            allowed = torch.cat([allowed, torch.ones_like(slot, dtype=torch.bool)], dim=-1)
        return self.normalize.weights(torch.cat([scores, slot], dim=-1), allowed)[..., :-1]

    def extra_repr(self) -> str:
        return f"score={format_number(self.score)}"
