"""A language model over HTTP: streamed text is whole text, answers do not depend on other requests."""

import asyncio
import json
from typing import Any

import httpx
import pytest
import torch
from tests.for_each import for_each
from tests.serve.conftest import post, read, visit
from tests.serve.test_rounding import differences, noise
from tests.tasks.language_model.test_generation import PROMPTS, predictor

from regard.inference.limits import Limits
from regard.serve import rounding
from regard.serve.event_stream import event_stream
from regard.tasks.language_model.endpoint import GenerateEndpoint

BODY: dict[str, Any] = {"tokens": 25, "temperature": 1.5, "seed": 3}


@pytest.fixture(scope="module")
def endpoint() -> GenerateEndpoint:
    return GenerateEndpoint(predictor("bytes"), Limits(tokens=40), run="tiny", step=2)


def events(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text.endswith("\n\n")
    return [json.loads(event.removeprefix("data: ")) for event in response.text.split("\n\n")[:-1]]


def test_streamed_text_is_the_whole_text(endpoint: GenerateEndpoint) -> None:
    async def act(client: httpx.AsyncClient) -> list[httpx.Response]:
        bodies = [{"text": prompt, **BODY, "stop": ["at"]} for prompt in PROMPTS]
        # all at once: streams take turns with each other and with whole answers
        return await asyncio.gather(
            *(client.post("/v1/generate", json={**body, "stream": True}) for body in bodies),
            *(client.post("/v1/generate", json=body) for body in bodies),
        )

    answers = visit(endpoint, act)
    for streamed, whole in zip(answers[:4], answers[4:], strict=True):
        *pieces, last = events(streamed)
        assert last == whole.json()
        assert "".join(piece["text"] for piece in pieces) == last["answers"][0]["texts"][0]["text"]


def test_requests_are_answered_as_if_alone(endpoint: GenerateEndpoint) -> None:
    bodies: list[dict[str, Any]] = [
        {"texts": PROMPTS, **BODY},
        {"text": "the c", **BODY, "count": 3},
        {"text": "the c", **BODY},
        {"text": "", "tokens": 5, "top_k": 3, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.2},
    ]
    requests = [read(endpoint, body) for body in bodies]
    together = endpoint.answer(requests)
    assert together == [endpoint.answer([request])[0] for request in requests]
    answers: Any = [each["answers"] for each in together]
    assert answers[0][0] == answers[2][0]
    assert answers[1][0]["texts"][0] == answers[2][0]["texts"][0]
    assert [len(each[0]["texts"]) for each in answers] == [1, 3, 1, 1]


def test_requests_with_different_options_share_the_steps_of_the_model(
    endpoint: GenerateEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [{"tokens": 9}, {"tokens": 4, "temperature": 0}, {"tokens": 7, "seed": 8, "top_k": 5, "count": 2}]
    requests = [read(endpoint, {"text": prompt, **each}) for prompt, each in zip(PROMPTS, options, strict=False)]
    model, sizes = endpoint.predictor.model, []
    step = model.step
    monkeypatch.setattr(model, "step", lambda tokens, state: (sizes.append(len(tokens)), step(tokens, state))[1])
    (first, second, third) = (each["answers"][0]["texts"] for each in endpoint.answer(requests))  # type: ignore[index]
    assert sizes[0] == 4
    assert len(sizes) == max(each["tokens"] for each in first)
    assert len(second) == 1
    assert len(third) == 2


def test_tokens_with_no_margin_are_sampled_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token has a twin, and the noise of a batch decides between them; fails without the second computation."""
    model = predictor()
    endpoint = GenerateEndpoint(model, Limits(), run="tiny", step=2)
    output: Any = model.model.output
    with torch.no_grad():
        pairs = len(output.weight) // 2
        output.weight[1 : 2 * pairs : 2] = output.weight[: 2 * pairs : 2]
    bodies = [{"text": prompt, "tokens": 12, "temperature": 0} for prompt in PROMPTS]
    with noise(output, 1e-6):
        assert differences(endpoint, bodies, (4,)) == 0
        monkeypatch.setattr(rounding, "NOISE", -1.0)
        assert differences(endpoint, bodies, (4,)) > 0


@for_each(
    ("body", "sentence"),
    [
        ({"text": "a", "tokens": 41}, "tokens must be a whole number from 1 to 40, got 41"),
        ({"text": "a", "top_p": 2.0}, "top_p must be a number above 0 and at most 1 or null, got 2"),
        ({"text": "a", "seed": 2**63}, "seed must be a whole number from 0 and below 9223372036854775808, got 92233"),
        ({"text": "a", "stop": ["b"] * 9}, "stop must be 0 to 8, got 9; leave some out"),
        ({"text": "a", "stop": ["b", ""]}, "stop[1] is an empty string; leave it out"),
        ({"texts": ["a", "b"], "stream": True}, "stream is for one text with count=1"),
        ({"text": "a", "count": 2, "stream": True}, "stream is for one text with count=1"),
        ({"texts": ["a", "b"], "count": 20}, "2 texts with count=20 are more than the 32 continuations"),
    ],
)
def test_wrong_requests(endpoint: GenerateEndpoint, body: dict[str, Any], sentence: str) -> None:
    answer = post(endpoint, body)
    assert answer.status_code == 422
    assert sentence in answer.json()["error"]


class Failing(GenerateEndpoint):
    def stream(self, request: Any) -> Any:
        yield {"text": "a"}
        raise RuntimeError("it does not go down")


def test_a_failure_or_the_end_of_time_is_an_event(endpoint: GenerateEndpoint) -> None:
    failing = Failing(predictor(), Limits(), run="tiny", step=2)
    first, second = events(post(failing, {"text": "a", "stream": True}))
    assert first == {"text": "a"}
    assert "fault of the service" in second["error"]
    (late,) = events(post(endpoint, {"text": "a", "stream": True}, Limits(seconds=1e-9)))
    assert "no end of the answer within 1e-09 seconds" in late["error"]


def test_a_client_that_leaves_ends_the_stream(endpoint: GenerateEndpoint) -> None:
    async def act(client: httpx.AsyncClient) -> None:
        (batcher,) = client._transport.app.app.batchers  # type: ignore[attr-defined]
        response = event_stream(
            batcher, read(endpoint, {"text": "a", **BODY, "stream": True}), "", 30, {}, lambda error: None
        )
        assert (await anext(response.body_iterator)).startswith(b"data: ")  # type: ignore[arg-type,union-attr]
        await response.body_iterator.aclose()  # type: ignore[attr-defined]
        answer = await client.post("/v1/generate", json={"text": "a", **BODY})
        assert answer.status_code == 200
        while batcher._streams:
            await asyncio.sleep(0)

    visit(endpoint, act)


def test_the_model_is_described(endpoint: GenerateEndpoint) -> None:
    assert endpoint.model_info()["limits"] == {
        "texts": 32,
        "characters": 4000,
        "tokens": 40,
        "long_texts": 32,
        "body": 1_000_000,
        "seconds": 30.0,
    }
    assert endpoint.model_info()["context"] == 16


def test_long_continuations_are_fewer(endpoint: GenerateEndpoint) -> None:
    """The tokens of a request are bounded: texts times count times tokens."""
    long = GenerateEndpoint(endpoint.predictor, Limits(), run="tiny", step=2)
    assert long.model_info()["limits"]["long_texts"] == 6  # type: ignore[index]
    for body in ({"texts": ["a"] * 7}, {"texts": ["a"] * 2, "count": 4}, {"text": "a", "count": 7}):
        response = post(long, {**body, "tokens": 201})
        assert response.status_code == 422
        assert "more than 200 tokens are generated for at most 6 continuations per request" in response.json()["error"]
        assert read(long, {**body, "tokens": 200}).options.tokens == 200
    assert read(long, {"texts": ["a"] * 6, "tokens": 1000}).count == 6
    assert read(long, {"texts": ["a"] * 32}).count == 32
