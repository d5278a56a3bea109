"""What was drawn, judged: is it recognised, do pictures of a class differ, how far are they from real ones?"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.common import atomic_files, safetensors_files
from regard.data.images.labelled import Images
from regard.models.convnet import ConvNet
from regard.tasks._image_data import ImageStats, tensor
from regard.tasks.classify_image import task as classification
from regard.tasks.classify_image.options import ClassifyImage
from regard.tasks.classify_image.task import ClassifyImageProblem, probabilities

# images of a class that real ones are measured by
_MOST = 200
_KEY = "regard"


@dataclass(frozen=True, eq=False)
class ReferenceClassifier:
    """A small network that learned real images, and how many of those that it has not learned from it gets right."""

    model: ConvNet
    facts: ImageStats
    accuracy: float

    @staticmethod
    def learned(train: Images, held: Images, facts: ImageStats, steps: int, seed: int) -> "ReferenceClassifier":
        """Trained from that seed; nothing else draws differently afterwards."""
        work = ClassifyImageProblem(ClassifyImage(width=16, depths=(1, 1), seed=seed), train, held, facts)
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(seed)
            model = classification.build(work.task, facts.channels, len(facts.classes)).train()
            optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
            rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=max(steps, 2))
            done = epoch = 0
            while done < steps:
                for planned in work.batches(epoch)[: steps - done]:
                    batch = work.batch(planned, 0, 1)
                    assert batch is not None
                    loss = work.loss(model, batch)
                    (loss.total / loss.count).backward()
                    optimizer.step()
                    rate.step()
                    optimizer.zero_grad()
                    done += 1
                epoch += 1
        model.eval().requires_grad_(False)
        return ReferenceClassifier(model, facts, classification.evaluate(model, held, facts)["accuracy"])

    @staticmethod
    def of(
        path: Path, new: bool, facts: ImageStats, learn: Callable[[], "ReferenceClassifier"]
    ) -> "ReferenceClassifier":
        """The one that a run saved, or one that learns now and is saved."""
        if not new and path.exists():
            return ReferenceClassifier._read(path, facts)
        made = learn()
        told = json.dumps({"accuracy": made.accuracy})
        weights = {name: t.contiguous() for name, t in made.model.state_dict().items()}
        atomic_files.write_atomically(path, safetensors_files.encode(weights, {_KEY: told}))
        return made

    @staticmethod
    def _read(path: Path, facts: ImageStats) -> "ReferenceClassifier":
        with torch.random.fork_rng(devices=[]):
            task = ClassifyImage(width=16, depths=(1, 1))
            model = classification.build(task, facts.channels, len(facts.classes))
        try:
            tensors, told = safetensors_files.read(path, _KEY, "checkpoint")
            model.load_state_dict(tensors)
            accuracy = float(told["accuracy"])
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path} holds no classifier of this run ({error}); delete it, another one learns"
            ) from error
        return ReferenceClassifier(model.eval().requires_grad_(False), facts, accuracy)

    def says(self, pixels: NDArray[np.uint8]) -> NDArray[np.int64]:  # "n h w c" -> "n"
        """The likeliest class of each."""
        return probabilities(self.model, pixels, self.facts).argmax(-1)

    @torch.no_grad()
    def features(self, pixels: NDArray[np.uint8]) -> Tensor:  # "n h w c" -> "n d"
        """What the last layer reads."""
        return self.model.features(tensor(pixels, self.facts)).mean((2, 3)).cpu().double()


@dataclass(frozen=True, eq=False)
class RealImageStats:
    """Real images of every class as they are measured: how far apart they are, and how their features lie."""

    judge: ReferenceClassifier
    spread: float
    features: list[tuple[Tensor, Tensor]]  # mean "d" and covariance "d d" of every class

    @staticmethod
    def of(judge: ReferenceClassifier, images: Images) -> "RealImageStats":
        each = [images.pixels[images.labels == n][:_MOST] for n in range(len(images.classes))]
        measured = [_moments(judge.features(some)) for some in each]
        return RealImageStats(judge, _mean([spread(some) for some in each if len(some) > 1]), measured)

    def scores(self, pixels: NDArray[np.uint8], labels: NDArray[np.int64]) -> dict[str, float]:  # "n h w c", "n"
        """How near drawn pictures are to real ones of their class, and how many are recognised; how much they differ.

        `distance` is the Fréchet distance of the judge's features, the mean over classes: the intra FID of Miyato &
        Koyama (2018) with a small network of our own. `spread` is the mean distance of two pictures of a class.
        """
        each = [pixels[labels == n] for n in range(len(self.features))]
        far = [frechet(_moments(self.judge.features(a)), b) for a, b in zip(each, self.features, strict=True) if len(a)]
        return {
            "recognised": 100.0 * float((self.judge.says(pixels) == labels).mean()),
            "spread": _mean([spread(some) for some in each if len(some) > 1]),
            "real spread": self.spread,
            "distance": _mean(far),
        }


def spread(pixels: NDArray[np.uint8]) -> float:  # "n h w c"
    """mean over i < j of ‖x_i − x_j‖, with pixels from 0 to 1."""
    return float(torch.pdist(torch.from_numpy(pixels.reshape(len(pixels), -1) / 255)).mean())


def frechet(one: tuple[Tensor, Tensor], two: tuple[Tensor, Tensor]) -> float:
    """‖μ₁ − μ₂‖² + tr(C₁ + C₂ − 2 (C₁ C₂)^½), of means and covariances  (Heusel et al. 2017, eq. 6)."""
    (mean, cov), (other, further) = one, two
    values, vectors = torch.linalg.eigh(cov)
    root = (vectors * values.clamp_min(0).sqrt()) @ vectors.T
    shared = torch.linalg.eigvalsh(root @ further @ root).clamp_min(0).sqrt().sum()
    return float((mean - other).square().sum() + cov.trace() + further.trace() - 2 * shared)


def _moments(features: Tensor) -> tuple[Tensor, Tensor]:  # "n d" -> "d", "d d"
    mean = features.mean(0)
    apart = features - mean
    return mean, apart.T @ apart / max(len(features) - 1, 1)


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else 0.0
