"""Sights that are there without a training, and pictures as a request carries them."""

import base64
import io

import numpy as np
import torch
from PIL import Image

from regard.data.text.tokenizer import Tokenizer
from regard.gates.catalogue import GATES
from regard.inference.limits import Limits
from regard.models.convnet import ConvNet
from regard.serve.image_endpoint import ImageEndpoint
from regard.tasks._image_data import ImageStats
from regard.tasks._image_predictors import Captioning, Classifying, Glimpsing
from regard.tasks.caption.options import Caption
from regard.tasks.caption.predictor import Captioner
from regard.tasks.caption.predictor import build as build_caption
from regard.tasks.glimpse.options import Glimpse
from regard.tasks.glimpse.task import build as build_glimpse


def sight(gate: str | None = "simam", channels: int = 1) -> Classifying:
    """A network that learned nothing, for pictures 7 high and 11 wide of three classes."""
    facts = ImageStats(channels, 7, 11, ["cat", "dog <b>", "ねこ"], 0.4, 0.3, "")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = None if gate is None else GATES[gate]
        return Classifying(facts, ConvNet(channels, 3, width=4, depths=(1, 1), gate=made).eval())


def seeing(gate: str | None = "simam", channels: int = 1, **limits: int) -> ImageEndpoint:
    return ImageEndpoint(sight(gate, channels), Limits(**limits), run="tiny", step=4)


def drawn(seed: int, width: int = 22, height: int = 14, mode: str = "RGB") -> Image.Image:
    shape = (height, width) if mode == "L" else (height, width, 3)
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, np.uint8))


def packed(image: Image.Image, kind: str = "PNG") -> bytes:
    held = io.BytesIO()
    image.save(held, kind)
    return held.getvalue()


def sent(data: bytes) -> str:
    return base64.b64encode(data).decode()


def glimpsing() -> Glimpsing:
    """A model that glimpses three times at pictures 7 high and 11 wide, and learned nothing."""
    facts = ImageStats(1, 7, 11, ["cat", "dog", "owl"], 0.0, 0.3, "")
    task = Glimpse(data="digits", glimpses=3, what=4, where=4, glimpse=6, hidden=8)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return Glimpsing(facts, build_glimpse(task, facts).eval())


def captioning(longest: int = 5) -> Captioning:
    """One that says a few words of a picture 16 high and 24 wide."""
    tokens = Tokenizer.train("words", ["a b c d e"], 20)
    task = Caption(data="scenes", annotation=8, channels=4, width=6, hidden=8, dropout=0.0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        model = build_caption(task, 1, len(tokens)).eval()
    return Captioning(Captioner(model, tokens, ImageStats(1, 16, 24, [], 0.4, 0.3, ""), longest))
