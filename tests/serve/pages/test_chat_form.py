"""The page of conversations in a browser: scripts from what is typed to what the page shows."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.product import first
from tests.serve.dialogues import dialogue_endpoint
from tests.serve.http.test_h11_timeouts import running
from tests.serve.pages.conftest import OpenPage, Seen

SPEAKS, TRACKS = True, False
# the texts of the buttons, beside turns
UNDO, NEW = "Undo", "New conversation"

# who speaks, what is typed, (before and) as the turn of the user, and what the page shows per turn
SCRIPTS: dict[str, tuple[bool, list[Any], list[tuple[list[str], list[str]]]]] = {
    "several turns": (
        SPEAKS,
        ["a", "b c"],
        [
            (["user: a", "system: a"], ["a 1"]),
            (["user: b c", "system: c b"], ["a .25", "a .25", "b .25", "c .25"]),
        ],
    ),
    "what looks like markup": (
        SPEAKS,
        ["<img src=x onerror=alert(1)>\tb"],
        [
            (
                ["user: <img src=x onerror=alert(1)> b", "system: b onerror=alert(1)> src=x <img"],
                ["<img .25", "src=x .25", "onerror=alert(1)> .25", "b .25"],
            )
        ],
    ),
    "a turn is taken back": (
        SPEAKS,
        ["a", "b", UNDO, "c"],
        [(["user: a", "system: a"], ["a 1"]), (["user: c", "system: c"], ["a .33", "a .33", "c .33"])],
    ),
    "another conversation": (SPEAKS, ["a", "b", NEW, "c"], [(["user: c", "system: c"], ["c 1"])]),
    "the system offers": (
        TRACKS,
        ["hello", ("Is area=east fine?", "yes"), "phone?"],
        [
            (["user: hello"], []),
            (["system: Is area=east fine?", "user: yes"], ["+ area east east 0.75, the 0.25"]),
            (["user: phone?"], ["area east east 0.75, the 0.25", "? phone is asked for"]),
        ],
    ),
    "states come and go": (
        TRACKS,
        ["food=thai", ("food=west?", "yes"), UNDO, ("", "food=greek area=east"), "no food"],
        [
            (["user: food=thai"], ["+ food thai thai 0.75, the 0.25"]),
            (
                ["user: food=greek area=east"],
                ["~ food greek (was thai) greek 0.75, the 0.25", "+ area east east 0.75, the 0.25"],
            ),
            (["user: no food"], ["− food (was greek)", "area east east 0.75, the 0.25"]),
        ],
    ),
}


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[bool, str]]:
    with running(dialogue_endpoint(SPEAKS, characters=60)) as (one, _), running(dialogue_endpoint(TRACKS)) as (two, _):
        yield {SPEAKS: f"http://127.0.0.1:{one}", TRACKS: f"http://127.0.0.1:{two}"}


@pytest.fixture
def opened(open_page: OpenPage, addresses: dict[bool, str]) -> Callable[[bool], Seen]:
    """Opens the page of a model on the screen of a phone."""
    return lambda speaks: open_page(addresses[speaks], 390, 800)


def act(seen: Seen, typed: Any) -> None:
    """Types a turn, or presses a button, and waits for what follows."""
    page = seen.page
    count = page.locator(".exchange").count()
    if typed in (UNDO, NEW):
        page.get_by_role("button", name=typed).click()
        assert page.locator(".exchange").count() == (count - 1 if typed == UNDO else 0)
        return
    if isinstance(typed, tuple):
        page.locator("#system").fill(typed[0])
        typed = typed[1]
    page.locator("#text").fill(typed)
    page.keyboard.press("Enter")
    page.locator(".exchange").nth(count).wait_for()


def shown(seen: Seen) -> list[tuple[list[str], list[str]]]:
    """The turns of every exchange, and the words or the slots beside them."""
    found = []
    for exchange in seen.page.locator(".exchange").all():
        turns = [turn.text_content() for turn in exchange.locator(".turn").all()]
        words = [" ".join(chip.locator("span, small").all_text_contents()) for chip in exchange.locator(".token").all()]
        rows = [
            " ".join(filter(None, row.locator("th, td").all_text_contents())) for row in exchange.locator("tr").all()
        ]
        found.append((turns, words + rows))
    return found


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_conversation_in_a_browser(script: str, opened: Any) -> None:
    speaks, typed, expected = SCRIPTS[script]
    seen = opened(speaks)
    assert seen.page.title() == ("Talk with tiny" if speaks else "Track with tiny")
    assert seen.page.evaluate("document.activeElement.id") == "text"
    for each in typed:
        act(seen, each)
    assert shown(seen) == expected
    assert seen.page.locator("#text").input_value() == ""
    assert seen.page.locator("img").count() == 0
    # nothing is wider than the screen of a phone
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("scheme", first(["light", "dark"]))
def test_it_fits_and_is_accessible(scheme: str, opened: Any) -> None:
    for speaks, turn in ((SPEAKS, "good day"), (TRACKS, "food=thai")):
        seen = opened(speaks)
        seen.page.emulate_media(color_scheme=scheme)
        seen.page.set_viewport_size({"width": 320, "height": 640})
        act(seen, turn)
        seen.check_layout()


def test_a_wrong_turn_is_said_and_can_be_typed_again(opened: Any) -> None:
    seen = opened(SPEAKS)
    page = seen.page
    assert page.get_by_role("button", name=UNDO).is_disabled()
    page.locator("#text").fill("  ")
    page.keyboard.press("Enter")
    assert seen.text("#wrong") == "An empty line says nothing; type a turn."
    page.locator("#text").fill("a b c d e f")
    page.keyboard.press("Enter")
    page.get_by_text("a turn may have 5 words, got 6; say less").wait_for()
    assert page.locator("#text").input_value() == "a b c d e f"
    assert page.locator(".turn:visible").count() == 0
    seen.forget_refusals()
    act(seen, "a b")
    assert seen.text("#wrong") == ""
    assert shown(seen) == [(["user: a b", "system: b a"], ["a .50", "b .50"])]


def test_a_request_leaves_out_the_first_turns_of_a_long_conversation(opened: Any) -> None:
    seen = opened(SPEAKS)
    sent: list[str] = []
    seen.page.on("request", lambda request: sent.append(request.post_data or ""))
    for letter in "abc":
        act(seen, letter * 20)
    a, b, c = (letter * 20 for letter in "abc")
    assert [json.loads(body)["text"] for body in sent] == [a, f"{a}\t{b}", f"{b}\t{c}"]
    assert seen.page.locator(".exchange .hint").all_text_contents() == [
        f"Left out: the first {count} of your turns; a request has 60 characters at most." for count in (1, 2)
    ]
