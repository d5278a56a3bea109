"""Sights that are there without a training, and pictures as a request carries them."""

import base64
import io

import numpy as np
import torch
from PIL import Image

from regard.gates.catalogue import GATES
from regard.models.convnet import ConvNet
from regard.serve.limits import Limits
from regard.serve.seeing import Seeing
from regard.tasks.pictures import Facts
from regard.tasks.sight import Classifying


def sight(gate: str | None = "simam", channels: int = 1) -> Classifying:
    """A network that learned nothing, for pictures 7 high and 11 wide of three classes."""
    facts = Facts(channels, 7, 11, ["cat", "dog <b>", "ねこ"], 0.4, 0.3, "")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = None if gate is None else GATES[gate]
        return Classifying(facts, ConvNet(channels, 3, width=4, depths=(1, 1), gate=made).eval())


def seeing(gate: str | None = "simam", channels: int = 1, **limits: int) -> Seeing:
    return Seeing(sight(gate, channels), Limits(**limits), run="tiny", step=4)


def drawn(seed: int, width: int = 22, height: int = 14, mode: str = "RGB") -> Image.Image:
    shape = (height, width) if mode == "L" else (height, width, 3)
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, np.uint8))


def packed(image: Image.Image, kind: str = "PNG") -> bytes:
    held = io.BytesIO()
    image.save(held, kind)
    return held.getvalue()


def sent(data: bytes) -> str:
    return base64.b64encode(data).decode()
