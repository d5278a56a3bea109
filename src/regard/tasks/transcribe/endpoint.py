"""SoundEndpoint: a transcriber behind HTTP, WAV in, its transcript and the attention of its letters out."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from regard.common.cancellation import check_cancelled
from regard.data.audio.wav import Sound, read_wav, wav_bytes
from regard.inference.endpoint import PageSpec, Schema
from regard.inference.limits import Limits
from regard.serve.errors import RequestError
from regard.serve.http.base64_files import decode_base64
from regard.serve.http.body_models import AnswerModel, Field, SingleOrList, limited, with_rules
from regard.serve.http.body_rules import only_if
from regard.serve.rounding import WEIGHT_DECIMALS, settle
from regard.tasks.transcribe.data import at_rate, check_long_enough
from regard.tasks.transcribe.predictor import SoundInput, Transcriber, Transcript

_KIND = "a WAV file"
# decimals of the features that a page draws
_FRAME_DECIMALS = 2
_Base64 = Annotated[
    str,
    Field(
        description="A WAV file in base64; data:audio/wav;base64, may stand before it.",
        json_schema_extra={"contentEncoding": "base64", "format": "audio"},
    ),
]
_SILENCE = base64.b64encode(wav_bytes(Sound(np.zeros(400, np.float32), 8000))).decode()


class SoundBody(SingleOrList):
    """The body of POST /v1/transcribe."""

    pair: ClassVar[tuple[str, str]] = ("audio", "audios")
    example: ClassVar[dict[str, Any]] = {"audio": _SILENCE, "alignment": True}

    audio: Annotated[_Base64, Field(default_factory=str)]
    audios: Annotated[
        list[_Base64], Field(default_factory=list, min_length=1, description="Several at once, instead of audio.")
    ]
    alignment: Annotated[
        bool, Field(default=False, description="Whether to give the attention of each letter, and the spectrogram.")
    ]


class SoundAlignmentAnswer(AnswerModel):
    """The attention of each letter to the sound."""

    letters: Annotated[list[str], Field(description="One per row of weights; the last one may be the end.")]
    weights: Annotated[
        list[list[float]], Field(description="weights[i][j]: the attention of letter i to part j of the sound.")
    ]
    frames: Annotated[list[list[float]], Field(description="frames[t][m]: log energy of band m, one row per 10 ms.")]


class TranscriptAnswer(AnswerModel):
    """The answer about one sound."""

    text: str
    seconds: Annotated[float, Field(description="The length of the sound.")]
    alignment: Annotated[SoundAlignmentAnswer, Field(default=None, description="If the request asks for it.")]


class SoundAnswer(AnswerModel):
    """The answer of POST /v1/transcribe."""

    answers: Annotated[list[TranscriptAnswer], Field(description="One per sound, in their order.")]


@dataclass(frozen=True, eq=False)
class SoundRequest:
    """Sounds as they were sent, each with its name, and what is asked about them."""

    named: Sequence[tuple[str, str]]
    alignment: bool

    @property
    def count(self) -> int:
        return len(self.named)


@dataclass(frozen=True, eq=False)
class DecodedSounds:
    """The same with sounds that are decoded, at the rate of the model."""

    inputs: Sequence[SoundInput]
    alignment: bool

    @property
    def count(self) -> int:
        return len(self.inputs)


class SoundEndpoint:
    """Answers of `Transcriber.predict`, many requests at a time; `run` is the name of the model."""

    name, unit = "transcribe", "sounds"

    def __init__(self, predictor: Transcriber, limits: Limits, *, run: str, step: int) -> None:
        self.predictor, self.limits, self.run, self.step = predictor, limits, run, step

    @property
    def page(self) -> PageSpec:
        title = f"Write down speech with {self.run}"
        data = {"task": self.name, "title": title, "limits": {"body": self.limits.body}, "shown": {}}
        return PageSpec(title, "audio/alignment", "audio_form", data)

    @property
    def schema(self) -> Schema:
        body = limited(SoundBody, audios=Field(max_length=self.limits.texts))
        body = with_rules(body, only_if("alignment", audios={"maxItems": self.limits.pictures}))
        return Schema("Write down the speech of a sound, or of several", body, SoundAnswer)

    def model_info(self) -> dict[str, object]:
        limits = self.limits
        return {
            "task": self.name,
            "run": self.run,
            "step": self.step,
            "parameters": sum(p.numel() for p in self.predictor.model.parameters()),
            "rate": self.predictor.features.bands.rate,
            "limits": {
                "audios": limits.texts,
                "sound": limits.sound,
                "alignments": limits.pictures,
                "body": limits.body,
                "seconds": limits.seconds,
            },
        }

    def read(self, body: SoundBody) -> SoundRequest:
        named = body.named()
        if body.alignment and len(named) > (most := self.limits.pictures):
            raise RequestError(
                422, f"alignments are given for at most {most} sounds per request, got {len(named)}; ask for fewer"
            )
        return SoundRequest(named, body.alignment)

    def unpack(self, request: SoundRequest) -> DecodedSounds:
        inputs, total = [], 0.0
        for where, text in request.named:
            check_cancelled()
            try:
                sound = read_wav(decode_base64(where, text, _KIND), where)
                check_long_enough(sound, where)
            except ValueError as error:
                raise RequestError(422, str(error)) from None
            total += sound.seconds
            if total > self.limits.sound:
                raise RequestError(
                    422,
                    f"the sounds of a request must last at most {self.limits.sound:g} seconds together, got "
                    f"{total:.1f}; cut them into parts",
                )
            inputs.append(SoundInput(at_rate(sound, self.predictor.features.bands.rate)))
        return DecodedSounds(inputs, request.alignment)

    def answer(self, requests: Sequence[DecodedSounds]) -> list[dict[str, object]]:
        inputs = [given for request in requests for given in request.inputs]
        wanted = [request.alignment for request in requests for _ in request.inputs]
        outputs = self.predictor.predict(inputs)

        def alone(n: int) -> Transcript:
            (output,) = self.predictor.predict([inputs[n]])
            return output

        texts = settle(outputs, lambda output: {"text": output.best.text}, alone, self.predictor.margin)
        answers = iter(
            self._answer(given, text["text"], is_wanted)
            for given, text, is_wanted in zip(inputs, texts, wanted, strict=True)
        )
        return [{"answers": [next(answers) for _ in request.inputs]} for request in requests]

    def _answer(self, given: SoundInput, text: str, is_wanted: bool) -> dict[str, Any]:
        answer: dict[str, Any] = {"text": text, "seconds": given.sound.seconds}
        if not is_wanted:
            return answer
        # one sound at a time, so that nothing depends on its batch
        (output,) = self.predictor.predict([given])
        (alignment,) = self.predictor.align([given.sound], [output.best])
        frames = self.predictor.features.frames(given.sound.samples)
        answer["text"] = output.best.text
        answer["alignment"] = {
            "letters": alignment.target,
            "weights": alignment.weights.cpu().double().round(decimals=WEIGHT_DECIMALS).tolist(),
            "frames": frames.cpu().double().round(decimals=_FRAME_DECIMALS).tolist(),
        }
        return answer
