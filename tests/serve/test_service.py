"""`regard serve` as a process: hard bodies, one after the other, and it stays up; signals end it well."""

import json
import os
import re
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.serve.conftest import LINES, Gated, Service
from tests.serve.http.test_h11_timeouts import WHOLE, until
from tests.serve.http.test_metrics import samples

from regard.decoding.search import Beam
from regard.inference.limits import Limits
from regard.serve.server import listen, serve, server
from regard.tasks.loading import LoadedRun

JSON = {"content-type": "application/json"}
# so long that some still wait when the last has arrived
LONG_LINES = [" ".join([line] * 4) for line in LINES[:32]]


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
        (b"\xff" * 10_000_000, 413, "a body may have at most 1,000,000 bytes"),
        (b'{"text": "\xff\xfe"}', 400, "the body must be UTF-8, but byte 0xff at position 11 is not"),
        (json.dumps({"text": "a " * 10_000}).encode(), 422, "text must have at most 4000 characters, got 20000"),
        (json.dumps({"text": "a " * 1_000}).encode(), 422, "text must have at most 200 tokens, got 1001"),
        (b'{"text": "a", "beam": NaN}', 400, "NaN is not a JSON number"),
        (b'{"text": "a", "beam": 1e400}', 422, "beam must be a whole number from 1 to 10, got inf"),
        (b"[" * 500_000, 400, "nested too deeply"),
    ],
    ids=["10 MB", "10 MB of no text", "bad UTF-8", "10,000 tokens", "1,000 tokens", "NaN", "infinite", "deep"],
)
def test_hard_bodies(body: bytes, status: int, sentence: str, service: Service) -> None:
    answer = httpx.post(f"{service.address}/v1/translate", content=body, headers=JSON, timeout=30)
    assert answer.status_code == status
    assert sentence in answer.json()["error"]
    assert httpx.get(f"{service.address}/health", timeout=60).json() == {"status": "ok"}
    assert httpx.post(f"{service.address}/v1/translate", json={"text": "a b"}, timeout=60).status_code == 200


def test_ten_megabytes_in_parts(service: Service) -> None:
    parts = (b" " * 100_000 for _ in range(100))
    answer = httpx.post(f"{service.address}/v1/translate", content=parts, headers=JSON, timeout=30)
    assert answer.status_code == 413


def test_it_counts(service: Service) -> None:
    def count() -> float:
        found = samples(httpx.get(f"{service.address}/metrics", timeout=60).text)
        return found["regard_requests_total", 'path="/v1/translate",status="200"']

    httpx.post(f"{service.address}/v1/translate", json={"text": "a"}, timeout=60)
    before = count()
    for _ in range(3):
        httpx.post(f"{service.address}/v1/translate", json={"text": "a"}, timeout=60)
    assert count() == before + 3


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_lets_it_finish(name: str, run: Path) -> None:
    """What waits when it is told to stop is answered; it says so and ends with 0. Texts are not logged."""
    open_to_all = ["--host", "0.0.0.0", "--log"] if name == "SIGTERM" else []
    service = Service(run, "--batch", 1, *open_to_all)
    address, statuses = f"http://127.0.0.1:{service.port}", []
    # made beforehand: it takes longer than an answer does
    clients = [httpx.Client(base_url=address, timeout=60) for _ in range(8)]

    def ask(client: httpx.Client) -> None:
        statuses.append(client.post("/v1/translate", json={"texts": LONG_LINES, "beam": 10}).status_code)

    first, *others = clients
    first.post("/v1/translate?text=a+b+c", json={"text": ["a b c"]})
    threads = [threading.Thread(target=ask, args=[client]) for client in others]
    for thread in threads:
        thread.start()
    answered = waiting = 0.0
    # all seven have arrived: answered, in the model, or waiting for it
    while answered + waiting / len(LONG_LINES) < 6 and any(thread.is_alive() for thread in threads):
        found = samples(first.get("/metrics").text)
        answered = found.get(("regard_requests_total", 'path="/v1/translate",status="200"'), 0.0)
        waiting = found["regard_waiting_sentences", ""]
    code, said = service.stop(getattr(signal, name))
    for thread in threads:
        thread.join(60)
    for client in clients:
        client.close()
    assert waiting, "all was answered before it could be told to stop"
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
        count = serve(gated, Limits(), at, host="127.0.0.1", ready=lambda: signal.raise_signal(signal.SIGTERM))
    assert count == 0
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_second_interrupt_does_not_wait(gated: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    gated.gate.clear()
    servers: list[Any] = []

    def made(*args: Any, **options: Any) -> Any:
        servers.append(server(*args, **options))
        return servers[-1]

    def impatient(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as one:
            one.sendall(WHOLE)
            assert gated.begun.wait(60)
            os.kill(os.getpid(), signal.SIGINT)
            until(lambda: servers[0].should_exit)
            os.kill(os.getpid(), signal.SIGINT)
            until(lambda: servers[0].force_exit)
            gated.gate.set()  # a model that is at work cannot be stopped

    monkeypatch.setattr("regard.serve.server.server", made)
    with listen("127.0.0.1", 0) as at:
        thread = threading.Thread(target=impatient, args=at.getsockname()[1:2])
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            serve(gated, Limits(), at, host="127.0.0.1")
        thread.join()


def test_it_says_where_it_is(service: Service, run: Path) -> None:
    assert service.said == f"{run} is served at {service.address} (Ctrl-C stops it)\n"
