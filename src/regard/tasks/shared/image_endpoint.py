"""ImageEndpoint: any predictor of images behind HTTP, PNG or JPEG in, its output and its attention maps out."""

import warnings
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from regard.common import image_files
from regard.common.cancellation import check_cancelled
from regard.inference.limits import Limits
from regard.inference.predictor import predict_recorded
from regard.recording.record import NO_ATTENTION, record
from regard.serve.errors import RequestError
from regard.serve.file_endpoint import FileEndpoint, NamedFile
from regard.serve.http.base64_files import decode_base64
from regard.serve.http.body_models import AnswerModel, Field, SingleOrList
from regard.serve.rounding import WEIGHT_DECIMALS
from regard.tasks.shared.image_data import read_pixels
from regard.tasks.shared.image_maps import SpatialMap, spatial_maps
from regard.tasks.shared.image_predictors import ImageInput, ImagePredictor

FORMATS = ("PNG", "JPEG")
# a JPEG has one scan or a dozen; each covers all pixels, and may be only 30 bytes long
_SCAN, _MAX_SCANS = b"\xff\xda", 100
# bytes of one recording
_BUDGET = 512 << 20
# classes in an answer where a request does not say how many
_TOP = 5
_BLACK = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
_Base64 = Annotated[
    str,
    Field(
        description="A PNG or JPEG file in base64; data:image/png;base64, may stand before it.",
        json_schema_extra={"contentEncoding": "base64", "format": "image"},
    ),
]


class ImageBody(SingleOrList):
    """The body of POST /v1/caption."""

    pair: ClassVar[tuple[str, str]] = ("image", "images")
    example: ClassVar[dict[str, Any]] = {"image": _BLACK, "maps": True}

    image: Annotated[_Base64, Field(default_factory=str)]
    images: Annotated[
        list[_Base64], Field(default_factory=list, min_length=1, description="Several at once, instead of image.")
    ]
    maps: Annotated[bool, Field(default=False, description="Whether to give the maps of the model's attention.")]


class RankedImageBody(ImageBody):
    """The body of POST /v1/classify and /v1/glimpse."""

    example: ClassVar[dict[str, Any]] = {"image": _BLACK, "top": 3, "maps": True}

    top: Annotated[
        int,
        Field(
            default=_TOP,
            ge=1,
            le=1_000_000,
            description="Classes in the answer, the likeliest first; there may be fewer.",
        ),
    ]


class ClassAnswer(AnswerModel):
    """A class and its probability."""

    name: str
    probability: Annotated[float, Field(ge=0, le=1)]


class PointAnswer(AnswerModel):
    """From (0, 0), the upper left corner, to (1, 1)."""

    x: float
    y: float


class MapAnswer(AnswerModel):
    """The attention of one module over the picture."""

    name: Annotated[str, Field(description="The module that attends; if over several grids, with the grid.")]
    kind: Annotated[str, Field(description="gate, self, cross, alignment or glimpse.")]
    verified: Annotated[bool, Field(description="Whether these weights are certainly those that the model used.")]
    weights: Annotated[
        list[list[list[float]]],
        Field(
            description="weights[n][i][j]: attention n, one per word or glimpse where the model attends several times, "
            "to row i and column j of a grid over the whole picture. Finer grids are averaged."
        ),
    ]


class PictureAnswer(AnswerModel):
    """The answer about one picture."""

    classes: Annotated[list[ClassAnswer], Field(default=None, description="The likeliest first.")]
    path: Annotated[list[PointAnswer], Field(default=None, description="The places of a model's glimpses, in order.")]
    text: Annotated[str, Field(default=None, description="The sentence of a model that writes sentences.")]
    words: Annotated[list[str], Field(default=None, description="Its words, one attention map each.")]
    maps: Annotated[list[MapAnswer], Field(default=None, description="If the request asks for them.")]


class ImageAnswer(AnswerModel):
    """The answer of POST /v1/classify, /v1/glimpse and /v1/caption."""

    answers: Annotated[list[PictureAnswer], Field(description="One per picture, in their order.")]


