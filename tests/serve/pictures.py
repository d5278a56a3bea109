"""Predictors of images that were not trained, and images as a request carries them."""

import base64
import io

import numpy as np
import torch
from PIL import Image

from regard.data.text.tokenizer import Tokenizer
from regard.inference.limits import Limits
from regard.tasks.caption.options import ShowAttendTellOptions
from regard.tasks.caption.predictor import Captioner
from regard.tasks.classify_image.options import ConvNetOptions
from regard.tasks.classify_image.predictor import ImageClassifier
from regard.tasks.glimpse.options import Glimpse
from regard.tasks.glimpse.predictor import GlimpseClassifier
from regard.tasks.glimpse.task import build_ram
from regard.tasks.shared.image_data import ImageStats
from regard.tasks.shared.image_endpoint import ImageEndpoint


def classifier(gate: str | None = "simam", channels: int = 1) -> ImageClassifier:
    """For images 7 high and 11 wide of three classes."""
    stats = ImageStats(channels, 7, 11, ["cat", "dog <b>", "ねこ"], 0.4, 0.3, "")
    options = ConvNetOptions(width=4, depths=(1, 1), gate=gate, dropout=0.0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return ImageClassifier(options.build(channels, (7, 11), 3).eval(), stats)


def endpoint(gate: str | None = "simam", channels: int = 1, **limits: int) -> ImageEndpoint:
    return ImageEndpoint(classifier(gate, channels), Limits(**limits), run="tiny", step=4)


def drawn(seed: int, width: int = 22, height: int = 14, mode: str = "RGB") -> Image.Image:
    shape = (height, width) if mode == "L" else (height, width, 3)
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, np.uint8))


def packed(image: Image.Image, kind: str = "PNG") -> bytes:
    held = io.BytesIO()
    image.save(held, kind)
    return held.getvalue()


def sent(data: bytes) -> str:
    return base64.b64encode(data).decode()


def glimpse_classifier() -> GlimpseClassifier:
    """Three glimpses at images 7 high and 11 wide."""
    stats = ImageStats(1, 7, 11, ["cat", "dog", "owl"], 0.0, 0.3, "")
    task = Glimpse.of(data="digits", glimpses=3, what=4, where=4, glimpse=6, hidden=8)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return GlimpseClassifier(build_ram(task, stats).eval(), stats)


def captioner(longest: int = 5) -> Captioner:
    """Captions of a few words, of images 16 high and 24 wide."""
    tokenizer = Tokenizer.train("words", ["a b c d e"], 20)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        model = ShowAttendTellOptions(annotation=8, channels=4, width=6, hidden=8).build(1, len(tokenizer)).eval()
    return Captioner(model, tokenizer, ImageStats(1, 16, 24, [], 0.4, 0.3, ""), longest)
