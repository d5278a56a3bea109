"""Generation: the work of a Generate task, its images read and parted, and the classifier that judges drawings."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.images.labelled import Images
from regard.losses.hinge import hinge
from regard.models.sagan import SelfAttentionGAN
from regard.tasks import _image_data as pictures
from regard.tasks._image_data import ImageBatch, ImageStats, Planned, shifted
from regard.tasks.generate_image.judge import RealImageStats, ReferenceClassifier
from regard.tasks.generate_image.options import PLACES, GenerateImage
from regard.training.protocol import Loss, ValidationResult
from regard.viz.plots.image_grid import image_grid, write_png

# pictures of a class that are drawn to be validated, to be judged at the end, and to be looked at
VALIDATED, JUDGED, SHOWN = 50, 100, 10
# the classifiers that judge: for the choice of weights, and at the end
_JUDGE, _OTHER = "judge.safetensors", "judge-test.safetensors"
# pictures that are drawn at once
_AT_ONCE = 250


@dataclass(frozen=True, eq=False)
class GenerateImageProblem:
    """What training asks of a generation task."""

    task: GenerateImage
    train: Images
    facts: ImageStats
    told: str
    real: RealImageStats
    counted: str = "images"

    @staticmethod
    def of(task: GenerateImage, folder: Path, new: bool) -> "GenerateImageProblem":
        train, valid, facts = pictures.learned(task, folder, new)
        _check(facts)
        path = folder / _JUDGE
        judge = ReferenceClassifier.of(
            path, new, facts, lambda: ReferenceClassifier.learned(train, valid, facts, task.judge, task.seed)
        )
        said = f"drawings are judged by a classifier that recognises {judge.accuracy:.1f} % of the images held out"
        return GenerateImageProblem(
            task, train, facts, f"{pictures.told(train, valid)}; {said}", RealImageStats.of(judge, train)
        )

    def model(self) -> nn.Module:
        return build(self.task, self.facts)

    def batches(self, epoch: int) -> Sequence[Planned]:
        return pictures.plan(len(self.train), self.task.batch, self.task.seed, epoch)

    def batch(self, planned: Planned, rank: int, world: int) -> ImageBatch | None:
        seed, index = planned
        some = self.train[index]
        return pictures.share(shifted(signed(some.pixels), self.task.shift, seed), some.labels, rank, world)

    def count(self, batch: ImageBatch) -> int:
        return len(batch.labels)

    def follow(self, model: nn.Module) -> None:
        assert isinstance(model, SelfAttentionGAN)
        model.follow(self.task.keep)

    def loss(self, model: nn.Module, batch: ImageBatch) -> Loss:
        """Both losses at once: the discriminator's goes into the discriminator alone, the generator's into its own."""
        assert isinstance(model, SelfAttentionGAN)
        x, y = batch.x, batch.labels
        drawn = model.draw(torch.randn(len(y), model.noise, device=x.device), y)
        real, fake = model.discriminator(torch.cat([x, drawn.detach()]), y.repeat(2)).float().chunk(2)
        fooled = model.still()(drawn, y).float()
        total = hinge(real, fake).sum() - fooled.sum()
        return Loss(total, len(y), {"real": real.sum(), "fake": fake.sum()})

    def validate(self, model: nn.Module) -> ValidationResult:
        assert isinstance(model, SelfAttentionGAN)
        asked = np.arange(len(self.facts.classes)).repeat(VALIDATED)
        # a picture that is always the same would be recognised: its distance from real ones tells
        scores = self.real.scores(drawn(model, asked, self.task.seed), asked)
        return ValidationResult(scores, "distance", higher_is_better=False)

    def picture(self, model: nn.Module, path: Path) -> None:
        """Samples of every class, a row each; the same draws in every step."""
        assert isinstance(model, SelfAttentionGAN)
        show(model, range(len(self.facts.classes)), SHOWN, self.task.seed, path)


prepare = GenerateImageProblem.of


def _check(facts: ImageStats) -> None:
    if facts.height != facts.width or facts.height % 4:
        raise ValueError(
            f"images must be as high as wide, a multiple of 4, got {facts.height} × {facts.width}; "
            "make them so, or of pictures give size, such as size=32"
        )


def build(task: GenerateImage, facts: ImageStats) -> SelfAttentionGAN:
    """The model, fresh."""
    return SelfAttentionGAN(
        facts.height,
        facts.channels,
        len(facts.classes),
        noise=task.noise,
        width=task.width,
        place=PLACES[task.attention],
        faster=task.faster,
    )


def fresh(task: GenerateImage, folder: Path) -> SelfAttentionGAN:
    """The model of a run, without its weights."""
    return build(task, pictures.recalled(folder))


def rehearse(task: GenerateImage) -> None:
    """Builds a small one and calls it, so that what cannot be is told before any data is read."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        model = build(task, ImageStats(1, 8, 8, ["0", "1"], 0.0, 1.0, ""))
        model.discriminator(model(torch.zeros(2, task.noise), torch.arange(2)), torch.arange(2))


