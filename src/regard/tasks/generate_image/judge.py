"""ReferenceClassifier and RealImageStats: whether samples are recognised, how far they are from real images, and
whether samples of a class differ."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from regard.common import atomic_files, safetensors_files
from regard.data.images.labelled import Images
from regard.metrics.frechet import Moments, frechet_distance, moments
from regard.models.convnet import ConvNet
from regard.tasks.shared.image_data import (
    ImageStats,
    class_probabilities,
    image_scores,
    image_tensor,
    plan_image_batches,
    refuse_overwriting,
    shifted_batch,
)

# images per class that the statistics of real images are taken from, at most
_MOST = 200
_KEY = "regard"
_FORMAT = 2
# images per batch of the training, and the largest shift of an image, in pixels
_BATCH, _SHIFT = 64, 1


@dataclass(frozen=True, eq=False)
class ReferenceClassifier:
    """A small network trained on real images, and its accuracy on real images that it was not trained on."""

    model: ConvNet
    stats: ImageStats
    accuracy: float

    @staticmethod
    def train(train: Images, held_out: Images, stats: ImageStats, steps: int, seed: int) -> "ReferenceClassifier":
        """Trains a classifier from this seed; leaves the state of the random generator as it is."""
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(seed)
            model = _build(stats).train()
            optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=max(steps, 2))
            step = epoch = 0
            while step < steps:
                for planned in plan_image_batches(len(train), _BATCH, seed, epoch)[: steps - step]:
                    batch = shifted_batch(train, stats, planned, _SHIFT)
                    assert batch is not None
                    loss = F.cross_entropy(model(batch.x), batch.labels, reduction="sum") / len(batch.labels)
                    loss.backward()
                    optimizer.step()
                    schedule.step()
                    optimizer.zero_grad()
                    step += 1
                epoch += 1
        model.eval().requires_grad_(False)
        return ReferenceClassifier(model, stats, image_scores(model, held_out, stats)["accuracy"])

    @staticmethod
    def of(
        path: Path, new: bool, stats: ImageStats, train: Callable[[], "ReferenceClassifier"]
    ) -> "ReferenceClassifier":
        """The classifier that a run saved; a new one is trained and saved, unless the folder holds one."""
        if path.exists():
            return refuse_overwriting(path) if new else ReferenceClassifier._read(path, stats)
        classifier = train()
        facts = json.dumps({"format": _FORMAT, "accuracy": classifier.accuracy})
        weights = {name: tensor.contiguous() for name, tensor in classifier.model.state_dict().items()}
        atomic_files.write_atomically(path, safetensors_files.encode(weights, {_KEY: facts}))
        return classifier

    @staticmethod
    def _read(path: Path, stats: ImageStats) -> "ReferenceClassifier":
        with torch.random.fork_rng(devices=[]):
            model = _build(stats)
        try:
            tensors, facts = safetensors_files.read_tagged(path, _KEY, _FORMAT, "classifier")
            model.load_state_dict(tensors)
            accuracy = float(facts["accuracy"])
        except (RuntimeError, ValueError, KeyError, TypeError, OverflowError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(
                f"{path} holds no classifier of this run ({reason}); delete it, and another one is trained"
            ) from error
        return ReferenceClassifier(model.eval().requires_grad_(False), stats, accuracy)

    def predict(self, pixels: NDArray[np.uint8]) -> NDArray[np.int64]:  # "n h w c" -> "n"
        """The likeliest class of each image."""
        return class_probabilities(self.model, self.model, pixels, self.stats).argmax(-1)

    @torch.no_grad()
    def features(self, pixels: NDArray[np.uint8]) -> Tensor:  # "n h w c" -> "n d"
        """The inputs of the last layer."""
        return self.model.features(image_tensor(pixels, self.stats)).mean((2, 3)).cpu().double()


@dataclass(frozen=True, eq=False)
class RealImageStats:
    """Statistics of the real images of every class: the mean distance of two, and the moments of their features."""

    judge: ReferenceClassifier
    spread: float
    features: list[Moments]  # moments per class

    @staticmethod
    def of(judge: ReferenceClassifier, images: Images) -> "RealImageStats":
        classes = [images.pixels[images.labels == n][:_MOST] for n in range(len(images.classes))]
        features = [moments(judge.features(pixels)) for pixels in classes]
        return RealImageStats(judge, _mean([spread(pixels) for pixels in classes if len(pixels) > 1]), features)

    def scores(self, pixels: NDArray[np.uint8], labels: NDArray[np.int64]) -> dict[str, float]:  # "n h w c", "n"
        """The scores of samples of these classes.

        `recognised` is the share that the classifier recognises as its class, in percent. `spread` is the mean
        distance of two samples of a class. `distance` is the Fréchet distance of the classifier's features, the mean
        over classes: the intra FID of Miyato & Koyama (2018) with a small network of our own.
        """
        classes = [pixels[labels == n] for n in range(len(self.features))]
        distances = [
            frechet_distance(moments(self.judge.features(samples)), real)
            for samples, real in zip(classes, self.features, strict=True)
            if len(samples)
        ]
        return {
            "recognised": 100.0 * float((self.judge.predict(pixels) == labels).mean()),
            "spread": _mean([spread(samples) for samples in classes if len(samples) > 1]),
            "real spread": self.spread,
            "distance": _mean(distances),
        }


def spread(pixels: NDArray[np.uint8]) -> float:  # "n h w c"
    """mean over i < j of ‖x_i − x_j‖, with pixels from 0 to 1."""
    return float(torch.pdist(torch.from_numpy(pixels.reshape(len(pixels), -1) / 255)).mean())


def _build(stats: ImageStats) -> ConvNet:
    return ConvNet(stats.channels, len(stats.classes), width=16, depths=(1, 1), dropout=0.1)


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else 0.0
