"""The page in a browser: one types, sees the translation and what it looked at; nothing is asked of anyone else."""

import re

import httpx
import pytest
from tests.product import first
from tests.serve.conftest import Service
from tests.serve.http.test_h11_timeouts import running
from tests.serve.pages.conftest import OpenPage, Seen

from regard.data.text.pairs import Pairs
from regard.inference.limits import Limits
from regard.tasks.loading import LoadedRun
from regard.tasks.translate.endpoint import TranslateEndpoint
from regard.tasks.translate.options import Translate
from regard.tasks.translate.predictor import Translator
from regard.tasks.translate.vocabularies import Vocabularies


@pytest.fixture
def address(service: Service) -> str:
    return service.address


def test_one_types_and_sees(seen: Seen) -> None:
    page = seen.page
    assert page.title() == "Translate with tiny"
    assert page.evaluate("document.activeElement.id") == "text"
    assert not page.locator("#results").is_visible()
    seen.typed("c a b")
    answer = httpx.post(f"{seen.address}/v1/translate", json={"text": "c a b", "alignment": True}, timeout=60).json()
    (best,) = answer["answers"][0]["translations"]
    page.wait_for_selector("#results:not([hidden])")
    assert seen.text("#outcome") == "1 sentence translated."
    assert seen.text("#whole") == (best["text"] or "(nothing)")
    # typed letter by letter, asked once, and once for the alignment
    assert len([url for url in seen.requests if url.endswith("/v1/translate")]) == 2
    assert [page.locator(".text").nth(n).text_content() for n in (0, 1)] == ["c a b", best["text"]]

    page.locator("#results summary").click()
    rows = page.locator("tbody tr")
    rows.first.wait_for()  # the table is written when it is opened
    assert rows.count() == len(best["alignment"]["target"])
    weights, pieces = best["alignment"]["weights"], best["alignment"]["source"]
    for t, row in enumerate(weights):
        cells = rows.nth(t).locator("th, td").all_text_contents()
        most = max(range(len(row)), key=lambda s: (row[s], -s))
        assert cells[1] == best["alignment"]["target"][t]
        assert cells[2].startswith(f"'{pieces[most]}' ")
        assert float(cells[2].split(" ")[-1]) == pytest.approx(row[most], abs=1e-4)


def test_by_keys_alone(seen: Seen) -> None:
    page = seen.page
    page.keyboard.type("a b")
    page.wait_for_selector("#results:not([hidden])")
    stops = []
    for _ in range(6):
        page.keyboard.press("Tab")
        stops.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert stops == ["copy", "sentence", "beam", "nbest", "language", ""]
    page.evaluate("document.getElementById('text').focus()")
    page.keyboard.type(" c")
    page.get_by_role("button", name="Translate").focus()
    page.keyboard.press("Enter")
    page.locator(".text", has_text=re.compile("^a b c$")).first.wait_for()
    for _ in range(200):  # a map that arrives later takes the focus away, and unpins the cell
        page.locator(".map").focus()
        page.keyboard.press("ArrowRight")
        status = seen.text("#status")
        if " attends to " in status:
            break
    assert " attends to " in status
    assert page.locator("#status").get_attribute("role") == "status"
    assert page.locator("#outcome").get_attribute("role") == "status"
    assert page.locator("#wrong").get_attribute("role") == "alert"


def test_several_lines_and_translations(seen: Seen) -> None:
    page = seen.page
    page.locator("#nbest").fill("2")
    seen.typed("a b\n\nc")
    assert seen.text("#outcome") == "2 sentences translated."
    assert page.locator(".sentence").count() == 2
    page.locator("#text").evaluate("(field) => { field.setSelectionRange(6, 6); field.click(); }")
    page.locator(".text", has_text=re.compile("^c$")).first.wait_for()
    assert page.locator("#chooser option").count() == 2
    # another alternative takes its place in the whole translation
    page.get_by_role("button", name="next alignment").click()
    second = page.locator("#chooser option").nth(1).text_content()
    assert seen.text("#whole").endswith(f"\n\n{second.removeprefix('2. ') or '(nothing)'}")


