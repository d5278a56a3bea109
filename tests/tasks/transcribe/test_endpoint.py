"""The service of transcribers: WAV in, transcript and alignment out; one sentence for each request that is refused."""

import base64
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from tests.for_each import for_each
from tests.serve.conftest import visit

from regard.common.cancellation import Cancellation, cancelled_if
from regard.data.audio.wav import Sound, wav_bytes
from regard.data.embedded.spelling import RATE, utterance
from regard.data.text.tokenizer import Tokenizer
from regard.inference.limits import Limits
from regard.models.listening.listen_attend_spell import ListenAttendSpell
from regard.serve.model_endpoint import InputsRequest
from regard.tasks.transcribe.data import Features, SpeechFingerprint
from regard.tasks.transcribe.endpoint import SoundEndpoint
from regard.tasks.transcribe.options import Transcribe
from regard.tasks.transcribe.predictor import SoundInput, Transcriber


def small_predictor() -> Transcriber:
    torch.manual_seed(0)
    data = SpeechFingerprint(train=1, valid=1, train_sha256="", valid_sha256="", mean=[-5.0] * 11, deviation=[3.0] * 11)
    model = ListenAttendSpell(11, 7, width=6, hidden=10, dropout=0.0)
    return Transcriber(model, Tokenizer("characters", ["a", "b", "c"], None), Features(Transcribe(mels=11), data))


@pytest.fixture(scope="module")
def predictor() -> Transcriber:
    return small_predictor()


def encoded(samples: Any, rate: int = RATE) -> str:
    return base64.b64encode(wav_bytes(Sound(np.asarray(samples, np.float32), rate))).decode()


def ask(predictor: Transcriber, *bodies: dict[str, Any], **limits: Any) -> list[httpx.Response]:
    endpoint = SoundEndpoint(predictor, Limits(**limits), run="run", step=3)

    async def act(client: httpx.AsyncClient) -> list[httpx.Response]:
        return [await client.post("/v1/transcribe", json=body) for body in bodies]

    return visit(endpoint, act)


def test_answers_are_those_of_the_predictor(predictor: Transcriber) -> None:
    sounds = [Sound(utterance("test", (0, n)).samples[:4000], RATE) for n in range(2)]
    files = [encoded(sound.samples) for sound in sounds]
    one, both = ask(
        predictor,
        {"audio": f"data:audio/wav;base64,{files[0]}", "alignment": True},
        {"audios": files},
    )
    assert one.status_code == both.status_code == 200, one.text
    (answer,) = one.json()["answers"]
    right = [predictor.text(output) for output in predictor.predict([SoundInput(sound) for sound in sounds])]
    assert [each["text"] for each in both.json()["answers"]] == right
    assert answer["text"] == right[0]
    assert answer["seconds"] == 0.5
    alignment = answer["alignment"]
    assert len(alignment["letters"]) == len(alignment["weights"])
    assert len(alignment["frames"]) == 48
    assert {len(row) for row in alignment["weights"]} == {12}
    assert "alignment" not in both.json()["answers"][0]


REFUSED: dict[str, dict[str, Any]] = {
    "audio must be a WAV file in base64, and is none": {"audio": "?"},
    "audio must be base64, and its data: address says that it is not": {"audio": "data:audio/wav,abc"},
    "audio is no WAV file": {"audio": base64.b64encode(b"some text").decode()},
    "audios[1] lasts 1 ms, less than one window": {"audios": [encoded(np.zeros(400)), encoded(np.zeros(8))]},
    "the sounds of a request must last at most 1 seconds together, got 1.2; cut them into parts": {
        "audios": [encoded(np.zeros(4800))] * 2
    },
    "alignments are given for at most 2 sounds per request, got 3; ask for fewer": {
        "audios": [encoded(np.zeros(400))] * 3,
        "alignment": True,
    },
}


@for_each("message", REFUSED)
def test_refused(message: str, predictor: Transcriber) -> None:
    (response,) = ask(predictor, REFUSED[message], sound=1.0, pictures=2)
    assert response.status_code == 422
    assert message in response.json()["error"]


def test_nobody_waits(predictor: Transcriber) -> None:
    endpoint = SoundEndpoint(predictor, Limits(), run="run", step=3)
    with pytest.raises(Cancellation), cancelled_if(lambda: True):
        endpoint.unpack(InputsRequest([("audio", "")]))
