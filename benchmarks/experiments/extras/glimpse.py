"""The picture of glimpses over scenes."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from benchmarks.experiments.runner import TrainedRun
from regard.recording.record import record
from regard.tasks.glimpse.task import path_probabilities, read_scenes
from regard.tasks.shared.image_data import image_tensor
from regard.viz.recording.figures import draw_recording

# scenes in the picture, and side by side: the numbers of more could not be read on a page
_DRAWN, _ACROSS = 4, 2


def draw(run: TrainedRun, path: Path) -> None:
    """The paths over the first test scenes that are classified correctly, one per digit."""
    model, stats = run.predictor.model, run.predictor.stats
    test = read_scenes(run.config, "test")[slice(0, 50)]
    right = np.flatnonzero(next(path_probabilities(model, test.pixels, stats)).argmax(-1) == test.labels)
    first = {int(test.labels[n]): int(n) for n in right[::-1]}
    images = []
    for n in sorted(first.values())[:_DRAWN] or [0]:
        with torch.no_grad(), record(model) as recording:
            model(image_tensor(test.pixels[n : n + 1], stats))
        part = path.with_stem(f"{path.stem}-{n}")
        draw_recording(recording, part, what="glimpses", image=torch.from_numpy(test.pixels[n]))
        with Image.open(part) as opened:
            images.append(opened.convert("RGB"))
        part.unlink()
    wide, high = max(image.width for image in images), max(image.height for image in images)
    sheet = Image.new("RGB", (min(len(images), _ACROSS) * wide, -(-len(images) // _ACROSS) * high), "white")
    for n, image in enumerate(images):
        sheet.paste(image, (n % _ACROSS * wide, n // _ACROSS * high))
    sheet.quantize(64).save(path, optimize=True)
