"""Any predictor of texts behind the service: its answers, its options, the attention behind them."""

import asyncio
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import torch
from tests.for_each import for_each
from tests.serve.conftest import get, post, read, visit
from tests.serve.texts import PredictLabels, text_endpoint

from regard.inference.predictor import labelled_recording
from regard.serve.model_endpoint import InputsRequest
from regard.serve.rounding import rounded
from regard.serve.text_endpoint import TextAnswers

TEXTS = ["good", "a bad one", "ねこ and dogs", "w", "a fine film"]


def test_together_as_alone() -> None:
    """Requests of every kind in one call: each answer is that of the predictor to the text alone."""
    endpoint = text_endpoint()
    bodies: list[dict[str, Any]] = [
        {"text": "good"},
        {"texts": TEXTS, "top": 2},
        {"texts": ["w", "y"], "attention": True},
        {"text": "w", "order": "ascending"},
        {"texts": ["bad", "good"], "top": 2},
    ]
    requests = [read(endpoint, body) for body in bodies]
    for request, answer in zip(requests, endpoint.answer(requests), strict=True):
        TextAnswers.model_validate(answer)
        answers: Any = answer["answers"]
        for text, each in zip(request.inputs, answers, strict=True):
            (output,) = endpoint.predictor.predict([text], request.options)
            wanted = endpoint.predictor.json(output)["classes"]
            assert list(each["classes"]) == list(wanted)
            assert each["classes"] == rounded(wanted)
            assert ("attention" in each) == request.attention
    # what asks alike is answered by one call of the predictor
    classifier: Any = endpoint.predictor
    classifier.calls.clear()
    endpoint.answer(requests)
    assert classifier.calls == [1, 7, 1, 1, 1]


def test_attention_is_what_was_recorded() -> None:
    endpoint = text_endpoint()
    (answer,) = post(endpoint, {"text": "a b", "attention": True}).json()["answers"]
    _, recording = labelled_recording(endpoint.predictor, "a b", PredictLabels())
    (item,), (seen,) = recording, answer["attention"]
    assert seen["name"] == item.name == "pooling.attention"
    assert (seen["queries"], seen["keys"], seen["verified"]) == (["hop 1", "hop 2"], ["a", "␣", "b"], True)
    weights = torch.tensor(seen["weights"])
    torch.testing.assert_close(weights, item.weights.pick(0).dense().reshape(-1, 2, 3), atol=1e-6, rtol=0)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2), atol=1e-5, rtol=0)


def test_fields_are_the_options_of_the_predictor() -> None:
    endpoint = text_endpoint()
    assert read(endpoint, {"text": "a"}) == InputsRequest(("a",), PredictLabels(), False)
    assert read(endpoint, {"text": "a", "top": 1}).options == PredictLabels(top=1)
    schema = get(endpoint, "/openapi.json").json()
    body = schema["paths"]["/v1/classify-text"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["properties"]) == {"text", "texts", "attention", "top", "order"}
    assert body["properties"]["top"] == {"type": "integer", "default": 3, "minimum": 1, "title": "Top"}
    assert post(endpoint, body["example"]).status_code == 200
    assert "attention" in schema["components"]["schemas"]["TextAnswer"]["properties"]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a field that is no JSON": ({"text": "a", "picture": "a.png"}, "unknown field 'picture'; known are"),
    "a word": ({"text": "a", "order": "rising"}, "unknown order 'rising'; "),
    "an option": ({"text": "a", "top": 0}, "top must be a whole number from 1, got 0"),
    "too many": ({"texts": ["a"] * 6}, "texts must be 1 to 5, got 6; send several requests"),
    "characters": ({"text": "a" * 61}, "text must have at most 60 characters, got 61; send it sentence by sentence"),
    "nothing visible": ({"texts": ["a", " \n"]}, "texts[1] is empty; give at least one word"),
    "half a character": ({"text": "a\ud800"}, "text holds half a character (a lone surrogate) at position 2; send it"),
    "attention of many": (
        {"texts": ["a"] * 3, "attention": True},
        "attention is given for at most 2 texts per request, got 3; ask for fewer, or leave attention out",
    ),
    "what the predictor refuses": ({"text": "a" * 41}, "the text must have at most 40 letters; send a shorter one"),
    "the same with attention": ({"text": "a" * 41, "attention": True}, "the text must have at most 40 letters"),
}


@for_each("name", BAD)
def test_bad_input_is_one_sentence(name: str) -> None:
    body, sentence = BAD[name]
    # httpx writes no half characters
    content = body if name != "half a character" else b'{"text": "a\\ud800"}'
    answer = post(text_endpoint(texts=5, characters=60, pictures=2), content)
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(sentence)


def test_what_one_cannot_have_the_others_get() -> None:
    endpoint = text_endpoint()

    async def act(client: httpx.AsyncClient) -> list[httpx.Response]:
        bodies = [{"text": text} for text in ("a", "b" * 41, "c", "poison", "d")]
        return await asyncio.gather(*[client.post("/v1/classify-text", json=body) for body in bodies])

    assert [answer.status_code for answer in visit(endpoint, act)] == [200, 422, 200, 500, 200]


def test_too_many_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = text_endpoint()
    monkeypatch.setattr("regard.serve.text_endpoint._MOST_WEIGHTS", 5)
    answer = post(endpoint, {"text": "abc", "attention": True})
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(
        "the attention of this text has 6 weights, and an answer may have 5; send a"
    )
    assert post(endpoint, {"text": "ab", "attention": True}).status_code == 200


def test_a_model_without_attention() -> None:
    endpoint = text_endpoint(attends=False)
    assert not endpoint.attends
    answer = post(endpoint, {"text": "a", "attention": True})
    assert answer.json()["error"] == "attention needs a model that attends, and this one does not; leave attention out"
    assert set(post(endpoint, {"text": "a"}).json()["answers"][0]["classes"]) == {"bad", "good <b>", "ねこ"}


def test_what_it_says_of_itself() -> None:
    endpoint = text_endpoint(texts=7)
    info = get(endpoint, "/v1/model").json()
    assert (info["task"], info["run"], info["step"], info["attends"]) == ("classify-text", "tiny", 4, True)
    assert info["limits"] == {"texts": 7, "characters": 4000, "attention": 16, "body": 1_000_000, "seconds": 30.0}
    assert "<title>Classify texts with tiny</title>" in get(endpoint, "/").text
    assert "regard_waiting_texts 0" in get(endpoint, "/metrics").text


def test_options_that_clash() -> None:
    @dataclass(frozen=True)
    class Clashing:
        text: str = ""

    endpoint = text_endpoint()
    endpoint.options = Clashing
    with pytest.raises(ValueError, match="Clashing has the fields text of every request; rename them"):
        endpoint.schema  # noqa: B018
