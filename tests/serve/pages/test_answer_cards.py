"""The answers of all tasks about texts in a browser, desktop and phone: spans and tables, accessible, and no JSON."""

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.serve.http.test_h11_timeouts import running
from tests.serve.pages.conftest import OpenPage, Seen
from tests.serve.text_runs import TEXT_RUNS, text_for, text_run
from tests.serve.texts import TextClassifier

from regard.inference.limits import Limits
from regard.serve.model_endpoint import InputsRequest
from regard.serve.text_endpoint import TextEndpoint

# what would turn a page around, or end it
HOSTILE = "<script>alert(1)</script> 😀 \u202edcba\u202c \x00 שלום"
_PLACED = {"start": 25, "end": 26, "text": "😀", "probability": 0.75}
# an answer in the shape of each task
ANSWERS: dict[str, dict[str, Any]] = {
    "classify-text": {"classes": {HOSTILE: 0.25, "good": 0.75}},
    "tag": {
        "words": [{"word": "😀", "start": 26, "end": 27, "tag": "B-<b>", "probability": 0.5}],
        "spans": [{"label": "<b>", **_PLACED, "start": 26, "end": 27, "runner_up": {"label": "O", "probability": 0.1}}],
    },
    "match": {"classes": {"same": 0.5, "other": 0.5}},
    "answer": {
        "answer": "hall",
        "probability": 0.205,
        "runner_up": {"answer": "c", "probability": 0.204},
        "hops": [{"line": 1, "sentence": HOSTILE, "weight": 1.0, "weights": [1.0]}],
        "unknown": ["mary", "<b>"],
    },
    "select-response": {"candidates": [{"text": "c", "probability": 0.9}, {"text": HOSTILE, "probability": 0.1}]},
    "read": {
        "answer": "😀",
        "start": 26,
        "end": 27,
        "spans": [{**_PLACED, "start": 26, "end": 27}, {**_PLACED, "text": "<", "start": 0, "end": 1}],
    },
    "embed": {"vector": [0.5, -0.25, 0.0] * 40},
    "masked-lm": {
        "filled": HOSTILE,
        "masks": [[{"token": "<b>", "probability": 0.5}, {"token": "x", "probability": 0}]],
    },
}
# in conversations, and in continuations
OTHER_FORMS = {"respond", "track", "language-model"}
JSON_TEXT = re.compile(r'[{\[]"|":|\[object|undefined|NaN|null')


class RecordedAnswers(TextEndpoint):
    """Answers with the answer of the task whose name ends the text; the model is a small one."""

    task = "classify-text"

    def read(self, body: Any) -> InputsRequest:
        return InputsRequest([text for _, text in body.checked(self.limits)])

    def answer(self, requests: Sequence[InputsRequest]) -> list[dict[str, object]]:
        return [{"answers": [ANSWERS[text.split()[-1]] for text in request.inputs]} for request in requests]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    endpoint = RecordedAnswers(TextClassifier(), Limits(), run="<script>", step=1)
    with running(endpoint) as (port, _):
        yield f"http://127.0.0.1:{port}"


DESKTOP, PHONE = (900, "light"), (360, "dark")


def check(seen: Seen, *screens: tuple[int, str]) -> None:
    """That the page fits and is accessible on the screens, by default on both."""
    assert not JSON_TEXT.search(seen.page.locator("main").inner_text())
    for width, scheme in screens or (DESKTOP, PHONE):
        seen.page.set_viewport_size({"width": width, "height": 700})
        seen.page.emulate_media(color_scheme=scheme)
        seen.check_layout()


def ask(seen: Seen, text: str) -> None:
    seen.page.evaluate("for (const id of ['outcome', 'wrong']) document.getElementById(id).textContent = ''")
    seen.page.locator("#text").fill(text)
    seen.page.wait_for_selector("#outcome:not(:empty)")


def test_every_answer_has_cards(seen: Seen) -> None:
    page = seen.page
    assert {*ANSWERS} | OTHER_FORMS == {*TEXT_RUNS}
    for n, name in enumerate(ANSWERS):
        ask(seen, f"{HOSTILE.replace(chr(0), '')} {name}")
        for details in page.locator("#answer summary").all():
            details.click()
        check(seen, (DESKTOP, PHONE)[n % 2])  # both with every task in the test below
        assert page.locator("main script, main b, main i").count() == 0
    ask(seen, f"{HOSTILE} read")
    assert page.locator(".marked mark").all_text_contents() == ["😀"]
    assert (
        page.locator(".marked").text_content()
        == HOSTILE.replace("\u202e", "U+202E").replace("\u202c", "U+202C").replace("\x00", "␀") + " read"
    )
    assert page.locator(".records thead th").all_text_contents() == ["span", "probability"]
    ask(seen, f"{HOSTILE} tag")
    assert page.locator(".marked mark bdi").all_text_contents() == ["😀", "<b>"]
    assert page.locator(".records").first.locator("tbody th, tbody td:not(.bar)").all_text_contents() == [
        "😀", "<b>", "75.0 %", "<b>, 10.0 %".replace("<b>", "O")
    ]  # fmt: skip


