"""The application: right answers, found together; limits of time; errors in one sentence; what it says of itself."""

import asyncio
import threading
from typing import Any

import httpx
import pytest
from tests.for_each import for_each
from tests.serve.conftest import LINES, Gated, Make, Panic, advance, get, post, visit
from tests.serve.http.test_metrics import samples

from regard.decoding.search import Beam
from regard.inference.endpoint import Schema
from regard.inference.limits import Limits
from regard.serve.batcher import Batcher
from regard.tasks.loading import LoadedRun
from regard.tasks.translate.endpoint import TranslateAnswer, TranslateEndpoint


async def waiting(client: httpx.AsyncClient, count: int) -> None:
    """Waits until this many sentences wait for the model."""
    async with asyncio.timeout(60):
        while samples((await client.get("/metrics")).text)["regard_waiting_sentences", ""] != count:
            await asyncio.sleep(0.01)


def test_right_answers_found_together(translating: Make, loaded: LoadedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty requests at once: each has its own answer, and the model is called far fewer times."""
    calls: list[int] = []
    all_there = threading.Event()
    translate = type(loaded.predictor).translate

    def counted(self: Any, lines: Any, *args: Any) -> Any:
        calls.append(len(lines))
        assert all_there.wait(30)  # a model that takes its time
        return translate(self, lines, *args)

    monkeypatch.setattr(type(loaded.predictor), "translate", counted)

    async def act(client: httpx.AsyncClient) -> tuple[list[httpx.Response], str]:
        bodies = [{"text": line, "beam": 3} for line in LINES]
        asking = [asyncio.create_task(client.post("/v1/translate", json=body)) for body in bodies]
        waiting = 0.0
        while not calls or waiting < len(LINES) - calls[0]:
            await asyncio.sleep(0.01)
            waiting = samples((await client.get("/metrics")).text)["regard_waiting_sentences", ""]
        all_there.set()
        return await asyncio.gather(*asking), (await client.get("/metrics")).text

    answers, metrics = visit(translating(batch=23), act)
    # texts whose decisions were close are translated again, alone
    again = sum(calls) - len(LINES)
    assert 0 <= again <= calls.count(1) <= 3
    assert len(calls) - again <= 4
    assert max(calls) == 23
    for line, answer in zip(LINES, answers, strict=True):
        assert answer.status_code == 200
        (one,) = answer.json()["answers"]
        assert one["source"] == line
        assert one["translations"][0]["text"] == translate(loaded.predictor, [line], Beam(3))[0][0].text
    found = samples(metrics)
    assert found["regard_requests_total", 'path="/v1/translate",status="200"'] == 60
    assert found["regard_batch_sentences_count", ""] == len(calls) - again
    assert found["regard_batch_sentences_sum", ""] == 60
    assert found["regard_waiting_sentences", ""] == 0


def test_the_schema_is_built_once(translating: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not per request: that takes a millisecond between all other requests."""
    build, schemas = TranslateEndpoint.schema.fget, []

    def count(self: TranslateEndpoint) -> Schema:
        schemas.append(build(self))
        return schemas[-1]

    monkeypatch.setattr(TranslateEndpoint, "schema", property(count))

    async def act(client: httpx.AsyncClient) -> list[httpx.Response]:
        return [await client.post("/v1/translate", json={"text": line}) for line in LINES[:3]]

    assert [answer.status_code for answer in visit(translating(), act)] == [200] * 3
    assert len(schemas) == 1


def test_text_comes_back_as_it_was(translating: Make) -> None:
    for text in ["a\nb", "\u202e‮b \U0001f600 </script>", "a\x00b", " a "]:
        (one,) = post(translating(), {"text": text}).json()["answers"]
        assert one["source"] == text


def test_too_slow_is_503(gated: Gated) -> None:
    gated.gate.clear()

    async def act(client: httpx.AsyncClient) -> list[httpx.Response]:
        first = asyncio.create_task(client.post("/v1/shout", json={"word": "a"}))
        await asyncio.to_thread(gated.begun.wait, 60)
        second = asyncio.create_task(client.post("/v1/shout", json={"word": "b"}))
        await waiting(client, 1)
        advance(asyncio.get_running_loop(), 60)
        found = [await first, await second, await client.get("/metrics")]
        gated.gate.set()
        return [*found, await client.post("/v1/shout", json={"word": "c"})]

    *late, metrics, after = visit(gated, act, Limits(seconds=60))
    for answer in late:
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "5"
        assert answer.json() == {"error": "no answer within 60 seconds; ask for less, or ask again later"}
    assert samples(metrics.text)["regard_waiting_sentences", ""] == 0
    assert after.json() == {"said": "C"}
    # what nobody waits for any more is never begun
    assert gated.calls == [["a"], ["c"]]


def test_too_many_is_429(gated: Gated) -> None:
    gated.gate.clear()

    async def act(client: httpx.AsyncClient) -> list[httpx.Response]:
        asking = [asyncio.create_task(client.post("/v1/shout", json={"word": "a"}))]
        await asyncio.to_thread(gated.begun.wait, 10)
        asking += [asyncio.create_task(client.post("/v1/shout", json={"word": "b"})) for _ in range(5)]
        await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        gated.gate.set()
        return await asyncio.gather(*asking)

    answers = visit(gated, act, Limits(waiting=3, texts=3))
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [200, 200, 200, 200, 429, 429]
    many = next(answer for answer in answers if answer.status_code == 429)
    assert many.headers["retry-after"] == "1"
    assert many.json() == {"error": "3 sentences wait already and 3 may; ask again in a moment"}


def test_who_is_gone_is_not_answered(gated: Gated) -> None:
    gated.gate.clear()

    async def act(client: httpx.AsyncClient) -> str:
        first = asyncio.create_task(client.post("/v1/shout", json={"word": "a"}))
        await asyncio.to_thread(gated.begun.wait, 60)
        second = asyncio.create_task(client.post("/v1/shout", json={"word": "b"}))
        await waiting(client, 1)
        second.cancel()
        await waiting(client, 0)
        gated.gate.set()
        await first
        return (await client.get("/metrics")).text

    found = samples(visit(gated, act))
    assert gated.calls == [["a"]]
    assert found["regard_requests_total", 'path="/v1/shout",status="499"'] == 1


def test_faults_are_500_without_a_trace(gated: Gated) -> None:
    for word in ("poison", "broken"):
        answer = post(gated, {"word": word})
        assert answer.status_code == 500
        assert list(answer.json()) == ["error"]
        assert "Traceback" not in answer.text
        assert "secret" not in answer.text


@for_each(
    ("method", "path", "status"),
    [("GET", "/none", 404), ("GET", "/redoc", 404), ("GET", "/v1/shout", 405), ("PUT", "/", 405),
     ("GET", "/health/", 404), ("GET", "/../serve.py", 404), ("POST", "/%ff", 404)],
)  # fmt: skip
def test_what_is_not_there(method: str, path: str, status: int, gated: Gated) -> None:
    answer = visit(gated, lambda client: client.request(method, path))
    assert answer.status_code == status
    assert answer.json()["error"].startswith(f"there is no {method} /")
    assert status == 404 or "allow" in answer.headers


def test_what_it_says_of_itself(translating: Make, loaded: LoadedRun) -> None:
    served = translating(tokens=17)
    assert get(served, "/health").json() == {"status": "ok"}
    about = get(served, "/v1/model").json()
    assert about["task"] == "translate"
    assert about["run"] == "tiny"
    assert about["parameters"] == sum(p.numel() for p in loaded.predictor.model.parameters())
    assert about["limits"]["tokens"] == 17
    metrics = get(served, "/metrics")
    assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples(metrics.text)


def test_openapi(translating: Make) -> None:
    schema = get(translating(), "/openapi.json").json()
    assert set(schema["paths"]) == {
        "/v1/translate",
        "/v1/model",
        "/health",
        "/health/live",
        "/health/ready",
        "/metrics",
    }
    asked = schema["paths"]["/v1/translate"]["post"]
    assert set(asked["responses"]) == {"200", "400", "403", "408", "413", "415", "422", "429", "500", "503"}
    request = asked["requestBody"]["content"]["application/json"]["schema"]
    answer = post(translating(), request["example"])
    assert answer.status_code == 200
    assert "$ref" in asked["responses"]["200"]["content"]["application/json"]["schema"]
    TranslateAnswer.model_validate(answer.json())


def test_another_task_by_the_same_app(gated: Gated) -> None:
    assert post(gated, {"word": "a"}).json() == {"said": "A"}
    assert get(gated, "/v1/model").json() == {"task": "shout"}
    assert "/v1/shout" in get(gated, "/openapi.json").json()["paths"]
    assert "<title>Shout</title>" in get(gated, "/").text


def test_the_model_stays_in_one_thread(gated: Gated) -> None:
    threads = set()
    answer = gated.answer
    gated.answer = lambda asked: (threads.add(threading.current_thread().name), answer(asked))[1]  # type: ignore[method-assign]

    async def act(client: httpx.AsyncClient) -> None:
        await asyncio.gather(*(client.post("/v1/shout", json={"word": "a"}) for _ in range(7)))

    visit(gated, act)
    assert threads == {"regard-model"}


def test_a_panic_is_500_with_the_headers_of_every_answer(gated: Gated) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        for word, sentence in (
            ("panic in reading", "the service failed, which is its fault; see its log"),
            ("panic", "the model failed on this request, which is a fault of the service; see its log"),
        ):
            answer = await client.post("/v1/shout", json={"word": word})
            assert (answer.status_code, answer.json()) == (500, {"error": sentence})
            assert answer.headers["x-content-type-options"] == "nosniff"
        assert (await client.post("/v1/shout", json={"word": "fine"})).status_code == 200
        assert (await client.get("/health")).status_code == 200

    visit(gated, ask)


def test_health_says_that_a_model_failed(gated: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Batcher) -> None:
        raise Panic("no way on")

    def start(self: Batcher) -> Batcher:
        self._thread.start()
        self._thread.join()
        return self

    monkeypatch.setattr(Batcher, "_answer_all", fail)
    monkeypatch.setattr(Batcher, "__enter__", start)

    async def ask(client: httpx.AsyncClient) -> httpx.Response:
        return await client.get("/health")

    answer = visit(gated, ask)
    assert (answer.status_code, answer.json()) == (
        503,
        {"error": "the model failed, and the service ends; see its log"},
    )


def test_readiness_is_apart_from_liveness(gated: Gated) -> None:
    """A full queue is a reason to ask elsewhere, a call that does not end one to start anew."""
    gated.gate.clear()
    paths = ("/health", "/health/live", "/health/ready")

    async def act(client: httpx.AsyncClient) -> list[list[int]]:
        found = [[(await client.get(path)).status_code for path in paths]]
        first = asyncio.create_task(client.post("/v1/shout", json={"word": "a"}))
        await asyncio.to_thread(gated.begun.wait, 60)
        second = asyncio.create_task(client.post("/v1/shout", json={"word": "b"}))
        await waiting(client, 1)
        found.append([(await client.get(path)).status_code for path in paths])
        (batcher,) = client._transport.app.app.batchers  # type: ignore[attr-defined]
        batcher._busy_since -= 1e9
        found.append([(await client.get(path)).status_code for path in paths])
        gated.gate.set()
        await asyncio.gather(first, second)
        found.append([(await client.get(path)).status_code for path in paths])
        return found

    limits = Limits(waiting=1, texts=1)
    assert visit(gated, act, limits) == [[200, 200, 200], [200, 200, 503], [503, 503, 503], [200, 200, 200]]
