"""settled: a model in evaluation for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """All of it in evaluation, so that neither statistics nor draws change; then every module as it was."""
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, before in training.items():
            module.training = before
