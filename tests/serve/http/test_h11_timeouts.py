"""Clients that hang, and the end: a real socket, and a server in a thread of this process."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from tests.serve.conftest import Gated, advance, running_models
from tests.serve.http.test_metrics import samples

from regard.inference.endpoint import Endpoint
from regard.inference.limits import Limits
from regard.serve.http import h11_timeouts
from regard.serve.http.security_middleware import HEADERS
from regard.serve.served_model import ServedModel
from regard.serve.server import address, listen

BODY = b'{"word": "a"}'
HEAD = b"POST /v1/shout HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
WHOLE = HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY


@contextlib.contextmanager
def running(served: Endpoint, **limits: Any) -> Iterator[tuple[int, Any]]:
    """The port of a service, and the service."""
    model = ServedModel(served, Limits(**{"arrival": 60.0, "seconds": 60.0, **limits}))
    try:
        with running_models([model]) as (address, made):
            yield int(address.rpartition(":")[2]), made
            getattr(served, "gate", threading.Event()).set()
    finally:
        getattr(served, "gate", threading.Event()).set()


@contextlib.contextmanager
def time_passing(made: Any) -> Iterator[None]:
    """Hours pass for the service: no time limit of a test depends on the speed of the machine."""
    over = threading.Event()

    def hurry(loop: asyncio.AbstractEventLoop) -> None:
        while not over.wait(0.01):
            loop.call_soon_threadsafe(advance, loop, 600.0)

    (loop,) = {connection.loop for connection in made.server_state.connections}
    thread = threading.Thread(target=hurry, args=[loop])
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def until(holds: Callable[[], bool]) -> None:
    """Waits until it holds; a minute is for a service that hangs."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.01)


def waiting(port: int) -> float:
    """The sentences that wait for the model."""
    return samples(httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text)["regard_waiting_sentences", ""]


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def answered(at: socket.socket) -> tuple[int, dict[str, Any]]:
    """Status and JSON of what comes until the other side closes or the body is whole."""
    head, body = whole_answer(at)
    return int(head.split(b" ")[1]), json.loads(body)


