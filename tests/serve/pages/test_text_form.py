"""The page of texts in a browser: one types, sees the answer and the words tinted by each hop of attention."""

from collections.abc import Iterator

import httpx
import pytest
from tests.product import first
from tests.serve.http.test_h11_timeouts import running
from tests.serve.pages.conftest import OpenPage, Seen
from tests.serve.texts import text_endpoint


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(text_endpoint()) as (port, _):
        yield f"http://127.0.0.1:{port}"


def test_one_types_and_sees(seen: Seen) -> None:
    page = seen.page
    assert page.title() == "Classify texts with tiny"
    assert page.evaluate("document.activeElement.id") == "text"
    assert not page.locator("#results").is_visible()
    seen.typed("a <b> c")
    (answer,) = httpx.post(
        f"{seen.address}/v1/classify-text", json={"text": "a <b> c", "attention": True}
    ).json()["answers"]  # fmt: skip
    classes = list(answer["classes"].items())
    assert seen.text("#outcome") == f"{classes[0][0]}, {100 * classes[0][1]:.1f} %"
    assert len([url for url in seen.requests if url.endswith("/v1/classify-text")]) == 1
    assert page.locator("#answer th[scope=row]").all_text_contents() == [name for name, _ in classes]
    # one line per hop, every token with its weight
    (attended,) = answer["attention"]
    assert page.locator("#lines h3").all_text_contents() == ["hop 1", "hop 2"]
    for n, row in enumerate(attended["weights"][0]):
        line = page.locator("#lines .tokens").nth(n)
        assert line.locator(".token > span").all_text_contents() == attended["keys"]
        titles = [float(chip.get_attribute("title")) for chip in line.locator(".token").all()]
        assert titles == pytest.approx(row, abs=6e-5)
        # the greatest weight has the strongest colour
        colours = [chip.evaluate("(chip) => chip.style.backgroundColor") for chip in line.locator(".token").all()]
        assert colours[row.index(max(row))] == "rgb(254, 232, 56)"


def test_what_is_wrong_is_said_and_goes_away(seen: Seen) -> None:
    seen.typed("a" * 41)
    assert seen.text("#wrong") == "the text must have at most 40 letters; send a shorter one"
    assert not seen.page.locator("#results").is_visible()
    seen.forget_refusals()
    seen.page.locator("#text").fill("a")
    seen.page.wait_for_selector("#outcome:not(:empty)")
    assert seen.text("#wrong") == ""
    seen.page.locator("#text").fill("")
    seen.page.wait_for_selector("#results", state="hidden")
    assert seen.text("#outcome") == ""


def test_a_model_without_attention(open_page: OpenPage) -> None:
    with running(text_endpoint(attends=False)) as (port, _):
        seen = open_page(f"http://127.0.0.1:{port}")
        seen.typed("a b")
        assert seen.page.get_by_text("This model has no attention, so there is nothing else to see.").is_visible()
        assert not seen.page.locator("#attention").is_visible()


@pytest.mark.parametrize("scheme", first(["light", "dark"]))
def test_it_fits_and_is_accessible(scheme: str, open_page: OpenPage, address: str) -> None:
    seen = open_page(address, 320, 640, color_scheme=scheme)
    seen.typed("a b c d")
    seen.check_layout()
