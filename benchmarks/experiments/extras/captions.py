"""The picture of a caption, word by word."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from benchmarks.experiments.runner import TrainedRun
from regard.data.embedded.scenes import NAMES
from regard.decoding.search import Greedy
from regard.recording.record import record
from regard.tasks.caption.task import caption_scores, read_captioned
from regard.viz.recording.figures import draw_recording

_TRIED = 100


def draw(run: TrainedRun, path: Path) -> None:
    """The test scene with the most digits whose caption is right."""
    captioner, test = run.predictor, read_captioned(run.config, "test")
    _, captions = caption_scores(captioner, test, Greedy())
    right = [n for n in range(len(test)) if captions[n].text in test.captions[n]] or [0]
    n = max(right[:_TRIED], key=lambda n: sum(word.strip(",") in NAMES for word in captions[n].text.split()))
    pixels = np.array(test.pixels[n])
    with record(captioner.model) as recording:
        (aligned,) = captioner.align(pixels[None], [captions[n]])
    recording = recording.with_labels([token.removeprefix("▁") for token in aligned.target], [])
    draw_recording(recording, path, what="captions", image=torch.from_numpy(pixels))
    few_colours(path, 128)


def few_colours(path: Path, colours: int) -> None:
    """The picture in few colours, to keep it small."""
    with Image.open(path) as image:
        image.convert("RGB").quantize(colours, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)
