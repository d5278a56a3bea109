"""BoundedClassifier and PictureClassifier: protocols of predictors that can be attacked in the box of their inputs."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn


@runtime_checkable
class BoundedClassifier(Protocol):
    """A classifier of inputs from 0 to 1, such as pixels, whose logits are differentiable in them."""

    model: nn.Module

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype: ...

    def bounded_inputs(self, inputs: Sequence[Any]) -> Tensor:  # -> "b ..."
        """The inputs as numbers from 0 to 1."""

    def bounded_logits(self, x: Tensor) -> Tensor:  # "b ..." -> "b k"
        """The logits of inputs from 0 to 1, which the model's own normalisation is part of."""

    def class_numbers(self, targets: Sequence[str | int]) -> Tensor:  # -> "b"
        """The numbers of classes, given by their names or numbers."""


@runtime_checkable
class PictureClassifier(BoundedClassifier, Protocol):
    """A classifier of pixels from 0 to 1 that gives the same logits each time, so that its classes can be explained."""

    @property
    def classes(self) -> list[str]: ...

    def read(self, argument: str) -> Any:
        """The picture in the file of this path."""
