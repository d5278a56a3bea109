"""ImageClassifier: the predictor of classify-image: images in, class probabilities out."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar

from torch import Tensor, nn

from regard.recording.recording import Recording
from regard.tasks.shared.image_data import ImageStats
from regard.tasks.shared.image_predictors import GlimpsePath, ImageClassification, ImageClassPredictor, ImageInput


class ImageClassifier(ImageClassPredictor):
    """image -> class probabilities; `map_axes` names the rows and columns of the model's attention maps."""

    served_as: ClassVar[str] = "classify"
    page_title: ClassVar[str] = "Classify pictures"

    def __init__(self, model: nn.Module, stats: ImageStats, map_axes: Mapping[str, str] = MappingProxyType({})) -> None:
        self.model, self.stats, self.map_axes = model, stats, map_axes

    @property
    def classes(self) -> list[str]:
        return list(self.stats.classes)

    def classify(self, x: Tensor) -> tuple[Tensor, Sequence[GlimpsePath]]:
        return self.model(x), [()] * len(x)

    def label(self, recording: Recording, example: ImageInput, output: ImageClassification) -> Recording:
        recording = super().label(recording, example, output)
        return replace(recording, about={**recording.about, **self.map_axes})
