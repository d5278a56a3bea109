"""Models and tokens exchanged while a service runs: no request is lost, none is answered by two models, and what cannot
be loaded changes nothing."""

import asyncio
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.serve.conftest import TINY, Gated, Service, Word, running_models, trained
from tests.serve.http.test_h11_timeouts import until
from tests.serve.http.test_metrics import samples

from regard.inference.limits import Limits
from regard.serve.reloading import ReloadResult
from regard.serve.served_model import ServedModel


class Numbered(Gated):
    """Says its number with every word."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def answer(self, asked: Sequence[Word]) -> list[dict[str, object]]:
        return [{"said": f"{said['said']}{self.number}"} for said in super().answer(asked)]


def numbered(number: int) -> ServedModel:
    return ServedModel(Numbered(number), Limits(), "", str(number))


def next_model(served: Sequence[ServedModel], tokens: Mapping[str, str]) -> ReloadResult:
    number = int(served[0].version) + 1
    return ReloadResult([numbered(number)], tokens, [f"is now version {number}"])


def ask(address: str, **headers: str) -> httpx.Response:
    return httpx.post(f"{address}/v1/shout", json={"word": "a"}, headers=headers, timeout=60)


def versions(answer: httpx.Response) -> tuple[str, str]:
    return answer.headers["x-model-version"], answer.json()["said"]


def test_no_request_is_lost_and_none_is_mixed() -> None:
    """Clients ask without a pause while the model is exchanged ten times."""
    lines: list[str] = []
    with running_models([numbered(0)], reload=next_model, note=lines.append) as (address, server):
        server.config.timeout_keep_alive = 600  # a machine that stalls must not end a connection between two requests
        found: list[tuple[int, str, str]] = []

        async def client(session: httpx.AsyncClient) -> None:
            while len(lines) < 10:
                answer = await session.post(f"{address}/v1/shout", json={"word": "a"})
                found.append((answer.status_code, *versions(answer)))

        async def act() -> None:
            async with httpx.AsyncClient(timeout=60) as session:
                clients = [asyncio.ensure_future(client(session)) for _ in range(4)]
                for n in range(10):
                    server.request_reload()
                    while len(lines) == n:
                        await asyncio.sleep(0.001)
                await asyncio.gather(*clients)

        asyncio.run(act())
        assert versions(ask(address)) == ("10", "A10")
        metrics = samples(httpx.get(f"{address}/metrics").text)
    assert {status for status, _, _ in found} == {200}
    assert all(said == f"A{version}" for _, version, said in found)
    assert lines == [f"reload: is now version {n}" for n in range(1, 11)]
    assert metrics["regard_reloads_total", 'result="exchanged"'] == 10
    assert {labels for name, labels in metrics if name == "regard_model_info"} == {'model="",version="10"'}


def test_an_open_request_is_answered_by_its_model() -> None:
    """Whatever has arrived before the exchange belongs to the old model, whose thread ends after its last answer."""
    first = numbered(0)
    first.endpoint.gate.clear()  # type: ignore[attr-defined]
    lines: list[str] = []
    with running_models([first], reload=next_model, note=lines.append) as (address, server):
        threads = {thread for thread in threading.enumerate() if thread.name == "regard-model"}
        answers: list[httpx.Response] = []
        waiting = threading.Thread(target=lambda: answers.append(ask(address)))
        waiting.start()
        assert first.endpoint.begun.wait(60)  # type: ignore[attr-defined]
        server.request_reload()
        until(lambda: bool(lines))
        assert versions(ask(address)) == ("1", "A1")
        assert all(thread.is_alive() for thread in threads)
        first.endpoint.gate.set()  # type: ignore[attr-defined]
        waiting.join(60)
        assert versions(answers[0]) == ("0", "A0")
        until(lambda: not any(thread.is_alive() for thread in threads))


def test_a_storm_of_requests_reloads_twice_at_most() -> None:
    """Those that arrive during a reload share the next one."""
    begun, go, calls = threading.Event(), threading.Event(), 0

    def slow(served: Sequence[ServedModel], tokens: Mapping[str, str]) -> ReloadResult:
        nonlocal calls
        calls += 1
        begun.set()
        assert go.wait(60)
        return next_model(served, tokens)

    with running_models([numbered(0)], reload=slow) as (address, server):
        server.request_reload()
        assert begun.wait(60)
        for _ in range(1000):
            server.request_reload()
        go.set()
        until(lambda: versions(ask(address))[0] == "2")
        server.request_reload()
        until(lambda: versions(ask(address))[0] == "3")
    assert calls == 3


@pytest.mark.parametrize("failure", [ValueError("no"), MemoryError(), type("Panic", (BaseException,), {})("no")])
def test_a_reload_that_fails_changes_nothing(failure: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    def fail(served: Sequence[ServedModel], tokens: Mapping[str, str]) -> ReloadResult:
        raise failure

    with running_models([numbered(0)], reload=fail) as (address, server):
        server.request_reload()
        until(lambda: "the reload failed; the service goes on as before" in caplog.text)
        assert versions(ask(address)) == ("0", "A0")
        assert httpx.get(f"{address}/health/ready").status_code == 200
        metrics = samples(httpx.get(f"{address}/metrics").text)
    assert metrics["regard_reloads_total", 'result="refused"'] == 1


def test_a_reload_does_not_hold_up_the_end() -> None:
    """A model that is loaded when the service stops is never served."""
    begun, go = threading.Event(), threading.Event()

    def slow(served: Sequence[ServedModel], tokens: Mapping[str, str]) -> ReloadResult:
        begun.set()
        assert go.wait(60)
        return next_model(served, tokens)

    with running_models([numbered(0)], reload=slow) as (_, server):
        server.request_reload()
        assert begun.wait(60)
        server.should_exit = True
        until(lambda: server.service.is_stopping)
        go.set()
    assert [model.version for model in server.exchange.current.models] == ["0"]


def test_tokens_are_exchanged() -> None:
    def other(served: Sequence[ServedModel], tokens: Mapping[str, str]) -> ReloadResult:
        return ReloadResult(served, {"ann": "second"}, ["the tokens"])

    lines: list[str] = []
    with running_models([numbered(0)], tokens={"ann": "first"}, reload=other, log=lines.append) as (address, server):
        statuses = [ask(address, authorization=f"Bearer {token}").status_code for token in ("first", "second")]
        threads = {thread for thread in threading.enumerate() if thread.name == "regard-model"}
        server.request_reload()
        until(lambda: ask(address, authorization="Bearer second").status_code == 200)
        assert ask(address, authorization="Bearer first").status_code == 401
        assert {thread for thread in threading.enumerate() if thread.name == "regard-model"} == threads
    assert statuses == [200, 401]
    assert any(line.endswith(" ann") for line in lines)


def replaced(link: Path, target: Path) -> None:
    """The link points to another folder, without a moment in between."""
    new = link.with_name("new")
    new.symlink_to(target)
    new.replace(link)


@pytest.mark.whole
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGHUP")
def test_runs_behind_a_link_are_exchanged_by_a_signal(run: Path, pairs: Path, tmp_path: Path) -> None:
    other = trained(tmp_path / "other", "translate", f"{TINY} --seed 7", "--train", pairs)
    link, tokens = tmp_path / "run", tmp_path / "tokens"
    shutil.copytree(run, tmp_path / "first")
    link.symlink_to(tmp_path / "first")
    tokens.write_text("# who may ask\nann first\n")
    service = Service(link, "--token-file", tokens)

    def version(token: str = "first") -> str:
        answer = httpx.get(f"{service.address}/v1/model", headers={"authorization": f"Bearer {token}"}, timeout=60)
        return answer.json().get("version", str(answer.status_code))

    def reloads() -> float:
        text = httpx.get(f"{service.address}/metrics", headers={"authorization": "Bearer first"}, timeout=60).text
        found = samples(text)
        return sum(value for (name, _), value in found.items() if name == "regard_reloads_total")

    def reload(change: Callable[[], Any]) -> str:
        change()
        before = reloads()
        service.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 60
        while reloads() == before and time.monotonic() < deadline:
            time.sleep(0.02)
        return version()

    first = version()
    second = reload(lambda: replaced(link, other))
    assert (first.split("-")[0], second.split("-")[0]) == ("4", "4")
    assert first != second
    damaged = bytearray((tmp_path / "first" / "best.safetensors").read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "first" / "best.safetensors").write_bytes(damaged)
    assert reload(lambda: replaced(link, tmp_path / "first")) == second
    assert reload(lambda: shutil.rmtree(tmp_path / "first")) == second
    answer = httpx.post(
        f"{service.address}/v1/translate", json={"text": "a b"}, headers={"authorization": "Bearer first"}, timeout=60
    )
    assert (answer.status_code, answer.headers["x-model-version"]) == (200, second)
    assert reload(lambda: tokens.write_bytes(b"ann first\nbob \xff\n")) == second
    replaced(link, other)
    tokens.write_text("ann first\nbob third\n")
    for _ in range(50):
        service.process.send_signal(signal.SIGHUP)
    until(lambda: version("third") == second)
    code, said = service.stop(signal.SIGTERM)
    assert code == 0
    assert f"regard: reload: {link} is now version {second}, before {first}\n" in said
    assert f"regard: reload: {link} stays at version {second}: " in said
    assert "best.safetensors is damaged" in said
    assert f"{second}: there is no run {link}; name the folder of a training" in said
    assert "the tokens stay as they are: --token-file" in said
    assert "Traceback" not in said
