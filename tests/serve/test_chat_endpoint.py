"""ChatEndpoint: conversations over HTTP; the service keeps none of them."""

import json
from typing import Any

import httpx
import pytest
from tests.serve.conftest import visit
from tests.serve.dialogues import dialogue_endpoint


def answers(speaks: bool, *bodies: dict[str, Any]) -> list[httpx.Response]:
    endpoint = dialogue_endpoint(speaks, characters=40)

    async def act(client: httpx.AsyncClient) -> list[httpx.Response]:
        return [await client.post(f"/v1/{endpoint.name}", json=body) for body in bodies]

    return visit(endpoint, act)


def test_an_answer_has_the_reply_and_the_attended_words() -> None:
    (whole,) = answers(True, {"text": "a\ta\tb c", "attention": True})
    (answer,) = whole.json()["answers"]
    assert answer["chat"] == {
        "reply": "c b",
        "attended": [
            [{"word": "a", "weight": 0.25}],
            [{"word": "a", "weight": 0.25}],
            [{"word": "b", "weight": 0.25}, {"word": "c", "weight": 0.25}],
        ],
        "notes": [],
    }
    assert answer["said"] == "c b"
    assert [each["kind"] for each in answer["attention"]] == ["cross"]


def test_an_answer_has_the_state() -> None:
    first, again, plain = answers(
        False,
        {"text": "food=thai\tWhere?\tarea=east", "attention": True},
        {"text": "area=east", "attention": True},
        {"text": "area=east"},
    )
    assert first.json()["answers"][0]["chat"] == {
        "state": {"food": "thai", "area": "east"},
        "requested": [],
        "behind": {
            "food": [{"word": "thai", "weight": 0.75}, {"word": "the", "weight": 0.25}],
            "area": [{"word": "east", "weight": 0.75}, {"word": "the", "weight": 0.25}],
        },
        "notes": [],
    }
    # of the first conversation nothing is left
    assert again.json()["answers"][0]["chat"]["state"] == {"area": "east"}
    assert plain.json() == {"answers": [{"said": None}]}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a b c d e f", "a turn may have 5 words, got 6; say less"),
        ("a" * 41, "text must have at most 40 characters, got 41; send it sentence by sentence"),
    ],
)
def test_a_refused_turn_is_one_sentence(text: str, sentence: str) -> None:
    (refused,) = answers(True, {"text": text, "attention": True})
    assert (refused.status_code, refused.json()) == (422, {"error": sentence})


def test_the_page_knows_who_speaks() -> None:
    page = dialogue_endpoint(False, characters=40).page
    assert page.form == "chat_form"
    assert (page.data["speaks"], page.data["characters"], page.data["task"]) == (False, 40, "track")


def events(response: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(event.removeprefix("data: ")) for event in response.text.split("\n\n") if event]


def test_a_reply_is_streamed_in_pieces() -> None:
    body = {"text": "a\ta\tb c", "attention": True}
    whole, streamed = answers(True, body, {**body, "stream": True})
    *pieces, last = events(streamed)
    assert pieces == [{"text": "c "}, {"text": "b"}]
    assert last == whole.json()


def test_a_stream_is_of_one_text_and_may_end_by_an_error() -> None:
    several, refused = answers(True, {"texts": ["a", "b"], "stream": True}, {"text": "a b c d e f", "stream": True})
    assert several.status_code == 422
    assert several.json() == {"error": "stream is for one text; leave it out, or send several requests"}
    assert events(refused) == [{"error": "a turn may have 5 words, got 6; say less"}]
