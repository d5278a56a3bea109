"""ImageGenerator: the predictor of generate-image: classes in, sampled images out."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.common.eval_mode import eval_mode
from regard.common.suggestions import known
from regard.inference.predictor import Observe, PredictionSession, Predictor
from regard.models.sagan import SelfAttentionGAN
from regard.tasks.generate_image.judge import ReferenceClassifier
from regard.tasks.generate_image.options import PredictSamples
from regard.tasks.shared.image_data import ImageStats, read_pixels
from regard.viz.plots.image_grid import image_grid
from regard.viz.plots.sample_sheet import draw_samples

# images per forward pass
_BATCH = 250
# torch.randn fills a tensor in blocks of this many numbers
_BLOCK = 16


@dataclass(eq=False)
class ImageSamples:
    """Images that were sampled for one class."""

    pixels: NDArray[np.uint8]  # "n h w c"
    recognised: int  # images that a classifier recognises as the class
    seed: int
    picture: Path | None = None  # the file that the session of `regard predict` draws them into

    @property
    def count(self) -> int:
        return len(self.pixels)


class ImageGenerator(Predictor[str, ImageSamples]):
    """class -> noise -> images.

    `judge` loads the classifier that recognises samples, `seed` is that of the training, and `run` names the model.
    """

    input_key: ClassVar[str] = "class"

    def __init__(
        self,
        model: SelfAttentionGAN,
        stats: ImageStats,
        judge: Callable[[], ReferenceClassifier],
        *,
        seed: int = 0,
        run: str = "",
    ) -> None:
        self.model: SelfAttentionGAN = model
        self.stats, self.seed, self.run, self._load_judge = stats, seed, run, judge

    @cached_property
    def judge(self) -> ReferenceClassifier:
        return self._load_judge()

    def read(self, argument: str) -> str:
        known("class", argument, self.stats.classes)
        return argument

    def predict(
        self, inputs: Sequence[str], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[ImageSamples]:
        options = PredictSamples() if options is None else options
        # validation sampled with the seed of the training
        seed = self.seed + 1 if options.seed is None else options.seed
        labels = np.array([self._class_number(name) for name in inputs], np.int64).repeat(options.count)
        z = noise_rows(self.model.noise, seed, first * options.count, (first + len(inputs)) * options.count)
        with eval_mode(self.model), observe():
            pixels = _generate(self.model, z, labels)
        right = self.judge.predict(pixels) == labels if len(pixels) else np.zeros(0, bool)
        parts = [slice(n * options.count, (n + 1) * options.count) for n in range(len(inputs))]
        return [ImageSamples(pixels[part], int(right[part].sum()), seed) for part in parts]

    def loss(
        self, inputs: Sequence[str], targets: Sequence[str | Path | NDArray[np.uint8] | Tensor]
    ) -> Tensor:  # -> "b"
        """relu(1 − D(x, y)), the hinge loss of images x that are real, of these classes y.

        An image is a file, an array of pixels "h w c", or a tensor "c h w" from −1 to 1, in which the loss is
        differentiable.
        """
        x = torch.stack([self._image(target) for target in targets])
        y = torch.tensor([self._class_number(name) for name in inputs], device=self.device)
        with eval_mode(self.model):
            return torch.relu(1 - self.model.discriminator(x.to(self.device), y).float())

    def _image(self, target: str | Path | NDArray[np.uint8] | Tensor) -> Tensor:  # -> "c h w"
        if isinstance(target, Tensor):
            return target
        if isinstance(target, str | Path):
            target = read_pixels(Path(target), self.stats)
        return signed(target[None])[0]

    def _class_number(self, name: str) -> int:
        return self.stats.classes.index(self.read(name))

    def text(self, output: ImageSamples) -> str:
        return f"{output.recognised} of {output.count} recognised"

    def json(self, output: ImageSamples) -> dict[str, Any]:
        picture = {} if output.picture is None else {"picture": str(output.picture)}
        return {"drawn": output.count, "recognised": output.recognised, "seed": output.seed, **picture}

    def session(self, options: Any, picture: Path | None) -> PredictionSession:
        return SampleSession(self, options, picture)


class SampleSession(PredictionSession):
    """Draws the samples into the file of --picture, one row per class."""

    predictor: ImageGenerator

    def __init__(self, predictor: ImageGenerator, options: Any, picture: Path | None) -> None:
        if picture is None:
            raise ValueError("samples are drawn into a file; give --picture samples.png")
        super().__init__(predictor, options, picture)
        self.outputs: list[ImageSamples] = []

    def check(self, count: int) -> None:
        """Any number of classes can be drawn."""

    def add(self, inputs: Sequence[str], outputs: Sequence[ImageSamples], first: int) -> None:
        super().add(inputs, outputs, first)
        for output in outputs:
            output.picture = self.picture
        self.outputs += outputs

    def draw(self, path: Path) -> list[str]:
        notes = [self.predictor.text(output) for output in self.outputs]
        title = f"sampled from {self.predictor.run}, seed {self.outputs[0].seed}"
        sheet = image_grid([output.pixels for output in self.outputs])
        draw_samples(sheet, self.inputs, notes, path, title)
        return [f"the samples are drawn in {path}, one row per class"]


def sample_images(
    model: SelfAttentionGAN, labels: NDArray[np.int64], seed: int
) -> NDArray[np.uint8]:  # "n" -> "n h w c"
    """One image per label; the same seed samples the same images."""
    z = torch.randn(len(labels), model.noise, generator=torch.Generator().manual_seed(seed))
    return _generate(model, z, labels)


def noise_rows(width: int, seed: int, start: int, stop: int) -> Tensor:  # -> "stop-start width"
    """The rows from `start` to `stop` of the noise of a seed; a row does not depend on how many follow it."""
    # whole blocks: the numbers of a last, shorter block depend on its length
    blocks = max(-(-stop * width // _BLOCK), 1)
    numbers = torch.randn(blocks * _BLOCK, generator=torch.Generator().manual_seed(seed))
    return numbers[start * width : stop * width].view(-1, width)


@torch.no_grad()
def _generate(model: SelfAttentionGAN, z: Tensor, labels: NDArray[np.int64]) -> NDArray[np.uint8]:  # -> "n h w c"
    device = next(model.parameters()).device
    parts = []
    # at least one pass, which a recording may observe
    for start in range(0, max(len(labels), 1), _BATCH):
        y = torch.from_numpy(labels[start : start + _BATCH]).to(device)
        x = model(z[start : start + _BATCH].to(device), y).float()
        parts.append(((x + 1) * 127.5).round().clamp(0, 255).byte().permute(0, 2, 3, 1).cpu().numpy())
    return np.concatenate(parts)


def signed(pixels: NDArray[np.uint8]) -> Tensor:  # "n h w c" -> "n c h w"
    """Pixels from −1 to 1, the range of a generator."""
    return torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2).float() / 127.5 - 1