class ImageEndpoint(FileEndpoint):
    """Answers of `ImagePredictor.predict`."""

    unit, view, form = "pictures", "html/image_overlay", "image_form"
    attention_field = "maps"
    summary = "Say what is on a picture, or on several"
    answer_type = ImageAnswer

    predictor: ImagePredictor[Any]

    def __init__(self, predictor: ImagePredictor[Any], limits: Limits, *, run: str, step: int) -> None:
        super().__init__(predictor, limits, run=run, step=step)
        self.name = predictor.served_as
        # whether a model attends to patches does not depend on the image
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=NO_ATTENTION)
            self.attends = bool(self.attended(predictor.blank())[1]["maps"])

    @property
    def title(self) -> str:
        return f"{self.predictor.page_title} with {self.run}"

    @property
    def body_type(self) -> type[ImageBody]:
        return RankedImageBody if self.predictor.stats.classes else ImageBody

    def page_data(self) -> dict[str, object]:
        return {"attends": self.attends, **super().page_data()}

    def facts(self) -> dict[str, object]:
        stats = self.predictor.stats
        return {
            "attends": self.attends,
            "parameters": self.num_parameters,
            "picture": {"width": stats.width, "height": stats.height, "channels": stats.channels},
            "classes": stats.classes,
        }

    def input_limits(self) -> dict[str, object]:
        return {"images": self.limits.texts, "pixels": self.limits.pixels, "maps": self.limits.pictures}

    def check_attention(self, count: int) -> None:
        if not self.attends:
            raise RequestError(422, "maps need a model that attends to patches, and this one does not; leave maps out")
        if count > (most := self.limits.pictures):
            raise RequestError(
                422, f"maps are given for at most {most} images per request, got {count}; ask for fewer, or none"
            )

    def decode(self, files: Sequence[NamedFile]) -> list[ImageInput]:
        inputs = []
        for where, data in self._files(files):
            check_cancelled()
            inputs.append(ImageInput(read_pixels(data, self.predictor.stats, name=where, formats=FORMATS)))
        return inputs

    def _files(self, named: Sequence[NamedFile]) -> list[tuple[str, bytes]]:
        """The files with their names; raises if their first bytes declare too many pixels, before any is decoded."""
        files, total, most = [], 0, self.limits.pixels
        for where, text in named:
            check_cancelled()
            data = _image_bytes(where, text)
            files.append((where, data))
            width, height = image_files.read_size(data, name=where, formats=FORMATS)
            if width * height > most:
                raise RequestError(
                    422, f"{where} must have at most {most:,} pixels, got {width:,} × {height:,}; make it smaller"
                )
            total += width * height
        if total > most:
            raise RequestError(
                422, f"images must have at most {most:,} pixels together, got {total:,}; send several requests"
            )
        return files

    def write(self, output: Any, body: Any) -> dict[str, Any]:
        return self.predictor.answer(output, getattr(body, "top", _TOP))

    def margin(self, output: Any, body: Any) -> float:
        return self.predictor.margin(output, getattr(body, "top", _TOP))

    def attended(self, item: ImageInput) -> tuple[Any, dict[str, Any]]:
        model = self.predictor.model
        (output,), recording = predict_recorded(self.predictor, [item], record=lambda: record(model, budget=_BUDGET))
        return output, {"maps": [_map_answer(each) for each in spatial_maps(recording, 0)]}


def _image_bytes(where: str, text: str) -> bytes:
    data = decode_base64(where, text, "a PNG or JPEG file")
    if data.startswith(b"\xff\xd8") and (scans := data.count(_SCAN)) > _MAX_SCANS:
        raise RequestError(
            422, f"{where} must come in at most {_MAX_SCANS} scans, got {scans:,}; save it without progression"
        )
    return data


def _map_answer(spatial_map: SpatialMap) -> dict[str, object]:
    return {
        "name": spatial_map.name,
        "kind": spatial_map.kind,
        "verified": spatial_map.verified,
        "weights": spatial_map.weights.cpu().double().round(decimals=WEIGHT_DECIMALS).tolist(),
    }
