"""Images of a run under an attack: the accuracy against its radius, and pictures of both."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.attacks import AccuracyCurve, accuracy_curve
from regard.common.eval_mode import eval_mode
from regard.common.wording import plural
from regard.experiments.attacked_run import AttackedRun, Report, evenly_spaced
from regard.inference.bounded_classifier import BoundedClassifier
from regard.recording.run import recorded
from regard.tasks.loading import LoadedRun
from regard.tasks.shared.image_maps import spatial_maps
from regard.tasks.shared.image_options import AttackImages
from regard.viz.plots.attacked_images import AttackedImage, draw_attacked_images
from regard.viz.plots.curve import curve as draw_line

# images per run
_COUNT = 500
# images and maps of each that a figure has room for
_IMAGES, _MAPS = 6, 3


@dataclass(frozen=True, eq=False)
class AttackedImages(AttackedRun):
    """The accuracy of a classifier of images against the radius of an attack."""

    unit: ClassVar[str] = "image"

    images: Tensor  # "b c h w", before the attack
    curve: AccuracyCurve

    def explain(self) -> str:
        rows = [
            f"{eps:<10.4g}{accuracy:<10.2f}{'█' * round(accuracy / 4)}".rstrip()
            for eps, accuracy in zip(self.curve.epsilons, self.curve.accuracies, strict=True)
        ]
        return "\n".join(["eps       accuracy", *rows, self._about()])

    def numbers(self) -> dict[str, Any]:
        points = zip(self.curve.epsilons, self.curve.results, strict=True)
        return {
            "curve": [
                {"eps": eps, "accuracy": result.accuracy, "queries": result.queries.cpu().double().mean().item()}
                for eps, result in points
            ]
        }

    def draw_curve(self, path: Path) -> None:
        """Draws the accuracy against the radius."""
        points = list(zip(self.curve.epsilons, self.curve.accuracies, strict=True))
        draw_line({self.attack: points}, path, "eps, the largest change of a pixel", "accuracy in percent", floor=0.0)

    def draw_examples(self, path: Path) -> bool:
        """Draws images that the largest radius broke and the model had right, each at the smallest radius that does."""
        results, predictor = self.curve.results, self.loaded.predictor
        rows = (~results[0].broken & results[-1].broken).nonzero().flatten()[:_IMAGES].tolist()
        if not rows:
            return False
        attacked = torch.stack([next(r.inputs[row] for r in results if r.broken[row]) for row in rows])
        names = predictor.stats.classes  # type: ignore[attr-defined]
        before, after = (_readings(predictor, x) for x in (self.images[rows], attacked))
        images = []
        for n, row in enumerate(rows):
            (old_class, old, old_maps), (new_class, new, new_maps) = before[n], after[n]
            maps = [(name, m, new_maps[name]) for name, m in list(old_maps.items())[:_MAPS] if name in new_maps]
            texts = f"{names[old_class]} {100 * old:.0f} %", f"{names[new_class]} {100 * new:.0f} %"
            images.append(AttackedImage(self.images[row].cpu(), attacked[n].cpu(), *texts, maps))
        widest = self.curve.epsilons[-1]
        notes = [f"broken by {self.attack}, eps up to {widest:g}; class and probability before and after"]
        draw_attacked_images(images, path, "Images before and after an attack", notes)
        return True


def attack_images(
    loaded: LoadedRun,
    attack: str,
    options: AttackImages,
    count: int | None,
    seed: int,
    report: Report,
    epsilons: Sequence[float] | None = None,
) -> AttackedImages:
    """Attacks at most `count` images, evenly spaced in the split, at these radii, or from 0 to `options.eps`."""
    predictor = loaded.predictor
    assert isinstance(predictor, BoundedClassifier)
    built = options.build(attack)
    images, labels, split = loaded.attack_examples(options)
    rows = evenly_spaced(len(images), count or _COUNT)
    images = images[rows]
    epsilons = epsilons or [options.eps * n / (options.points - 1) for n in range(options.points)]
    report(f"{attack} on {plural(len(images), 'image')}, {len(epsilons)} radii")
    start = time.perf_counter()
    curve = accuracy_curve(predictor, images, labels[rows], built, epsilons, seed)
    about = loaded, attack, split, seed, time.perf_counter() - start, len(images), curve.accuracies[-1]
    return AttackedImages(*about, curve.warnings, images, curve)


def _readings(predictor: Any, x: Tensor) -> list[tuple[int, float, dict[str, Tensor]]]:
    """Class, probability and attention maps, "h w" by name, of each image."""
    readings = []
    for image in x:
        with torch.no_grad(), eval_mode(predictor.model), recorded(predictor.model, ()) as recording:
            logits = predictor.bounded_logits(image[None].to(predictor.device, predictor.dtype))
        probability, label = logits[0].cpu().softmax(0).max(0)
        maps = {each.name: each.weights.mean(0) for each in spatial_maps(recording, 0)}
        readings.append((int(label), float(probability), maps))
    return readings
