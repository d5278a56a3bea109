"""SoundEndpoint: a transcriber behind HTTP, WAV in, its transcript and the attention of its letters out."""

import base64
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import numpy as np

from regard.common.cancellation import check_cancelled
from regard.data.audio.wav import Sound, read_wav, wav_bytes
from regard.serve.errors import RequestError
from regard.serve.file_endpoint import FileEndpoint, NamedFile
from regard.serve.http.base64_files import decode_base64
from regard.serve.http.body_models import AnswerModel, Field, SingleOrList
from regard.serve.rounding import WEIGHT_DECIMALS
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


class SoundEndpoint(FileEndpoint):
    """Answers of `Transcriber.predict`."""

    name, unit, view, form = "transcribe", "sounds", "html/spectrogram", "audio_form"
    attention_field = "alignment"
    summary = "Write down the speech of a sound, or of several"
    answer_type = SoundAnswer
    body_type = SoundBody

    predictor: Transcriber

    @property
    def title(self) -> str:
        return f"Write down speech with {self.run}"

    def facts(self) -> dict[str, object]:
        return {"parameters": self.num_parameters, "rate": self.predictor.features.bands.rate}

    def input_limits(self) -> dict[str, object]:
        return {"audios": self.limits.texts, "sound": self.limits.sound, "alignments": self.limits.pictures}

    def check_attention(self, count: int) -> None:
        if count > (most := self.limits.pictures):
            raise RequestError(
                422, f"alignments are given for at most {most} sounds per request, got {count}; ask for fewer"
            )

    def decode(self, files: Sequence[NamedFile]) -> list[SoundInput]:
        inputs, total = [], 0.0
        for where, text in files:
            check_cancelled()
            sound = read_wav(decode_base64(where, text, _KIND), where)
            check_long_enough(sound, where)
            total += sound.seconds
            if total > self.limits.sound:
                raise RequestError(
                    422,
                    f"the sounds of a request must last at most {self.limits.sound:g} seconds together, got "
                    f"{total:.1f}; cut them into parts",
                )
            inputs.append(SoundInput(at_rate(sound, self.predictor.features.bands.rate)))
        return inputs

    def write(self, output: Transcript, body: Any) -> dict[str, Any]:
        return {"text": output.best.text}

    def settle(self, outputs: Sequence[Any], inputs: Sequence[SoundInput], body: Any) -> list[dict[str, Any]]:
        texts = super().settle(outputs, inputs, body)
        return [{**text, "seconds": item.sound.seconds} for text, item in zip(texts, inputs, strict=True)]

    def attended(self, item: SoundInput) -> tuple[Transcript, dict[str, Any]]:
        (output,) = self.predictor.predict([item])
        (alignment,) = self.predictor.align([item.sound], [output.best])
        frames = self.predictor.features.frames(item.sound.samples)
        written = {
            "letters": alignment.target,
            "weights": alignment.weights.cpu().double().round(decimals=WEIGHT_DECIMALS).tolist(),
            "frames": frames.cpu().double().round(decimals=_FRAME_DECIMALS).tolist(),
        }
        return output, {"alignment": written}
