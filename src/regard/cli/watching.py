"""A model that looks at pictures, run on one while it is recorded: a run of a training, or a folder of transformers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.common import image_files
from regard.models.row_reader import RowReader
from regard.recording.recording import Recording
from regard.tasks._image_predictors import Sight, watched

# how transformers says what a model does to a picture
PROCESSOR = "preprocessor_config.json"

# under which name a recording tells how large its picture was
PIXELS = "pixels"
# what a reader of rows looks with, and at
_ROWS = {"queries": "rows of the picture, from the top", "keys": "patches of a row, from the left"}

Taped = Callable[[nn.Module, Sequence[str]], AbstractContextManager[Recording]]


@dataclass(frozen=True, eq=False)
class Watched:
    """What was recorded, the picture under it, "h w 3", and what the model said of it."""

    recording: Recording
    image: Tensor
    said: str | None


def size_of(pixels: NDArray[np.uint8]) -> str:  # "h w c"
    """Width by height, in words."""
    return f"{pixels.shape[1]} × {pixels.shape[0]}"


def path_of(folder: Path, given: str | None) -> Path:
    """The picture that was named."""
    if given is None:
        raise ValueError(f"{folder} looks at pictures; name one, such as three.png")
    return Path(given)


def run(folder: Path, path: Path, layers: Sequence[str], weights: str, taped: Taped) -> Watched:
    """A run of this library. Its maps lie over the whole picture, however large that is."""
    from regard.cli.loading import recorded
    from regard.cli.sights import SIGHTS

    image_files.read(path, mode="RGB")  # what is no picture is told before a model is loaded
    sight = SIGHTS[recorded(folder).kind](folder, weights, "cpu", None).by  # type: ignore[arg-type]
    return looked(sight, folder, path, layers, taped)


def looked(sight: Sight, folder: Path, path: Path, layers: Sequence[str], taped: Taped) -> Watched:
    """What a run that is ready sees in a picture."""
    image = image_files.read(path, mode="RGB")
    facts = sight.facts
    pixels = image_files.read(path, size=(facts.width, facts.height), mode="L" if facts.channels == 1 else "RGB")
    (seen,), tape = watched(sight, pixels[None], lambda: taped(sight.model, layers))
    about = {**tape.about, "run": folder.name, "picture": path.name, PIXELS: size_of(image), "said": seen.said}
    tape = replace(tape, about=about | (_ROWS if isinstance(sight.model, RowReader) else {}))
    if seen.pieces:
        tape = tape.with_labels([piece.removeprefix("▁") for piece in seen.pieces], [])
    return Watched(tape, torch.from_numpy(image), seen.said)


@contextmanager
def loadable(folder: Path, beside: str) -> Iterator[None]:
    """In one sentence, whatever transformers says of a folder that it cannot read: a file there may hold anything."""
    try:
        yield
    except Exception as error:
        line = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ValueError(
            f"transformers cannot load {folder} ({line}); save the model and its {beside} there with save_pretrained"
        ) from error


def pretrained(folder: Path, path: Path, layers: Sequence[str], taped: Taped, safely: dict[str, Any]) -> Watched:
    """A folder of transformers. The picture under its maps is the one that the model was given: cut and made small."""
    import transformers
    from PIL import Image

    pixels = image_files.read(path, mode="RGB")
    given = Image.fromarray(pixels)
    with loadable(folder, "image processor"):
        processor = transformers.AutoImageProcessor.from_pretrained(folder, **safely)
        config = transformers.AutoConfig.from_pretrained(folder, **safely)
        named = any("ForImageClassification" in name for name in config.architectures or ())
        auto = transformers.AutoModelForImageClassification if named else transformers.AutoModel
        model = auto.from_pretrained(folder, config=config, use_safetensors=True, **safely).eval()
    x = processor(given, return_tensors="pt")["pixel_values"]
    with taped(model, layers) as tape:
        out = model(pixel_values=x)
    said = None
    if named:
        chances = out.logits[0].cpu().double().softmax(-1)
        best = [(config.id2label[int(n)], float(chances[n])) for n in chances.argsort(descending=True)[:3]]
        said = ", ".join(f"{name} {100 * chance:.1f} %" for name, chance in best)
    about = {**tape.about, "folder": folder.name, "transformers": transformers.__version__}
    about |= {"picture": path.name, PIXELS: size_of(pixels)}
    about |= {} if said is None else {"said": said}
    return Watched(replace(tape, about=about), _seen(x[0], processor), said)


def _seen(x: Tensor, processor: Any) -> Tensor:  # "c h w" -> "h w c"
    """What the model was given, its normalisation undone."""
    if getattr(processor, "do_normalize", False):
        mean, spread = (
            torch.tensor(getattr(processor, name)).reshape(-1, 1, 1) for name in ("image_mean", "image_std")
        )
        x = x * spread + mean
    return x.clamp(0, 1).movedim(0, -1).expand(-1, -1, 3)
