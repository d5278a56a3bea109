"""A run of a few steps, the task it serves, a task that waits, and ways to ask an app without a network."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from tests.cli.conftest import LINES as LINES, pairs as pairs, train

from regard.common.cancellation import check_cancelled
from regard.inference.endpoint import Endpoint, PageSpec, Schema
from regard.inference.limits import Limits
from regard.serve.app import build
from regard.serve.http.body_models import AnswerModel, RequestModel, validate
from regard.serve.served_model import ServedModel
from regard.serve.server import address, listen, server
from regard.tasks.loading import LoadedRun, load_run
from regard.tasks.translate.endpoint import TranslateEndpoint

TINY = "--tokens words --width 6 --hidden 8 --batch 96 --schedule constant --steps 4 --validate-every 2"


def trained(out: Path, task: str, options: str, *words: object) -> Path:
    """A new run, trained with one thread; the threads of this process are those of before."""
    threads = torch.get_num_threads()
    try:
        return train(out, task, f"{options} --threads 1", *words)
    finally:
        torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def run(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that reverses three words, badly; tests read it and leave it as it is."""
    return trained(tmp_path_factory.mktemp("served") / "tiny", "translate", TINY, "--train", pairs)


@pytest.fixture(scope="session")
def loaded(run: Path) -> LoadedRun:
    return load_run(run, "best", "cpu")


Make = Callable[..., TranslateEndpoint]


@pytest.fixture(scope="session")
def translating(loaded: LoadedRun) -> Make:
    def make(**limits: Any) -> TranslateEndpoint:
        return TranslateEndpoint(loaded.predictor, Limits(**limits), run="tiny", step=4)

    return make


@dataclass(frozen=True)
class Word:
    word: str
    count: int = 1


class WordBody(RequestModel):
    word: str
    count: int = 1


class Shouted(AnswerModel):
    said: str


class Panic(BaseException):
    """As a panic of an extension in Rust: no Exception."""


class Gated:
    """Another task: says a word back, louder, once the gate is open; remembers what it was asked together."""

    name = "shout"
    unit = "sentences"
    unpack = None
    page = PageSpec("Shout", "html/alignment", "translation_form", {"alignments": [], "shown": {}})
    schema = Schema("Shout a word", WordBody, Shouted)

    def __init__(self) -> None:
        self.gate, self.begun = threading.Event(), threading.Event()
        self.gate.set()
        self.calls: list[list[str]] = []

    def model_info(self) -> dict[str, object]:
        return {"task": self.name}

    def read(self, body: WordBody) -> Word:
        if body.word == "broken":
            raise RuntimeError("a fault in reading, with the text 'secret'")
        if body.word == "panic in reading":
            raise Panic("a library in Rust failed at the text 'secret'")
        return Word(body.word, body.count)

    def answer(self, asked: Sequence[Word]) -> list[dict[str, object]]:
        self.calls.append([one.word for one in asked])
        self.begun.set()
        assert self.gate.wait(30)
        if any(one.word == "poison" for one in asked):
            raise RuntimeError("it does not go down")
        if any(one.word == "endless" for one in asked):
            while True:
                check_cancelled()
        if any(one.word == "panic" for one in asked):
            raise Panic("a library in Rust failed")
        return [{"said": one.word.upper()} for one in asked]


@pytest.fixture
def gated() -> Iterator[Gated]:
    made = Gated()
    yield made
    made.gate.set()


def advance(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    """Sets the clock of a running loop forward: its time limits pass, and none depends on the machine."""
    late = loop.time() - type(loop).time(loop) + seconds
    loop.time = lambda: type(loop).time(loop) + late  # type: ignore[method-assign]


def read(served: Endpoint, body: dict[str, object]) -> Any:
    """The request that a body asks for, as the app reads it."""
    return served.read(validate(served.schema.request, body))


Act = Callable[[httpx.AsyncClient], Awaitable[Any]]


def visit_models(models: Sequence[ServedModel], act: Act, **options: Any) -> Any:
    """The result of `act`, which talks to the app of these models."""

    async def go() -> Any:
        service = build(models, **options)
        exchange = service.app
        transport = httpx.ASGITransport(service, raise_app_exceptions=False)
        client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080", timeout=60)
        async with exchange.lifespan_app.router.lifespan_context(exchange.lifespan_app), client:
            return await act(client)

    return asyncio.run(go())


def visit(served: Endpoint, act: Act, limits: Limits | None = None, **options: Any) -> Any:
    return visit_models([ServedModel(served, limits or getattr(served, "limits", Limits()))], act, **options)


def post(served: Endpoint, body: Any, limits: Limits | None = None, **options: Any) -> httpx.Response:
    """One POST: bytes as they are, all else as JSON."""

    async def act(client: httpx.AsyncClient) -> httpx.Response:
        headers = {"content-type": "application/json"}
        if isinstance(body, bytes):
            return await client.post(f"/v1/{served.name}", content=body, headers=headers)
        return await client.post(f"/v1/{served.name}", json=body)

    return visit(served, act, limits, **options)


def get(served: Endpoint, path: str, **options: Any) -> httpx.Response:
    return visit(served, lambda client: client.get(path), **options)


@contextlib.contextmanager
def running_models(models: Sequence[ServedModel], **options: Any) -> Iterator[tuple[str, Any]]:
    """The address of a service in a thread of this process, and its server."""
    with listen("127.0.0.1", 0) as socket:
        made = server(models, host="127.0.0.1", **options)
        thread = threading.Thread(target=made.run, kwargs={"sockets": [socket]})
        thread.start()
        try:
            yield address(socket), made
        finally:
            made.should_exit = True
            thread.join(60)
            assert not thread.is_alive()


class Service:
    """`regard serve` in a process of its own."""

    def __init__(self, run: Path, *options: object) -> None:
        command = [sys.executable, "-m", "regard", "serve", str(run), "--port", "0", *map(str, options)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self.said = self.process.stdout.readline()
        assert " is served at http://" in self.said, self.process.communicate()
        self.address = self.said.split(" at ")[1].split(" ")[0]
        self.port = int(self.address.rpartition(":")[2])

    def stop(self, number: int) -> tuple[int, str]:
        """Its exit code and what it wrote to stderr."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err


@pytest.fixture(scope="session")
def service(run: Path) -> Iterator[Service]:
    """One for all tests that only ask; it must outlive them."""
    made = Service(run, "--arrival", 60, "--seconds", 60)
    yield made
    assert made.process.poll() is None, "the service ended by itself"
    made.stop(signal.SIGTERM)