def signed(pixels: NDArray[np.uint8]) -> Tensor:  # "n h w c" -> "n c h w"
    """From −1 to 1, as a generator draws."""
    return torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2).float() / 127.5 - 1


@torch.no_grad()
def drawn(model: SelfAttentionGAN, asked: NDArray[np.int64], seed: int) -> NDArray[np.uint8]:  # "n" -> "n h w c"
    """A picture of each class that is asked for; of one seed, always the same."""
    device = next(model.parameters()).device
    z = torch.randn(len(asked), model.noise, generator=torch.Generator().manual_seed(seed))
    found = []
    for at in range(0, len(asked), _AT_ONCE):
        y = torch.from_numpy(np.asarray(asked[at : at + _AT_ONCE])).to(device)
        x = model(z[at : at + _AT_ONCE].to(device), y).float()
        found.append(((x + 1) * 127.5).round().clamp(0, 255).byte().permute(0, 2, 3, 1).cpu().numpy())
    return np.concatenate(found)


def show(model: SelfAttentionGAN, classes: Sequence[int], count: int, seed: int, path: Path) -> None:
    """Pictures of these classes in one file, a row of `count` each."""
    samples = drawn(model, np.array(classes).repeat(count), seed)
    write_png(path, image_grid(samples.reshape(len(classes), count, *samples.shape[1:])))


def has_judge(folder: Path) -> bool:
    """Is the classifier there by which a run chooses its weights?"""
    return (folder / _JUDGE).exists()


def first_judge(task: GenerateImage, folder: Path) -> ReferenceClassifier:
    """The classifier by which a run chose its weights. It lies in the run: images are read only if it is gone."""

    def learn() -> ReferenceClassifier:
        train, valid, facts = pictures.learned(task, folder, new=False)
        return ReferenceClassifier.learned(train, valid, facts, task.judge, task.seed)

    return ReferenceClassifier.of(folder / _JUDGE, False, pictures.recalled(folder), learn)


def chosen_by(task: GenerateImage, folder: Path) -> tuple[ReferenceClassifier, Images]:
    """That classifier, and the images that were held out when weights were chosen."""
    _, valid, _ = pictures.learned(task, folder, new=False)
    return first_judge(task, folder), valid


def other_judge(task: GenerateImage, folder: Path) -> tuple[ReferenceClassifier, Images]:
    """A classifier that had no part in the choice of weights, and the test images, which it has not learned from."""
    train, test = pictures.read(task)
    facts = pictures.recalled(folder)
    # a judge that is there learned from images as they were
    pictures.remember(ImageStats.of(train), folder, new=False)

    def learn() -> ReferenceClassifier:
        return ReferenceClassifier.learned(train, test, facts, task.judge, task.seed + 1)

    return ReferenceClassifier.of(folder / _OTHER, False, facts, learn), test
