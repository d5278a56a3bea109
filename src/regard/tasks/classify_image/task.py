"""The task classify-image: its training problem, its data, its evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.attacks import Attack
from regard.data.images.labelled import Images
from regard.inference.evaluation import Evaluation, Progress, timed
from regard.tasks.base import Task
from regard.tasks.classify_image.adversary import attacked_batch, robust_scores, training_attack
from regard.tasks.classify_image.options import ClassifyImage, PretrainedImageOptions
from regard.tasks.classify_image.predictor import ImageClassifier
from regard.tasks.shared.classification import IMAGE_SCORES, class_evaluation, class_loss, unseen_class_notes
from regard.tasks.shared.image_data import (
    ImageBatch,
    ImageProblem,
    ImageStats,
    Planned,
    bounded_examples,
    class_probabilities,
    data_summary,
    image_scores,
    load_training_images,
    read_held_out,
    read_stats,
    read_train_and_test,
    require_two_classes,
    shifted_batch,
)
from regard.tasks.shared.image_encoder import PretrainedImageEncoder, smallest_image_encoder
from regard.tasks.shared.image_options import AttackImages, EvaluateImages
from regard.tasks.shared.image_predictors import ImageInput
from regard.training.protocol import Loss, ValidationResult


@dataclass(frozen=True, eq=False)
class ClassifyImageProblem(ImageProblem[nn.Module]):
    """The cross-entropy of the classes of images, attacked if there is an adversary, with label smoothing."""

    config: ClassifyImage
    train: Images
    valid: Images
    stats: ImageStats
    summary: str = ""
    encoder: PretrainedImageEncoder | None = None
    shared: Sequence[str] = ()

    @property
    def adversary(self) -> Attack | None:
        """The attack on training images; None trains on clean ones."""
        if self.config.adversary is None:
            return None
        assert self.config.eps is not None
        return training_attack(self.config.adversary, self.config.eps, self.config.attack_steps)

    def build_model(self) -> nn.Module:
        return _build(self.config, self.stats, self.encoder)

    def resolved_options(self) -> dict[str, Any]:
        return {"model": self.config.model.resolved_by((self.stats.height, self.stats.width))}

    def warnings(self) -> Sequence[str]:
        return [*super().warnings(), *unseen_class_notes(self.valid, self.stats.classes)]

    def load_batch(self, planned: Planned, rank: int, world: int) -> ImageBatch | None:
        return shifted_batch(self.train, self.stats, planned, self.config.shift, rank, world)

    def loss(self, model: nn.Module, batch: ImageBatch) -> Loss:
        if self.adversary is not None:
            batch = attacked_batch(model, batch, self.stats, self.adversary)
        return class_loss(model(batch.x), batch.labels, self.config.smoothing)

    def validate(self, model: nn.Module) -> ValidationResult:
        scores = image_scores(model, self.valid, self.stats)
        warnings: list[str] = []
        if self.adversary is not None:
            robust, warnings = robust_scores(model, self.valid, self.stats, self.adversary, self.config.seed)
            scores |= robust
        metric = self.config.metric
        return ValidationResult(scores, metric, self.config.metrics[metric], warnings=warnings)


class ClassifyImageTask(Task[ClassifyImage, ImageClassifier]):
    """Trains, loads and evaluates classifiers of images."""

    def prepare(self, folder: Path, new: bool) -> ClassifyImageProblem:
        config = self.config
        options, encoder = config.model, None
        if isinstance(options, PretrainedImageOptions):
            encoder = PretrainedImageEncoder.prepare(options, folder, new)
        train, valid, stats, shared = load_training_images(config, folder, new, encoder.adapt if encoder else None)
        require_two_classes(config, stats)
        return ClassifyImageProblem(config, train, valid, stats, data_summary(train, valid), encoder, shared)

    def sketch(self) -> nn.Module:
        options = self.config.model
        if isinstance(options, PretrainedImageOptions):
            return options.build(smallest_image_encoder(options, options.attention), 2)
        side = max(8, getattr(options, "stride", None) or 0)
        return options.build(1, (side, side), 2)

    def predictor(self, folder: Path) -> ImageClassifier:
        stats, options = read_stats(folder), self.config.model
        encoder = PretrainedImageEncoder.of_run(folder) if isinstance(options, PretrainedImageOptions) else None
        return ImageClassifier(_build(self.config, stats, encoder), stats, options.map_axes)

    def evaluate(
        self, predictor: ImageClassifier, folder: Path, options: EvaluateImages, progress: Progress
    ) -> Evaluation:
        split = read_held_out(self.config, options.split, folder)
        images = split.data
        probabilities, seconds = timed(
            lambda done: class_probabilities(predictor.model, predictor.model, images.pixels, predictor.stats, done),
            len(images),
            progress,
        )
        classes, facts = predictor.stats.classes, {"split": options.split}
        return class_evaluation(split, probabilities, classes, "images", seconds, names=IMAGE_SCORES, facts=facts)

    def known_features(self, predictor: ImageClassifier, count: int) -> Sequence[tuple[ImageInput, NDArray[np.bool_]]]:
        if self.config.dataset != "digits":
            return ()
        # the ink of a digit; the paper around it is black
        pixels = read_train_and_test(self.config)[1].pixels[:count]
        return [(ImageInput(image), (image > 0).any(-1)) for image in pixels]

    def attack_examples(
        self, predictor: ImageClassifier, folder: Path, options: AttackImages
    ) -> tuple[Tensor, Tensor, str]:
        split = read_held_out(self.config, options.split, folder)
        return *bounded_examples(split.data, predictor.stats.classes), split.title


def _build(config: ClassifyImage, stats: ImageStats, encoder: PretrainedImageEncoder | None) -> nn.Module:
    """The model with initial weights; those of an encoder come from its folder if the run has none yet."""
    if isinstance(config.model, PretrainedImageOptions):
        assert encoder is not None
        return config.model.build(encoder.build(config.model, config.model.attention), len(stats.classes))
    return config.model.build(stats.channels, (stats.height, stats.width), len(stats.classes))
