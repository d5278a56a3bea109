"""The Fréchet distance between two sets of features, each taken as a normal distribution."""

import torch
from torch import Tensor

Moments = tuple[Tensor, Tensor]  # mean "d" and covariance "d d"


def moments(features: Tensor) -> Moments:  # "n d"
    """Mean and covariance of features; a single one has covariance 0."""
    mean = features.mean(0)
    centered = features - mean
    return mean, centered.T @ centered / max(len(features) - 1, 1)


def frechet_distance(first: Moments, second: Moments) -> float:
    """‖μ₁ − μ₂‖² + tr(C₁ + C₂ − 2 (C₁ C₂)^½)  (Heusel et al. 2017, eq. 6).

    tr (C₁ C₂)^½ = tr (C₁^½ C₂ C₁^½)^½, whose matrix is symmetric.
    """
    (mean, covariance), (other_mean, other_covariance) = first, second
    values, vectors = torch.linalg.eigh(covariance)
    root = (vectors * values.clamp_min(0).sqrt()) @ vectors.T
    shared = torch.linalg.eigvalsh(root @ other_covariance @ root).clamp_min(0).sqrt().sum()
    distance = (mean - other_mean).square().sum()
    return float(distance + covariance.trace() + other_covariance.trace() - 2 * shared)
