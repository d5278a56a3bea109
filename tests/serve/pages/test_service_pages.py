"""The pages of a service of several models in a browser: index, documentation and models, with a token; nothing is
asked of anyone else."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.serve import pictures
from tests.serve.conftest import Make, running_models
from tests.serve.pages.conftest import Seen
from tests.viz.looking import violations

from regard.inference.limits import Limits
from regard.serve.served_model import ServedModel

TOKEN = "s3cret"


@pytest.fixture(scope="module")
def address(translating: Make) -> Iterator[str]:
    models = [
        ServedModel(translating(), Limits(), "reverse"),
        ServedModel(pictures.endpoint(), Limits(), "digits"),
    ]
    with running_models(models, tokens={"token": TOKEN}) as (address, _):
        yield address


@pytest.fixture
def seen(chromium: Any, address: str) -> Iterator[Seen]:
    context = chromium.new_context(viewport={"width": 900, "height": 900})
    made = Seen(context.new_page(), address)
    yield made
    context.close()
    # the browser notes refused requests, and Swagger UI formats that it draws as plain strings
    assert [text for text in made.complaints if "401" not in text and "JsonSchema_string_image" not in text] == []
    assert all(url.startswith((f"{address}/", "data:")) for url in made.requests)


def test_the_documentation_is_drawn_and_asks(seen: Seen) -> None:
    page = seen.page
    page.goto(f"{seen.address}/docs")
    page.wait_for_selector("#operations-reverse-post_reverse_v1_translate_post")
    assert page.locator(".opblock").count() == 8
    page.get_by_role("button", name="Authorize").click()
    page.locator(".auth-container input").fill(TOKEN)
    page.locator(".auth-btn-wrapper .authorize").click()
    page.locator(".btn-done").click()
    operation = page.locator("#operations-digits-model_digits_v1_model_get")
    operation.locator(".opblock-summary-control").click()
    operation.get_by_role("button", name="Execute").click()
    operation.locator(".live-responses-table .response-col_status", has_text="200").wait_for()
    assert '"task": "classify"' in operation.locator(".live-responses-table .highlight-code").text_content()
    form = page.locator("#operations-digits-post_digits_v1_classify_post")
    form.locator(".opblock-summary-control").click()
    form.locator(".body-param-content-type select").select_option("multipart/form-data")
    form.locator('input[type="file"]').first.wait_for()
    # Swagger UI looks for a field per format first, and says when it has none
    seen.complaints[:] = [each for each in seen.complaints if "JsonSchema_string_binary" not in each]


@pytest.mark.parametrize("name", ["reverse", "digits"])
def test_a_page_asks_for_the_token_once(name: str, seen: Seen) -> None:
    page = seen.page
    page.get_by_role("link", name=name).click()
    page.wait_for_selector("#ask")
    if name == "reverse":
        page.locator("#text").fill("c a b")
    else:
        page.locator("#file").set_input_files(
            {"name": "a.png", "mimeType": "image/png", "buffer": pictures.packed(pictures.drawn(1))}
        )
    page.wait_for_selector("#access")
    assert seen.text("#wrong").startswith("the service asks for a token")
    page.locator("#token").fill("other")
    page.keyboard.press("Enter")
    page.locator("#wrong", has_text="the token is not that of this service").wait_for()
    page.locator("#token").fill(TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_selector("#results:not([hidden])")
    assert page.locator("#access").count() == 0
    assert seen.text("#wrong") == ""
    page.reload()
    page.get_by_role("link", name="All models").click()
    page.get_by_role("link", name=name).click()
    page.wait_for_selector("#ask")
    if name == "reverse":
        seen.typed("a b")
        assert seen.text("#outcome") == "1 sentence translated."


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_index_documentation_and_the_question_for_a_token_are_accessible(scheme: str, seen: Seen) -> None:
    page = seen.page
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 320, "height": 640})
    seen.check_layout()
    page.get_by_role("link", name="reverse").click()
    page.locator("#text").fill("c a b")
    page.wait_for_selector("#access")
    seen.check_layout()
    page.goto(f"{seen.address}/docs")
    page.wait_for_selector("#operations-reverse-post_reverse_v1_translate_post")
    assert violations(page) == []
