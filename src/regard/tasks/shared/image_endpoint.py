"""ImageEndpoint: any predictor of images behind HTTP, PNG or JPEG in, its output and its attention maps out."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from regard.common import image_files
from regard.common.cancellation import check_cancelled
from regard.inference.endpoint import PageSpec, Schema
from regard.inference.limits import Limits
from regard.inference.predictor import predict_recorded
from regard.recording.record import NO_ATTENTION, record
from regard.serve.errors import RequestError
from regard.serve.http.base64_files import decode_base64
from regard.serve.http.body_models import AnswerModel, Field, SingleOrList, limited, with_rules
from regard.serve.http.body_rules import only_if
from regard.serve.rounding import WEIGHT_DECIMALS, settle
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


@dataclass(frozen=True, eq=False)
class ImageRequest:
    """Images as they were sent, each with its name, and what is asked about them."""

    named: Sequence[tuple[str, str]]
    top: int
    maps: bool

    @property
    def count(self) -> int:
        return len(self.named)


@dataclass(frozen=True, eq=False)
class DecodedImages:
    """The same with images that are decoded, in the size that the model reads."""

    inputs: Sequence[ImageInput]
    top: int
    maps: bool

    @property
    def count(self) -> int:
        return len(self.inputs)


class ImageEndpoint:
    """Answers of `ImagePredictor.predict`, many requests at a time; `run` is the name of the model."""

    unit = "pictures"

    def __init__(self, predictor: ImagePredictor[Any], limits: Limits, *, run: str, step: int) -> None:
        self.predictor, self.limits, self.run, self.step = predictor, limits, run, step
        # whether a model attends to patches does not depend on the image
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=NO_ATTENTION)
            self.attends = bool(self._recorded(predictor.blank())[1])

    @property
    def name(self) -> str:
        return self.predictor.served_as

    @property
    def page(self) -> PageSpec:
        title = f"{self.predictor.page_title} with {self.run}"
        limits = {"body": self.limits.body}
        data = {"task": self.name, "title": title, "attends": self.attends, "limits": limits, "shown": {}}
        return PageSpec(title, "image/overlay", "image_form", data)

    @property
    def schema(self) -> Schema:
        model = RankedImageBody if self.predictor.stats.classes else ImageBody
        body = limited(model, images=Field(max_length=self.limits.texts))
        body = with_rules(body, only_if("maps", images={"maxItems": self.limits.pictures}))
        return Schema("Say what is on a picture, or on several", body, ImageAnswer)

    def model_info(self) -> dict[str, object]:
        limits, stats = self.limits, self.predictor.stats
        return {
            "task": self.name,
            "run": self.run,
            "step": self.step,
            "attends": self.attends,
            "parameters": sum(p.numel() for p in self.predictor.model.parameters()),
            "picture": {"width": stats.width, "height": stats.height, "channels": stats.channels},
            "classes": stats.classes,
            "limits": {
                "images": limits.texts,
                "pixels": limits.pixels,
                "maps": limits.pictures,
                "body": limits.body,
                "seconds": limits.seconds,
            },
        }

    def read(self, body: ImageBody) -> ImageRequest:
        named = body.named()
        if body.maps and not self.attends:
            raise RequestError(422, "maps need a model that attends to patches, and this one does not; leave maps out")
        if body.maps and len(named) > self.limits.pictures:
            most = self.limits.pictures
            raise RequestError(
                422, f"maps are given for at most {most} images per request, got {len(named)}; ask for fewer, or none"
            )
        return ImageRequest(named, body.top if isinstance(body, RankedImageBody) else _TOP, body.maps)

    def unpack(self, request: ImageRequest) -> DecodedImages:
        inputs = []
        try:
            for where, data in self._files(request):
                check_cancelled()
                inputs.append(ImageInput(read_pixels(data, self.predictor.stats, name=where, formats=FORMATS)))
        except ValueError as error:
            raise RequestError(422, str(error)) from None
        return DecodedImages(inputs, request.top, request.maps)

    def _files(self, request: ImageRequest) -> list[tuple[str, bytes]]:
        """The files with their names; raises if their first bytes declare too many pixels, before any is decoded."""
        files, total, most = [], 0, self.limits.pixels
        for where, text in request.named:
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

    def answer(self, requests: Sequence[DecodedImages]) -> list[dict[str, object]]:
        inputs = [given for request in requests if not request.maps for given in request.inputs]
        plain = iter(self.predictor.predict(inputs) if inputs else [])
        answers = []
        for request in requests:
            if request.maps:
                each = [self._answer_with_maps(given, request.top) for given in request.inputs]
            else:
                each = self._settle([next(plain) for _ in request.inputs], request.inputs, request.top)
            answers.append(each)
        return [{"answers": each} for each in answers]

    def _settle(self, outputs: Sequence[Any], inputs: Sequence[ImageInput], top: int) -> list[dict[str, Any]]:
        def alone(n: int) -> Any:
            (output,) = self.predictor.predict([inputs[n]])
            return output

        predictor = self.predictor
        return settle(
            outputs, lambda output: predictor.answer(output, top), alone, lambda output: predictor.margin(output, top)
        )

    def _answer_with_maps(self, given: ImageInput, top: int) -> dict[str, Any]:
        """One image at a time: two equal weights of a hard attention must not be told apart by their batch."""
        check_cancelled()
        output, maps = self._recorded(given)
        (answer,) = self._settle([output], [given], top)
        return {**answer, "maps": [_map_answer(each) for each in maps]}

    def _recorded(self, given: ImageInput) -> tuple[Any, tuple[SpatialMap, ...]]:
        model = self.predictor.model
        (output,), recording = predict_recorded(self.predictor, [given], record=lambda: record(model, budget=_BUDGET))
        return output, spatial_maps(recording, 0)


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
