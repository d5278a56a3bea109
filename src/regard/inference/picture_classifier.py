"""PictureClassifier: the protocol of a predictor whose classes of a picture can be explained."""

from typing import Any, Protocol, runtime_checkable

from regard.inference.bounded_classifier import BoundedClassifier


@runtime_checkable
class PictureClassifier(BoundedClassifier, Protocol):
    """A classifier of pixels from 0 to 1 that gives the same logits each time."""

    @property
    def classes(self) -> list[str]: ...

    def read(self, argument: str) -> Any:
        """The picture in the file of this path."""
