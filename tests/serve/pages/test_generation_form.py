"""The page of language models in a browser: one sends a prompt and sees the text grow."""

from collections.abc import Iterator

import httpx
import pytest
from tests.serve.http.test_h11_timeouts import running
from tests.serve.pages.conftest import Seen
from tests.tasks.language_model.test_generation import predictor

from regard.inference.limits import Limits
from regard.tasks.language_model.endpoint import GenerateEndpoint


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(GenerateEndpoint(predictor("bytes"), Limits(characters=40), run="tiny", step=2)) as (port, _):
        yield f"http://127.0.0.1:{port}"


def test_one_sends_a_prompt_and_sees_its_text(seen: Seen, address: str) -> None:
    page = seen.page
    assert page.title() == "Generate with tiny"
    assert page.evaluate("document.activeElement.id") == "text"
    assert not page.locator("#results").is_visible()
    page.fill("#text", "the <b>\ncat")
    page.fill("#tokens", "30")
    page.fill("#temperature", "1.5")
    page.click("button")
    page.locator("#outcome:not(:empty)").wait_for()
    body = {"text": "the <b>\ncat", "tokens": 30, "temperature": 1.5}
    (answer,) = httpx.post(f"{address}/v1/generate", json=body).json()["answers"][0]["texts"]
    assert page.locator("#continuation").text_content() == answer["text"]
    assert page.locator("#generated strong").text_content() == "the <b>\ncat"
    assert page.locator("#outcome").text_content().startswith(f"{answer['tokens']} tokens")
    page.set_viewport_size({"width": 320, "height": 640})
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        seen.check_layout()
    page.fill("#text", "a" * 41)
    page.click("button")
    page.locator("#wrong:not(:empty)").wait_for()
    assert "text must have at most 40 characters" in page.locator("#wrong").text_content()
    assert not page.locator("#results").is_visible()
    seen.forget_refusals()
