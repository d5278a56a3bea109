"""The pictures of `regard attack`: the accuracy curve, and attacked images with their attention."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.attacks import AccuracyCurve
from regard.common.eval_mode import eval_mode
from regard.recording.run import recorded
from regard.tasks.shared.image_maps import spatial_maps
from regard.viz.plots.attacked_images import AttackedImage, draw_attacked_images
from regard.viz.plots.curve import curve as draw_line

# images and maps of each that a figure has room for
_IMAGES, _MAPS = 6, 3


def draw_curve(curve: AccuracyCurve, attack: str, path: Path) -> None:
    """The accuracy against the radius."""
    points = list(zip(curve.epsilons, curve.accuracies, strict=True))
    draw_line({attack: points}, path, "eps, the largest change of a pixel", "accuracy in percent", floor=0.0)


def draw_examples(predictor: Any, clean: Tensor, curve: AccuracyCurve, attack: str, path: Path) -> bool:
    """The first images that the largest radius broke and the model had right, each broken by as little as was found.

    False if there is none, and so no figure.
    """
    was_right, result = ~curve.results[0].broken, curve.results[-1]
    rows = (was_right & result.broken).nonzero().flatten()[:_IMAGES].tolist()
    if not rows:
        return False
    attacked = torch.stack([next(r.inputs[row] for r in curve.results if r.broken[row]) for row in rows])
    names = predictor.stats.classes
    before, after = (_readings(predictor, x) for x in (clean[rows], attacked))
    images = []
    for n, row in enumerate(rows):
        (old_class, old, old_maps), (new_class, new, new_maps) = before[n], after[n]
        maps = [(name, m, new_maps[name]) for name, m in list(old_maps.items())[:_MAPS] if name in new_maps]
        texts = f"{names[old_class]} {100 * old:.0f} %", f"{names[new_class]} {100 * new:.0f} %"
        images.append(AttackedImage(clean[row].cpu(), attacked[n].cpu(), *texts, maps))
    wide = curve.epsilons[-1]
    notes = [f"broken by {attack}, eps up to {wide:g}; class and probability before and after"]
    draw_attacked_images(images, path, "Images before and after an attack", notes)
    return True


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
