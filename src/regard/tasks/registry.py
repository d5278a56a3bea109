"""TASKS: what can be trained, by the name that a command line types.  No torch here."""

from typing import Any

from regard.common.dataclass_json import dataclass_from_json
from regard.tasks.caption.options import Caption
from regard.tasks.classify_image.options import ClassifyImage
from regard.tasks.generate_image.options import GenerateImage
from regard.tasks.glimpse.options import Glimpse
from regard.tasks.translate.options import Translate

Kind = Translate | ClassifyImage | Caption | Glimpse | GenerateImage

TASKS: dict[str, type[Translate] | type[ClassifyImage] | type[Caption] | type[Glimpse] | type[GenerateImage]] = {
    "translate": Translate,
    "classify-image": ClassifyImage,
    "caption": Caption,
    "glimpse": Glimpse,
    "generate": GenerateImage,
}


def told(kind: str, fields: dict[str, Any], run: object) -> Kind:
    """The task that a run recorded, by the name of its class."""
    for task in TASKS.values():
        if task.__name__ == kind:
            return dataclass_from_json(task, fields)
    raise ValueError(f"{run} is a run of {kind}, which this version does not know; update regard")
