"""The task glimpse: its training problem, its scenes, its evaluation."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.images.cluttered import compose
from regard.data.images.labelled import Images
from regard.inference.evaluation import Evaluation, Progress
from regard.inference.evaluation_split import EvaluationSplit, HeldOutPart
from regard.losses import reinforce
from regard.metrics.classification import accuracy
from regard.models.ram import RAM
from regard.tasks.base import Task
from regard.tasks.glimpse.options import EvaluateGlimpses, Glimpse
from regard.tasks.glimpse.predictor import GlimpseClassifier
from regard.tasks.shared.classification import IMAGE_SCORES, class_evaluation, class_scores
from regard.tasks.shared.image_data import (
    ImageBatch,
    ImageProblem,
    ImageStats,
    Planned,
    bounded_examples,
    class_probabilities,
    data_summary,
    image_tensor,
    load_training_images,
    read_held_out,
    read_split,
    read_stats,
    require_two_classes,
    shard,
    shifted_batch,
)
from regard.tasks.shared.image_options import AttackImages
from regard.training.protocol import Loss, ValidationResult

# seeds of the scenes to validate and to test on; training composes none by them
_SEEDS = {"valid": 1, "test": 2}
# paths that are sampled per image of a validation
_PATHS = 5
# The weight of REINFORCE beside the classification loss. No parameter has gradients of both, and AdamW cancels a
# factor: it only keeps the long gradients of unlikely samples from deciding how all gradients are clipped.
_POLICY = 0.05


@dataclass(frozen=True, eq=False)
class GlimpseProblem(ImageProblem[RAM]):
    """Cross-entropy of the classes, REINFORCE for the locations, squared error of the baseline  (Mnih et al. 2014)."""

    config: Glimpse
    train: Images  # as they were read; scenes are composed batch by batch
    valid: Images  # scenes
    source_stats: ImageStats  # statistics of the images as they were read
    summary: str = ""
    shared: Sequence[str] = ()

    @property
    def stats(self) -> ImageStats:
        """The statistics of the images that the model reads."""
        return scene_stats(self.config, self.source_stats)

    def build_model(self) -> RAM:
        return build_ram(self.config, self.source_stats)

    def resolved_options(self) -> dict[str, Any]:
        size = self.source_stats.height, self.source_stats.width
        options: dict[str, Any] = {"model": {"patch": self.config.patch_size(*size)}}
        height, width = self.config.canvas_size(*size)
        # the canvas of images that are no squares is no square either, and the option has one number
        if self.config.scene != "plain" and height == width:
            options["canvas"] = height
        if self.config.scene == "cluttered":
            options["piece"] = self.config.piece_size(*size)
        return options

    def load_batch(self, planned: Planned, rank: int, world: int) -> ImageBatch | None:
        if self.config.scene == "plain":
            return shifted_batch(self.train, self.stats, planned, self.config.shift, rank, world)
        seed, index = planned
        scenes = _compose_scenes(self.config, self.train, index, seed)
        return shard(image_tensor(scenes.pixels, self.stats), scenes.labels, rank, world)

    def loss(self, model: RAM, batch: ImageBatch) -> Loss:
        x, labels = batch.x.repeat(self.config.draws, 1, 1, 1), batch.labels.repeat(self.config.draws)
        output = model.look(x)
        answer = F.cross_entropy(output.logits.float(), labels, label_smoothing=self.config.smoothing)
        right = (output.logits.argmax(-1) == labels).float()
        # the answer comes last, and every glimpse has led to it
        reward = right.unsqueeze(-1).expand_as(output.log_prob)
        policy = self.config.model.glimpses * reinforce(output.log_prob, reward, output.baseline)
        total = answer + _POLICY * policy + F.mse_loss(output.baseline, reward)
        count = len(batch.labels)
        return Loss(total * count, count, {"accuracy": 100.0 * right.mean() * count, "answer": answer * count})

    def validate(self, model: RAM) -> ValidationResult:
        scores = path_scores(model, self.valid, self.stats)
        return ValidationResult(scores, self.config.metric, self.config.metrics[self.config.metric])


class GlimpseTask(Task[Glimpse, GlimpseClassifier]):
    """Trains, loads and evaluates recurrent attention models."""

    def prepare(self, folder: Path, new: bool) -> GlimpseProblem:
        config = self.config
        train, images, stats, shared = load_training_images(config, folder, new)
        require_two_classes(config, stats)
        height, width = config.canvas_size(stats.height, stats.width)
        scene = "" if config.scene == "plain" else f", {config.scene} on {height} × {width}"
        valid = _evaluation_scenes(config, images, "valid")
        return GlimpseProblem(config, train, valid, stats, data_summary(train, valid) + scene, shared)

    def sketch(self) -> nn.Module:
        return build_ram(self.config, ImageStats(1, 8, 8, ["0", "1"], 0.0, 1.0, ""))

    def predictor(self, folder: Path) -> GlimpseClassifier:
        stats = read_stats(folder)
        return GlimpseClassifier(build_ram(self.config, stats), scene_stats(self.config, stats))

    def evaluate(
        self, predictor: GlimpseClassifier, folder: Path, options: EvaluateGlimpses, progress: Progress
    ) -> Evaluation:
        """The mean over sampled paths, beside a single path at the means."""
        split = _held_out_scenes(self.config, options.split, folder)
        images = split.data
        progress(0, len(images))
        start = time.perf_counter()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.seed)
            paths = []
            for path in path_probabilities(predictor.model, images.pixels, predictor.stats, options.draws):
                paths.append(path)
                progress(len(images) * len(paths) // (options.draws + 1), len(images))
        seconds = time.perf_counter() - start
        means, sampled = paths[0], paths[1:]
        probabilities = np.mean(sampled, 0) if sampled else means
        single = [accuracy(path.argmax(-1), images.labels) for path in paths]
        at_means = f"the path at the means of all locations {single[0]:.2f} %"
        note = f"The scores are of one path, {at_means}."
        if sampled:
            note = f"The scores are of the mean of {options.draws} sampled paths; "
            note += f"one sampled path has an accuracy of {np.mean(single[1:]):.2f} %, {at_means}."
        facts = {"split": options.split, "draws": options.draws, "at_the_means": single[0], "drawn": single[1:]}
        classes = predictor.stats.classes
        return class_evaluation(
            split, probabilities, classes, "images", seconds, names=IMAGE_SCORES, notes=[note], facts=facts
        )

    def attack_examples(
        self, predictor: GlimpseClassifier, folder: Path, options: AttackImages
    ) -> tuple[Tensor, Tensor, str]:
        split = _held_out_scenes(self.config, options.split, folder)
        return *bounded_examples(split.data, predictor.stats.classes), split.title


def build_ram(config: Glimpse, stats: ImageStats) -> RAM:
    """The model for images of these statistics, as they were read: the image decides the patch, not its canvas."""
    patch = config.patch_size(stats.height, stats.width)
    return config.model.build(stats.channels, len(stats.classes), patch=patch)


# Scenes


def scene_stats(config: Glimpse, stats: ImageStats) -> ImageStats:
    """The statistics of scenes of images with these: those of the canvas, with black at 0, as it is outside of it."""
    height, width = config.canvas_size(stats.height, stats.width)
    return replace(stats, mean=0.0, height=height, width=width)


def read_scenes(config: Glimpse, split: str) -> Images:
    """The scenes of "valid", which choose the best weights, or of "test", which training does not use."""
    return _evaluation_scenes(config, read_split(config, split), split)


def _held_out_scenes(config: Glimpse, split: HeldOutPart, folder: Path) -> EvaluationSplit[Images]:
    """The scenes of a run that is trained; raises if it was trained on some of them."""
    held_out = read_held_out(config, split, folder)
    return replace(held_out, data=_evaluation_scenes(config, held_out.data, split))


def _evaluation_scenes(config: Glimpse, images: Images, split: str) -> Images:
    """One scene per image, the same whenever they are composed."""
    if config.scene == "plain":
        return images
    return _compose_scenes(config, images, np.arange(len(images)), _SEEDS[split])


def _compose_scenes(config: Glimpse, images: Images, index: NDArray[np.int64], seed: int) -> Images:
    _, height, width, _ = images.pixels.shape
    clutter = config.clutter or 0
    piece, canvas = config.piece_size(height, width), config.canvas_size(height, width)
    return compose(images, index, canvas, clutter=clutter, piece=piece, seed=seed).images


# Scores


def path_scores(model: RAM, images: Images, stats: ImageStats, draws: int = _PATHS) -> dict[str, float]:
    """The scores of a model on images, by the mean of this many sampled paths (Monte Carlo)."""
    paths = [_one_path(model, images.pixels, stats, draw=True) for _ in range(draws)]
    return class_scores(np.mean(paths, 0), images.labels, IMAGE_SCORES)


def path_probabilities(
    model: RAM, pixels: NDArray[np.uint8], stats: ImageStats, draws: int = 0
) -> Iterator[NDArray[np.float64]]:  # "n h w c" -> "n k" each
    """p(class | image) of the path at the means of all locations, then of each of this many sampled paths."""
    for path in range(draws + 1):
        yield _one_path(model, pixels, stats, draw=path > 0)


def _one_path(model: RAM, pixels: NDArray[np.uint8], stats: ImageStats, *, draw: bool) -> NDArray[np.float64]:
    return class_probabilities(model, lambda x: model.look(x, draw=draw).logits, pixels, stats)
