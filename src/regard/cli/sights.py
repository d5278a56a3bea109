"""SIGHTS: how a run that looks at pictures is made ready, by the name of its task's class."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from regard.cli.loading import Loaded, Weights, ready
from regard.tasks._image_predictors import Captioning, Classifying, Glimpsing, Sight
from regard.tasks.caption.options import Caption
from regard.tasks.classify_image.options import ClassifyImage
from regard.tasks.glimpse.options import Glimpse

classifying = partial(ready, ClassifyImage, Classifying.of)
glimpsing = partial(ready, Glimpse, Glimpsing.of)
captioning = partial(ready, Caption, Captioning.of)

SIGHTS: dict[str, Callable[[Path, Weights, str, int | None], Loaded[Any, Sight]]] = {
    "ClassifyImage": classifying,
    "Glimpse": glimpsing,
    "Caption": captioning,
}