def test_the_example_and_what_was_asked_before(seen: Seen) -> None:
    page = seen.page
    assert page.input_value("#text") == "a b c"  # the small model does not read the longer one
    assert page.evaluate("getSelection().toString()") == "a b c"  # typing replaces it
    assert not [url for url in seen.requests if "/v1/" in url]
    for text in ("a match", "b embed", "a match", HOSTILE + " match"):
        ask(seen, text)
    page.locator("#history summary").click()
    earlier = page.locator("#history li button")
    visible = HOSTILE.replace("\u202e", "U+202E").replace("\u202c", "U+202C").replace("\x00", "␀")
    assert earlier.all_text_contents() == [visible + " match", "a match", "b embed"]
    check(seen, PHONE)
    earlier.nth(2).click()
    page.locator("#history li:first-child", has_text="b embed").wait_for()
    assert page.input_value("#text") == "b embed"
    assert page.evaluate("localStorage.length + sessionStorage.length") == 0
    page.locator("#forget").click()
    assert page.locator("#history:visible").count() == 0


def test_a_file_is_answered_and_saved(open_page: OpenPage) -> None:
    """A column of a table whose cells are quoted, in requests of two texts; one that is refused leaves the others."""
    with running(RecordedAnswers(TextClassifier(), Limits(texts=2), run="tiny", step=1)) as (port, _):
        seen = open_page(f"http://127.0.0.1:{port}")
        page = seen.page
        page.locator("#batch summary").click()
        texts = [
            "a match",
            f"{HOSTILE.replace(chr(0), '')} read",
            'say ""hi"", match',
            "",
            "a" * 10_000,
            "b\nmatch",
            "c embed",
        ]
        rows = "".join(f'{n};"{text}"\r\n' for n, text in enumerate(texts))
        written = f"=id;review\r\n{rows}".encode("utf-8-sig")
        page.locator("#table-file").set_input_files({"name": "a.csv", "mimeType": "text/csv", "buffer": written})
        page.locator("#table-state", has_text="7 rows.").wait_for()
        page.locator("#table-column").select_option("review")
        check(seen, DESKTOP)
        page.get_by_role("button", name="Answer all").click()
        page.locator("#table-state", has_text="5 of 7 rows answered; 1 refused").wait_for()
        check(seen, PHONE)
        with page.expect_download() as saved:
            page.get_by_role("button", name="Download as CSV").click()
        head, *table = csv.reader(saved.value.path().read_text("utf-8-sig").splitlines(keepends=True))
        assert head == ["'=id", "review", "classes", "classes probability", "answer", "start", "end", "error", "vector"]
        assert [row[1] for row in table] == [text.replace('""', '"') for text in texts]
        assert [row[2] for row in table] == ["same", "", "same", "", "", "same", ""]
        assert table[1][4:7] == ["😀", "26", "27"]
        assert table[4][7].startswith("the text must have at most 4000 characters, got 10000")
        assert table[6][8].split(" ")[:2] == ["0.5", "-0.25"]
        # lines of a text, with the names of no columns
        page.locator("#table-file").set_input_files(
            {"name": "a.txt", "mimeType": "text/plain", "buffer": b"a tag\n\nb tag"}
        )
        page.locator("#table-state", has_text="2 rows.").wait_for()
        # a service that is busy is asked again
        busy = {"status": 429, "headers": {"Retry-After": "1"}, "body": '{"error": "busy"}'}
        page.route("**/v1/classify-text", lambda route: route.fulfill(**busy), times=1)
        page.get_by_role("button", name="Answer all").click()
        page.locator("#table-state", has_text="2 of 2 rows answered.").wait_for()
        page.locator("#table-file").set_input_files({"name": "a.csv", "mimeType": "text/csv", "buffer": b"\xff\xfe"})
        page.locator("#table-state", has_text="not in UTF-8").wait_for()
        seen.complaints[:] = [text for text in seen.complaints if "429" not in text]
        seen.requests[:] = [url for url in seen.requests if not url.startswith(f"blob:{seen.address}/")]
        seen.forget_refusals()


def test_a_text_beyond_the_limit_is_a_sentence(seen: Seen) -> None:
    seen.page.locator("#text").fill("a" * 10_000)
    seen.page.wait_for_selector("#wrong:not(:empty)")
    assert seen.text("#wrong").startswith("text must have at most 4000 characters, got 10000")
    seen.forget_refusals()
    check(seen)


@pytest.mark.whole
@pytest.mark.parametrize("task", TEXT_RUNS)
def test_the_pages_of_trained_runs(task: str, tmp_path: Path, open_page: OpenPage) -> None:
    predictor = text_run(task, tmp_path).predictor
    endpoint = predictor.endpoint(Limits(), run="tiny", step=2)
    if task in ANSWERS:  # the answers above have the shape of today's
        (output,) = predictor.predict([endpoint.predictor.example()], endpoint._options({}))
        assert predictor.json(output).keys() == ANSWERS[task].keys()
    with running(endpoint) as (port, _):
        seen = open_page(f"http://127.0.0.1:{port}")
        seen.page.locator("#text").fill(text_for(task, "a b") if task in ANSWERS else "a b")
        seen.page.get_by_role("button").first.click()
        seen.page.wait_for_selector("#outcome:not(:empty)" if task not in ("respond", "track") else "#turns li")
        assert seen.text("#wrong") == ""
        check(seen)
