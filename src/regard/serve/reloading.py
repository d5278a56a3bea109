"""Reloader: exchanges the models and tokens of a running service, one reload at a time.

The new models are loaded in a thread of their own beside the old ones, which answer meanwhile. What cannot be loaded
stays as it is, with a sentence in the log.
"""

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from regard.serve import systemd
from regard.serve.http.metrics import Metrics
from regard.serve.revision import ModelExchange, Revision
from regard.serve.served_model import ServedModel

_log = logging.getLogger("regard.serve")
# seconds that the end of a service waits for a reload; a load cannot be stopped
_LAST_SECONDS = 10.0


@dataclass(frozen=True)
class ReloadResult:
    """The models and tokens of a reload, in the order of the old ones, and sentences for the log: what was exchanged,
    and why something was not."""

    models: Sequence[ServedModel]
    tokens: Mapping[str, str]
    exchanged: Sequence[str] = ()
    refused: Sequence[str] = ()

    @property
    def outcome(self) -> Literal["exchanged", "unchanged", "refused"]:
        return "refused" if self.refused else "exchanged" if self.exchanged else "unchanged"


# called with the models and tokens that are served; a model that has not changed is returned as it is
Reload = Callable[[Sequence[ServedModel], Mapping[str, str]], ReloadResult]


class Reloader:
    """A thread that reloads once for all requests that have arrived meanwhile."""

    def __init__(
        self,
        exchange: ModelExchange,
        reload: Reload,
        metrics: Metrics,
        note: Callable[[str], object],
    ) -> None:
        self._exchange, self._reload, self._metrics, self._note = exchange, reload, metrics, note
        # a queue, since the handler of a signal may interrupt itself, and an Event would lock itself out
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="regard-reload", daemon=True)
        self._is_stopping = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begins to reload; the models are exchanged in this loop."""
        self._loop = loop
        self._thread.start()

    def request(self) -> None:
        """Asks for a reload."""
        self._requests.put(True)

    def stop(self) -> None:
        """Ends the thread; a reload that has begun changes nothing any more."""
        self._is_stopping = True
        self._requests.put(False)

    def join(self) -> None:
        self._thread.join(_LAST_SECONDS)

    def _run(self) -> None:
        while self._requests.get() and not self._is_stopping:
            while not self._requests.empty():  # requests of the same moment
                if not self._requests.get():
                    return
            systemd.notify("RELOADING=1")
            try:
                self._exchange_models()
            except BaseException as error:  # a panic of an extension in Rust is no Exception
                self._metrics.reload("refused")
                _log.error("the reload failed; the service goes on as before", exc_info=error)
            systemd.notify("READY=1")

    def _exchange_models(self) -> None:
        served = self._exchange.current
        result = self._reload(served.models, served.tokens)
        if [*result.models] != [*served.models] or dict(result.tokens) != dict(served.tokens):
            revision = self._exchange.revision(result.models, result.tokens)
            if self._is_stopping or not self._present(revision):
                return
        self._metrics.reload(result.outcome)
        for sentence in [*result.exchanged, *result.refused]:
            self._note(f"reload: {sentence}")
        if result.outcome == "unchanged":
            self._note("reload: nothing has changed")

    def _present(self, revision: Revision) -> bool:
        """Exchanges the models in the thread of the loop; returns whether it did before the service stopped."""
        presented = threading.Event()

        def present() -> None:
            if not self._is_stopping:
                self._exchange.present(revision)
                presented.set()

        try:
            self._loop.call_soon_threadsafe(present)
        except RuntimeError:  # the loop has ended
            return False
        while not presented.wait(0.05):
            if self._is_stopping:
                return False
        return True
