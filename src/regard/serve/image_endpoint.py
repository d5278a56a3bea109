"""Seeing: a run that looks at pictures behind the service, PNG or JPEG in, what is on it and where it looked out."""

import base64
import binascii
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from regard.common import image_files
from regard.inference.endpoint import PageSpec, Schema
from regard.inference.limits import Limits
from regard.recording.record import NO_ATTENTION, record
from regard.serve.errors import RequestError
from regard.serve.http.body_models import AnswerModel, Field, SingleOrList, limited
from regard.serve.spatial_maps import SpatialMap, spatial_maps
from regard.tasks._image_predictors import Pixels, Sight, Sighted, watched
from regard.viz.text import labels

KINDS = ("PNG", "JPEG")
Seen = tuple[Sighted, Sequence[SpatialMap]]
# a JPEG comes in one scan or in a dozen, each of which goes over all pixels and may take no more than 30 bytes
_SCAN, _SCANS = b"\xff\xda", 100
# bytes, and pictures, that may be recorded at a time
_BUDGET, _AT_ONCE = 512 << 20, 64
# what the page says that is done to a picture
_VERBS = {"classify": "Classify", "glimpse": "Look around in", "caption": "Describe"}
# classes in an answer where a request does not say how many
_TOP = 5
_BLACK = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
_Base64 = Annotated[
    str,
    Field(
        description="A PNG or JPEG file in base64; data:image/png;base64, may stand before it.",
        json_schema_extra={"contentEncoding": "base64"},
    ),
]


class ImageBody(SingleOrList):
    """The body of POST /v1/classify, /v1/glimpse and /v1/caption."""

    pair: ClassVar[tuple[str, str]] = ("image", "images")
    example: ClassVar[dict[str, Any]] = {"image": _BLACK, "top": 3, "maps": True}

    image: Annotated[_Base64, Field(default_factory=str)]
    images: Annotated[
        list[_Base64], Field(default_factory=list, min_length=1, description="Several at once, instead of image.")
    ]
    top: Annotated[
        int,
        Field(
            default=_TOP,
            ge=1,
            le=1_000_000,
            description="Classes in the answer, the likeliest first; there may be fewer. Not for sentences.",
        ),
    ]
    maps: Annotated[bool, Field(default=False, description="Whether to give the maps of the model's attention.")]


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
    """Pictures as they were sent, each with what it is called, and what is wanted of them."""

    named: Sequence[tuple[str, str]]
    top: int
    maps: bool

    @property
    def count(self) -> int:
        return len(self.named)


@dataclass(frozen=True, eq=False)
class Unpacked:
    """The same with pictures as large as those that were learned from."""

    pixels: Pixels
    top: int
    maps: bool

    @property
    def count(self) -> int:
        return len(self.pixels)