def head_of_answer(at: socket.socket) -> tuple[bytes, int]:
    """The head of an answer, and the length of the body that it announces."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        more = at.recv(1)
        assert more, head
        head += more
    return head.removesuffix(b"\r\n\r\n"), int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])


def whole_answer(at: socket.socket) -> tuple[bytes, bytes]:
    """Head and body of an answer."""
    head, length = head_of_answer(at)
    body = b""
    while len(body) < length:
        body += at.recv(length - len(body))
    return head, body


def health(port: int) -> tuple[int, dict[str, Any]]:
    with connected(port) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        return answered(client)


def closed(at: socket.socket) -> bool:
    return at.recv(65536) == b""


def test_clients_that_hang_are_told_and_let_go(gated: Gated) -> None:
    """Nothing, half a head, half a body, drop by drop: none blocks the others, all end."""
    with running(gated) as (port, made):
        silent, half_head, half_body, dripping = (connected(port) for _ in range(4))
        half_head.sendall(HEAD)
        half_body.sendall(HEAD + b"content-length: 99\r\n\r\n" + BODY)
        with connected(port) as other:
            other.sendall(WHOLE)
            assert answered(other) == (200, {"said": "A"})
        with time_passing(made):
            with contextlib.suppress(OSError):
                for letter in HEAD[:30]:
                    dripping.sendall(bytes([letter]))
                    time.sleep(0.02)
            late = (408, {"error": "the request did not arrive within 60 seconds"})
            assert answered(silent) == answered(half_head) == answered(dripping) == late
            assert answered(half_body) == (408, {"error": "the body did not arrive within 60 seconds; send it faster"})
            assert all(map(closed, (silent, half_head, half_body)))
        for one in (silent, half_head, half_body, dripping):
            one.close()


def test_a_kept_connection_that_hangs_at_its_second_request(gated: Gated) -> None:
    with running(gated) as (port, made), connected(port) as one:
        one.sendall(WHOLE)
        assert answered(one)[0] == 200
        one.sendall(HEAD)
        # its head is being waited for, and no longer the next request
        until(lambda: all("arrival" in connection.timers for connection in made.server_state.connections))
        with time_passing(made):
            assert answered(one) == (408, {"error": "the request did not arrive within 60 seconds"})
        assert closed(one)


def test_two_requests_at_once(gated: Gated) -> None:
    with running(gated) as (port, _), connected(port) as one:
        one.sendall(WHOLE + WHOLE)
        assert answered(one) == (200, {"said": "A"})
        assert answered(one) == (200, {"said": "A"})


def test_malformed_http_is_answered_in_json_with_the_headers_of_every_answer(gated: Gated) -> None:
    """Also a body that breaks off its chunks, of which the app waits for the rest."""
    chunked = b"transfer-encoding: chunked\r\n\r\n"
    cases = {
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n": 400,
        b"GET / HTTP/1.1\r\n\r\n": 400,
        b"GET /\r\n\r\n": 400,
        b"x" * 100 + b"\r\n\r\n": 400,
        HEAD + b"content-length: 6\r\ncontent-length: 5\r\n\r\n": 400,
        HEAD + chunked + b"no number\r\n": 400,
        HEAD + b"a: " + b"a" * 70_000: 431,
        HEAD + b"transfer-encoding: gzip\r\n\r\n": 501,
        b"GET /none HTTP/1.1\r\nhost: localhost\r\n\r\n": 404,
        b"PUT /v1/shout HTTP/1.1\r\nhost: localhost\r\n\r\n": 405,
        HEAD + b"content-length: 99999999\r\nexpect: 100-continue\r\n\r\n": 413,
        b"GET / HTTP/1.1\r\nhost: other.example\r\n\r\n": 403,
    }
    with running(gated) as (port, _):
        for sent, status in cases.items():
            with connected(port) as client:
                client.sendall(sent)
                head, body = whole_answer(client)
            assert head.startswith(b"HTTP/1.1 %d " % status), (sent[-60:], head)
            assert list(json.loads(body)) == ["error"]
            received = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
            assert received[b"content-type"] == b"application/json"
            for name, value in HEADERS.items():
                assert received[name.lower().encode()] == value.lower().encode(), (sent[-60:], name)
        with connected(port) as client:
            client.sendall(WHOLE)
            assert answered(client) == (200, {"said": "A"})


def test_who_never_reads(gated: Gated) -> None:
    """An answer too long for all buffers between is given up; others are answered."""
    gated.answer = lambda asked: [{"said": "a" * 30_000_000 if one.word == "much" else "b"} for one in asked]  # type: ignore[method-assign]
    with running(gated) as (port, made), connected(port) as deaf, connected(port) as other:
        body = b'{"word": "much"}'
        deaf.sendall(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
        other.sendall(WHOLE)
        assert answered(other) == (200, {"said": "b"})
        until(lambda: any("writing" in connection.timers for connection in made.server_state.connections))
        with time_passing(made):
            until(lambda: len(made.server_state.connections) <= 1)


def test_some_connections_are_kept_for_health_checks(gated: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    """An eighth: while half requests hold all connections, /health is answered, and nothing else."""
    monkeypatch.setattr(h11_timeouts, "_RESERVED_ARRIVAL", 600.0)
    with running(gated, connections=16) as (port, made), contextlib.ExitStack() as stack:
        several = [stack.enter_context(connected(port)) for _ in range(20)]
        for each in several:
            each.sendall(HEAD)
        # the oldest of those that are kept give way
        for each in several[14:18]:
            assert answered(each) == (503, {"error": "too many connections; try again in a moment"})
        until(lambda: len(made.server_state.connections) == 16)
        assert health(port) == (200, {"status": "ok"})
        assert answered(several[18])[0] == 503
        until(lambda: len(made.server_state.connections) == 15)
        for _ in range(3):
            assert health(port) == (200, {"status": "ok"})
            until(lambda: len(made.server_state.connections) == 15)
            with connected(port) as client:
                client.sendall(WHOLE)
                head, body = whole_answer(client)
                assert head.startswith(b"HTTP/1.1 503")
                assert b"retry-after: 1" in head
                assert json.loads(body) == {"error": "too many connections; try again in a moment"}
                assert closed(client)
            until(lambda: len(made.server_state.connections) == 15)


def test_a_flood_of_half_requests_holds_no_more_than_the_limit(gated: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty that the service accepts at one moment, more than linger; it answers during and after it."""
    monkeypatch.setattr(h11_timeouts, "_RESERVED_ARRIVAL", 600.0)
    with running(gated, connections=8, arrival=600.0) as (port, made), contextlib.ExitStack() as stack:
        several, accepts = [stack.enter_context(connected(port))], threading.Event()
        until(lambda: len(made.server_state.connections) == 1)
        (loop,) = {connection.loop for connection in made.server_state.connections}
        loop.call_soon_threadsafe(accepts.wait)
        for _ in range(60):
            several.append(stack.enter_context(connected(port)))
            several[-1].sendall(HEAD)
        accepts.set()
        assert health(port) == (200, {"status": "ok"})
        until(lambda: len(made.server_state.connections) <= 8)
        for each in several:
            each.close()
        until(lambda: not made.server_state.connections)
        with connected(port) as client:
            client.sendall(WHOLE)
            assert answered(client) == (200, {"said": "A"})


