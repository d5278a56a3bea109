"""GlimpseClassifier: the predictor of glimpse: images in, class probabilities and the path of the glimpses out."""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from regard.models.ram import RAM
from regard.tasks.shared.image_data import ImageStats, normalized
from regard.tasks.shared.image_predictors import GlimpsePath, ImageClassPredictor


class GlimpseClassifier(ImageClassPredictor):
    """image -> glimpses at the means of their locations -> class probabilities.

    `stats` are those of the images that the model reads, whose canvas may be larger than the images of the data.
    """

    served_as: ClassVar[str] = "glimpse"
    page_title: ClassVar[str] = "Classify pictures by glimpses"

    def __init__(self, model: RAM, stats: ImageStats) -> None:
        self.model: RAM = model
        self.stats = stats

    def bounded_logits(self, x: Tensor) -> Tensor:
        """Logits after glimpses at sampled locations, as `regard evaluate` scores the model."""
        return self.model.look(normalized(x, self.stats), draw=True).logits.float()

    def classify(self, x: Tensor) -> tuple[Tensor, Sequence[GlimpsePath]]:
        output = self.model.look(x, draw=False)
        places = ((output.places.cpu().double() + 1) / 2).tolist()  # "b t 2", from 0 to 1
        return output.logits, [[(x, y) for x, y in path] for path in places]