class ImageEndpoint:
    """Answers of a sight, many requests at a time; `run` is what the model is called."""

    counted = "pictures"

    def __init__(self, sight: Sight, limits: Limits, *, run: str, step: int) -> None:
        self.sight, self.limits, self.run, self.step = sight, limits, run, step
        facts = sight.facts
        # what a model looks at does not depend on the picture: a black one tells whether there will be maps
        black = np.zeros((1, facts.height, facts.width, facts.channels), np.uint8)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=NO_ATTENTION)
            self.attends = bool(self._see(black, True)[0][1])

    @property
    def name(self) -> str:
        return self.sight.name

    @property
    def face(self) -> PageSpec:
        title = f"{_VERBS.get(self.name, 'Look at')} pictures with {self.run}"
        limits = {"body": self.limits.body}
        data = {"task": self.name, "title": title, "attends": self.attends, "limits": limits, "shown": {}}
        return PageSpec(title, "image/overlay", "image_form", data)

    @property
    def schema(self) -> Schema:
        body = limited(ImageBody, images=Field(max_length=self.limits.texts))
        return Schema("Say what is on a picture, or on several", body, ImageAnswer)

    def about(self) -> dict[str, object]:
        limits, facts = self.limits, self.sight.facts
        return {
            "task": self.name,
            "run": self.run,
            "step": self.step,
            "attends": self.attends,
            "parameters": sum(p.numel() for p in self.sight.model.parameters()),
            "picture": {"width": facts.width, "height": facts.height, "channels": facts.channels},
            "classes": facts.classes,
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
        if "top" in body.model_fields_set and not self.sight.facts.classes:
            raise RequestError(422, "top counts classes, and this model writes sentences; leave top out")
        if body.maps and not self.attends:
            raise RequestError(422, "maps need a model that looks at places, and this one does not; leave maps out")
        if body.maps and len(named) > self.limits.pictures:
            most = self.limits.pictures
            raise RequestError(
                422, f"maps are given for at most {most} images a request, got {len(named)}; ask for fewer, or none"
            )
        return ImageRequest(named, body.top, body.maps)

    def unpack(self, asked: ImageRequest, over: Callable[[], bool]) -> Unpacked:
        facts, found = self.sight.facts, []
        size, mode = (facts.width, facts.height), "L" if facts.channels == 1 else "RGB"
        try:
            for where, data in self._files(asked, over):
                _check(over)
                found.append(image_files.read(data, size=size, mode=mode, name=where, formats=KINDS))
        except ValueError as error:
            raise RequestError(422, str(error)) from None
        return Unpacked(np.stack(found), asked.top, asked.maps)

    def _files(self, asked: ImageRequest, over: Callable[[], bool]) -> list[tuple[str, bytes]]:
        """Each with its name, if their first bytes say that they are not too large: none of them is unpacked yet."""
        found, together, most = [], 0, self.limits.pixels
        for where, text in asked.named:
            _check(over)
            found.append((where, _decoded(where, text)))
            wide, high = image_files.read_size(found[-1][1], name=where, formats=KINDS)
            if wide * high > most:
                raise RequestError(
                    422, f"{where} must have at most {most:,} pixels, got {wide:,} × {high:,}; make it smaller"
                )
            together += wide * high
        if together > most:
            raise RequestError(
                422, f"images must have at most {most:,} pixels together, got {together:,}; ask several times"
            )
        return found

    def answer(self, asked: Sequence[Unpacked]) -> list[dict[str, object]]:
        seen: list[list[Seen]] = [[] for _ in asked]
        for maps in (False, True):
            those = [n for n, one in enumerate(asked) if one.maps == maps]
            if those:
                found = iter(self._see(np.concatenate([asked[n].pixels for n in those]), maps))
                for n in those:
                    seen[n] = [next(found) for _ in asked[n].pixels]
        return [
            {"answers": [_written(*one, ask.top, ask.maps) for one in some]}
            for ask, some in zip(asked, seen, strict=True)
        ]

    def _see(self, pixels: Pixels, maps: bool) -> list[Seen]:
        if not maps:
            return [(one, ()) for one in self.sight.see(pixels)]
        if len(pixels) > _AT_ONCE:
            parts = [pixels[n : n + _AT_ONCE] for n in range(0, len(pixels), _AT_ONCE)]
            return [one for part in parts for one in self._see(part, maps)]
        try:
            found, tape = watched(self.sight, pixels, lambda: record(self.sight.model, budget=_BUDGET))
        except MemoryError:  # as many together as can be recorded at once
            half = len(pixels) // 2
            if not half:
                raise
            return [*self._see(pixels[:half], maps), *self._see(pixels[half:], maps)]
        return [(one, spatial_maps(tape, n)) for n, one in enumerate(found)]


def _check(over: Callable[[], bool]) -> None:
    if over():
        raise RequestError(503, "nobody waits for these pictures any more")


def _decoded(where: str, text: str) -> bytes:
    if text.startswith("data:"):
        head, comma, text = text.partition(",")
        if not comma or not head.endswith(";base64"):
            raise RequestError(422, f"{where} must be base64, and its data: address says that it is not; encode it")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError(422, f"{where} must be a PNG or JPEG file in base64, and is none ({error})") from None
    if data.startswith(b"\xff\xd8") and (scans := data.count(_SCAN)) > _SCANS:
        raise RequestError(
            422, f"{where} must come in at most {_SCANS} scans, got {scans:,}; save it without progression"
        )
    return data


def _written(one: Sighted, looked: Sequence[SpatialMap], top: int, maps: bool) -> dict[str, object]:
    found: dict[str, object] = {}
    if one.classes:
        found["classes"] = [{"name": name, "probability": chance} for name, chance in one.classes[:top]]
    if one.places:
        found["path"] = [{"x": x, "y": y} for x, y in one.places]
    if one.pieces:
        found |= {"text": one.text, "words": [labels.visible_label(piece.removeprefix("▁")) for piece in one.pieces]}
    if maps:
        found["maps"] = [_look(look, len(one.pieces)) for look in looked]
    return found


def _look(look: SpatialMap, words: int) -> dict[str, object]:
    # beside a longer sentence a shorter one has looks that nobody used
    used = look.weights[:words] if words and look.kind == "alignment" else look.weights
    # seven places are all that float32 knows, in half the letters
    weights = used.double().round(decimals=7).tolist()
    return {"name": look.name, "kind": look.kind, "verified": look.verified, "weights": weights}
