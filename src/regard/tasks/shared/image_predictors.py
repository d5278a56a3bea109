"""Parts shared by the predictors of images: their input, the attention over it, and class probabilities."""

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from regard.common import image_files
from regard.common.eval_mode import eval_mode
from regard.common.options.checks import check_top
from regard.inference.margins import ranking_margin
from regard.inference.predictor import Observe, Predictor
from regard.recording.recording import Recording
from regard.recording.run import PIXELS, pixel_size
from regard.tasks.shared.image_data import ImageStats, image_tensor, normalized, pixel_tensor, read_pixels
from regard.tasks.shared.image_options import PredictImageClasses
from regard.tasks.shared.ranked_classes import Ranking, class_number, percentages, ranked_classes

Output = TypeVar("Output")
# (x, y) of glimpses, from (0, 0), the upper left corner, to (1, 1)
GlimpsePath = Sequence[tuple[float, float]]
# classes that a summary names
_SUMMARY = 3
# images per forward pass
_BATCH = 256


@dataclass(frozen=True, eq=False)
class ImageInput:
    """An image in the size that the model reads, and the file that it comes from, if it comes from one."""

    pixels: NDArray[np.uint8]  # "h w c"
    path: Path | None = None

    def picture(self) -> NDArray[np.uint8]:  # -> "h w 3"
        """The image in colour: as large as its file, which is read again, or else as large as the model reads it."""
        if self.path is not None:
            return image_files.read(self.path, mode="RGB")
        return np.repeat(self.pixels, 3, -1) if self.pixels.shape[-1] == 1 else self.pixels


class ImagePredictor(Predictor[ImageInput, Output]):
    """A predictor of images of one size, whose statistics are `stats`."""

    input_key: ClassVar[str] = "file"
    endpoint_class = "regard.tasks.shared.image_endpoint:ImageEndpoint"
    # POST /v1/NAME, and the title of its page
    served_as: ClassVar[str]
    page_title: ClassVar[str]

    stats: ImageStats

    def read(self, argument: str) -> ImageInput:
        """The image in the file of this path, resized."""
        return ImageInput(read_pixels(Path(argument), self.stats), Path(argument))

    def tensor(self, inputs: Sequence[ImageInput]) -> Tensor:  # -> "b c h w"
        """The images as the model reads them."""
        return image_tensor(np.stack([example.pixels for example in inputs]), self.stats).to(self.device, self.dtype)

    def loss(self, inputs: Sequence[ImageInput], targets: Sequence[Any]) -> Tensor:  # -> "b"
        return self.tensor_loss(self.tensor(inputs), targets)

    @abstractmethod
    def tensor_loss(self, x: Tensor, targets: Sequence[Any]) -> Tensor:  # "b c h w" -> "b"
        """The loss of images as the model reads them, also differentiable in them."""

    @abstractmethod
    def summary(self, output: Output) -> str:
        """The output in a few words, for the facts of a recording."""

    def image(self, example: ImageInput) -> Tensor:  # -> "h w 3"
        return torch.from_numpy(example.picture())

    def label(self, recording: Recording, example: ImageInput, output: Output) -> Recording:
        about = {PIXELS: pixel_size(example.picture()), "said": self.summary(output)}
        if example.path is not None:
            about = {"picture": example.path.name, **about}
        return replace(recording, about={**recording.about, **about})

    def blank(self) -> ImageInput:
        """A black image."""
        return ImageInput(np.zeros((self.stats.height, self.stats.width, self.stats.channels), np.uint8))

    @abstractmethod
    def answer(self, output: Output, top: int) -> dict[str, Any]:
        """The output as a part of an answer over HTTP, with at most `top` classes."""

    @abstractmethod
    def margin(self, output: Output, top: int = 1) -> float:
        """The margin of an answer with at most `top` classes."""


@dataclass(frozen=True)
class ImageClassification:
    """The classes of an image, the likeliest first, and the path of the glimpses, if the model takes any."""

    classes: Ranking
    path: GlimpsePath = ()
    top: int = 1  # classes that are printed


class ImageClassPredictor(ImagePredictor[ImageClassification]):
    """A predictor of the class of an image."""

    @abstractmethod
    def classify(self, x: Tensor) -> tuple[Tensor, Sequence[GlimpsePath]]:  # "b c h w" -> "b k"
        """The logits of the classes, and the path of the glimpses of each image, empty if the model takes none."""

    @torch.no_grad()
    def predict(
        self, inputs: Sequence[ImageInput], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[ImageClassification]:
        options = PredictImageClasses() if options is None else options
        check_top(options, len(self.stats.classes))
        outputs = []
        with eval_mode(self.model), observe():
            for start in range(0, len(inputs), _BATCH):
                logits, paths = self.classify(self.tensor(inputs[start : start + _BATCH]))
                for row, path in zip(logits, paths, strict=True):
                    outputs.append(ImageClassification(self._ranked(row), path, options.top))
        return outputs

    def tensor_loss(self, x: Tensor, targets: Sequence[str | int]) -> Tensor:
        """−log p of the class, given by its name or its number."""
        numbers = self.class_numbers(targets).to(x.device)
        with eval_mode(self.model):
            return F.cross_entropy(self.classify(x)[0].float(), numbers, reduction="none")

    def _ranked(self, logits: Tensor) -> Ranking:  # "k"
        return ranked_classes(self.stats.classes, logits.cpu().double().softmax(-1).numpy())

    def class_numbers(self, targets: Sequence[str | int]) -> Tensor:  # -> "b"
        return torch.tensor([class_number(target, self.stats.classes) for target in targets])

    def bounded_inputs(self, inputs: Sequence[ImageInput]) -> Tensor:  # -> "b c h w"
        """The pixels of the images, from 0 to 1."""
        return pixel_tensor(np.stack([example.pixels for example in inputs]))

    def bounded_logits(self, x: Tensor) -> Tensor:  # "b c h w" -> "b k"
        """The logits of pixels from 0 to 1; a model that samples its attention samples here, too."""
        return self.classify(normalized(x, self.stats))[0].float()

    def text(self, output: ImageClassification) -> str:
        return "\t".join(percentages(output.classes, output.top))

    def summary(self, output: ImageClassification) -> str:
        return ", ".join(percentages(output.classes, _SUMMARY))

    def json(self, output: ImageClassification) -> dict[str, Any]:
        return {"classes": dict(output.classes[: output.top]), **_path(output)}

    def answer(self, output: ImageClassification, top: int) -> dict[str, Any]:
        classes = [{"name": name, "probability": probability} for name, probability in output.classes[:top]]
        return {"classes": classes, **_path(output)}

    def margin(self, output: ImageClassification, top: int = 1) -> float:
        return ranking_margin([probability for _, probability in output.classes[: top + 1]], top)


def _path(output: ImageClassification) -> dict[str, Any]:
    return {"path": [{"x": x, "y": y} for x, y in output.path]} if output.path else {}
