"""adversarial_map: the most different attention that gives the same output  (Jain and Wallace 2019, section 4.2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.attribution.attention import record_maps
from regard.attribution.base import ExplainedLogit
from regard.common.eval_mode import eval_mode
from regard.inference.embedded_classifier import reading_rows
from regard.interop.intervene import intervene

# the weight of an output that moves too far in the loss (λ of Jain and Wallace), and the rate of Adam
_PENALTY, _RATE = 500.0, 0.2


@dataclass(frozen=True, eq=False)
class AdversarialMap:
    """Other weights of one layer that keep the output of the model."""

    layer: str  # as `regard.intervene` names it
    weights: tuple[Tensor, ...]  # "b *h q k" of each call of the layer
    distance: float  # the Jensen–Shannon divergence from the model's own weights, mean over rows; at most ln 2
    change: float  # ½ Σ |p̃ − p| of the classes: at most the tolerance
    rows: list[int] | None  # the queries that the classes are read from; None: all

    @property
    def scores(self) -> Tensor:  # "k"
        """The weight of each key in the first call, as the method attention reads it."""
        rows = self.weights[0].flatten(0, -3).mean(0)
        return (rows if self.rows is None else rows[self.rows]).mean(0)

    def replacement(self) -> "GivenMaps":
        """The weights for `regard.intervene(model, found.replacement(), layers=found.layer)`."""
        return GivenMaps(self.weights)


class _LearnedWeights:
    """softmax(logits) in place of the weights of every call of a layer, for several starts at once."""

    def __init__(self, starts: int, seed: int, rows: list[int] | None) -> None:
        self.starts, self.generator = starts, torch.Generator().manual_seed(seed)
        self.rows = rows  # the queries that the classes are read from; None: all
        self.original: list[Tensor] = []
        self.logits: list[Tensor] = []
        self.call = 0

    def __call__(self, weights: Tensor, allowed: Tensor | None) -> Tensor:  # "*b q k"
        if self.call == len(self.logits):
            noise = torch.randn(weights.shape, generator=self.generator).to(weights)
            # the first start is near the model's own weights, the others go further away
            scale = torch.linspace(0.1, 3.0, self.starts).repeat_interleave(len(weights) // self.starts)
            scale = scale.to(weights).reshape(-1, *[1] * (weights.ndim - 1))
            self.original.append(weights.detach())
            self.logits.append((weights.detach().clamp_min(1e-6).log() + scale * noise).requires_grad_())
        self.call += 1
        return self.replaced(self.call - 1)

    def replaced(self, call: int) -> Tensor:
        original = self.original[call]
        # a key without weight may be masked, so it gets none; the sum of a row stays
        weights = self.logits[call].masked_fill(original == 0, -torch.inf).softmax(-1).nan_to_num()
        return weights * original.sum(-1, keepdim=True)

    def distance(self) -> Tensor:  # -> "starts"
        """The mean divergence from the model's own weights, of the rows that the classes are read from."""
        rows = slice(None) if self.rows is None else self.rows
        parts = [divergence(self.replaced(n), original)[..., rows] for n, original in enumerate(self.original)]
        return torch.cat([part.reshape(self.starts, -1) for part in parts], 1).mean(1)

    def of_start(self, n: int) -> tuple[Tensor, ...]:
        """The weights of every call of one start."""
        return tuple(self.replaced(call).detach().chunk(self.starts)[n] for call in range(len(self.original)))


class GivenMaps:
    """Given weights for the calls of a layer, one after the other, such as those of an AdversarialMap."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.weights, self.call = tuple(weights), 0

    def __call__(self, weights: Tensor, allowed: Tensor | None) -> Tensor:  # "*b q k"
        self.call += 1
        return self.weights[(self.call - 1) % len(self.weights)].expand_as(weights)


def divergence(first: Tensor, second: Tensor) -> Tensor:  # "*b k" each -> "*b"
    """The Jensen–Shannon divergence of rows, in nats."""
    middle = (first + second) / 2

    def kl(p: Tensor) -> Tensor:
        return torch.where(p > 0, p * (p.clamp_min(1e-30) / middle.clamp_min(1e-30)).log(), 0.0).sum(-1)

    return (kl(first) + kl(second)) / 2


def adversarial_map(
    explained: ExplainedLogit, *, tolerance: float = 0.01, steps: int = 200, starts: int = 4, seed: int = 0
) -> AdversarialMap:
    """max JSD(α̃, α) subject to ½ Σ |p(α̃) − p(α)| ≤ tolerance, by Adam on the logits of α̃, from several starts.

    α are the weights of the last attention to the tokens; the divergence is that of the rows that the classes are read
    from, since other rows may change the output by nothing. If no step keeps the output, α itself is the answer.
    """
    classifier = explained.classifier
    last = record_maps(explained)[-1]
    layer, count = last.name, len(explained.tokens)
    rows = reading_rows(classifier) if last.shape[-2] == count else None
    output_before = explained.input_logits.softmax(-1)
    learned = _LearnedWeights(starts, seed, rows)
    copies = [explained.tokens] * starts
    best: tuple[float, float, tuple[Tensor, ...]] | None = None
    optimizer: torch.optim.Adam | None = None
    with torch.enable_grad(), eval_mode(classifier.model), intervene(classifier.model, learned, layers=layer):
        for _ in range(steps):
            learned.call = 0
            output = classifier.token_logits(copies).double().softmax(-1)
            change = (output - output_before).abs().sum(-1) / 2
            distance = learned.distance()
            best = _better(best, learned, distance, change, tolerance)
            if optimizer is None:
                optimizer = torch.optim.Adam(learned.logits, lr=_RATE)
            loss = (_PENALTY * (change - tolerance / 2).clamp_min(0) - distance).sum()
            gradients = torch.autograd.grad(loss, learned.logits)
            for logits, gradient in zip(learned.logits, gradients, strict=True):
                logits.grad = gradient
            optimizer.step()
    if best is None:
        return AdversarialMap(layer, tuple(each.chunk(starts)[0] for each in learned.original), 0.0, 0.0, rows)
    return AdversarialMap(layer, best[2], best[0], best[1], rows)


def _better(best: Any, learned: _LearnedWeights, distance: Tensor, change: Tensor, tolerance: float) -> Any:
    """The start that is furthest away among those that keep the output, if it is further than the best so far."""
    allowed = distance.detach().masked_fill(change > tolerance, -1.0)
    n = int(allowed.argmax())
    if float(allowed[n]) <= (0.0 if best is None else best[0]):
        return best
    return float(allowed[n]), float(change.detach()[n]), learned.of_start(n)
