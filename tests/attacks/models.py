"""Small classifiers to attack, and inputs that they get right."""

import torch
from torch import Tensor, nn


def network(classes: int = 5, channels: int = 2, dtype: torch.dtype = torch.float64, seed: int = 0) -> nn.Module:
    """A net with batch norm and dropout, whose weights are random and smooth enough to climb."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Conv2d(channels, 7, 3, padding=1),
            nn.BatchNorm2d(7),
            nn.Tanh(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.Linear(28, classes),
        )
    return model.to(dtype).eval()


def images(model: nn.Module, count: int = 11, channels: int = 2, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Images of 5 × 3 pixels with the classes that the model gives them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, channels, 5, 3, generator=generator, dtype=torch.float64)
    x = x.to(next(model.parameters()).dtype)
    with torch.no_grad():
        return x, model(x).argmax(1)