def test_six_sentences_pasted(open_page: OpenPage, loaded: LoadedRun) -> None:
    """The whole translation beside the whole source, copied by one click, and the words of the clicked sentence."""
    lines = ["ein mann schläft", "zwei hunde rennen", "eine frau lacht"]
    task = Translate.of(train=loaded.config.train, tokens="bpe", vocabulary=290, shared=True, width=6, hidden=8)
    translator = Translator.of(task, Vocabularies.train(task, Pairs(lines, lines)), stretch=0.1)
    text = "Ein Mann schläft z. B. hier. Zwei Hunde rennen!\nEine Frau lacht. Wer lacht?\n\nNiemand. Am 3. Mai."
    with running(TranslateEndpoint(translator, Limits(), run="de-en", step=1), seconds=20.0) as (port, _):
        address = f"http://127.0.0.1:{port}"
        seen = open_page(address, permissions=["clipboard-read", "clipboard-write"])
        page = seen.page
        page.locator("#language").fill("de")
        page.locator("#text").fill(text)
        page.wait_for_selector("#results:not([hidden])")
        asked = {"text": text, "split": "sentences", "language": "de"}
        (answer,) = httpx.post(f"{address}/v1/translate", json=asked, timeout=60).json()["answers"]
        whole = answer["translations"][0]["text"]
        assert page.input_value("#text") == text
        assert seen.text("#outcome") == "6 sentences translated."
        page.locator("#copy").click()
        page.locator("#outcome", has_text="Copied.").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == whole
        page.locator(".sentence").nth(3).click()
        page.locator(".text", has_text="Wer lacht?").wait_for()
        pressed = page.locator(".sentence[aria-pressed=true]")
        assert pressed.text_content() == page.locator(".sentence").nth(3).text_content()
        words = {"text": "Wer lacht?", "alignment": True}
        (best,) = httpx.post(f"{address}/v1/translate", json=words, timeout=60).json()["answers"][0]["translations"]
        shown = page.locator("[aria-label='source tokens'] .token span").all_text_contents()
        assert shown == best["alignment"]["words"]["source"] == ["Wer", "lacht?", "<eos>"]
        page.get_by_label("whole words").uncheck()
        pieces = page.locator("[aria-label='source tokens'] .token span").all_text_contents()
        assert pieces == best["alignment"]["source"]


def test_a_file_is_translated(seen: Seen) -> None:
    page = seen.page
    page.locator("#batch summary").click()
    page.locator("#table-file").set_input_files({"name": "a.txt", "mimeType": "text/plain", "buffer": b"a b\nc a b\n"})
    page.get_by_role("button", name="Answer all").click()
    page.locator("#table-state", has_text="2 of 2 rows answered.").wait_for()
    rows = page.locator("#batch tbody tr")
    for n, text in enumerate(("a b", "c a b")):
        answer = httpx.post(f"{seen.address}/v1/translate", json={"text": text}, timeout=60).json()["answers"][0]
        best = answer["translations"][0]
        assert rows.nth(n).locator("td").all_text_contents() == [text, best["text"], str(best["score"])]


def test_what_is_wrong_is_said_and_goes_away(seen: Seen) -> None:
    page = seen.page
    page.locator("#text").fill("a " * 500)
    page.wait_for_selector("#wrong:not(:empty)")
    assert seen.text("#wrong") == "text must have at most 200 tokens, got 500; shorten its longest sentence"
    assert not page.locator("#results").is_visible()
    seen.forget_refusals()
    page.locator("#text").fill("a")
    page.wait_for_selector("#outcome:not(:empty)")
    assert seen.text("#wrong") == ""
    page.locator("#text").fill("")
    page.wait_for_selector("#outcome:empty", state="attached")
    page.wait_for_selector("#results", state="hidden")


def test_what_looks_like_markup_is_text(seen: Seen) -> None:
    seen.typed("<img src=x onerror=alert(1)> b")
    seen.page.wait_for_selector("#results .text:not(:empty)")  # it is drawn after the translation is
    assert seen.text(".text") == "<img src=x onerror=alert(1)> b"
    assert seen.page.locator("img").count() == 0
    seen.page.wait_for_selector("#results:not([hidden])")
    assert "tokens are not in the vocabulary" in seen.text("#results .note")


def test_a_model_without_attention(open_page: OpenPage, loaded: LoadedRun) -> None:
    task = Translate.of(train=loaded.config.train, tokens="words", width=6, hidden=8, decoder="fixed")
    interpreter = Translator.of(task, loaded.predictor.vocabularies)
    with running(TranslateEndpoint(interpreter, Limits(), run="x", step=1), seconds=20.0) as (port, _):
        seen = open_page(f"http://127.0.0.1:{port}")
        seen.typed("a b")
        assert seen.text("#outcome") == "1 sentence translated."
        assert seen.page.get_by_text("This model has no attention, so there is nothing else to see.").is_visible()
        assert seen.page.locator("#results .card:visible").count() == 0


@pytest.mark.parametrize("scheme", first(["light", "dark"]))
def test_it_fits_and_is_accessible(scheme: str, open_page: OpenPage, service: Service) -> None:
    seen = open_page(service.address, 320, 640, color_scheme=scheme)
    seen.typed("a b c d")
    seen.page.locator("#results summary").click()
    seen.page.wait_for_selector("#results:not([hidden])")
    # the greatest weight has the colour that it has in figures
    greatest = """(canvas) => {
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        for (let n = 0; n < data.length; n += 4)
            if (data[n] === 254 && data[n + 1] === 232 && data[n + 2] === 56) return true;
        return false;
    }"""
    assert seen.page.locator(".cells").evaluate(greatest)
    seen.check_layout()
    assert seen.page.evaluate("document.querySelectorAll('h1').length") == 1
