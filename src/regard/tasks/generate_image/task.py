"""The task generate-image: its training problem, its data, its evaluation, and the classifiers that judge samples."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from regard.data.images.labelled import Images
from regard.inference.evaluation import Evaluation, Progress, timed
from regard.losses.functional import hinge
from regard.models.sagan import SelfAttentionGAN
from regard.tasks.base import Task
from regard.tasks.generate_image.judge import RealImageStats, ReferenceClassifier
from regard.tasks.generate_image.options import JUDGE, TEST_JUDGE, GenerateImage
from regard.tasks.generate_image.predictor import ImageGenerator, sample_images, signed
from regard.tasks.shared.classification import known_rows
from regard.tasks.shared.image_data import (
    ImageBatch,
    ImageProblem,
    ImageStats,
    Planned,
    data_summary,
    load_training_images,
    random_shift,
    read_stats,
    read_train_and_test,
    save_or_check_stats,
    shard,
    with_initial_stats,
)
from regard.tasks.shared.image_options import EvaluateImages
from regard.training.protocol import Loss, ValidationResult
from regard.viz.plots.image_grid import image_grid, write_png

# samples per class: of a validation, of an evaluation, and of the picture that a validation leaves
_VALIDATED, EVALUATED, _SHOWN = 50, 100, 10


@dataclass(frozen=True, eq=False)
class GenerateImageProblem(ImageProblem[SelfAttentionGAN]):
    """The hinge losses of a generator and a discriminator  (Zhang et al. 2019, eq. 4)."""

    config: GenerateImage
    train: Images
    stats: ImageStats
    summary: str
    real: RealImageStats
    shared: Sequence[str] = ()

    def build_model(self) -> SelfAttentionGAN:
        return _build(self.config, self.stats)

    def load_batch(self, planned: Planned, rank: int, world: int) -> ImageBatch | None:
        seed, index = planned
        images = self.train[index]
        return shard(random_shift(signed(images.pixels), self.config.shift, seed), images.labels, rank, world)

    def before_step(self, model: SelfAttentionGAN) -> None:
        model.update_ema(self.config.keep)

    def loss(self, model: SelfAttentionGAN, batch: ImageBatch) -> Loss:
        """Both losses at once: each network gets the gradient of its own loss alone."""
        x, y = batch.x, batch.labels
        samples = model.draw(torch.randn(len(y), model.noise, device=x.device), y)
        real, fake = model.discriminator(torch.cat([x, samples.detach()]), y.repeat(2)).float().chunk(2)
        fooled = model.frozen_discriminator()(samples, y).float()
        total = hinge(real, fake).sum() - fooled.sum()
        return Loss(total, len(y), {"real": real.sum(), "fake": fake.sum()})

    def validate(self, model: SelfAttentionGAN) -> ValidationResult:
        labels = np.arange(len(self.stats.classes)).repeat(_VALIDATED)
        scores = self.real.scores(sample_images(model, labels, self.config.seed), labels)
        return ValidationResult(scores, self.config.metric, self.config.metrics[self.config.metric])

    def draw_samples(self, model: SelfAttentionGAN, path: Path) -> bool:
        """One row of samples per class, from the same noise at every step."""
        classes = len(self.stats.classes)
        samples = sample_images(model, np.arange(classes).repeat(_SHOWN), self.config.seed)
        write_png(path, image_grid(samples.reshape(classes, _SHOWN, *samples.shape[1:])))
        return True


class GenerateImageTask(Task[GenerateImage, ImageGenerator]):
    """Trains, loads and evaluates generators of images."""

    def prepare(self, folder: Path, new: bool) -> GenerateImageProblem:
        config = self.config
        train, valid, stats, shared = load_training_images(config, folder, new)
        _check_size(stats)
        _check_classes(train)
        judge = ReferenceClassifier.of(
            folder / JUDGE,
            new,
            stats,
            lambda: ReferenceClassifier.train(train, valid, stats, config.judge, config.seed),
        )
        summary = f"{data_summary(train, valid)}; samples are judged by a classifier that recognises "
        summary += f"{judge.accuracy:.1f} % of the images held out"
        return GenerateImageProblem(config, train, stats, summary, RealImageStats.of(judge, train), shared)

    def sketch(self) -> nn.Module:
        return self.config.model.build(8, 1, 2)

    def predictor(self, folder: Path) -> ImageGenerator:
        stats, config = read_stats(folder), self.config
        return ImageGenerator(
            _build(config, stats),
            stats,
            lambda: validation_judge(config, folder),
            seed=config.seed,
            run=folder.resolve().name,
        )

    def evaluate(
        self, predictor: ImageGenerator, folder: Path, options: EvaluateImages, progress: Progress
    ) -> Evaluation:
        """The samples of "test" are judged by a classifier that had no part in the choice of weights."""
        judge, images = judge_and_images(self.config, folder, options.split)
        classes = predictor.stats.classes
        labels = np.arange(len(classes)).repeat(EVALUATED)
        # not the noise of validations
        noise = self.config.seed + 1
        pixels, seconds = timed(lambda done: sample_images(predictor.model, labels, noise), len(labels), progress)
        progress(len(labels), len(labels))
        names = zip(labels, judge.predict(pixels), strict=True)
        part = "chose these weights" if options.split == "valid" else "had no part in the choice of weights"
        note = (
            f"The classifier that judges the samples {part}; it recognises {judge.accuracy:.1f} % of real images that "
            "it was not trained on. Spread is the mean distance of two samples of a class, with pixels from 0 to 1."
        )
        return Evaluation(
            RealImageStats.of(judge, images).scores(pixels, labels),
            len(labels),
            "drawings",
            f"judged by the {options.split} split",
            seconds,
            predictions=[f"{classes[label]}\t{classes[prediction]}" for label, prediction in names],
            notes=[note],
            facts={"split": options.split, "judge": judge.accuracy},
        )


def validation_judge(config: GenerateImage, folder: Path) -> ReferenceClassifier:
    """The classifier by which a run chose its weights. It is in the run: images are read only if it is missing."""

    def train() -> ReferenceClassifier:
        images, valid, stats, _ = load_training_images(config, folder, new=False)
        return ReferenceClassifier.train(images, valid, stats, config.judge, config.seed)

    return ReferenceClassifier.of(folder / JUDGE, False, read_stats(folder), train)


def judge_and_images(config: GenerateImage, folder: Path, split: str) -> tuple[ReferenceClassifier, Images]:
    """The classifier that judges samples, and the real images of the split, which it was not trained on.

    The classifier of "valid" chose the weights of the run; that of "test" had no part in the choice.
    """
    stats = read_stats(folder)
    if split == "valid":
        return validation_judge(config, folder), _generated(
            load_training_images(config, folder, new=False).valid, stats
        )
    images, test = read_train_and_test(config, stats.classes)
    test = _generated(test, stats)
    # a classifier that exists was trained on the images as they were; those to validate on have no part in it
    now = replace(with_initial_stats(ImageStats.of(images), folder), valid_sha256=stats.valid_sha256)
    save_or_check_stats(now, folder, new=False)

    def train() -> ReferenceClassifier:
        return ReferenceClassifier.train(images, test, stats, config.judge, config.seed + 1)

    return ReferenceClassifier.of(folder / TEST_JUDGE, False, stats, train), test


def _generated(images: Images, stats: ImageStats) -> Images:
    """The images of classes that the run generates; files to validate and to test on may have others."""
    return images[known_rows(images.labels, len(stats.classes))]


def _build(config: GenerateImage, stats: ImageStats) -> SelfAttentionGAN:
    return config.model.build(stats.height, stats.channels, len(stats.classes))


def _check_size(stats: ImageStats) -> None:
    if stats.height != stats.width or stats.height % 4:
        raise ValueError(
            f"images must be as high as wide, a multiple of 4, got {stats.height} × {stats.width}; "
            "resize them, or give size, such as size=32"
        )


def _check_classes(images: Images) -> None:
    """Raises if a class has no images, as can be in a run that starts from another: samples are compared with them."""
    counts = np.bincount(images.labels, minlength=len(images.classes))
    if missing := [name for name, count in zip(images.classes, counts.tolist(), strict=True) if not count]:
        raise ValueError(
            f"there are no images of {', '.join(missing[:5])}, which the run to start from generates; give images of "
            "every class, or train from scratch"
        )
