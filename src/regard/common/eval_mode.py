"""A context in which a model is in evaluation mode."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Puts the model in evaluation mode and afterwards every module back into its own mode.

    In evaluation mode neither running statistics nor the random generator change.
    """
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, was_training in training.items():
            module.training = was_training
