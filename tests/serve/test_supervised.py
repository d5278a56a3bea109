"""A service in a loop that starts it again when it ends by an error, as systemd does: its model's thread dies, it is
killed, or its memory ends."""

import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from tests.serve.http.test_h11_timeouts import until

pytestmark = [
    pytest.mark.whole,
    pytest.mark.skipif(sys.platform != "linux", reason="it limits the memory of a process"),
]

# two models, "calm" and "wild"; words to the wild one take its memory or end its thread
SERVICE = textwrap.dedent("""
    import resource, sys
    from tests.serve.conftest import Gated
    from regard.inference.limits import Limits
    from regard.serve.batcher import Batcher
    from regard.serve.served_model import ServedModel
    from regard.serve.server import ModelFailed, address, listen, serve, server

    class Wild(Gated):
        def answer(self, asked):
            if asked[0].word == "memory":
                return [{"said": "a" * (1 << 40)}]
            if asked[0].word == "thread":
                batcher = next(b for b in running.exchange.batchers if b.endpoint is self)
                batcher._fail = None  # an error outside of what is caught for a request
                raise RuntimeError("no way on")
            return super().answer(asked)

    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    models = [ServedModel(Gated(), Limits(), "calm"), ServedModel(Wild(), Limits(), "wild")]
    with listen("127.0.0.1", int(sys.argv[1])) as at:
        running = server(models, host="127.0.0.1")
        try:
            serve(running, at, lambda: print(address(at), flush=True))
        except ModelFailed:
            sys.exit(1)
""")


class Supervisor:
    """Restarts the service until it is told to stop."""

    def __init__(self) -> None:
        self.starts, self.is_stopping, self.address = 0, False, "http://127.0.0.1:0"
        self.codes: list[int] = []
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self.is_stopping:
            port = self.address.rpartition(":")[2]
            self.process = subprocess.Popen([sys.executable, "-c", SERVICE, port], stdout=subprocess.PIPE, text=True)
            self.address = self.process.stdout.readline().strip()  # type: ignore[union-attr]
            self.starts += 1
            self._ready.set()
            with self.process:
                self.codes.append(self.process.wait())

    @contextmanager
    def run(self) -> Iterator["Supervisor"]:
        self._thread.start()
        assert self._ready.wait(60)
        try:
            yield self
        finally:
            self.is_stopping = True
            self.process.terminate()
            self._thread.join(60)

    def ask(self, model: str, word: str) -> httpx.Response | None:
        try:
            return httpx.post(f"{self.address}/{model}/v1/shout", json={"word": word}, timeout=60)
        except httpx.HTTPError:
            return None


def test_a_supervisor_brings_it_back() -> None:
    with Supervisor().run() as service:
        answer = service.ask("wild", "memory")
        assert answer is not None
        assert answer.status_code == 500
        calm = service.ask("calm", "a")
        assert calm is not None
        assert calm.json() == {"said": "A"}
        assert service.starts == 1, "memory that one request of one model asks for ends neither"
        service.ask("wild", "thread")
        until(lambda: service.starts == 2)
        until(lambda: (again := service.ask("wild", "a")) is not None and again.status_code == 200)
        service.process.kill()
        until(lambda: service.starts == 3)
        until(lambda: (again := service.ask("calm", "a")) is not None and again.status_code == 200)
    assert service.codes == [1, -9, 0]
