"""Limits per client, on a clock that the test sets, and on all work that waits."""

import asyncio

import httpx
import pytest
from tests.serve.conftest import Gated, Word, running_models, visit
from tests.serve.http.test_metrics import samples

from regard.inference.limits import Limits
from regard.serve.batcher import Batcher
from regard.serve.client_limits import ClientLimits
from regard.serve.errors import RequestError
from regard.serve.http.metrics import Metrics
from regard.serve.served_model import ServedModel


def refused(limits: ClientLimits, client: str, count: int = 1) -> RequestError:
    with pytest.raises(RequestError) as raised:
        limits.reserve(client, count, "texts")
    assert raised.value.cause == "client"
    return raised.value


def test_inputs_of_a_client_at_once() -> None:
    limits = ClientLimits(3, None)
    limits.reserve("ann", 2, "texts")
    assert str(refused(limits, "ann", 2)) == "2 texts of this client wait already and 3 may; wait for an answer"
    too_large = refused(limits, "bob", 4)
    assert (too_large.status, too_large.retry) == (422, None)
    assert str(too_large) == (
        "a request must hold at most the 3 texts that one client may have open, got 4; ask for fewer at once"
    )
    limits.reserve("bob", 3, "texts")
    limits.release("ann", 2)
    limits.reserve("ann", 3, "texts")


def test_seconds_of_a_client_come_back() -> None:
    now = 0.0
    limits = ClientLimits(None, 6.0, clock=lambda: now)
    limits.spend("ann", 9.0)
    error = refused(limits, "ann")
    assert str(error) == "this client has used up its 6 seconds of the model per minute; ask again in 31 s"
    assert error.retry == 31
    limits.reserve("bob", 1, "texts")
    now = 31.0
    limits.reserve("ann", 1, "texts")
    limits.spend("ann", 0.2)
    refused(limits, "ann")
    now = 1000.0
    for n in range(2000):
        limits.spend(f"client {n}", 0.0)
    assert len(limits._used) < 1030, "clients that have used up nothing are forgotten"


def test_a_client_does_not_hold_up_another(gated: Gated) -> None:
    gated.gate.clear()

    async def act(client: httpx.AsyncClient) -> tuple[httpx.Response, list[int], str]:
        def ask(token: str) -> asyncio.Task[httpx.Response]:
            headers = {"authorization": f"Bearer {token}"}
            return asyncio.create_task(client.post("/v1/shout", json={"word": "a"}, headers=headers))

        first = ask("one")
        await asyncio.to_thread(gated.begun.wait, 60)
        second = await ask("one")
        other = ask("two")
        await asyncio.sleep(0)
        gated.gate.set()
        statuses = [(await first).status_code, (await other).status_code, (await ask("one")).status_code]
        return second, statuses, (await client.get("/metrics", headers={"authorization": "Bearer one"})).text

    refusal, statuses, metrics = visit(gated, act, Limits(client_waiting=1), tokens={"ann": "one", "bob": "two"})
    assert (refusal.status_code, refusal.headers["retry-after"]) == (429, "1")
    assert refusal.json()["error"] == "1 sentences of this client wait already and 1 may; wait for an answer"
    assert statuses == [200, 200, 200]
    assert samples(metrics)["regard_rejected_total", 'cause="client"'] == 1


def test_connections_of_an_address(gated: Gated) -> None:
    with running_models([ServedModel(gated, Limits(client_connections=2))]) as (address, _):
        with httpx.Client() as one, httpx.Client() as two, httpx.Client() as three:
            assert one.get(f"{address}/health").status_code == 200
            assert two.get(f"{address}/health").status_code == 200
            answer = three.get(f"{address}/health")
            assert (answer.status_code, answer.json()) == (503, {"error": "too many connections of this address"})
            metrics = samples(one.get(f"{address}/metrics").text)
        assert metrics["regard_rejected_total", 'cause="client"'] == 1


def test_work_that_cannot_be_done_in_time_is_refused(gated: Gated) -> None:
    """64 inputs wait in 8 batches; at 5 seconds a batch, the time limit of 30 is over before the next one begins."""
    batcher = Batcher(gated, Metrics({"": "sentences"}).of(""), batch=8, waiting=512, seconds=30.0)
    gated.gate.clear()
    with batcher:
        batcher.submit(Word("a"))
        assert gated.begun.wait(60)
        for _ in range(64):
            batcher.submit(Word("a"))
        batcher._batch_seconds = (5.0, 9.0)
        with pytest.raises(RequestError) as raised:
            batcher.submit(Word("a"))
        batcher._batch_seconds = (5.0, 3.0)
        batcher.submit(Word("a"))
        gated.gate.set()
    assert str(raised.value) == (
        "the work that waits takes about 40 seconds, and an answer may take 30; ask again later"
    )
    assert (raised.value.cause, raised.value.retry) == ("work", 11)