def test_too_many_connections_are_not_reset(gated: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client beyond the limit sends its request whenever it likes, and still reads why it was refused."""
    monkeypatch.setattr(h11_timeouts, "_LINGER", 600.0)
    with running(gated, connections=2) as (port, made), contextlib.ExitStack() as stack:
        held = [stack.enter_context(connected(port)) for _ in range(2)]
        for one in held:
            one.sendall(WHOLE)
            assert answered(one)[0] == 200
        refused = [stack.enter_context(connected(port)) for _ in range(2)]
        for one in refused:
            assert one.recv(1, socket.MSG_PEEK) == b"H"  # the answer is there before the request is sent
            for _ in range(3):
                one.sendall(WHOLE)
            assert answered(one) == (503, {"error": "too many connections; try again in a moment"})
            assert closed(one)
        # refused connections do not count
        held.pop().close()
        until(lambda: len(made.server_state.connections) <= 1)
        with connected(port) as one:
            one.sendall(WHOLE)
            assert answered(one) == (200, {"said": "A"})


def test_head_is_get_without_a_body(gated: Gated) -> None:
    with running(gated) as (port, _), connected(port) as one:
        for path, status in ((b"/", 200), (b"/v1/model", 200), (b"/openapi.json", 200), (b"/no", 404)):
            request = path + b" HTTP/1.1\r\nhost: localhost\r\n\r\n"
            one.sendall(b"HEAD " + request)
            head, length = head_of_answer(one)
            # the next bytes are those of the next answer
            one.sendall(b"GET " + request)
            other, body = whole_answer(one)
            assert int(head.split(b" ")[1]) == int(other.split(b" ")[1]) == status
            assert length == len(body) > 0 or status == 404  # the sentence names the method


def test_a_refused_body_is_read_to_its_end(gated: Gated) -> None:
    """Whoever sends ten megabytes before reading still gets to read why."""
    with running(gated) as (port, _):
        for line in (b"POST /v1/shout", b"POST /none", b"PUT /v1/shout"):
            with connected(port) as one:
                one.sendall(line + b" HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10000000\r\n\r\n")
                for _ in range(100):
                    one.sendall(b"a" * 100_000)
                status, said = answered(one)
                assert status in (404, 405, 415)
                assert "error" in said
                assert closed(one)


def test_who_asks_before_sending_need_not_send(gated: Gated) -> None:
    with running(gated, arrival=6000.0) as (port, _), connected(port) as one:
        one.sendall(HEAD + b"content-length: 10000000\r\nexpect: 100-continue\r\n\r\n")
        assert answered(one)[0] == 413
        assert closed(one)


def test_who_hangs_up_is_not_answered(gated: Gated) -> None:
    gated.gate.clear()
    with running(gated) as (port, _), connected(port) as first:
        first.sendall(WHOLE)
        assert gated.begun.wait(60)
        with connected(port) as second:
            second.sendall(WHOLE)
            until(lambda: waiting(port) == 1)
        until(lambda: waiting(port) == 0)
        gated.gate.set()
        assert answered(first) == (200, {"said": "A"})
    assert gated.calls == [["a"]]


def test_the_end_waits_for_what_was_asked(gated: Gated) -> None:
    gated.gate.clear()
    with running(gated, batch=1) as (port, made):
        several = [connected(port) for _ in range(5)]
        idle = connected(port)
        for one in several:
            one.sendall(WHOLE)
        assert gated.begun.wait(60)
        until(lambda: waiting(port) == 4)
        made.should_exit = True
        until(lambda: health(port)[0] == 503)
        assert health(port) == (503, {"error": "the service is stopping; try again when it is back"})
        with connected(port) as late:
            late.sendall(WHOLE)
            assert answered(late) == (503, {"error": "the service is stopping; try again when it is back"})
            assert closed(late)
        gated.gate.set()
        for one in several:
            assert answered(one) == (200, {"said": "A"})
            assert closed(one)
        assert closed(idle)
        for one in (*several, idle):
            one.close()


def test_addresses() -> None:
    with listen("127.0.0.1", 0) as at:
        port = at.getsockname()[1]
        assert address(at) == f"http://127.0.0.1:{port}"
        with pytest.raises(ValueError, match=f"port {port} of 127.0.0.1 cannot be listened at .*; try --port 0"):
            listen("127.0.0.1", port)
    with pytest.raises(ValueError, match="host 'no.such.invalid' is no address of this machine; try 127.0.0.1"):
        listen("no.such.invalid", 0)
    try:
        with listen("::1", 0) as at:
            assert address(at) == f"http://[::1]:{at.getsockname()[1]}"
    except ValueError as error:
        assert "cannot be listened at" in str(error)  # a machine without IPv6  # noqa: PT017
