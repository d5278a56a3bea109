"""One tiny run per task: the options of its training, inputs to predict, and the body of a request."""

import base64
import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image


class Case(NamedTuple):
    """`options` of `regard train` for a run of a moment, `inputs` of `regard predict`, two values to compare, targets
    for `Predictor.loss`, and further arguments of `regard predict`; "IMAGE" stands for the path of an image."""

    options: str
    inputs: tuple[str, ...]
    varied: tuple[str, str]
    targets: tuple[Any, ...]
    predict: str = ""


CASES: dict[str, Case] = {
    "translate": Case(
        "--data reverse --width 6 --hidden 8 --batch 64 --valid-lines 3", ("abc", "hello"), ("dot", "none"), ("a", "b")
    ),
    "classify-image": Case("--gate se --width 4 --depths 1 --batch 16", ("IMAGE",) * 2, ("none", "se"), ("0", "1")),
    "glimpse": Case(
        "--what 4 --where 4 --glimpse 6 --hidden 6 --glimpses 2 --batch 16", ("IMAGE",) * 2, ("1", "2"), ("0", "1")
    ),
    "caption": Case(
        "--annotation 6 --channels 4 --width 5 --hidden 7 --batch 64 --valid-lines 3",
        ("IMAGE",) * 2,
        ("soft", "hard"),
        ("one", "two"),
    ),
    "generate-image": Case(
        "--width 2 --noise 3 --judge 1 --batch 16", ("0", "1"), ("none", "half"), ("IMAGE",) * 2, "--picture OUT"
    ),
    "classify-text": Case(
        "--data documents --width 5 --hidden 6 --hops 2 --feed 7 --batch 512",
        ("It was lost.", "We can confirm that the box broke. It rained."),
        ("dot", "entmax"),
        ("lost", "damaged"),
    ),
}


def image_file(folder: Path) -> Path:
    """An image of 8 by 8 random grey values."""
    path = folder / "random.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (8, 8), np.uint8)).save(path)
    return path


def request_body(kind: str, given: str) -> dict[str, str]:
    """The body of a request about one input."""
    if kind == "text":
        return {"text": given}
    data = io.BytesIO(Path(given).read_bytes()).getvalue()
    return {"image": base64.b64encode(data).decode()}
