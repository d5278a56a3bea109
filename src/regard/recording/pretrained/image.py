"""record_image: a vision model that transformers saved, recorded while it reads an image."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.common import image_files
from regard.recording.pretrained.folder import SAFE_LOADING, import_transformers, loading_errors
from regard.recording.run import PIXELS, RecordedRun, check_not_empty, pixel_size, recorded

# classes that a prediction names
_CLASSES = 3


def record_image(folder: Path, path: Path, layers: Sequence[str] = ()) -> RecordedRun:
    """Runs the model of the folder on an image and records all modules, or those whose names match `layers`.

    The image of the result is the input of the model: cropped and resized, its normalisation undone.
    """
    transformers = import_transformers(folder)
    from PIL import Image

    pixels = image_files.read(path, mode="RGB")
    with loading_errors(folder, "image processor"):
        processor = transformers.AutoImageProcessor.from_pretrained(folder, **SAFE_LOADING)
        config = transformers.AutoConfig.from_pretrained(folder, **SAFE_LOADING)
        classifies = any("ForImageClassification" in name for name in config.architectures or ())
        auto = transformers.AutoModelForImageClassification if classifies else transformers.AutoModel
        model = auto.from_pretrained(folder, config=config, use_safetensors=True, **SAFE_LOADING).eval()
    x = processor(Image.fromarray(pixels), return_tensors="pt")["pixel_values"]
    with recorded(model, layers) as recording:
        output = model(pixel_values=x)
    check_not_empty(recording, folder, layers)
    about = {**recording.about, "folder": folder.name, "transformers": transformers.__version__}
    about |= {"picture": path.name, PIXELS: pixel_size(pixels)}
    prediction = None
    if classifies:
        about["said"] = prediction = _likeliest_classes(output.logits[0], config.id2label)
    return RecordedRun(replace(recording, about=about), prediction, image=_model_input(x[0], processor))


def _likeliest_classes(logits: Tensor, names: dict[int, str]) -> str:
    probabilities = logits.cpu().double().softmax(-1)
    best = [int(n) for n in probabilities.argsort(descending=True)[:_CLASSES]]
    return ", ".join(f"{names[n]} {100 * float(probabilities[n]):.1f} %" for n in best)


def _model_input(x: Tensor, processor: Any) -> Tensor:  # "c h w" -> "h w 3"
    """The image that the model was given, its normalisation undone."""
    if getattr(processor, "do_normalize", False):
        mean, std = (torch.tensor(getattr(processor, name)).reshape(-1, 1, 1) for name in ("image_mean", "image_std"))
        x = x * std + mean
    return x.clamp(0, 1).movedim(0, -1).expand(-1, -1, 3)
