"""The page of sound in a browser: one drops a WAV file, reads its transcript and sees where each letter attends."""

import base64
from collections.abc import Iterator

import numpy as np
import pytest
from tests.serve.http.test_h11_timeouts import running
from tests.serve.pages.conftest import Seen
from tests.serve.pages.test_image_form import DROP, READY
from tests.tasks.transcribe.test_endpoint import small_predictor

from regard.data.audio.wav import Sound, wav_bytes
from regard.data.embedded.spelling import RATE, utterance
from regard.inference.limits import Limits
from regard.tasks.transcribe.endpoint import SoundEndpoint
from regard.tasks.transcribe.predictor import SoundInput

SOUND = Sound(utterance("test", (0, 0)).samples[:6000], RATE)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    endpoint = SoundEndpoint(small_predictor(), Limits(body=100_000), run="run", step=3)
    with running(endpoint, body=100_000) as (port, _):
        yield f"http://127.0.0.1:{port}"


def dropped(seen: Seen, data: bytes) -> None:
    seen.page.evaluate("for (const id of ['outcome', 'wrong']) document.getElementById(id).textContent = ''")
    seen.page.evaluate(DROP, ["a.wav", "audio/wav", base64.b64encode(data).decode()])
    seen.page.wait_for_selector(READY)


def test_a_sound_is_written_down(seen: Seen) -> None:
    predictor = small_predictor()
    page = seen.page
    assert page.title() == "Write down speech with run"
    dropped(seen, wav_bytes(SOUND))
    heard = Sound(np.round(SOUND.samples * 32767).astype(np.float32) / 32768, RATE)
    (output,) = predictor.predict([SoundInput(heard)])
    assert page.inner_text("#outcome") == (predictor.text(output) or "(nothing)")
    assert "attends most at" in page.inner_text("#sound-status")
    page.focus("#sound")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert " at 0.04 s: " in page.inner_text("#sound-status")
    page.click("summary")
    page.wait_for_selector("#attention th[scope=row]")  # the table is filled when it opens
    assert page.locator("#attention th[scope=row]").count() == len(output.tokens)
    seen.check_layout()


def test_other_files_are_one_sentence(seen: Seen) -> None:
    dropped(seen, b"no sound at all")
    assert "audio is no WAV file: it does not begin with RIFF and WAVE" in seen.page.inner_text("#wrong")
    dropped(seen, bytes(90_000))
    assert "the sound may have at most 74,850 bytes, got 90,000; cut it into parts" in seen.page.inner_text("#wrong")
    assert seen.page.is_hidden("#results")
    seen.forget_refusals()
