"""`regard serve` as a process: hard bodies, one after the other, and it stays up; signals end it well."""

import http.client
import json
import os
import re
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.product import first
from tests.serve.conftest import LINES, Gated, Panic, Service
from tests.serve.http.test_h11_timeouts import WHOLE, until, waiting
from tests.serve.http.test_metrics import samples

from regard.decoding.search import Beam
from regard.inference.limits import Limits
from regard.serve.batcher import Batcher
from regard.serve.served_model import ServedModel
from regard.serve.server import ModelFailed, listen, serve, server
from regard.tasks.loading import LoadedRun

JSON = {"content-type": "application/json"}


def test_it_answers_as_the_interpreter(service: Service, loaded: LoadedRun) -> None:
    said = httpx.post(f"{service.address}/v1/translate", json={"texts": LINES[:13], "nbest": 2}, timeout=60).json()[
        "answers"
    ]
    found = loaded.predictor.translate(LINES[:13], Beam(5, 2))
    assert [[one["text"] for one in answer["translations"]] for answer in said] == [[s.text for s in f] for f in found]


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b'{"text": "' + b"a" * 10_000_000 + b'"}', 413, "a body may have at most 1,000,000 bytes"),
        (json.dumps({"text": "a " * 10_000}).encode(), 422, "text must have at most 4000 characters, got 20000"),
        (json.dumps({"text": "a " * 1_000}).encode(), 422, "text must have at most 200 tokens, got 1001"),
        (b"[" * 500_000, 400, "nested too deeply"),
    ],
    ids=["10 MB", "10,000 tokens", "1,000 tokens", "deep"],
)
def test_hard_bodies(body: bytes, status: int, sentence: str, service: Service) -> None:
    answer = httpx.post(f"{service.address}/v1/translate", content=body, headers=JSON, timeout=30)
    assert answer.status_code == status
    assert sentence in answer.json()["error"]
    assert httpx.get(f"{service.address}/health", timeout=60).json() == {"status": "ok"}
    assert httpx.post(f"{service.address}/v1/translate", json={"text": "a b"}, timeout=60).status_code == 200


@pytest.mark.parametrize("name", first(["SIGTERM", "SIGINT"]))
def test_a_signal_ends_it_well(name: str, run: Path) -> None:
    """What has arrived when it is told to stop is answered; it says so and ends with 0. Texts are not logged."""
    open_to_all = ["--host", "0.0.0.0", "--log"] if name == "SIGTERM" else []
    service = Service(run, "--batch", 1, *open_to_all)
    asked = [http.client.HTTPConnection("127.0.0.1", service.port, timeout=60) for _ in range(7)]
    with httpx.Client(base_url=f"http://127.0.0.1:{service.port}", timeout=60) as client:
        client.post("/v1/translate?text=a+b+c", json={"text": ["a b c"]})
        for connection in asked:
            connection.request("POST", "/v1/translate", json.dumps({"texts": LINES[:32], "beam": 10}), JSON)
        arrived = 0.0
        while arrived < 6:  # the seventh is in the model, or among them
            found = samples(client.get("/metrics").text)
            answered = found.get(("regard_requests_total", 'path="/v1/translate",status="200"'), 0.0)
            arrived = answered + found["regard_waiting_sentences", ""] / 32
    code, said = service.stop(getattr(signal, name))
    statuses = [connection.getresponse().status for connection in asked]
    for connection in asked:
        connection.close()
    assert statuses == [200] * 7
    assert code == 0
    *lines, last = said.splitlines()
    assert re.fullmatch(r"regard: stopped; \d+ requests answered", last)
    if not open_to_all:
        assert not lines
        return
    assert lines[0].startswith("regard: --host 0.0.0.0 lets in everyone who reaches this machine, without a password")
    assert sum("POST /v1/translate 200" in line for line in lines) == 7
    assert sum("POST /v1/translate 422" in line for line in lines) == 1
    assert not re.search("a.b.c", said)


def test_a_signal_before_the_first_request(gated: Gated) -> None:
    """As soon as it says that it is ready it can be told to stop, and ends as it should."""
    before = signal.getsignal(signal.SIGTERM)
    with listen("127.0.0.1", 0) as at:
        assert serve(running_server(gated), at, lambda: signal.raise_signal(signal.SIGTERM)) == 0
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGHUP")
def test_a_hang_up_reloads(gated: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no end of the service, not even before the first request."""
    before, running, asked = signal.getsignal(signal.SIGHUP), running_server(gated), []

    def ready() -> None:
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(running, "request_reload", lambda: asked.append(running.should_exit))
    with listen("127.0.0.1", 0) as at:
        assert serve(running, at, ready) == 0
    assert asked == [False]
    assert signal.getsignal(signal.SIGHUP) == before


def running_server(gated: Gated) -> Any:
    return server([ServedModel(gated, Limits())], host="127.0.0.1")


def test_a_signal_waits_for_the_answers(gated: Gated) -> None:
    """One request is in the model and one waits for it when the signal comes; both are answered."""
    gated.gate.clear()
    heads, running = [], running_server(gated)

    def patient(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as one, socket.create_connection(("127.0.0.1", port)) as two:
            one.sendall(WHOLE)
            assert gated.begun.wait(60)
            two.sendall(WHOLE)
            until(lambda: waiting(port) == 1)
            os.kill(os.getpid(), signal.SIGTERM)
            until(lambda: running.should_exit)
            gated.gate.set()
            heads.extend(each.recv(12) for each in (one, two))

    with listen("127.0.0.1", 0) as at:
        thread = threading.Thread(target=patient, args=at.getsockname()[1:2])
        thread.start()
        serve(running, at)
        thread.join()
    assert heads == [b"HTTP/1.1 200"] * 2


def test_a_second_interrupt_does_not_wait(gated: Gated) -> None:
    gated.gate.clear()
    running = running_server(gated)

    def impatient(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as one:
            one.sendall(WHOLE)
            assert gated.begun.wait(60)
            os.kill(os.getpid(), signal.SIGINT)
            until(lambda: running.should_exit)
            os.kill(os.getpid(), signal.SIGINT)
            until(lambda: running.force_exit)
            gated.gate.set()  # a model that is at work cannot be stopped

    with listen("127.0.0.1", 0) as at:
        thread = threading.Thread(target=impatient, args=at.getsockname()[1:2])
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            serve(running, at)
        thread.join()


def test_it_says_where_it_is(service: Service, run: Path) -> None:
    assert service.said == f"{run} is served at {service.address} (Ctrl-C stops it)\n"


def test_the_end_of_a_models_thread_ends_the_service(gated: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Batcher) -> None:
        raise Panic("no way on")

    monkeypatch.setattr(Batcher, "_answer_all", fail)
    with listen("127.0.0.1", 0) as at, pytest.raises(ModelFailed):
        serve(running_server(gated), at)
