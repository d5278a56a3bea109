"""Attribution by gradients at the vectors of tokens: gradient × input, and integrated gradients."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regard.attribution.base import AttributionMethod, Completeness, ExplainedLogit, ScoredTokens
from regard.common import checks
from regard.inference.embedded_classifier import TokenLayer, at_places, token_gradients

# Gauss–Legendre points of the first try
_POINTS = 50
# tokens per pass, whose activations a gradient keeps
_TOKENS = 2048


@dataclass(frozen=True)
class GradientInput(AttributionMethod):
    """score_i = x_i · ∂f/∂x_i  (Shrikumar et al. 2017), x_i the vector of token i."""

    def scores(self, explained: ExplainedLogit) -> ScoredTokens:
        tokens = [explained.tokens]
        calls = token_gradients(explained.classifier, tokens, [explained.target]).calls
        products = [(call.gradient * call.vectors).sum(-1) for call in calls]
        return ScoredTokens(at_places(products, explained.classifier.vector_places(tokens)[0]))


@dataclass(frozen=True)
class IntegratedGradients(AttributionMethod):
    """score_i = (x_i − x'_i) · ∫₀¹ ∂f/∂x_i (x' + s (x − x')) ds  (Sundararajan et al. 2017).

    x' has the vector of padding in place of each token; special tokens keep theirs and score 0. The integral is taken
    by `steps` Gauss–Legendre points, and then by twice as many panels of `steps` points each time, until Σ_i score_i
    is within `tolerance` of f(x) − f(x'), as a share of it, or `most` points are reached; the result says what is left.
    """

    steps: int = _POINTS
    tolerance: float = 0.01
    max_steps: int = 1600

    def __post_init__(self) -> None:
        checks.positive_ints("IntegratedGradients", steps=self.steps, max_steps=self.max_steps)
        if self.steps > self.max_steps:
            raise ValueError(f"steps must be at most max_steps={self.max_steps}, got {self.steps}; raise max_steps")
        if not self.tolerance > 0:
            raise ValueError(f"tolerance must be positive, got {self.tolerance}; try tolerance=0.01")

    def scores(self, explained: ExplainedLogit) -> ScoredTokens:
        ends = _path_gradients(explained, torch.tensor([0.0, 1.0]))
        difference = float(ends.outputs[1] - ends.outputs[0])
        steps, panels = self.steps, 1
        while True:
            at, weights = _quadrature(steps, panels)
            path = _path_gradients(explained, at)
            scores = weights.to(path.products) @ path.products
            total = steps * panels
            error = abs(float(scores.double().sum()) - difference)
            completeness = Completeness(difference, error, total, self.tolerance)
            if completeness.is_reached or 2 * total > self.max_steps:
                return ScoredTokens(scores, completeness)
            panels *= 2


def _quadrature(points: int, panels: int) -> tuple[Tensor, Tensor]:
    """The places in [0, 1] and the weights of Gauss–Legendre panels of equal width."""
    nodes, weights = np.polynomial.legendre.leggauss(points)
    starts = np.arange(panels)[:, None]
    at = (starts + (nodes + 1) / 2) / panels
    return torch.from_numpy(at.ravel()), torch.from_numpy(np.tile(weights / 2 / panels, panels))


@dataclass(frozen=True, eq=False)
class _Path:
    """On the way from x' to x: the logits, and (x_i − x'_i) · ∂f/∂x_i of every token."""

    outputs: Tensor  # "m"
    products: Tensor  # "m n"


def _path_gradients(explained: ExplainedLogit, at: Tensor) -> _Path:  # "m"
    parts = [_batch_gradients(explained, points) for points in at.split(max(_TOKENS // len(explained.tokens), 1))]
    return _Path(torch.cat([part.outputs for part in parts]), torch.cat([part.products for part in parts]))


def _batch_gradients(explained: ExplainedLogit, at: Tensor) -> _Path:  # "m"
    classifier, copies = explained.classifier, [explained.tokens] * len(at)
    places = classifier.vector_places(copies)
    special = torch.tensor(explained.tokens.is_special, device=classifier.device)
    changes: list[Tensor] = []  # x − x' of every call

    def interpolate(number: int, layer: TokenLayer, vectors: Tensor) -> Tensor:  # "r t d"
        # padding and special tokens keep their vectors
        missing, is_moved = vectors.new_zeros(vectors.shape[:2]), vectors.new_zeros(vectors.shape[:2])
        for s, cells in zip(at.tolist(), places, strict=True):
            moved = cells[(cells[:, 0] == number) & ~special]
            missing[moved[:, 1], moved[:, 2]] = 1 - s
            is_moved[moved[:, 1], moved[:, 2]] = 1
        changes.append((vectors - layer.absent(vectors)) * is_moved.unsqueeze(-1))
        return vectors - missing.unsqueeze(-1) * changes[-1]

    result = token_gradients(classifier, copies, [explained.target] * len(at), interpolate)
    products = [(call.gradient * change).sum(-1) for call, change in zip(result.calls, changes, strict=True)]
    of_tokens = torch.stack([at_places(products, cells) for cells in places])
    return _Path(result.logits[:, explained.target].double(), of_tokens)
